#include "worker/model/parameters.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/model/counter_random.h"

namespace penstock::worker {
namespace {

// All of a slab as one vector.
kernels::TensorView whole(const kernels::Slab& slab) {
  return {slab.view().data, kernels::DataType::Float32, {slab.bytes() / 4}};
}

std::span<float> values(kernels::TensorView tensor) {
  return {tensor.f32(), static_cast<size_t>(tensor.elements())};
}

constexpr size_t kElementsOfPiece = 1 << 16;  // a multiple of the four numbers of a counter

// Elements first .. first + elements.size() - 1 of the stream; `first` is a multiple of four.
void fill_normal_from(uint64_t key, size_t first, double deviation, std::span<float> elements) {
  for (size_t i = 0; i < elements.size(); i += 4) {
    const std::array<uint32_t, 4> bits = philox(key, (first + i) / 4);
    const size_t count = std::min<size_t>(4, elements.size() - i);
    for (size_t k = 0; k < count; ++k) {
      elements[i + k] = static_cast<float>(deviation * normal_quantile(bits[k]));
    }
  }
}

}  // namespace

Place place_of(const plan::ParameterSpec& spec, Layout& layout) {
  PENSTOCK_CHECK(spec.shape.size() == 1 || spec.shape.size() == 2, "{}", spec.name);
  return spec.shape.size() == 1 ? layout.place(kernels::DataType::Float32, {spec.shape[0]})
                                : layout.place(kernels::DataType::Float32, {spec.shape[0], spec.shape[1]});
}

StatusOr<ParameterStore> ParameterStore::create(const plan::ModelSpec& model,
                                                const std::vector<plan::Item>& items) {
  ParameterStore store;
  const std::vector<plan::ParameterSpec> specs = plan::parameters_of(model, items);
  Layout layout;
  std::vector<Place> places;
  places.reserve(specs.size());
  for (const plan::ParameterSpec& spec : specs) places.push_back(place_of(spec, layout));

  PENSTOCK_ASSIGN_OR_RETURN(store.weights_, kernels::Slab::allocate(layout.bytes(), "parameters"));
  PENSTOCK_ASSIGN_OR_RETURN(store.gradients_, kernels::Slab::allocate(layout.bytes(), "gradients"));
  for (size_t i = 0; i < specs.size(); ++i) {
    store.parameters_.push_back(
        {specs[i], places[i].in(store.weights_.view().data), places[i].in(store.gradients_.view().data)});
  }
  const auto by_model_order = [](const Parameter& a, const Parameter& b) {
    return a.spec.index < b.spec.index;
  };
  std::sort(store.parameters_.begin(), store.parameters_.end(), by_model_order);
  return store;
}

void ParameterStore::initialise(const plan::ModelSpec& model, int64_t seed,
                                kernels::ComputeThreads& threads) {
  for (const Parameter& parameter : parameters_) {
    const std::span<float> weights = values(parameter.weight);
    if (parameter.spec.initialised_to_one) {
      std::fill(weights.begin(), weights.end(), 1.0f);
      continue;
    }
    const uint64_t key = stream_key(seed, parameter.spec.name);
    const size_t pieces = (weights.size() + kElementsOfPiece - 1) / kElementsOfPiece;
    threads.parallel_for(static_cast<int64_t>(pieces), [&](int64_t piece) {
      const size_t first = static_cast<size_t>(piece) * kElementsOfPiece;
      const size_t count = std::min(kElementsOfPiece, weights.size() - first);
      fill_normal_from(key, first, model.initializer_range, weights.subspan(first, count));
    });
  }
}

void ParameterStore::initialise(const plan::ModelSpec& model, int64_t seed) {
  kernels::ComputeThreads only_this(1);
  initialise(model, seed, only_this);
}

void ParameterStore::zero_gradients(kernels::Operators& operators) {
  if (gradients_.bytes() > 0) operators.fill(whole(gradients_), 0);
}

const Parameter& ParameterStore::at(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.spec.name == name; });
  PENSTOCK_CHECK(found != parameters_.end(), "{} is not a parameter of this rank", name);
  return *found;
}

std::vector<WeightDigest> ParameterStore::digests() const {
  std::vector<WeightDigest> digests;
  digests.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) {
    const XXH128_hash_t hash =
        XXH3_128bits(parameter.weight.data(), static_cast<size_t>(parameter.weight.bytes()));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    WeightDigest digest{parameter.spec.index, {}};
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.digest.begin());
    digests.push_back(digest);
  }
  return digests;
}

void fill_normal(int64_t seed, const std::string& name, double deviation, std::span<float> elements) {
  fill_normal_from(stream_key(seed, name), 0, deviation, elements);
}

}  // namespace penstock::worker
