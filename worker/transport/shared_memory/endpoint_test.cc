#include "worker/transport/shared_memory/endpoint.h"

#include <sys/wait.h>

#include <cstring>
#include <limits>

#include "worker/transport/endpoint_contract.h"
#include "worker/transport/shared_memory/address.h"
#include "worker/transport/shared_memory/window.h"

namespace penstock::worker {
namespace {

const TransportUnderTest kSharedMemory{.name = "shared_memory", .across_processes = true, .make_group = [] {
                                         return make_shared_memory_endpoint;
                                       }};
INSTANTIATE_TEST_SUITE_P(SharedMemory, EndpointContract, cases_of(kSharedMemory), case_name);
INSTANTIATE_TEST_SUITE_P(SharedMemory, EndpointLossContract, loss_cases_of(kSharedMemory), case_name);

constexpr int64_t kRegionBytes = 1 << 20;

// Rank 0 is an endpoint; rank 1 is played by hand, with every word of both windows in reach.
class PlayedPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto region = Region::create(kRegionBytes, "the test", Region::Pages::Later);
    ASSERT_TRUE(region.ok()) << region.status();
    StatusOr<Window> window = Window::create(1, 2, kNonce, {*region});
    ASSERT_TRUE(window.ok()) << window.status();
    theirs_ = *std::move(window);
    publish(1, {.neighbourhood = *here(), .pid = getpid(), .nonce = kNonce, .regions = {}}, *theirs_);
    memory_ = static_cast<char*>(endpoint_->receive_memory(kRegionBytes)->get());
    ASSERT_NE(memory_, nullptr);
    CONTRACT_EXPECT_OK(endpoint_->open({"pipeline", RankIndex(0), 2, "127.0.0.1"}, rendezvous_, 5s));
    const WindowAddress address = *parse_window_address(*rendezvous_.look_up(RankIndex(0), "window", 0s));
    std::vector<std::shared_ptr<Region>> regions;
    for (const auto& part : address.regions)
      regions.push_back(*Region::open(address.pid, part.fd, part.bytes));
    StatusOr<Window> mine = Window::of_peer(0, 2, address.nonce, std::move(regions));
    ASSERT_TRUE(mine.ok()) << mine.status();
    mine_ = *std::move(mine);
  }

  void publish(int rank, WindowAddress address, const Window& window) {
    for (const auto& part : window.regions()) address.regions.push_back({part->fd(), part->bytes()});
    CONTRACT_EXPECT_OK(rendezvous_.publish(RankIndex(rank), "window", to_string(address)));
  }

  // Where rank 1 puts its messages, and where rank 0 puts its own.
  Channel& to_endpoint() { return mine_->channel(1); }
  Channel& from_endpoint() { return theirs_->channel(0); }
  void give_credit(uint64_t number, int64_t bytes, const WindowPlace& place) {
    Credit& credit = from_endpoint().credits[number % kReceivesInFlight];
    credit.number = number;
    credit.bytes = bytes;
    credit.region = place.region;
    credit.offset = place.offset;
    from_endpoint().credited = number + 1;
    ring(mine_->bell(), Sleeper::Both);
  }
  TransferId send(int64_t bytes) { return *endpoint_->post_send(RankIndex(1), memory_, bytes); }
  TransferId receive(int64_t bytes) { return *endpoint_->post_receive(RankIndex(1), memory_, bytes); }

  static constexpr uint64_t kNonce = 41;
  InProcessRendezvous rendezvous_;
  std::unique_ptr<Endpoint> endpoint_ = make_shared_memory_endpoint();
  char* memory_ = nullptr;
  std::optional<Window> theirs_;  // rank 1's own
  std::optional<Window> mine_;    // rank 0's, as rank 1 maps it
};

TEST_F(PlayedPeer, receive_in_the_endpoints_memory_is_put_there_by_the_peer) {
  // One copy: nothing passes through the ring.
  const TransferId transfer = *endpoint_->post_receive(RankIndex(1), memory_ + 4096, 100);
  const Credit& credit = to_endpoint().credits[0];
  EXPECT_EQ(to_endpoint().credited, 1u);
  EXPECT_EQ(credit.bytes, 100);
  char* place = mine_->find({credit.region, credit.offset}, 100);
  ASSERT_EQ(place, mine_->regions()[1]->data() + 4096);
  std::memset(place, 7, 100);
  to_endpoint().delivered = 1;
  ring(mine_->bell(), Sleeper::Waiter);
  CONTRACT_EXPECT_OK(endpoint_->wait(transfer));
  EXPECT_EQ(memory_[4096], 7);
  EXPECT_EQ(memory_[4195], 7);
}

TEST_F(PlayedPeer, send_that_finds_its_credit_is_put_before_posting_returns) {
  give_credit(0, 64, {.region = 1, .offset = 128});
  std::memset(memory_, 3, 64);
  const TransferId transfer = send(64);
  EXPECT_EQ(from_endpoint().delivered, 1u);
  EXPECT_EQ(theirs_->regions()[1]->data()[128 + 63], 3);
  CONTRACT_EXPECT_OK(endpoint_->wait(transfer));
}

TEST_F(PlayedPeer, credit_that_comes_late_is_served_while_the_rank_does_something_else) {
  const TransferId transfer = send(64);  // returns: posting never waits for the peer
  EXPECT_EQ(from_endpoint().delivered, 0u);
  give_credit(0, 64, {.region = 1, .offset = 0});
  const TimePoint start = SystemClock().now();
  while (from_endpoint().delivered == 0 && SystemClock().now() - start < 30s) sched_yield();
  EXPECT_EQ(from_endpoint().delivered, 1u);
  CONTRACT_EXPECT_OK(endpoint_->wait(transfer));
}

TEST_F(PlayedPeer, credit_rings_only_where_a_message_waits_for_it) {
  const uint32_t rung = theirs_->bell();
  receive(64);
  EXPECT_EQ(theirs_->bell(), rung);
  to_endpoint().wanted = 2;
  receive(64);
  EXPECT_EQ(theirs_->bell(), rung + 1);
  send(64);  // finds no credit, and asks for one
  EXPECT_EQ(from_endpoint().wanted, 1u);
}

TEST_F(PlayedPeer, message_beyond_the_ring_waits_for_room_and_is_no_more_than_the_ring) {
  const int64_t ring_bytes = theirs_->staging_bytes();
  std::vector<char> big(static_cast<size_t>(3 * ring_bytes), 9);
  const TransferId transfer = *endpoint_->post_send(RankIndex(1), big.data(), 3 * ring_bytes);
  give_credit(0, 3 * ring_bytes, {});
  uint64_t taken = 0;
  while (taken < big.size()) {
    const uint64_t staged = from_endpoint().staged;
    ASSERT_LE(staged - taken, static_cast<uint64_t>(ring_bytes));
    from_endpoint().taken = taken = staged;
    ring(mine_->bell(), Sleeper::Progress);
    sched_yield();
  }
  CONTRACT_EXPECT_OK(endpoint_->wait(transfer));
}

struct Damage {
  const char* name;
  std::function<void(Channel& to_endpoint, Channel& from_endpoint)> doing;
  const char* part;  // of the reason
};

std::string damage_name(const ::testing::TestParamInfo<Damage>& damage) {
  return damage.param.name;
}

TEST_F(PlayedPeer, more_receives_than_credits_are_refused) {
  for (uint64_t i = 0; i < kReceivesInFlight; ++i) receive(8);
  EXPECT_EQ(endpoint_->post_receive(RankIndex(1), memory_, 8).status().code(),
            StatusCode::kResourceExhausted);
}

class DamagedWindow : public PlayedPeer, public ::testing::WithParamInterface<Damage> {};

TEST_P(DamagedWindow, is_an_error_for_who_waits_and_told_to_the_peer) {
  // A peer of another version, or one that wrote where it should not, must not make us read or write elsewhere.
  const TransferId out = send(64);
  const TransferId in = receive(64);
  give_credit(0, 64, {.region = 1, .offset = 0});
  GetParam().doing(to_endpoint(), from_endpoint());
  ring(mine_->bell(), Sleeper::Both);
  expect_aborted(endpoint_->wait(in), GetParam().part);
  (void)endpoint_->wait(out);  // it may have gone before
  EXPECT_EQ(from_endpoint().said & Channel::kAbort, Channel::kAbort);
}

INSTANTIATE_TEST_SUITE_P(
    Values, DamagedWindow,
    ::testing::Values(Damage{"more_delivered_than_expected", [](Channel& in, Channel&) { in.delivered = 2; },
                             "damage by rank 1: 2 messages delivered"},
                      Damage{"more_staged_than_the_ring",
                             [](Channel& in, Channel&) { in.staged = uint64_t{1} << 40; },
                             "damage by rank 1: 1099511627776 bytes staged"},
                      Damage{"reason_longer_than_its_place",
                             [](Channel& in, Channel&) {
                               in.reason_size = std::numeric_limits<uint32_t>::max();
                               in.reason[0] = 'x';
                               in.said = Channel::kAbort;
                             },
                             "rank 1 aborted: x"},
                      Damage{"goodbye_before_its_messages",
                             [](Channel& in, Channel&) { in.said = Channel::kGoodbye; },
                             "rank 1 ended after 0 sends and 0 receives"}),
    damage_name);

class DamagedCredit : public PlayedPeer, public ::testing::WithParamInterface<Damage> {};

TEST_P(DamagedCredit, is_an_error_and_nothing_is_written) {
  GetParam().doing(to_endpoint(), from_endpoint());
  std::memset(memory_, 5, 64);
  expect_aborted(endpoint_->wait(send(64)), GetParam().part);
  EXPECT_EQ(from_endpoint().said & Channel::kAbort, Channel::kAbort);
}

void credit(Channel& channel, uint64_t number, int32_t region, int64_t offset) {
  channel.credits[0].number = number;
  channel.credits[0].bytes = 64;
  channel.credits[0].region = region;
  channel.credits[0].offset = offset;
  channel.credited = 1;
}

INSTANTIATE_TEST_SUITE_P(
    Values, DamagedCredit,
    ::testing::Values(
        Damage{"region_that_is_none", [](Channel&, Channel& out) { credit(out, 0, 2, 0); },
               "at 0 of region 2"},
        Damage{"region_of_the_channels", [](Channel&, Channel& out) { credit(out, 0, 0, 8192); },
               "of region 0"},
        Damage{"region_below_zero", [](Channel&, Channel& out) { credit(out, 0, -7, 0); }, "of region -7"},
        Damage{"place_beyond_the_end", [](Channel&, Channel& out) { credit(out, 0, 1, kRegionBytes - 63); },
               "a place for 64 bytes at 1048513 of region 1, which it does not have"},
        Damage{"place_before_the_begin", [](Channel&, Channel& out) { credit(out, 0, 1, -1); }, "at -1"},
        Damage{"place_that_overflows",
               [](Channel&, Channel& out) { credit(out, 0, 1, std::numeric_limits<int64_t>::max()); },
               "at 9223372036854775807"},
        Damage{"number_of_another", [](Channel&, Channel& out) { credit(out, 6, 1, 0); },
               "credit 0 expected, 6 found"},
        Damage{"more_credits_than_there_are",
               [](Channel&, Channel& out) { out.credited = uint64_t{1} << 50; }, "1125899906842624 credits"},
        Damage{"more_taken_than_staged",
               [](Channel&, Channel& out) {
                 credit(out, 0, Credit::kStaged, 0);
                 out.taken = 1;
               },
               "1 bytes taken after 0, of 0 staged"}),
    damage_name);

class RandomDamage : public PlayedPeer, public ::testing::WithParamInterface<int> {
 protected:
  uint64_t draw() {
    switch (random_() % 4) {
      case 0:
        return random_() % 8;
      case 1:
        return random_() % 5000;
      case 2:
        return uint64_t{1} << (random_() % 64);
      default:
        return random_();
    }
  }
  void damage(Channel& channel) {
    Credit& credit = channel.credits[random_() % 4];
    const uint64_t value = draw();
    switch (random_() % 12) {
      case 0:
        channel.credited = value;
        break;
      case 1:
        channel.taken = value;
        break;
      case 2:
        channel.delivered = value;
        break;
      case 3:
        channel.staged = value;
        break;
      case 4:
        channel.sends = value;
        break;
      case 5:
        channel.receives = value;
        break;
      case 6:
        channel.reason_size = static_cast<uint32_t>(value);
        break;
      case 7:
        channel.said = static_cast<uint32_t>(value % 64 == 0 ? value : 0);
        break;
      case 8:
        credit.number = value;
        break;
      case 9:
        credit.bytes = static_cast<int64_t>(value);
        break;
      case 10:
        credit.offset = static_cast<int64_t>(value);
        break;
      default:
        credit.region = static_cast<int32_t>(value);
    }
    ring(mine_->bell(), Sleeper::Both);
  }

  std::mt19937_64 random_;
};

TEST_P(RandomDamage, never_ends_the_process) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  random_.seed(seed);
  std::vector<char> elsewhere(256 << 10);
  std::vector<TransferId> posted;
  for (int i = 0; i < 100; ++i) {
    const auto bytes = static_cast<int64_t>(draw() % elsewhere.size());
    char* data = random_() % 2 == 0 ? memory_ : elsewhere.data();
    const auto transfer = random_() % 2 == 0 ? endpoint_->post_send(RankIndex(1), data, bytes)
                                             : endpoint_->post_receive(RankIndex(1), data, bytes);
    if (transfer.ok()) posted.push_back(*transfer);
    if (random_() % 8 == 0) give_credit(from_endpoint().credited, bytes, {.region = 1, .offset = 0});
    if (random_() % 8 == 0) damage(random_() % 2 == 0 ? to_endpoint() : from_endpoint());
  }
  endpoint_->abort("the end of the test");
  for (const TransferId transfer : posted) (void)endpoint_->wait(transfer);  // ends
  EXPECT_EQ(endpoint_->post_send(RankIndex(1), memory_, 4).status().code(), StatusCode::kAborted);
}
INSTANTIATE_TEST_SUITE_P(Lives, RandomDamage, ::testing::Range(0, 60));

class Neighbours : public ::testing::Test {
 protected:
  Status open_beside(const std::string& address) {
    InProcessRendezvous rendezvous;
    EXPECT_TRUE(rendezvous.publish(RankIndex(1), "window", address).ok());
    return make_shared_memory_endpoint()->open({"pipeline", RankIndex(0), 2, "127.0.0.1"}, rendezvous, 1s);
  }
  WindowAddress address() {
    return {.neighbourhood = *here(), .pid = getpid(), .nonce = 7, .regions = {{.fd = 0, .bytes = 4096}}};
  }
};

TEST_F(Neighbours, rank_on_another_host_is_refused_with_both_names_and_what_to_do) {
  WindowAddress other = address();
  other.neighbourhood.host = "node-7";
  other.neighbourhood.boot = "00000000-1111-2222-3333-444444444444";
  const Status status = open_beside(to_string(other));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const std::string& part : {"rank 0 on host " + here()->host, std::string("rank 1 on host node-7"),
                                  std::string("different hosts"), std::string("p2p: {mode: two-sided}")}) {
    EXPECT_NE(message(status).find(part), std::string::npos) << status << "\nexpected to contain: " << part;
  }
}

TEST_F(Neighbours, rank_in_another_container_is_refused) {
  WindowAddress other = address();
  other.neighbourhood.processes = "pid:[1]";
  const Status status = open_beside(to_string(other));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(message(status).find("containers do not see each other's processes"), std::string::npos)
      << status;
}

TEST_F(Neighbours, process_that_has_ended_is_unavailable) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  WindowAddress other = address();
  other.pid = child;
  EXPECT_EQ(open_beside(to_string(other)).code(), StatusCode::kUnavailable);
}

TEST_F(Neighbours, file_that_is_no_window_is_refused) {
  // Descriptor 0 of this process: neither sealed nor of that size.
  EXPECT_EQ(open_beside(to_string(address())).code(), StatusCode::kFailedPrecondition);
  auto region = Region::create(4096, "the test", Region::Pages::Later);
  ASSERT_TRUE(region.ok());
  WindowAddress small = address();
  small.regions = {{.fd = (*region)->fd(), .bytes = 4096}};
  EXPECT_EQ(open_beside(to_string(small)).code(), StatusCode::kDataLoss);
}

TEST_F(Neighbours, window_of_another_rank_is_refused) {
  StatusOr<Window> window = Window::create(1, 2, 8, {});
  ASSERT_TRUE(window.ok());
  WindowAddress other = address();  // nonce 7: a process that got the pid of the one that was meant
  other.regions = {{.fd = window->regions()[0]->fd(), .bytes = window->regions()[0]->bytes()}};
  const Status status = open_beside(to_string(other));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(message(status).find("expected nonce 7"), std::string::npos) << status;
}

TEST_F(Neighbours, address_is_read_back_and_everything_else_refused) {
  WindowAddress one = address();
  one.regions.push_back({.fd = 9, .bytes = 12});
  const std::string text = to_string(one);
  const StatusOr<WindowAddress> read = parse_window_address(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(to_string(*read), text);
  const std::string head = "penstock-window-1 h b n ";
  for (const std::string& bad :
       {std::string(), std::string("penstock-window-2 h b n 1 2 3:4"), head + "1 2", head + "0 2 3:4",
        head + "-1 2 3:4", head + "1 2 -3:4", head + "1 2 3:0", head + "1 2 3:-4", head + "1 2 3",
        head + "1 2 3:99999999999999999999", head + "1 x 3:4", head + "1 2 3:4:5",
        head + "1 2 3:4 3:4 3:4 3:4 3:4 3:4 3:4 3:4 3:4"}) {
    EXPECT_EQ(open_beside(bad).code(), StatusCode::kDataLoss) << bad;
  }
}

TEST(ReceiveMemory, is_asked_for_before_opening_and_bounded) {
  InProcessRendezvous rendezvous;
  const std::unique_ptr<Endpoint> endpoint = make_shared_memory_endpoint();
  EXPECT_EQ(*endpoint->receive_memory(0), nullptr);
  for (size_t i = 1; i < kRegions; ++i) EXPECT_NE(*endpoint->receive_memory(64), nullptr);
  EXPECT_EQ(endpoint->receive_memory(64).status().code(), StatusCode::kResourceExhausted);
  CONTRACT_EXPECT_OK(endpoint->open({"pipeline", RankIndex(0), 1, "127.0.0.1"}, rendezvous, 1s));
  EXPECT_EQ(endpoint->receive_memory(64).status().code(), StatusCode::kFailedPrecondition);
  const std::unique_ptr<Endpoint> greedy = make_shared_memory_endpoint();
  EXPECT_EQ(greedy->receive_memory(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

TEST(ReceiveMemory, outlives_its_endpoint) {
  std::unique_ptr<Endpoint> endpoint = make_shared_memory_endpoint();
  const std::shared_ptr<void> memory = *endpoint->receive_memory(4096);
  endpoint.reset();
  std::memset(memory.get(), 1, 4096);
}

}  // namespace
}  // namespace penstock::worker
