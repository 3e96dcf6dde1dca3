#include "coordinator/core/placement/placement.h"

#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words

struct Hosts {
  Fleet fleet;
  SessionId session = 0;

  void add(const std::string& host, int devices, const std::string& worker = "") {
    register_worker(fleet, ++session, registration(worker.empty() ? host : worker, 1, devices, host), {}, 0);
  }
  Device& device(const std::string& worker, size_t index) { return fleet.find(worker)->devices[index]; }
};

std::string hosts_of(const Fleet& fleet, const Placement& placement) {
  std::string text;
  for (const Seat& seat : placement.seats) {
    text +=
        (text.empty() ? "" : " ") + fleet.workers.at(seat.worker).host + ":" + std::to_string(seat.device);
  }
  return text;
}

TEST(Placement, whole_job_goes_to_the_smallest_host_that_holds_it) {
  // Big holes stay for big jobs.
  Hosts hosts;
  hosts.add("a", 8);
  hosts.add("b", 4);
  hosts.add("c", 2);
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 3})), "b:0 b:1 b:2");
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 2})), "c:0 c:1");
}

TEST(Placement, kept_seats_go_to_their_job_and_to_nobody_else) {
  Hosts hosts;
  hosts.add("a", 2);
  hosts.add("b", 3);
  Placer placer(hosts.fleet, {{"mover", {{"b", 1}, {"a", 0}}}});
  EXPECT_EQ(hosts_of(hosts.fleet, placer.place({.job = "first", .ranks = 2})), "b:0 b:2");
  const Placement mover = placer.place({.job = "mover", .ranks = 2});
  EXPECT_EQ(hosts_of(hosts.fleet, mover), "b:1 a:0");
  EXPECT_EQ(mover.reason, "placed on b, a, as before");
  const Placement last = placer.place({.job = "last", .ranks = 2});
  EXPECT_FALSE(last.placed());
  EXPECT_TRUE(last.fits_fleet);
}

TEST(Placement, adjacent_ranks_stay_together_when_one_host_is_too_small) {
  Hosts hosts;
  hosts.add("a", 2);
  hosts.add("b", 4);
  hosts.add("c", 3);
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 6})), "b:0 b:1 b:2 b:3 a:0 a:1");
}

TEST(Placement, workers_of_one_host_count_together) {
  Hosts hosts;
  hosts.add("x", 1, "worker-0");
  hosts.add("y", 1, "worker-1");
  hosts.add("x", 1, "worker-2");
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 2})), "x:0 x:0");
}

TEST(Placement, reason_names_what_is_missing_and_what_is_in_the_way) {
  Hosts hosts;
  hosts.add("worker-0", 1);
  hosts.add("worker-1", 1);
  hosts.add("worker-2", 1);
  hosts.add("worker-3", 1);
  hosts.fleet.find("worker-3")->draining = true;
  hold(hosts.device("worker-2", 0), {"other", 1, 1}, RankIndex(5));
  const Placement placement = place(hosts.fleet, {.ranks = 4});
  EXPECT_FALSE(placement.placed());
  EXPECT_FALSE(placement.fits_fleet);
  EXPECT_EQ(placement.reason,
            "waits for 2 more cpu devices: 4 needed, 2 free (worker-2 cpu:0 runs other rank 5, worker-3 "
            "draining)");
}

TEST(Placement, busy_devices_count_for_the_fleet_and_lost_ones_do_not) {
  Hosts hosts;
  hosts.add("worker-0", 1);
  hosts.add("worker-1", 1);
  hold(hosts.device("worker-1", 0), {"other", 1, 1}, RankIndex(0));
  stop(hosts.device("worker-1", 0), "cancelled", {}, {});
  Placement placement = place(hosts.fleet, {.ranks = 2});
  EXPECT_TRUE(placement.fits_fleet);
  EXPECT_EQ(placement.reason,
            "waits for 1 more cpu device: 2 needed, 1 free (worker-1 cpu:0 stops other rank 0)");
  lose_worker(hosts.fleet, *hosts.fleet.find("worker-1"), "gone", {}, 0);
  placement = place(hosts.fleet, {.ranks = 2});
  EXPECT_FALSE(placement.fits_fleet);
  EXPECT_EQ(placement.reason, "waits for 1 more cpu device: 2 needed, 1 free (worker-1 lost)");
}

TEST(Placement, ranks_that_share_memory_go_to_one_host_or_wait_for_it) {
  Hosts hosts;
  hosts.add("a", 2);
  hosts.add("b", 4);
  hosts.add("c", 3);
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 3, .one_host = true})), "c:0 c:1 c:2");
  hold(hosts.device("b", 0), {"other", 1, 1}, RankIndex(0));
  Placement placement = place(hosts.fleet, {.ranks = 4, .one_host = true});
  EXPECT_FALSE(placement.placed());
  EXPECT_TRUE(placement.fits_fleet);  // once b is free
  EXPECT_EQ(
      placement.reason,
      "waits for 1 more cpu device on one host (parallel.p2p is one-sided): 4 needed, 3 free on b (b cpu:0 runs "
      "other rank 0)");
  placement = place(hosts.fleet, {.ranks = 5, .one_host = true});
  EXPECT_FALSE(placement.fits_fleet);  // the fleet has nine, no host has five
  EXPECT_EQ(place({}, {.ranks = 2, .one_host = true}).reason,
            "waits for 2 more cpu devices on one host (parallel.p2p is one-sided): 2 needed, 0 free");
}

TEST(Placement, jobs_of_one_pass_take_what_those_before_them_left) {
  Hosts hosts;
  hosts.add("a", 2);
  hosts.add("b", 4);
  Placer placer(hosts.fleet);
  EXPECT_EQ(hosts_of(hosts.fleet, placer.place({.job = "one", .ranks = 3})), "b:0 b:1 b:2");
  EXPECT_EQ(hosts_of(hosts.fleet, placer.place({.job = "two", .ranks = 2})), "a:0 a:1");
  EXPECT_EQ(
      placer.place({.job = "three", .ranks = 2}).reason,
      "waits for 1 more cpu device: 2 needed, 1 free (b cpu:0 runs one rank 0, b cpu:1 runs one rank 1, b cpu:2 "
      "runs one rank 2 and 2 more)");
}

TEST(Placement, expert_groups_stay_whole_while_any_host_has_room_for_one) {
  // Ranks that share out experts exchange rows in every block; pipeline edges may cross hosts.
  Hosts hosts;
  hosts.add("a", 3);
  hosts.add("b", 5);
  hosts.add("c", 3);
  const Placement placement = place(hosts.fleet, {.ranks = 8, .group = 2});
  EXPECT_EQ(hosts_of(hosts.fleet, placement), "b:0 b:1 b:2 b:3 a:0 a:1 c:0 c:1");
  EXPECT_EQ(placement.reason, "placed on b, a, c; each of its 4 expert groups of 2 ranks is on one host");
  EXPECT_EQ(place(hosts.fleet, {.ranks = 3, .group = 3}).reason,
            "placed on a; its expert group of 3 ranks is on one host");
}

TEST(Placement, expert_groups_are_cut_only_where_no_host_has_room_and_it_is_said) {
  Hosts hosts;
  hosts.add("a", 3);
  hosts.add("b", 5);
  hosts.add("c", 3);
  const Placement placement = place(hosts.fleet, {.ranks = 10, .group = 2});
  EXPECT_EQ(hosts_of(hosts.fleet, placement), "b:0 b:1 b:2 b:3 a:0 a:1 c:0 c:1 a:2 b:4");
  EXPECT_EQ(
      placement.reason,
      "placed on b, a, c and 2 more; 1 of its 5 expert groups of 2 ranks is on several hosts: none had 2 devices "
      "left");
  EXPECT_EQ(hosts_of(hosts.fleet, place(hosts.fleet, {.ranks = 8, .group = 4})),
            "b:0 b:1 b:2 b:3 a:0 a:1 a:2 b:4");
  EXPECT_EQ(place(hosts.fleet, {.ranks = 6, .group = 6}).reason,
            "placed on b, a; its expert group of 6 ranks is on several hosts: none had 6 devices left");
}

TEST(Placement, one_name_is_never_cut_to_a_number) {
  Hosts hosts;
  for (const char* worker : {"a", "b", "c", "d", "e"}) hosts.add("host", 1, worker);
  EXPECT_EQ(place(hosts.fleet, {.ranks = 3}).reason, "placed on a, b, c");
  EXPECT_EQ(place(hosts.fleet, {.ranks = 4}).reason, "placed on a, b, c and d");
  EXPECT_EQ(place(hosts.fleet, {.ranks = 5}).reason, "placed on a, b, c and 2 more");
}

TEST(Placement, other_kinds_of_device_are_not_counted) {
  Hosts hosts;
  hosts.add("a", 4);
  EXPECT_EQ(place(hosts.fleet, {.kind = "cuda", .ranks = 1}).reason,
            "waits for 1 more cuda device: 1 needed, 0 free");
}

}  // namespace
}  // namespace penstock::coordinator
