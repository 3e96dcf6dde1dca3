// The contract of Endpoint as a test suite. A transport enrols in a few lines of its own endpoint_test.cc:
//
//     INSTANTIATE_TEST_SUITE_P(Gloo, EndpointContract,
//                              cases_of({"gloo", true, [] { return make_gloo_endpoint; }}), case_name);
//
// Ranks run as threads of the test; transports that cross processes run everything again with a forked
// process a rank, and then also lose some of those processes. Included by tests only.
#pragma once

#include <random>

#include "worker/transport/endpoint_contract_ranks.h"

namespace penstock::worker {

TEST_P(EndpointContract, messages_of_a_pair_arrive_in_posted_order) {
  // The interpreter names no message: the order is all that says which tensor has come.
  constexpr int kMessages = 20;
  run_ranks([](const TestRank& me) {
    std::vector<std::vector<int32_t>> buffers;
    buffers.reserve(2 * kMessages * me.ranks);
    std::vector<TransferId> transfers;
    const auto words = [](int number) { return 1 + number * 100; };
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < me.ranks; ++peer) {
        if (peer == me.rank) continue;
        auto& out = buffers.emplace_back(pattern(me.rank, peer, number, words(number)));
        transfers.push_back(*me.endpoint->post_send(RankIndex(peer), out.data(), 4 * words(number)));
        auto& in = buffers.emplace_back(std::vector<int32_t>(words(number)));
        transfers.push_back(*me.endpoint->post_receive(RankIndex(peer), in.data(), 4 * words(number)));
      }
    }
    for (const TransferId transfer : transfers) CONTRACT_EXPECT_OK(me.endpoint->wait(transfer));
    size_t next = 0;
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < me.ranks; ++peer) {
        if (peer == me.rank) continue;
        EXPECT_EQ(buffers[next + 1], pattern(peer, me.rank, number, words(number))) << peer << " " << number;
        next += 2;
      }
    }
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, big_messages_pass_both_ways_at_once) {
  run_ranks([](const TestRank& me) {
    constexpr int64_t kWords = 8 << 20;
    const std::vector<int32_t> out = pattern(me.rank, me.next().value, 0, kWords);
    std::vector<int32_t> in(kWords);
    const TransferId send = *me.endpoint->post_send(me.next(), out.data(), 4 * kWords);
    const TransferId receive = *me.endpoint->post_receive(me.previous(), in.data(), 4 * kWords);
    CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
    CONTRACT_EXPECT_OK(me.endpoint->wait(send));
    EXPECT_TRUE(in == pattern(me.previous().value, me.rank, 0, kWords));
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, thousands_of_messages_may_be_in_flight) {
  run_ranks([](const TestRank& me) {
    constexpr int kMessages = 2000;
    std::vector<std::vector<int32_t>> in(kMessages, std::vector<int32_t>(16));
    std::vector<std::vector<int32_t>> out;
    std::vector<TransferId> transfers;
    for (int i = 0; i < kMessages; ++i)
      transfers.push_back(*me.endpoint->post_receive(me.previous(), in[i].data(), 64));
    for (int i = 0; i < kMessages; ++i) out.push_back(pattern(me.rank, me.next().value, i, 16));
    for (int i = 0; i < kMessages; ++i)
      transfers.push_back(*me.endpoint->post_send(me.next(), out[i].data(), 64));
    for (const TransferId transfer : transfers) CONTRACT_EXPECT_OK(me.endpoint->wait(transfer));
    for (int i = 0; i < kMessages; ++i) EXPECT_EQ(in[i], pattern(me.previous().value, me.rank, i, 16)) << i;
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, same_memory_is_used_again_and_again) {
  // A link's slots are: a transport that remembers anything of the last message in them would show here.
  run_ranks([](const TestRank& me) {
    std::vector<int32_t> out(256), in(256);
    for (int i = 0; i < 100; ++i) {
      const TransferId receive = *me.endpoint->post_receive(me.previous(), in.data(), 1024);
      out = pattern(me.rank, me.next().value, i, 256);
      const TransferId send = *me.endpoint->post_send(me.next(), out.data(), 1024);
      CONTRACT_EXPECT_OK(me.endpoint->wait(send));
      CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
      ASSERT_EQ(in, pattern(me.previous().value, me.rank, i, 256));
    }
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

// One message of the storm, known to both its ends.
struct StormMessage {
  int64_t words = 0;
  bool into_receive_memory = false;
};

inline std::vector<StormMessage> storm_of(uint64_t seed, int round, int source, int target) {
  std::seed_seq key{seed, static_cast<uint64_t>(round), static_cast<uint64_t>(source),
                    static_cast<uint64_t>(target)};
  std::mt19937_64 random(key);
  std::vector<StormMessage> messages(random() % 9);
  for (StormMessage& message : messages) {
    const int64_t most = int64_t{1} << (random() % 16);  // as many small ones as large ones
    message = {static_cast<int64_t>(random() % static_cast<uint64_t>(most)), random() % 2 == 0};
  }
  return messages;
}

TEST_P(EndpointContract, random_storm_of_messages_arrives_whole_and_in_order) {
  // Sizes, memory and the order of posts and waits are drawn; what one round posts is waited for in the next.
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  run_ranks([seed](const TestRank& me) {
    constexpr int kRounds = 40;
    struct Posted {
      TransferId id;
      std::vector<int32_t> own;
      int32_t* data = nullptr;        // of a receive
      std::vector<int32_t> expected;  // of a receive
    };
    std::mt19937_64 random(seed * 31 + static_cast<uint64_t>(me.rank));
    std::vector<Posted> before;
    for (int round = 0; round <= kRounds; ++round) {
      struct Next {
        int peer;
        bool sends;
        std::vector<StormMessage> messages;
        size_t done = 0;
      };
      std::vector<Next> queues;
      for (int peer = 0; peer < me.ranks && round < kRounds; ++peer) {
        if (peer == me.rank) continue;
        queues.push_back({peer, true, storm_of(seed, round, me.rank, peer)});
        queues.push_back({peer, false, storm_of(seed, round, peer, me.rank)});
      }
      char* room =
          me.receive_memory == nullptr ? nullptr : me.receive_memory + (round % 2) * kReceiveMemory / 2;
      std::vector<Posted> posted;
      while (true) {
        std::erase_if(queues, [](const Next& queue) { return queue.done == queue.messages.size(); });
        if (queues.empty()) break;
        Next& queue = queues[random() % queues.size()];
        const StormMessage& message = queue.messages[queue.done];
        const int number = round * 100 + static_cast<int>(queue.done++);
        const int64_t bytes = 4 * message.words;
        Posted& one = posted.emplace_back();
        if (queue.sends) {
          one.own = pattern(me.rank, queue.peer, number, message.words);
          one.id = *me.endpoint->post_send(RankIndex(queue.peer), one.own.data(), bytes);
          continue;
        }
        one.expected = pattern(queue.peer, me.rank, number, message.words);
        one.own.resize(static_cast<size_t>(message.words));
        one.data = one.own.data();
        if (room != nullptr && message.into_receive_memory) {
          one.data = reinterpret_cast<int32_t*>(std::exchange(room, room + (bytes + 63) / 64 * 64));
        }
        one.id = *me.endpoint->post_receive(RankIndex(queue.peer), one.data, bytes);
      }
      std::shuffle(before.begin(), before.end(), random);
      for (const Posted& one : before) {
        CONTRACT_EXPECT_OK(me.endpoint->wait(one.id));
        EXPECT_TRUE(std::equal(one.expected.begin(), one.expected.end(), one.data)) << round;
      }
      before = std::move(posted);
    }
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, empty_message_keeps_its_place) {
  run_ranks([](const TestRank& me) {
    int32_t out = 40 + me.rank;
    int32_t in = 0;
    std::vector<TransferId> transfers;
    transfers.push_back(*me.endpoint->post_send(me.next(), nullptr, 0));
    transfers.push_back(*me.endpoint->post_send(me.next(), &out, 4));
    transfers.push_back(*me.endpoint->post_receive(me.previous(), nullptr, 0));
    transfers.push_back(*me.endpoint->post_receive(me.previous(), &in, 4));
    for (const TransferId transfer : transfers) CONTRACT_EXPECT_OK(me.endpoint->wait(transfer));
    EXPECT_EQ(in, 40 + me.previous().value);
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, sizes_that_differ_are_an_error_on_both_ends) {
  // A program that disagrees with its neighbour must end with both sizes in the reason, whichever is larger.
  for (const auto& [sent, expected] : {std::pair(64, 128), std::pair(128, 64)}) {
    run_ranks([sent = sent, expected = expected](const TestRank& me) {
      std::vector<char> memory(128);
      const std::string reason =
          fmt::format("rank 0 sends {} bytes to rank 1, which expects {}", sent, expected);
      Status status = ok_status();
      if (me.rank == 0) {
        const StatusOr<TransferId> send = me.endpoint->post_send(RankIndex(1), memory.data(), sent);
        status = send.ok() ? me.endpoint->wait(*send) : send.status();
      } else if (me.rank == 1) {
        const StatusOr<TransferId> receive = me.endpoint->post_receive(RankIndex(0), memory.data(), expected);
        status = receive.ok() ? me.endpoint->wait(*receive) : receive.status();
      } else {  // bystanders learn it too
        const StatusOr<TransferId> receive = me.endpoint->post_receive(RankIndex(0), memory.data(), 8);
        status = receive.ok() ? me.endpoint->wait(*receive) : receive.status();
      }
      expect_aborted(status, reason);
      me.meet("seen");
    });
  }
}

TEST_P(EndpointContract, abort_wakes_waiters_here_and_there_with_the_reason) {
  run_ranks([](const TestRank& me) {
    int32_t in = 0, late = 0;
    const TransferId first = *me.endpoint->post_receive(me.previous(), &in, 4);
    const TransferId second = *me.endpoint->post_receive(me.previous(), &late, 4);
    me.meet("posted");
    std::thread aborter;
    if (me.rank == 0) aborter = std::thread([&] { me.endpoint->abort("job 7 was cancelled"); });
    expect_aborted(me.endpoint->wait(first), "job 7 was cancelled");
    expect_aborted(me.endpoint->wait(second), "job 7 was cancelled");
    if (aborter.joinable()) aborter.join();
    expect_aborted(me.endpoint->post_send(me.next(), &in, 4).status(), "job 7 was cancelled");
    expect_aborted(me.endpoint->drain(), "job 7 was cancelled");
    me.meet("seen");
  });
}

TEST_P(EndpointContract, abort_in_the_middle_of_a_message_wakes_both_ends) {
  // A transport in memory has copied by then, and both waits may succeed; one that crosses processes has not.
  const bool must_abort = GetParam().transport.across_processes;
  run_ranks([must_abort](const TestRank& me) {
    constexpr int64_t kBytes = kLongMessage;
    std::vector<char> memory(me.rank < 2 ? kBytes : 4, me.rank == 0 ? 1 : 0);
    if (me.rank < 2) {
      const StatusOr<TransferId> transfer =
          me.rank == 0 ? me.endpoint->post_send(RankIndex(1), memory.data(), kBytes)
                       : me.endpoint->post_receive(RankIndex(0), memory.data(), kBytes);
      if (me.rank == 1) {
        while (*const_cast<volatile char*>(memory.data()) == 0) sched_yield();  // until the message has begun
        me.endpoint->abort("enough");
      }
      const Status status = transfer.ok() ? me.endpoint->wait(*transfer) : transfer.status();
      if (must_abort || !status.ok()) expect_aborted(status, "enough");
    }
    me.meet("seen");
  });
}

TEST_P(EndpointContract, each_transfer_is_waited_for_once) {
  run_ranks([](const TestRank& me) {
    int32_t out = 1, in = 0;
    const TransferId send = *me.endpoint->post_send(me.next(), &out, 4);
    const TransferId receive = *me.endpoint->post_receive(me.previous(), &in, 4);
    CONTRACT_EXPECT_OK(me.endpoint->wait(send));
    CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
    EXPECT_EQ(me.endpoint->wait(receive).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(me.endpoint->wait(TransferId{}).code(), StatusCode::kInvalidArgument);
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, transfer_with_oneself_or_with_nobody_is_refused) {
  run_ranks([](const TestRank& me) {
    int32_t word = 0;
    EXPECT_EQ(me.endpoint->post_send(me.index(), &word, 4).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(me.endpoint->post_receive(RankIndex(me.ranks), &word, 4).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(me.endpoint->post_send(me.next(), &word, -1).status().code(), StatusCode::kInvalidArgument);
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, drain_refuses_transfers_that_nobody_waited_for) {
  run_ranks([](const TestRank& me) {
    int32_t out = 1, in = 0;
    const TransferId send = *me.endpoint->post_send(me.next(), &out, 4);
    const TransferId receive = *me.endpoint->post_receive(me.previous(), &in, 4);
    EXPECT_EQ(me.endpoint->drain().code(), StatusCode::kFailedPrecondition);
    CONTRACT_EXPECT_OK(me.endpoint->wait(send));
    CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, rank_that_drains_first_does_not_disturb_those_that_still_work) {
  // Ranks end at different times; the early one must neither be taken for lost nor close under the others.
  run_ranks([](const TestRank& me) {
    const bool works_on = me.ranks > 2 && (me.rank == 1 || me.rank == 2);
    const RankIndex partner(me.rank == 1 ? 2 : 1);
    for (int i = 0; works_on && i < 200; ++i) {
      int32_t out = i, in = -1;
      const TransferId send = *me.endpoint->post_send(partner, &out, 4);
      const TransferId receive = *me.endpoint->post_receive(partner, &in, 4);
      CONTRACT_EXPECT_OK(me.endpoint->wait(send));
      CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
      EXPECT_EQ(in, i);
    }
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, transfer_with_a_rank_that_has_drained_is_an_error_and_not_a_hang) {
  run_ranks([](const TestRank& me) {
    int32_t word = 0;
    if (me.rank == 0) {
      expect_aborted(me.endpoint->drain(), "rank 0");
    } else if (me.rank == 1) {
      const StatusOr<TransferId> receive = me.endpoint->post_receive(RankIndex(0), &word, 4);
      expect_aborted(receive.ok() ? me.endpoint->wait(*receive) : receive.status(), "rank 0");
    } else {
      expect_aborted(me.endpoint->drain(), "rank 0");
    }
    me.meet("seen");
  });
}

TEST_P(EndpointContract, waiting_does_not_spin) {
  // A stage that waits for another must leave the core to it.
  const bool process_is_mine = GetParam().forked;
  run_ranks([process_is_mine](const TestRank& me) {
    int32_t in = 0, out = 1;
    const TransferId receive = *me.endpoint->post_receive(me.previous(), &in, 4);
    me.meet("posted");
    // In a process of its own the rank answers for the transport's threads too.
    const auto cpu_time = [process_is_mine] {
      return process_is_mine ? process_cpu_time() : thread_cpu_time();
    };
    const Duration cpu = cpu_time();
    std::thread late([&] {
      std::this_thread::sleep_for(200ms);  // the time that is waited for, not a synchronisation
      const TransferId send = *me.endpoint->post_send(me.next(), &out, 4);
      CONTRACT_EXPECT_OK(me.endpoint->wait(send));
    });
    CONTRACT_EXPECT_OK(me.endpoint->wait(receive));
    EXPECT_LT(cpu_time() - cpu, 50ms);
    late.join();
    CONTRACT_EXPECT_OK(me.endpoint->drain());
  });
}

TEST_P(EndpointContract, endpoint_left_without_drain_is_told_to_the_others) {
  run_ranks([](const TestRank& me) {
    int32_t in = 0;
    me.meet("open");           // to leave while others still connect is another story
    if (me.rank == 0) return;  // as an executor does that has met an error
    const StatusOr<TransferId> receive = me.endpoint->post_receive(RankIndex(0), &in, 4);
    expect_aborted(receive.ok() ? me.endpoint->wait(*receive) : receive.status(), "rank 0");
    me.meet_without(0, "seen");
  });
}

TEST_P(EndpointContract, missing_rank_is_named_when_the_group_opens) {
  const auto make_endpoint = GetParam().transport.make_group();
  InProcessRendezvous rendezvous;
  const std::unique_ptr<Endpoint> endpoint = make_endpoint();
  const Status status = endpoint->open(
      {.name = "pipeline", .rank = RankIndex(0), .ranks = 2, .bind_address = "127.0.0.1"}, rendezvous, 50ms);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(message(status).find("rank 1"), std::string::npos) << status;
}

TEST_P(EndpointContract, lone_rank_opens_and_drains) {
  InProcessRendezvous rendezvous;
  const std::unique_ptr<Endpoint> endpoint = GetParam().transport.make_group()();
  CONTRACT_EXPECT_OK(endpoint->open(
      {.name = "pipeline", .rank = RankIndex(0), .ranks = 1, .bind_address = "127.0.0.1"}, rendezvous, 1s));
  CONTRACT_EXPECT_OK(endpoint->drain());
}

TEST_P(EndpointLossContract, lost_peer_wakes_every_waiter_quickly) {
  // The promise is that a dead process is known within a second.
  const int last = ranks() - 1;
  run_ranks(
      [last](const TestRank& me) {
        int32_t in = 0;
        const TransferId receive = *me.endpoint->post_receive(me.previous(), &in, 4);
        me.meet("pid");
        if (me.rank == last) {
          EXPECT_FALSE(me.endpoint->wait(receive).ok());  // never returns: rank 0 kills us
          return;
        }
        if (me.rank == 0) kill(me.pid_of(last), SIGKILL);
        const TimePoint start = SystemClock().now();
        expect_aborted(me.endpoint->wait(receive), fmt::format("rank {} was lost", last));
        EXPECT_LT(SystemClock().now() - start, 1s);
        expect_aborted(me.endpoint->post_receive(me.next(), &in, 4).status(), "was lost");
        me.meet_without(last, "seen");
      },
      {last});
}

TEST_P(EndpointLossContract, peer_killed_in_the_middle_of_a_message_wakes_its_receiver) {
  run_ranks(
      [](const TestRank& me) {
        constexpr int64_t kBytes = kLongMessage;
        std::vector<char> memory(me.rank < 2 ? kBytes : 4, me.rank == 0 ? 1 : 0);
        if (me.rank == 0) {
          const TransferId send = *me.endpoint->post_send(RankIndex(1), memory.data(), kBytes);
          me.meet("pid");
          EXPECT_FALSE(me.endpoint->wait(send).ok());  // rank 1 kills us while it receives
          return;
        }
        me.meet("pid");
        const pid_t sender = me.pid_of(0);  // known before the message begins
        const TransferId receive =
            *me.endpoint->post_receive(RankIndex(0), memory.data(), me.rank == 1 ? kBytes : 4);
        if (me.rank == 1) {
          while (*const_cast<volatile char*>(memory.data()) == 0)
            sched_yield();  // until the message has begun
          kill(sender, SIGKILL);
        }
        const TimePoint start = SystemClock().now();
        const Status status = me.endpoint->wait(receive);
        expect_aborted(status, "rank 0 was lost");
        if (me.rank == 1) {
          EXPECT_LT(SystemClock().now() - start, 1s);
          EXPECT_EQ(memory.back(), 0) << "the whole message came: this test showed nothing";
        }
        me.meet_without(0, "seen");
      },
      {0});
}

TEST_P(EndpointLossContract, peer_killed_in_the_middle_of_a_message_wakes_its_sender) {
  run_ranks(
      [](const TestRank& me) {
        constexpr int64_t kBytes = kLongMessage;
        std::vector<char> memory(me.rank < 2 ? kBytes : 4, me.rank == 0 ? 1 : 0);
        if (me.rank == 1) {
          const TransferId receive = *me.endpoint->post_receive(RankIndex(0), memory.data(), kBytes);
          while (*const_cast<volatile char*>(memory.data()) == 0) sched_yield();
          EXPECT_EQ(memory.back(), 0) << "the whole message came: this test showed nothing";
          raise(SIGKILL);
          EXPECT_FALSE(me.endpoint->wait(receive).ok());
        } else if (me.rank == 0) {
          const StatusOr<TransferId> send = me.endpoint->post_send(RankIndex(1), memory.data(), kBytes);
          expect_aborted(send.ok() ? me.endpoint->wait(*send) : send.status(), "rank 1 was lost");
        } else {
          const StatusOr<TransferId> receive = me.endpoint->post_receive(RankIndex(1), memory.data(), 4);
          expect_aborted(receive.ok() ? me.endpoint->wait(*receive) : receive.status(), "rank 1 was lost");
        }
        me.meet_without(1, "seen");
      },
      {1});
}

}  // namespace penstock::worker
