// Chimera (Li, Hoefler, 2021): two pipelines in opposite directions over the same ranks, half of the
// microbatches each, every one in 1F1B order, merged.
//
// The merge is greedy, in slots of one forward, a backward taking two: a free rank runs a backward where one
// can run, else a forward, the older microbatch first. For m = P that is the paper's unit: idle P-2 slots of
// every 2m+P-2 (B = F) or 1.5m+P-2 forwards' worth (B = 2F), P/2+1 activations on the outer ranks and P on the
// middle ones. For more microbatches the greedy merge carries on where the paper concatenates units: the idle
// time stays that of one unit, and a rank holds at most P+1.
//
// P must be even, or the middle rank would hold its stage twice. Weights are held twice. An odd microbatch
// more runs in the first direction.
#include <optional>

#include "plan/schedule/families/family.h"
#include "plan/schedule/families/greedy_play.h"

namespace penstock::plan::families {
namespace {

// 1F1B of one stage in one direction, from its own count of forwards and backwards.
struct Stream {
  int stage = 0;
  int first_microbatch = 0;
  int microbatches = 0;
  int warm_up = 0;
  int forwards = 0;
  int backwards = 0;

  std::optional<Work> next() const {
    if (backwards == microbatches) return std::nullopt;
    const bool is_forward = forwards < microbatches && forwards - backwards <= warm_up;
    return Work{StageIndex(stage), is_forward ? ActionKind::Forward : ActionKind::Backward,
                MicrobatchIndex(first_microbatch + (is_forward ? forwards : backwards))};
  }
  int age(const Work& work) const { return work.microbatch.value - first_microbatch; }
  void pass(const Work& work) { ++(work.kind == ActionKind::Forward ? forwards : backwards); }
};

// By kind, then age, then stage: whether `one` goes before `other`.
bool goes_before(const Stream& one, const Stream& other) {
  const Work first = *one.next(), second = *other.next();
  const bool first_is_forward = first.kind == ActionKind::Forward;
  if (first.kind != second.kind) return !first_is_forward;
  if (one.age(first) != other.age(second)) return one.age(first) < other.age(second);
  return one.stage < other.stage;
}

}  // namespace

ComputeProgram chimera(const ScheduleRequest& request) {
  ComputeProgram program = two_way_program(request);
  const int ranks = request.ranks;
  const int down = (request.microbatches + 1) / 2, up = request.microbatches / 2;
  std::vector<std::array<Stream, 2>> streams(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    streams[rank] = {Stream{rank, 0, down, ranks - 1 - rank}, Stream{ranks - 1 - rank, down, up, rank}};
  }
  GreedyPlay play(program, {.forward = 1, .backward = 2});
  play.run([&](int rank) -> std::optional<Work> {
    Stream* chosen = nullptr;
    for (Stream& stream : streams[rank]) {
      const std::optional<Work> next = stream.next();
      if (!next || !play.can_run(*next)) continue;
      if (chosen == nullptr || goes_before(stream, *chosen)) chosen = &stream;
    }
    if (chosen == nullptr) return std::nullopt;
    const Work work = *chosen->next();
    chosen->pass(work);
    return work;
  });
  return program;
}

}  // namespace penstock::plan::families
