// The optimizer step of one rank without a barrier: what is said between neighbours, and what is done with it.
//
//     end_step    sums of squares so far come from the rank before, this rank adds those of its parameters, in model
//                 order and float64, and sends on. Where the norm so far is finite and asks for no clipping, the
//                 weights are updated; the bytes that this overwrites, and the gradients, are kept
//     validate    the whole sum comes from the rank behind and is sent on to the one before. It asks for nothing more:
//                 the gradients become zero. It does: the saved bytes are put back, and the step is taken as a
//                 barrier would have taken it
//
// The last rank knows the whole sum in end_step, takes the right step at once and saves nothing. Ranks hold the
// parameters in model order, one behind the other, so that the running sum has the bits of GlobalNorm's. A sum only
// grows: where the whole one asks for nothing, no sum before it did, and every rank has stepped.
//
// Messages wait nowhere for a rank that is still computing: what was sent is waited for where its receiver is known
// to have passed. Errors: those of the endpoint; DataLoss when the neighbours are in another step or hold other
// parameters than expected; AdamW::apply's. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "worker/executor/rank_engine.h"
#include "worker/optimizer/adamw.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class PostValidatedStep {
 public:
  struct Place {
    RankIndex rank;
    int ranks = 1;
    int64_t model_parameters = 0;  // of all ranks
  };
  // Gives the squared norms of the rank's stages, in model order.
  using SquaredNorms = std::function<StatusOr<std::span<const SquaredNorm>>()>;
  // `mine`: places in the model of what these are of. `optimizer` has room for its rollback unless this is the last rank. It and `clock` outlive this; `endpoint` outlives
  // its use and ends before it, since messages may still be under way after an error. Internal: the rank's parameters
  // are not one behind the other in model order.
  static StatusOr<std::unique_ptr<PostValidatedStep>> create(const Place& place,
                                                             std::span<const int32_t> mine,
                                                             SquaredNorms squared_norms, AdamW& optimizer,
                                                             Endpoint& endpoint, const Clock& clock);

  Status end_step(StepIndex step);
  // Whether a step has ended and is not validated yet.
  bool is_pending() const { return pending_; }
  // Of the step that is pending.
  StatusOr<StepVerdict> validate();
  // Before anything but the next step passes between the ranks: nothing of this is under way afterwards.
  Status settle();

  // Time waited for neighbours so far.
  Duration waited() const { return waited_; }

 private:
  // Of the parameters before number `parameters` in model order.
  struct RunningSum {
    int64_t step = 0;
    int64_t parameters = 0;
    double squares = 0;
  };
  PostValidatedStep(const Place& place, int64_t first_parameter, SquaredNorms squared_norms, AdamW& optimizer,
                    Endpoint& endpoint, const Clock& clock);

  bool is_first() const { return place_.rank.value == 0; }
  bool is_last() const { return place_.rank.value + 1 == place_.ranks; }
  RankIndex before() const { return RankIndex(place_.rank.value - 1); }
  RankIndex behind() const { return RankIndex(place_.rank.value + 1); }
  Status add_own_squares();
  Status end_last_step(double norm);
  Status receive(RankIndex source, int64_t parameters);
  Status send_up();
  Status wait(TransferId& transfer);
  Status take_anew(double norm);

  Place place_;
  int64_t first_parameter_;
  SquaredNorms squared_norms_;
  AdamW* optimizer_;
  Endpoint* endpoint_;
  const Clock* clock_;
  Duration waited_{};
  StepIndex step_;
  bool pending_ = false;
  bool stepped_ = false;  // provisionally
  bool stands_ = true;    // the last rank's verdict, known in end_step
  RunningSum sum_;        // received or formed; the whole one on its way up
  RunningSum partial_;    // on its way down
  TransferId down_;       // of partial_; unset when it has been sent
  TransferId up_;         // of sum_
};

}  // namespace penstock::worker
