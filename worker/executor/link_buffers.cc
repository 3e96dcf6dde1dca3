#include "worker/executor/link_buffers.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
namespace {

constexpr int64_t kAlignmentBytes = 64;

int slots_at(const plan::Link& link, RankIndex rank) {
  return link.target == rank ? link.receive_slots : link.send_slots;
}

const char* role_at(const plan::Link& link, RankIndex rank) {
  if (link.source == link.target) return "hand-off";
  return link.target == rank ? "receive" : "send";
}

}  // namespace

StatusOr<LinkBuffers> LinkBuffers::create(const plan::RankProgram& program, int64_t tensor_bytes) {
  LinkBuffers buffers;
  buffers.tensor_bytes_ = tensor_bytes;
  const int64_t slot_bytes = (tensor_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  int64_t slots = 0;
  for (const plan::Link& link : program.links) slots += slots_at(link, program.rank);
  PENSTOCK_ASSIGN_OR_RETURN(buffers.slab_, kernels::Slab::allocate(slots * slot_bytes, "boundary tensors"));
  char* next = static_cast<char*>(buffers.slab_.view().data);
  for (const plan::Link& link : program.links) {
    const int count = slots_at(link, program.rank);
    std::string name = fmt::format("{} slots of link {}>{}", role_at(link, program.rank), link.source.value,
                                   link.target.value);
    buffers.links_.push_back({link.source, link.target,
                              BoundarySlots(std::move(name), count, slot_bytes, {next, count * slot_bytes})});
    next += count * slot_bytes;
  }
  return buffers;
}

StatusOr<BoundarySlots*> LinkBuffers::find(RankIndex source, RankIndex target) {
  for (Entry& entry : links_) {
    if (entry.source == source && entry.target == target) return &entry.slots;
  }
  return not_found("the program uses link {}>{} and does not declare it", source.value, target.value);
}

bool LinkBuffers::all_free() const {
  return std::all_of(links_.begin(), links_.end(), [](const Entry& entry) { return entry.slots.all_free(); });
}

}  // namespace penstock::worker
