// Ids and indices as types: a StageIndex cannot be passed where a RankIndex is expected.
//
// index counts from 0; -1 is "none". Hashable by absl, orderable, printable through `.value`.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>

namespace penstock {

template <typename Tag>
struct Index {
  int32_t value = -1;

  constexpr Index() = default;
  constexpr explicit Index(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr auto operator<=>(const Index&) const = default;
  constexpr bool is_set() const { return value >= 0; }

  template <typename H>
  friend H AbslHashValue(H h, const Index& index) {
    return H::combine(std::move(h), index.value);
  }
};

using RankIndex = Index<struct RankTag>;              // one pipeline worker of a job, 0..P-1
using StageIndex = Index<struct StageTag>;            // virtual stage, 0..P*V-1
using MicrobatchIndex = Index<struct MicrobatchTag>;  // 0..m-1 inside one optimizer step
using StepIndex = Index<struct StepTag>;              // optimizer step of a job, counted from 0
using LayerIndex = Index<struct LayerTag>;  // transformer block of the model, 0..num_hidden_layers-1

}  // namespace penstock

template <typename Tag>
struct std::hash<penstock::Index<Tag>> {
  size_t operator()(const penstock::Index<Tag>& index) const noexcept {
    return std::hash<int32_t>{}(index.value);
  }
};
