// Executes one rank's instructions without data and reports whatever could not be.
//
// A program from a wire gets no trust: any values, bounded work, memory linear in what it brought along.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/lowered.h"
#include "plan/verification/internal/report.h"

namespace penstock::plan::internal {

// What a checked rank's program says about the whole; meaningful when the report stayed empty.
struct RankFacts {
  std::vector<int> high_water;  // per own stage: leases held at once
  bool is_post_validated = false;
  bool accumulates_in_order = true;  // every own stage's gradients, and the head's, in microbatch order
  // Which of the staleness rules the versions of its computations follow; at least one.
  bool is_synchronous = true;
  bool is_double_buffered = true;
  bool is_stashed = true;
};

class RankChecker {
 public:
  // Both must outlive this.
  RankChecker(const RankProgram& program, Report& report) : program_(program), report_(report) {}

  RankFacts run();

 private:
  enum class Input : uint8_t { None, Posted, Arrived, Read };

  struct Delivered {
    Input state = Input::None;
    RankIndex source;  // the rank itself for a hand-off
    int slot = -1;
  };

  // One microbatch of one own stage.
  struct Cell {
    int lease = -1;
    bool was_leased = false;
    int forward = -1;  // positions of its computations
    int backward_start = -1;
    int backward_end = -1;
    int forward_version = 0;
    Delivered inputs[2];  // by flow
  };

  // This rank's end of one link.
  struct End {
    const Link* link = nullptr;
    std::vector<std::optional<Passage>> slots;  // what is in each
    int passed = 0;                             // messages so far
    TransferDigest digest;                      // of them
  };

  struct OwnStage {
    StageIndex stage;
    std::vector<bool> leased;  // [slot]
    int held = 0;
    int high_water = 0;
    BackwardForm backward = BackwardForm::Fused;  // of its computations
    int last_started = -1;                        // B or I
    int last_accumulated = -1;                    // B or W
    int last_forward = -1;
    std::vector<int> open;      // [update]: forwards whose backward has not ended
    std::vector<bool> reduced;  // [update]
  };

  // The outputs of the computation (or pair) that just ran, and the inputs that it read.
  struct Group {
    int start = -1;
    bool expects_second = false;
    std::vector<Passage> outputs;
    std::vector<std::pair<Cell*, Flow>> inputs;
  };

  bool has_shape();
  bool buffers_are_valid();
  bool twin_is_valid(const StageBuffers& buffers);
  bool links_are_valid();
  void execute();
  void close_group();

  void acquire();
  void release();
  void post_receive();
  void wait_receive();
  void compute();
  void read_input();
  void note_computation(Cell& cell);
  void check_version(Cell& cell);
  void pass_output();
  void hand_off(const Passage& passage);
  void wait_send();
  void reduce();
  void step();
  void validate();
  void check_provisional_messages();
  void violate_unwaited_sends();
  void check_end();
  void check_cells_at_end();
  void check_backward_forms();

  template <typename... Args>
  void violate(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
    report_.add(rule, here(), format, std::forward<Args>(args)...);
  }
  Place here() const;
  const Instruction& now() const { return program_.instructions[position_]; }
  // Null, with a violation, when the instruction names what this rank does not hold.
  OwnStage* own_stage();
  Cell* cell();
  End* end_of_link(std::map<int, End>& ends);
  bool slot_exists(const End& end);
  Cell& cell_at(StageIndex stage, MicrobatchIndex microbatch);
  int update_of(MicrobatchIndex microbatch) const { return microbatch.value / program_.microbatches; }

  const RankProgram& program_;
  Report& report_;
  RankFacts facts_;
  std::map<int, OwnStage> own_;  // by stage
  std::map<int, End> incoming_;  // by source
  std::map<int, End> outgoing_;  // by target
  End hand_offs_;                // the link to itself
  std::unordered_map<uint64_t, Cell> cells_;
  Group group_;
  size_t position_ = 0;
  int steps_ = 0;
  int unwaited_sends_ = 0;
  bool computed_gradients_ = false;  // a backward, or the head's forward
};

}  // namespace penstock::plan::internal
