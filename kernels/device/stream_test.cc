#include "kernels/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <vector>

namespace penstock::kernels {
namespace {

// Work that holds its stream until it is opened.
class Gate {
 public:
  std::function<void()> work() const {
    return [opened = opened_] { opened.wait(); };
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

TEST(Stream, work_runs_in_order) {
  Stream stream("order");
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) stream.view().enqueue([&seen, i] { seen.push_back(i); });
  stream.view().synchronize();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_TRUE(stream.view().query());
}

TEST(Stream, query_is_false_while_work_is_under_way) {
  Stream stream("query");
  Gate gate;
  EXPECT_TRUE(stream.view().query());
  stream.view().enqueue(gate.work());
  EXPECT_FALSE(stream.view().query());
  gate.open();
  stream.view().synchronize();
  EXPECT_TRUE(stream.view().query());
}

TEST(Stream, full_queue_blocks_the_caller_until_work_ends) {
  // The bound is what keeps a producer from running away from its consumer.
  Stream stream("bounded", 2);
  Gate gate;
  std::atomic<int> enqueued{0};
  stream.view().enqueue(gate.work());
  stream.view().enqueue([] {});
  std::promise<void> third_in;
  std::thread producer([&] {
    stream.view().enqueue([] {});
    enqueued = 3;
    third_in.set_value();
  });
  EXPECT_EQ(third_in.get_future().wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(enqueued.load(), 0);
  gate.open();
  producer.join();
  EXPECT_EQ(enqueued.load(), 3);
}

TEST(Stream, destructor_waits_for_work) {
  std::atomic<int> done{0};
  {
    Stream stream("drain");
    for (int i = 0; i < 10; ++i) stream.view().enqueue([&] { ++done; });
  }
  EXPECT_EQ(done.load(), 10);
}

TEST(Stream, moved_stream_keeps_its_work_and_views) {
  Stream first("moved");
  const StreamView view = first.view();
  std::atomic<int> done{0};
  view.enqueue([&] { ++done; });
  const Stream second = std::move(first);
  view.enqueue([&] { ++done; });
  second.view().synchronize();
  EXPECT_EQ(done.load(), 2);
}

TEST(Event, never_recorded_counts_as_passed) {
  Stream stream("fresh");
  const Event event;
  EXPECT_TRUE(event.view().query());
  event.view().synchronize();
  stream.view().wait(event.view());
  stream.view().synchronize();
}

TEST(Event, passes_with_the_work_before_it_and_not_with_the_work_after) {
  Stream stream("record");
  const Event event;
  Gate before;
  Gate after;
  stream.view().enqueue(before.work());
  stream.view().record(event.view());
  stream.view().enqueue(after.work());
  EXPECT_FALSE(event.view().query());
  before.open();
  event.view().synchronize();
  EXPECT_TRUE(event.view().query());
  EXPECT_FALSE(stream.view().query());
  after.open();
}

TEST(Event, orders_work_between_streams) {
  // A buffer is reused only after the stream that last wrote it has passed: this is that edge.
  Stream producer("producer");
  Stream consumer("consumer");
  const Event ready;
  Gate gate;
  int value = 0;
  int seen = -1;
  producer.view().enqueue(gate.work());
  producer.view().enqueue([&] { value = 7; });
  producer.view().record(ready.view());
  consumer.view().wait(ready.view());
  consumer.view().enqueue([&] { seen = value; });
  EXPECT_FALSE(consumer.view().query());
  gate.open();
  consumer.view().synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(Event, a_wait_looks_at_the_record_of_its_own_time) {
  Stream producer("producer");
  Stream consumer("consumer");
  const Event event;
  producer.view().record(event.view());
  producer.view().synchronize();
  consumer.view().wait(event.view());
  Gate gate;
  producer.view().enqueue(gate.work());
  producer.view().record(event.view());
  consumer.view().synchronize();  // must not wait for the second record
  EXPECT_FALSE(event.view().query());
  gate.open();
  event.view().synchronize();
}

TEST(Event, may_be_destroyed_while_a_stream_still_holds_it) {
  Stream stream("early");
  Gate gate;
  std::optional<Event> event(std::in_place);
  stream.view().enqueue(gate.work());
  stream.view().record(event->view());
  stream.view().wait(event->view());
  event.reset();
  gate.open();
  stream.view().synchronize();
}

}  // namespace
}  // namespace penstock::kernels
