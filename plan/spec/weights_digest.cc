#include "plan/spec/weights_digest.h"

#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

std::array<uint8_t, 8> little_endian(int64_t number) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * i));
  }
  return bytes;
}

}  // namespace

std::string weights_digest(const ModelSpec& model, std::span<const TensorDigest> digests) {
  const std::vector<ParameterSpec> parameters = model_parameters(model);
  PENSTOCK_CHECK_EQ(parameters.size(), digests.size());
  Digester digester;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[i];
    digester.add(std::as_bytes(std::span(parameter.name.c_str(), parameter.name.size() + 1)));
    for (const int64_t dimension : parameter.shape) {
      const std::array<uint8_t, 8> bytes = little_endian(dimension);
      digester.add(std::as_bytes(std::span(bytes)));
    }
    digester.add(std::as_bytes(std::span(digests[i])));
  }
  return hex(digester.finish());
}

}  // namespace penstock::plan
