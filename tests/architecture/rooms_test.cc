// Holds every #include to the list in cmake/rooms.cmake, which CMake writes to rooms.txt in the build folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Room {
  std::set<std::string> uses;
  std::set<std::string> test_uses;
};
using Rooms = std::map<std::string, Room>;

std::set<std::string> names(const std::string& list) {
  std::set<std::string> result;
  for (const std::string& name : split_on(list, ',')) {
    if (!name.empty()) result.insert(name);
  }
  return result;
}

Rooms read_rooms(std::istream& listing) {
  Rooms rooms;
  for (std::string line; std::getline(listing, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex(R"((\S+) uses=(\S*) test_uses=(\S*))"))) {
      rooms[match[1]] = Room{names(match[2]), names(match[3])};
    }
  }
  return rooms;
}

// The innermost room that holds the path, or nothing.
std::optional<std::string> room_of(const Rooms& rooms, const std::string& path) {
  std::optional<std::string> innermost;
  for (const auto& [name, room] : rooms) {
    if (path.starts_with(name + "/") && (!innermost || name.size() > innermost->size())) innermost = name;
  }
  return innermost;
}

struct Include {
  std::string file;
  int line = 0;
  std::string target;
  bool quoted = false;
};

std::vector<Include> includes_of(const std::string& file, std::istream& source) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*(["<])([^">]+)[">].*)");
  std::vector<Include> found;
  int number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    std::smatch match;
    if (std::regex_match(line, match, kInclude)) found.push_back({file, number, match[2], match[1] == "\""});
  }
  return found;
}

// A test, or what a room's tests share, in its folder testing/.
bool is_of_tests(const std::string& file) {
  return file.ends_with("_test.cc") || file.find("/testing/") != std::string::npos;
}

// What is wrong with one include, or "".
std::string complaint(const Rooms& rooms, const Include& include) {
  const std::optional<std::string> from = room_of(rooms, include.file);
  if (!from) return "";
  const bool is_test = is_of_tests(include.file);
  const auto says = [&](const std::string& what) {
    return include.file + ":" + std::to_string(include.line) + ": includes \"" + include.target +
           "\": " + what;
  };

  static const std::regex kGenerated(R"(.*\.pb\.h$)");
  const bool generated =
      std::regex_match(include.target, kGenerated) || include.target.starts_with("grpcpp/");
  const Room& room = rooms.at(*from);
  if (generated) {
    return room.uses.contains("proto") || (is_test && room.test_uses.contains("proto"))
               ? ""
               : says("generated code and grpcpp are for rooms that use proto; " + *from + " does not");
  }
  if (!include.quoted) return "";
  const std::optional<std::string> target = room_of(rooms, include.target);
  if (!target) return says("no room holds it; include from the root of the repository");
  const bool takes_part =
      is_test || include.file.ends_with("_bench.cc") || include.file.starts_with("tests/");
  if (!takes_part && is_of_tests(include.target)) return says("testing/ is for tests");
  if (*target == *from || room.uses.contains(*target)) return "";
  if (is_test && room.test_uses.contains(*target)) return "";
  return says(*from + " does not use " + *target + "; see cmake/rooms.cmake");
}

// The longest-standing rules of the house, whatever the list says.
std::string forbidden_arrow(const std::string& from, const std::string& to, bool of_tests = false) {
  const auto inside = [](const std::string& room, const std::string& top) {
    return room == top || room.starts_with(top + "/");
  };
  if (inside(from, "base") && !inside(to, "base")) return "base uses nobody";
  if (inside(from, "plan") && !inside(to, "base") && !inside(to, "plan")) return "plan is pure domain";
  if (inside(from, "kernels") && inside(to, "plan")) return "kernels never sees plan";
  if (inside(from, "worker") && inside(to, "coordinator")) return "they meet in plan and proto";
  if (inside(from, "coordinator") && (inside(to, "worker") || inside(to, "kernels")))
    return "they meet in plan and proto";
  if (inside(from, "client") &&
      (inside(to, "worker") || inside(to, "coordinator") || inside(to, "kernels"))) {
    return "the client speaks to daemons, it is none";
  }
  static const std::set<std::string> kPlanForWorkers = {"plan/spec", "plan/schedule", "plan/verification",
                                                        "plan/cost"};
  // A test holds a worker against whatever says the same in another way: the simulation.
  if (inside(from, "worker") && inside(to, "plan") && !kPlanForWorkers.contains(to) && !of_tests) {
    return "a worker sees spec, schedule, verification and cost of plan only";
  }
  if (inside(from, "worker/executor") && to == "proto") return "the executor speaks through proto/codec";
  if (inside(from, "coordinator/core") && to == "proto") return "the core sees plain values only";
  return "";
}

Rooms rooms_of_the_house() {
  std::ifstream listing(std::string(PENSTOCK_BINARY_DIR) + "/rooms.txt");
  return read_rooms(listing);
}

TEST(Rooms, every_include_follows_the_declared_arrows) {
  const Rooms rooms = rooms_of_the_house();
  ASSERT_GT(rooms.size(), 20u) << "rooms.txt was not written";
  std::vector<std::string> complaints;
  int checked = 0;
  for (const char* top : {"base", "plan", "proto", "kernels", "worker", "coordinator", "client", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PENSTOCK_SOURCE_DIR) / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".cu") continue;
      std::ifstream source(entry.path());
      const std::string file = fs::relative(entry.path(), PENSTOCK_SOURCE_DIR);
      for (const Include& include : includes_of(file, source)) {
        ++checked;
        if (const std::string wrong = complaint(rooms, include); !wrong.empty()) complaints.push_back(wrong);
      }
    }
  }
  EXPECT_GT(checked, 100);
  EXPECT_TRUE(complaints.empty()) << list_cut(complaints, 20);
}

TEST(Rooms, declared_arrows_keep_the_rules_of_the_house) {
  for (const auto& [from, room] : rooms_of_the_house()) {
    for (const std::string& to : room.uses) EXPECT_EQ(forbidden_arrow(from, to), "") << from << " -> " << to;
    for (const std::string& to : room.test_uses) {
      EXPECT_EQ(forbidden_arrow(from, to, /*of_tests=*/true), "") << from << " -> " << to;
    }
  }
}

TEST(Rooms, no_folder_collects_strangers) {
  for (const auto& [name, room] : rooms_of_the_house()) {
    for (const std::string& part : split_on(name, '/')) {
      EXPECT_FALSE(part == "util" || part == "utils" || part == "common" || part == "helpers" ||
                   part == "misc")
          << name;
    }
  }
}

// The judge itself is judged: each kind of trespass is seen.
TEST(Rooms, trespasses_are_reported) {
  std::istringstream listing(
      "base uses= test_uses=\n"
      "plan/schedule uses=base test_uses=plan/simulation\n"
      "plan/simulation uses=base,plan/schedule test_uses=\n"
      "worker/agent uses=base,proto test_uses=\n");
  const Rooms rooms = read_rooms(listing);
  const auto says = [&](const char* file, const char* target) {
    return complaint(rooms, {file, 7, target, true});
  };
  EXPECT_EQ(says("plan/simulation/a.cc", "plan/schedule/program.h"), "");
  EXPECT_EQ(says("plan/schedule/a_test.cc", "plan/simulation/simulate.h"), "");
  EXPECT_EQ(says("plan/schedule/testing/a.h", "plan/simulation/simulate.h"), "");
  EXPECT_EQ(says("plan/schedule/a.cc", "plan/schedule/testing/a.h"),
            "plan/schedule/a.cc:7: includes \"plan/schedule/testing/a.h\": testing/ is for tests");
  EXPECT_EQ(says("plan/schedule/a.cc", "plan/simulation/simulate.h"),
            "plan/schedule/a.cc:7: includes \"plan/simulation/simulate.h\": plan/schedule does not use "
            "plan/simulation; "
            "see cmake/rooms.cmake");
  EXPECT_NE(says("plan/schedule/a.cc", "program.h"), "");
  EXPECT_NE(says("plan/schedule/a.cc", "penstock/v1/jobs.pb.h"), "");
  EXPECT_EQ(says("worker/agent/a.cc", "penstock/v1/jobs.pb.h"), "");
  EXPECT_NE(forbidden_arrow("worker/executor", "coordinator/core"), "");
  EXPECT_NE(forbidden_arrow("kernels/ops", "plan/spec"), "");
  EXPECT_NE(forbidden_arrow("client/commands", "coordinator/core"), "");
  EXPECT_EQ(forbidden_arrow("client/commands", "plan/spec"), "");
}

}  // namespace
}  // namespace penstock
