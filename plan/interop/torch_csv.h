// Schedules as the CSV of torch.distributed.pipelining (PyTorch 2.14), both ways.
//
//   a line   = a rank, in order; no header, no comment, no blank line
//   a cell   = "" | action | "(" action ";" action ")OVERLAP_F_B"
//   action   = STAGE TYPE [MICROBATCH]: 2B3, 0I1, 1SEND_F0, 3REDUCE_GRAD
//   TYPE     = F forward, B full backward, I input gradient, W weight gradient; UNSHARD RESHARD REDUCE_GRAD,
//              without a microbatch; SEND_F RECV_F SEND_B RECV_B, named by the stage that sends or receives
//
// compute_only holds F B I W and pairs, and empty cells for bubbles; PyTorch adds the transfers when it loads
// it. compute_comms holds everything, and PyTorch runs it as it stands, without checks of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"
#include "plan/verification/verify.h"

namespace penstock::plan {

enum class TorchFormat : uint8_t { ComputeOnly, ComputeComms };
const char* name_of(TorchFormat format);  // "compute_only", "compute_comms"

// Writes a valid program (verify). compute_comms puts a send right behind its producer and its receive into
// the peer's line at that moment, so that every pair of ranks sends and receives in one order; each stage is
// unsharded first, reduces its gradient behind its last backward, and is resharded then.
//
// InvalidArgument says what PyTorch's format or runtime cannot express: a stage on two ranks, several
// updates, no backwards, losses out of microbatch order.
StatusOr<std::string> program_to_torch_csv(const ComputeProgram& program, TorchFormat format);

// A file that was read: a program where nothing is wrong with it, else what is wrong, at most 20, first ones
// first. Their position is the cell in the rank's line, counted from 0.
struct TorchImport {
  ComputeProgram
      program;  // named "file:PATH"; not verified beyond what is said below when there are violations
  TorchFormat format = TorchFormat::ComputeOnly;
  std::vector<Violation> violations;
};

// Reads such a file (at most 64 MiB, plan/schedule/limits.h) and proves that PyTorch would compute the right
// gradients with it: the whole of every cell matches the grammar (rule "format"; older letters are named),
// the compute program passes verify(), the loss stage runs its forwards in microbatch order (PyTorch gives
// out losses by arrival), and in compute_comms there is no empty cell, every transfer that is needed stands
// once, behind its producer or before its consumer, pairs of ranks send and receive in one order (transfers
// have no tags), and every stage reduces its gradient once, behind its last backward.
//
// Stages, their ranks and the number of microbatches are read off the actions. `expected`: refuse the other
// format; by default the content says which one it is.
TorchImport import_torch_csv(const std::string& text, const std::string& path,
                             std::optional<TorchFormat> expected = std::nullopt);

}  // namespace penstock::plan
