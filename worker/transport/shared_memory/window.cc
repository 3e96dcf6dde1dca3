#include "worker/transport/shared_memory/window.h"

#include <algorithm>
#include <new>
#include <utility>

namespace penstock::worker {
namespace {

constexpr int64_t kHeaderBytes = 4096;
static_assert(sizeof(WindowHeader) <= kHeaderBytes && kHeaderBytes % alignof(Channel) == 0);

// All rings of a rank are bounded together: 64 KiB a peer at least, so that a piece is worth its wake-up.
int64_t ring_bytes(int ranks) {
  constexpr int64_t kAll = 4 << 20, kLeast = 64 << 10, kMost = 1 << 20;
  return std::clamp(kAll / ranks / 4096 * 4096, kLeast, kMost);
}

int64_t first_region_bytes(int ranks) {
  return kHeaderBytes + ranks * (static_cast<int64_t>(sizeof(Channel)) + ring_bytes(ranks));
}

}  // namespace

StatusOr<Window> Window::create(int rank, int ranks, uint64_t nonce,
                                std::vector<std::shared_ptr<Region>> regions) {
  PENSTOCK_ASSIGN_OR_RETURN(
      std::shared_ptr<Region> first,
      Region::create(first_region_bytes(ranks), "the channels of its peers", Region::Pages::Later));
  // Zeros are the state of a channel before its first message, but for the places of credits, which say so when given.
  auto* header = new (first->data()) WindowHeader;
  header->nonce = nonce;
  header->rank = rank;
  header->ranks = ranks;
  regions.insert(regions.begin(), std::move(first));
  return Window(ranks, std::move(regions));
}

StatusOr<Window> Window::of_peer(int rank, int ranks, uint64_t nonce,
                                 std::vector<std::shared_ptr<Region>> regions) {
  if (regions.empty() || regions[0]->bytes() != first_region_bytes(ranks)) {
    return data_loss("the first region of rank {}'s window: expected {} bytes, found {}", rank,
                     first_region_bytes(ranks), regions.empty() ? 0 : regions[0]->bytes());
  }
  Window window(ranks, std::move(regions));
  const WindowHeader& header = window.header();
  if (header.nonce != nonce || header.rank != rank || header.ranks != ranks) {
    return data_loss(
        "the window of rank {} of {}: expected nonce {}, found that of rank {} of {} with nonce {}", rank,
        ranks, nonce, header.rank, header.ranks, header.nonce);
  }
  return window;
}

Channel& Window::channel(int peer) const {
  char* at = regions_[0]->data() + kHeaderBytes + peer * static_cast<int64_t>(sizeof(Channel));
  return *reinterpret_cast<Channel*>(at);
}

int64_t Window::staging_bytes() const {
  return ring_bytes(ranks_);
}

char* Window::staging(int peer) const {
  return regions_[0]->data() + kHeaderBytes + ranks_ * static_cast<int64_t>(sizeof(Channel)) +
         peer * staging_bytes();
}

WindowPlace Window::place_of(const void* address, int64_t bytes) const {
  for (size_t i = 1; i < regions_.size(); ++i) {
    if (!regions_[i]->contains(address, bytes)) continue;
    return {static_cast<int32_t>(i), static_cast<const char*>(address) - regions_[i]->data()};
  }
  return {};
}

char* Window::find(const WindowPlace& place, int64_t bytes) const {
  if (place.region < 1 || place.region >= static_cast<int64_t>(regions_.size())) return nullptr;
  const Region& region = *regions_[static_cast<size_t>(place.region)];
  if (bytes < 0 || place.offset < 0 || bytes > region.bytes() || place.offset > region.bytes() - bytes)
    return nullptr;
  return region.data() + place.offset;
}

}  // namespace penstock::worker
