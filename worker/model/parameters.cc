#include "worker/model/parameters.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
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

// In model order the parts of a product stand behind one another.
bool shares_product_with_one_before(const std::string& name) {
  return name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") ||
         name.ends_with("up_proj.weight");
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
                                                const std::vector<plan::Item>& items, kernels::DataType type,
                                                const plan::ExpertRange& experts) {
  ParameterStore store;
  store.tied_ = model.tie_word_embeddings;
  const std::vector<plan::ParameterSpec> specs = plan::parameters_of(model, items, experts);
  Layout weights, gradients;
  std::vector<Place> weight_places, gradient_places;
  for (const plan::ParameterSpec& spec : specs) {
    weight_places.push_back(place_of(spec, weights));
    gradient_places.push_back(place_of(spec, gradients));
  }
  const bool tied_head = plan::holds_tied_head(model, items);
  const plan::ParameterSpec embedding = plan::model_parameters(model).front();
  const bool owns_embedding = !specs.empty() && specs.front().name == embedding.name;
  const Place copy = tied_head && !owns_embedding ? place_of(embedding, weights) : Place{};
  const Place accumulator = tied_head ? place_of(embedding, gradients) : Place{};

  PENSTOCK_ASSIGN_OR_RETURN(store.weights_, kernels::Slab::allocate(weights.bytes(), "parameters"));
  PENSTOCK_ASSIGN_OR_RETURN(store.gradients_, kernels::Slab::allocate(gradients.bytes(), "gradients"));
  void* const weight_memory = store.weights_.view().data;
  void* const gradient_memory = store.gradients_.view().data;
  for (size_t i = 0; i < specs.size(); ++i) {
    store.parameters_.push_back(
        {specs[i], weight_places[i].in(weight_memory), gradient_places[i].in(gradient_memory)});
    store.parameters_.back().value = store.parameters_.back().weight;
  }
  if (tied_head) {
    const kernels::TensorView weight =
        owns_embedding ? store.parameters_.front().weight : copy.in(weight_memory);
    store.tied_head_ = Parameter{embedding, weight, accumulator.in(gradient_memory)};
  }
  PENSTOCK_RETURN_IF_ERROR(store.lay_out_packed(type));
  return store;
}

// The matrices that products read, those of one product together.
std::vector<std::vector<Parameter*>> ParameterStore::products() {
  std::vector<std::vector<Parameter*>> products;
  for (Parameter& parameter : parameters_) {
    if (!parameter.spec.packed) continue;
    if (shares_product_with_one_before(parameter.spec.name)) {
      products.back().push_back(&parameter);
    } else {
      products.push_back({&parameter});
    }
  }
  if (tied_head_) products.push_back({&*tied_head_});
  return products;
}

Status ParameterStore::lay_out_packed(kernels::DataType type) {
  const std::vector<std::vector<Parameter*>> all = products();
  int64_t bytes = 0;
  for (const std::vector<Parameter*>& product : all) {
    kernels::PackedWeight& weight = product.front()->packed.weight;
    weight.in = product.front()->spec.shape[1];
    weight.type = type;
    for (Parameter* parameter : product) {
      parameter->packed.first_row = weight.out;
      weight.out += parameter->spec.shape[0];
    }
    bytes += kernels::packed_weight_bytes(weight.out, weight.in, type);
  }
  PENSTOCK_ASSIGN_OR_RETURN(packed_, kernels::Slab::allocate(bytes, "packed weights"));
  auto* next = static_cast<char*>(packed_.view().data);
  for (const std::vector<Parameter*>& product : all) {
    kernels::PackedWeight weight = product.front()->packed.weight;
    weight.data = next;
    for (Parameter* parameter : product) parameter->packed.weight = weight;
    next += kernels::packed_weight_bytes(weight.out, weight.in, type);
  }
  // A tied head beside its embedding: the optimizer updates the embedding's matrix and so renews the head's.
  if (tied_head_ && tied_head_->weight.data() == parameters_.front().weight.data()) {
    parameters_.front().packed = tied_head_->packed;
  }
  return ok_status();
}

void ParameterStore::pack(kernels::Operators& operators) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.packed.weight.data != nullptr) operators.pack(parameter.weight, parameter.packed);
  }
  if (tied_head_) operators.pack(tied_head_->weight, tied_head_->packed);
}

namespace {

void initialise_parameter(const Parameter& parameter, double deviation, int64_t seed,
                          kernels::ComputeThreads& threads) {
  const std::span<float> weights = values(parameter.weight);
  if (parameter.spec.initialised_to_one) return std::fill(weights.begin(), weights.end(), 1.0f);
  const uint64_t key = stream_key(seed, parameter.spec.name);
  const size_t pieces = (weights.size() + kElementsOfPiece - 1) / kElementsOfPiece;
  threads.parallel_for(static_cast<int64_t>(pieces), [&](int64_t piece) {
    const size_t first = static_cast<size_t>(piece) * kElementsOfPiece;
    const size_t count = std::min(kElementsOfPiece, weights.size() - first);
    fill_normal_from(key, first, deviation, weights.subspan(first, count));
  });
}

}  // namespace

void ParameterStore::initialise(const plan::ModelSpec& model, int64_t seed,
                                kernels::ComputeThreads& threads) {
  const double deviation = model.initializer_range;
  for (const Parameter& parameter : parameters_) initialise_parameter(parameter, deviation, seed, threads);
  if (tied_head_) initialise_parameter(*tied_head_, deviation, seed, threads);
}

void ParameterStore::initialise(const plan::ModelSpec& model, int64_t seed) {
  kernels::ComputeThreads only_this(1);
  initialise(model, seed, only_this);
}

void ParameterStore::zero_gradients(kernels::Operators& operators) {
  if (gradients_.bytes() > 0) operators.fill(whole(gradients_), 0);
}

void ParameterStore::zero_tied_gradient(kernels::Operators& operators) {
  if (tied_head_) operators.fill(tied_head_->gradient, 0);
}

std::vector<const Parameter*> ParameterStore::of_items(const std::vector<plan::Item>& items) const {
  std::vector<const Parameter*> found;
  for (const Parameter& parameter : parameters_) {
    if (std::find(items.begin(), items.end(), parameter.spec.item) != items.end())
      found.push_back(&parameter);
  }
  return found;
}

const Parameter& ParameterStore::at(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.spec.name == name; });
  PENSTOCK_CHECK(found != parameters_.end(), "{} is not a parameter of this rank", name);
  return *found;
}

const Parameter* ParameterStore::tied_embedding() const {
  const bool owned = !parameters_.empty() && parameters_.front().spec.item.kind == plan::ItemKind::Embedding;
  return tied_ && owned ? &parameters_.front() : nullptr;
}

const Parameter& ParameterStore::head_weight() const {
  return tied_head_ ? *tied_head_ : at("lm_head.weight");
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
