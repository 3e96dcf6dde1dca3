#include "plan/render/perfetto.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "plan/render/glyphs.h"
#include "plan/render/held.h"
#include "plan/schedule/dataflow.h"

namespace penstock::plan {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

constexpr std::array kCategories = {"forward", "backward", "input gradient", "weight gradient"};
// Names of the viewer's own palette.
constexpr std::array kColours = {"thread_state_running", "thread_state_iowait", "yellow", "good"};

class Trace {
 public:
  Trace(const ComputeProgram& program, const TraceStyle& style) : program_(program), style_(style) {
    const size_t cells =
        static_cast<size_t>(program.stages()) * static_cast<size_t>(program.total_microbatches());
    for (auto& producers : producers_) producers.resize(cells);
  }

  void add_row(const TraceRow& row) {
    simulation_ = row.simulation;
    begin_ = std::numeric_limits<Ticks>::max();
    for (const RankTimeline& rank : simulation_->ranks) {
      if (!rank.actions.empty()) begin_ = std::min(begin_, rank.actions.front().start);
    }
    for (size_t rank = 0; rank < simulation_->ranks.size(); ++rank) add_rank(rank, row.name);
    for_each_work(
        [&](const Work& work, const TimedAction& timed, size_t rank) { note_producer(work, timed, rank); });
    for_each_work(
        [&](const Work& work, const TimedAction& timed, size_t rank) { add_flow(work, timed, rank); });
    ++row_;
  }

  std::string text() {
    return "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"schedule\": " + quoted(program_.schedule) +
           "},\n\"traceEvents\": [\n" + events_ + "\n]}\n";
  }

 private:
  struct Producer {
    size_t rank = 0;
    Ticks start = 0;
    Ticks end = 0;
  };

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (!events_.empty()) events_ += ",\n";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Args>(args)...);
  }

  // Microseconds, as the format has them.
  double time(Ticks ticks) const { return 1000 * style_.scale.to_number(ticks - begin_); }

  template <typename Visit>
  void for_each_work(Visit&& visit) {
    for (size_t rank = 0; rank < simulation_->ranks.size(); ++rank) {
      for (const TimedAction& timed : simulation_->ranks[rank].actions) {
        visit(timed.action.work, timed, rank);
        if (timed.action.overlapped) visit(*timed.action.overlapped, timed, rank);
      }
    }
  }

  void add_rank(size_t rank, const std::string& row) {
    if (row_ == 0) {
      add(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
      add(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank);
    }
    add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", rank, row_,
        quoted(row));
    for (const TimedAction& timed : simulation_->ranks[rank].actions) add_slice(timed, rank);
    if (row_ > 0) return;
    const auto held = held_forwards(simulation_->ranks[rank], program_.forward_only);
    if (!held.empty() && !style_.bytes_per_activation.empty()) add_counter(rank, begin_, 0);
    for (const HeldStep& step : held) add_counter(rank, step.time, step.held);
  }

  void add_slice(const TimedAction& timed, size_t rank) {
    const Work& work = timed.action.work;
    const auto kind = static_cast<size_t>(work.kind);
    const bool pair = timed.action.overlapped.has_value();
    add(R"({{"ph":"X","name":"{}","cat":"{}","cname":"{}","pid":{},"tid":{},"ts":{},"dur":{},)"
        R"("args":{{"stage":{},"microbatch":{}}}}})",
        to_string(timed.action), pair ? "overlapped pair" : kCategories[kind],
        pair ? "vsync_highlight_color" : kColours[kind], rank, row_, time(timed.start),
        time(timed.end) - time(timed.start), work.stage.value, work.microbatch.value);
  }

  void add_counter(size_t rank, Ticks at, int held) {
    if (style_.bytes_per_activation.empty()) {
      return add(R"({{"ph":"C","name":"forwards held","pid":{},"ts":{},"args":{{"forwards":{}}}}})", rank,
                 time(at), held);
    }
    const auto of_rank = [&](const std::vector<int64_t>& bytes) {
      return bytes.empty() ? 0.0 : static_cast<double>(bytes[bytes.size() == 1 ? 0 : rank]);
    };
    const double bytes = of_rank(style_.static_bytes) + held * of_rank(style_.bytes_per_activation);
    add(R"({{"ph":"C","name":"memory","pid":{},"ts":{},"args":{{"bytes":{}}}}})", rank, time(at), bytes);
  }

  Producer& producer(const Passage& passage) {
    return producers_[static_cast<size_t>(passage.flow)]
                     [static_cast<size_t>(passage.source.value) *
                          static_cast<size_t>(program_.total_microbatches()) +
                      static_cast<size_t>(passage.microbatch.value)];
  }

  void note_producer(const Work& work, const TimedAction& timed, size_t rank) {
    if (const auto passage = outgoing(work, program_.stages()))
      producer(*passage) = {rank, timed.start, timed.end};
  }

  // An arrow begins inside of the producer's slice, in its last tick, and ends where the consumer's begins.
  void add_flow(const Work& work, const TimedAction& timed, size_t rank) {
    const auto passage = incoming(work, program_.stages());
    if (!passage) return;
    const Producer from = producer(*passage);
    if (from.rank == rank) return;
    const char* name = passage->flow == Flow::Activation ? "activation" : "gradient";
    ++flows_;
    add(R"({{"ph":"s","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{}}})", name, flows_,
        from.rank, row_, time(std::max(from.start, from.end - 1)));
    add(R"({{"ph":"f","bp":"e","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{}}})", name,
        flows_, rank, row_, time(timed.start));
  }

  const ComputeProgram& program_;
  const TraceStyle& style_;
  const Simulation* simulation_ = nullptr;  // of the row
  int row_ = 0;
  Ticks begin_ = 0;                     // of the row
  std::vector<Producer> producers_[2];  // [flow][source stage, microbatch]
  int64_t flows_ = 0;
  std::string events_;
};

}  // namespace

StatusOr<std::string> timeline_trace(const ComputeProgram& program, const Simulation& simulation,
                                     const TraceStyle& style) {
  return timelines_trace(program, {{"compute", &simulation}}, style);
}

StatusOr<std::string> timelines_trace(const ComputeProgram& program, const std::vector<TraceRow>& rows,
                                      const TraceStyle& style) {
  int64_t actions = 0;
  for (const TraceRow& row : rows) {
    for (const RankTimeline& rank : row.simulation->ranks)
      actions += static_cast<int64_t>(rank.actions.size());
  }
  if (actions > style.actions_max) {
    return invalid_argument("{} actions are too many for a trace; expected at most {}", actions,
                            style.actions_max);
  }
  Trace trace(program, style);
  for (const TraceRow& row : rows) trace.add_row(row);
  return trace.text();
}

}  // namespace penstock::plan
