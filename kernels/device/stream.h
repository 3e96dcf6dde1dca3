// Streams and events that speak like CUDA's, and their CPU twin: an in-order queue on a thread of its own.
//
// Owner and view: Stream and Event own and move, StreamView and EventView are copied and outlived by their
// owner. Pass streams in; never look one up. Ordering: the work of one stream runs in the order in which it
// was enqueued; between streams only events order. Limits: a stream holds at most `capacity` pieces of work;
// enqueue, record and wait then block until one has ended. So work never enqueues on its own stream. An
// exception that leaves a piece of work stops the process. Thread: every method may be called from any
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace penstock::kernels {

class EventView {
 public:
  // True when the work before the latest record() has ended, or when nothing was recorded yet.
  bool query() const;
  // Waits until query() is true of the record that is the latest now.
  void synchronize() const;

 private:
  friend class Event;
  friend class StreamView;
  struct State;
  explicit EventView(State* state) : state_(state) {}
  State* state_;
};

class Event {
 public:
  Event();
  ~Event();  // work that was recorded or waits may still be under way
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  EventView view() const { return EventView(state_.get()); }

 private:
  std::shared_ptr<EventView::State> state_;
};

class StreamView {
 public:
  void enqueue(std::function<void()> work) const;
  // The event passes when all work enqueued so far has ended. Recording again replaces the earlier record.
  void record(EventView event) const;
  // Work enqueued later starts after the event's latest record as of now; nothing recorded: no wait.
  void wait(EventView event) const;
  // True when all work enqueued so far has ended.
  bool query() const;
  // Waits until all work enqueued before this call has ended.
  void synchronize() const;

 private:
  friend class Stream;
  class Queue;
  explicit StreamView(Queue* queue) : queue_(queue) {}
  Queue* queue_;
};

class Stream {
 public:
  static constexpr size_t kDefaultCapacity = 1024;

  // `name` is the thread's name; the system keeps its first 15 characters.
  explicit Stream(const std::string& name, size_t capacity = kDefaultCapacity);
  ~Stream();  // waits for the work enqueued
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  StreamView view() const { return StreamView(queue_.get()); }

 private:
  std::unique_ptr<StreamView::Queue> queue_;
};

}  // namespace penstock::kernels
