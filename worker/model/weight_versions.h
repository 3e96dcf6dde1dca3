// The versions of a rank's weights that its computations read, where a schedule computes with older ones.
//
// Version v of a run of the program is what v of its optimizer steps have made; the last of the run is version 0 of
// the next. Master weights, gradients and moments exist once, those of the newest version. Of what computations read,
// older versions are kept:
//   packed weights    a ring of `by_all` copies, the parameter store's own among them: the optimizer packs the
//                     next version where the oldest was
//   norms             float32, read as they are: the newest is the master, and `by_all` - 1 copies hold older ones
//   embedding table   the same with `by_forwards`: no backward reads it
// With 1 and 1, which is every synchronous schedule, nothing is allocated and nothing copied.
//
//     before a computation   read(v)      Parameter::value and Parameter::packed are those of version v
//     before the optimizer   prepare()    the newest values go to their copies; packed is where the next version goes
//     after it               publish()    the next version is the newest
//
// Bounds: all memory is taken by create(). Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

enum class Pass : uint8_t { Forward, Backward };

class WeightVersions {
 public:
  // Counted from the newest, which is one of them.
  struct Kept {
    int by_all = 1;
    int by_forwards = 1;
    int updates = 1;  // optimizer steps of one run of the program
  };
  // `parameters` and `operators` outlive it. Unimplemented: older versions of a tied matrix. ResourceExhausted.
  static StatusOr<WeightVersions> create(const Kept& kept, ParameterStore& parameters,
                                         kernels::Operators& operators);

  // Internal, with the versions that are held, when `version` is none of them.
  Status read(int version, Pass pass);
  void prepare();
  void publish();

  // Memory account: what older versions take.
  int64_t bytes() const { return older_packed_.bytes() + older_values_.bytes(); }

 private:
  // A matrix that products read, by its place in a copy of all packed weights.
  struct Packed {
    Parameter* parameter;
    int64_t offset_bytes;
  };
  // A tensor that is read as it is; the ring of its older values.
  struct Value {
    Parameter* parameter;
    std::vector<kernels::TensorView> older;
  };
  WeightVersions(const Kept& kept, ParameterStore& parameters, kernels::Operators& operators)
      : kept_(kept), parameters_(&parameters), operators_(&operators) {}
  Status allocate();
  int versions_of(const Parameter& parameter) const;
  void point_packed_at(int64_t version);
  void point_values_at(int64_t version);

  Kept kept_;
  ParameterStore* parameters_;
  kernels::Operators* operators_;
  kernels::Slab older_packed_;  // by_all - 1 copies
  kernels::Slab older_values_;
  std::vector<Packed> packed_;
  std::vector<Value> values_;
  int newest_ = 0;  // of this run of the program
  // Counted from the first run on, which gives every version its place in the rings.
  int64_t newest_of_all_ = 0;
  int64_t shown_ = 0;  // what the parameters point at
};

}  // namespace penstock::worker
