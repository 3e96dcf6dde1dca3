#include "plan/render/perfetto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using Json = nlohmann::json;

struct Played {
  ComputeProgram program;
  Simulation simulation;
};

Played played(const std::string& name, int ranks, int microbatches) {
  Played result{generate({.name = name, .ranks = ranks, .microbatches = microbatches}).value(), {}};
  SimulationCosts costs = uniform_costs(result.program.stages(), {});
  costs.latency = 1;
  result.simulation = simulate(result.program, costs).value();
  return result;
}

std::vector<Json> events(const Played& played, const std::string& phase, const TraceStyle& style = {}) {
  const Json trace = Json::parse(timeline_trace(played.program, played.simulation, style).value());
  std::vector<Json> chosen;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) chosen.push_back(event);
  }
  return chosen;
}

TEST(TimelineTrace, every_action_is_a_slice_of_its_rank) {
  const std::vector<Json> slices = events(played("1f1b", 2, 3), "X");
  ASSERT_EQ(slices.size(), 12u);
  EXPECT_EQ(slices[0]["name"], "0F0");
  EXPECT_EQ(slices[0]["pid"], 0);
  EXPECT_EQ(slices[0]["ts"], 0);
  EXPECT_EQ(slices[0]["dur"], 1000);
  EXPECT_EQ(slices[6]["name"], "1F0");
  EXPECT_EQ(slices[6]["pid"], 1);
  EXPECT_EQ(slices[6]["ts"], 2000);  // a unit of latency behind 0F0
  EXPECT_EQ(events(played("1f1b", 2, 3), "M").size(), 6u);
}

TEST(TimelineTrace, rows_stand_side_by_side_and_each_begins_at_its_own_begin) {
  const Played run = played("1f1b", 2, 3);
  Simulation late = run.simulation;
  for (RankTimeline& rank : late.ranks) {
    for (TimedAction& timed : rank.actions) timed.start += 50, timed.end += 50;
  }
  const Json trace = Json::parse(
      timelines_trace(run.program, {{"measured", &late}, {"simulated", &run.simulation}}).value());
  std::map<std::pair<int, int>, std::vector<Json>> rows;
  std::map<std::pair<int, int>, std::string> names;
  int processes = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X")
      rows[{event["pid"], event["tid"]}].push_back({event["name"], event["ts"], event["dur"]});
    if (event["name"] == "thread_name") names[{event["pid"], event["tid"]}] = event["args"]["name"];
    processes += event["name"] == "process_name";
  }
  EXPECT_EQ(processes, 2);
  ASSERT_EQ(rows.size(), 4u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(names[std::pair(rank, 0)], "measured");
    EXPECT_EQ(names[std::pair(rank, 1)], "simulated");
    EXPECT_EQ(rows[std::pair(rank, 0)], rows[std::pair(rank, 1)]);
    EXPECT_EQ(rows[std::pair(rank, 0)].size(), 6u);
  }
}

TEST(TimelineTrace, every_transfer_is_an_arrow_from_producer_to_consumer) {
  const Played run = played("1f1b", 3, 4);
  const std::vector<Json> begins = events(run, "s"), ends = events(run, "f");
  ASSERT_EQ(begins.size(),
            static_cast<size_t>(run.simulation.transfers_forward + run.simulation.transfers_backward));
  ASSERT_EQ(ends.size(), begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    EXPECT_EQ(begins[i]["id"], ends[i]["id"]);
    EXPECT_EQ(std::abs(begins[i]["pid"].get<int>() - ends[i]["pid"].get<int>()), 1);
    EXPECT_LT(begins[i]["ts"], ends[i]["ts"]);
  }
}

TEST(TimelineTrace, counters_follow_what_a_rank_holds) {
  const auto highest = [](const std::vector<Json>& counters, int rank, const char* field) {
    double most = 0;
    for (const Json& counter : counters) {
      if (counter["pid"] == rank) most = std::max(most, counter["args"][field].get<double>());
    }
    return most;
  };
  const Played run = played("1f1b", 3, 4);
  EXPECT_EQ(highest(events(run, "C"), 0, "forwards"), 3);
  EXPECT_EQ(highest(events(run, "C"), 2, "forwards"), 1);
  EXPECT_EQ(events(run, "C").back()["args"]["forwards"], 0);
  const TraceStyle bytes{.bytes_per_activation = {100}, .static_bytes = {7, 8, 9}};
  EXPECT_EQ(highest(events(run, "C", bytes), 0, "bytes"), 307);
}

TEST(TimelineTrace, names_from_outside_stay_text) {
  Played named = played("1f1b", 1, 1);
  named.program.schedule = "file:\"\\\n.json";
  const Json trace = Json::parse(timeline_trace(named.program, named.simulation).value());
  EXPECT_EQ(trace["otherData"]["schedule"], "file:\"\\?.json");
}

TEST(TimelineTrace, more_than_a_viewer_opens_is_refused) {
  const Played run = played("gpipe", 2, 4);
  const auto trace = timeline_trace(run.program, run.simulation, {.actions_max = 15});
  ASSERT_EQ(trace.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message(trace.status()), "16 actions are too many for a trace; expected at most 15");
}

}  // namespace
}  // namespace penstock::plan
