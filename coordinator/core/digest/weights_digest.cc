#include "coordinator/core/digest/weights_digest.h"

#include <xxhash.h>

#include <memory>
#include <vector>

#include "plan/spec/parameters.h"

namespace penstock::coordinator {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::array<uint8_t, 8> little_endian(int64_t number) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * i));
  }
  return bytes;
}

std::string hexadecimal(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

StatusOr<std::string> combine_digests(const plan::ModelSpec& model,
                                      std::span<const ParameterDigest> digests) {
  const std::vector<plan::ParameterSpec> parameters = plan::model_parameters(model);
  std::vector<const ParameterDigest*> by_index(parameters.size(), nullptr);
  for (const ParameterDigest& digest : digests) {
    if (digest.parameter < 0 || digest.parameter >= static_cast<int32_t>(parameters.size())) {
      return invalid_argument("weights digest: parameter: expected 0 to {}, found {}", parameters.size() - 1,
                              digest.parameter);
    }
    const ParameterDigest*& place = by_index[static_cast<size_t>(digest.parameter)];
    if (place) {
      return invalid_argument("weights digest: {}: expected from one rank, found from two",
                              parameters[static_cast<size_t>(digest.parameter)].name);
    }
    place = &digest;
  }
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const plan::ParameterSpec& parameter = parameters[i];
    if (!by_index[i]) return invalid_argument("weights digest: {}: no rank sent it", parameter.name);
    XXH3_128bits_update(state.get(), parameter.name.c_str(), parameter.name.size() + 1);
    for (int64_t dimension : parameter.shape)
      XXH3_128bits_update(state.get(), little_endian(dimension).data(), 8);
    XXH3_128bits_update(state.get(), by_index[i]->digest.data(), by_index[i]->digest.size());
  }
  return hexadecimal(XXH3_128bits_digest(state.get()));
}

}  // namespace penstock::coordinator
