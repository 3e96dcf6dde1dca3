#include "worker/model/weight_versions.h"

#include <algorithm>

#include "worker/model/layout.h"

namespace penstock::worker {

StatusOr<WeightVersions> WeightVersions::create(const Kept& kept, ParameterStore& parameters,
                                                kernels::Operators& operators) {
  if (kept.by_forwards < 1 || kept.by_all < kept.by_forwards || kept.updates < 1) {
    return internal_error("{} weight versions, {} of them for forwards, and {} updates", kept.by_all,
                          kept.by_forwards, kept.updates);
  }
  const bool tied = parameters.tied_head() != nullptr || parameters.tied_embedding() != nullptr;
  if (tied && kept.by_all > 1) return unimplemented("older versions of tied embeddings are not kept");
  WeightVersions versions(kept, parameters, operators);
  if (kept.by_all > 1) PENSTOCK_RETURN_IF_ERROR(versions.allocate());
  return versions;
}

Status WeightVersions::allocate() {
  Layout layout;
  std::vector<std::vector<Place>> places;
  const auto* const packed = static_cast<const char*>(parameters_->packed().data);
  for (Parameter& parameter : parameters_->redirected()) {
    if (const void* data = parameter.packed.weight.data; data != nullptr) {
      packed_.push_back({&parameter, static_cast<const char*>(data) - packed});
      continue;
    }
    values_.push_back({&parameter, {}});
    std::vector<Place>& ring = places.emplace_back();
    for (int version = 1; version < versions_of(parameter); ++version)
      ring.push_back(place_of(parameter.spec, layout));
  }
  const int64_t packed_bytes = (kept_.by_all - 1) * parameters_->packed_bytes();
  PENSTOCK_ASSIGN_OR_RETURN(older_packed_, kernels::Slab::allocate(packed_bytes, "older weight versions"));
  PENSTOCK_ASSIGN_OR_RETURN(older_values_, kernels::Slab::allocate(layout.bytes(), "older weight versions"));
  for (size_t i = 0; i < values_.size(); ++i) {
    for (const Place& place : places[i]) values_[i].older.push_back(place.in(older_values_.view().data));
  }
  return ok_status();
}

int WeightVersions::versions_of(const Parameter& parameter) const {
  return parameter.spec.item.kind == plan::ItemKind::Embedding ? kept_.by_forwards : kept_.by_all;
}

Status WeightVersions::read(int version, Pass pass) {
  const bool forward = pass == Pass::Forward;
  const int oldest = std::max(0, newest_ - (forward ? kept_.by_forwards : kept_.by_all) + 1);
  if (version < oldest || version > newest_) {
    return internal_error("weights of version {} are {}; {} can read versions {} to {} here", version,
                          version < oldest ? "not held any more" : "not made yet",
                          forward ? "forwards" : "backwards", oldest, newest_);
  }
  const int64_t wanted = newest_of_all_ - (newest_ - version);
  if (wanted == shown_) return ok_status();
  point_packed_at(wanted);
  point_values_at(wanted);
  shown_ = wanted;
  return ok_status();
}

void WeightVersions::prepare() {
  for (const Value& value : values_) {
    if (value.older.empty()) continue;
    const size_t place = static_cast<size_t>(newest_of_all_) % value.older.size();
    operators_->copy(value.parameter->weight, value.older[place]);
  }
  point_packed_at(newest_of_all_ + 1);
}

void WeightVersions::publish() {
  newest_ = (newest_ + 1) % kept_.updates;
  shown_ = ++newest_of_all_;
  point_values_at(shown_);
}

// The first of the copies is the parameter store's own.
void WeightVersions::point_packed_at(int64_t version) {
  const int64_t copy = version % kept_.by_all;
  auto* const data = static_cast<char*>(copy == 0 ? parameters_->packed().data : older_packed_.view().data) +
                     std::max<int64_t>(copy - 1, 0) * parameters_->packed_bytes();
  for (const Packed& packed : packed_) packed.parameter->packed.weight.data = data + packed.offset_bytes;
}

void WeightVersions::point_values_at(int64_t version) {
  for (const Value& value : values_) {
    const int64_t age = newest_of_all_ - version;
    if (age > static_cast<int64_t>(value.older.size())) continue;  // a table, which no backward reads
    value.parameter->value =
        age == 0 ? value.parameter->weight : value.older[static_cast<size_t>(version) % value.older.size()];
  }
}

}  // namespace penstock::worker
