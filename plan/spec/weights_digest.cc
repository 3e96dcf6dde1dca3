#include "plan/spec/weights_digest.h"

#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using StatePointer = std::unique_ptr<XXH3_state_t, FreeState>;

StatePointer new_state() {
  StatePointer state(XXH3_createState());
  PENSTOCK_CHECK(state != nullptr, "no memory for a digest");
  XXH3_128bits_reset(state.get());
  return state;
}

TensorDigest canonical(const XXH3_state_t& state) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&state));
  TensorDigest digest;
  std::copy(std::begin(bytes.digest), std::end(bytes.digest), digest.begin());
  return digest;
}

std::array<uint8_t, 8> little_endian(int64_t number) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * i));
  }
  return bytes;
}

}  // namespace

struct TensorDigester::State {
  StatePointer hash = new_state();
};

TensorDigester::TensorDigester() : state_(std::make_unique<State>()) {}
TensorDigester::~TensorDigester() = default;

void TensorDigester::add(std::span<const float> values) {
  XXH3_128bits_update(state_->hash.get(), values.data(), values.size_bytes());
}

TensorDigest TensorDigester::finish() {
  const TensorDigest digest = canonical(*state_->hash);
  XXH3_128bits_reset(state_->hash.get());
  return digest;
}

std::string weights_digest(const ModelSpec& model, std::span<const TensorDigest> digests) {
  const std::vector<ParameterSpec> parameters = model_parameters(model);
  PENSTOCK_CHECK_EQ(parameters.size(), digests.size());
  const StatePointer state = new_state();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[i];
    XXH3_128bits_update(state.get(), parameter.name.c_str(), parameter.name.size() + 1);
    for (const int64_t dimension : parameter.shape)
      XXH3_128bits_update(state.get(), little_endian(dimension).data(), 8);
    XXH3_128bits_update(state.get(), digests[i].data(), digests[i].size());
  }
  return hex(canonical(*state));
}

}  // namespace penstock::plan
