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

LinkBuffers::LinkBuffers(const plan::RankProgram& program, int64_t tensor_bytes)
    : tensor_bytes_(tensor_bytes),
      slot_bytes_((tensor_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes) {
  for (const plan::Link& link : program.links) bytes_ += slots_at(link, program.rank) * slot_bytes_;
}

StatusOr<LinkBuffers> LinkBuffers::create(const plan::RankProgram& program, int64_t tensor_bytes,
                                          Endpoint& endpoint) {
  LinkBuffers buffers(program, tensor_bytes);
  PENSTOCK_ASSIGN_OR_RETURN(buffers.endpoint_memory_, endpoint.receive_memory(buffers.bytes_));
  if (buffers.endpoint_memory_ == nullptr) return create(program, tensor_bytes);
  buffers.place_slots(program, static_cast<char*>(buffers.endpoint_memory_.get()));
  return buffers;
}

StatusOr<LinkBuffers> LinkBuffers::create(const plan::RankProgram& program, int64_t tensor_bytes) {
  LinkBuffers buffers(program, tensor_bytes);
  PENSTOCK_ASSIGN_OR_RETURN(buffers.slab_, kernels::Slab::allocate(buffers.bytes_, "boundary tensors"));
  buffers.place_slots(program, static_cast<char*>(buffers.slab_.view().data));
  return buffers;
}

void LinkBuffers::place_slots(const plan::RankProgram& program, char* memory) {
  for (const plan::Link& link : program.links) {
    const int count = slots_at(link, program.rank);
    std::string name = fmt::format("{} slots of link {}>{}", role_at(link, program.rank), link.source.value,
                                   link.target.value);
    links_.push_back({link.source, link.target,
                      BoundarySlots(std::move(name), count, slot_bytes_, {memory, count * slot_bytes_})});
    memory += count * slot_bytes_;
  }
}

StatusOr<BoundarySlots*> LinkBuffers::find(RankIndex source, RankIndex target) {
  for (Entry& entry : links_) {
    if (entry.source == source && entry.target == target) return &entry.slots;
  }
  return not_found("the program uses link {}>{} and does not declare it", source.value, target.value);
}

void LinkBuffers::free_all() {
  for (Entry& entry : links_) entry.slots.free_all();
}

bool LinkBuffers::all_free() const {
  return std::all_of(links_.begin(), links_.end(), [](const Entry& entry) { return entry.slots.all_free(); });
}

}  // namespace penstock::worker
