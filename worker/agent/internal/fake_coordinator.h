// Tests' stand-in for a coordinator: real gRPC on a loopback port, and a log of what the worker said.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "penstock/v1/broker.grpc.pb.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::worker {

class FakeCoordinator {
 public:
  // Port 0 picks a free one.
  explicit FakeCoordinator(int port = 0) : workers_(*this), broker_(*this) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&workers_);
    builder.RegisterService(&broker_);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() { stop(); }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

  void send(v1::CoordinatorMessage message) {
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(message));
    changed_.notify_all();
  }
  // Heartbeats are answered only while this is set.
  void set_answering(bool answering) {
    const std::lock_guard lock(mutex_);
    answering_ = answering;
  }

  // Every session that registers from now on ends so.
  void refuse(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    refusal_ = status;
  }

  // The first message since the last call that `wanted` accepts, those before it are passed over; nullopt
  // after `seconds`.
  std::optional<v1::WorkerMessage> await(const std::function<bool(const v1::WorkerMessage&)>& wanted,
                                         double seconds = 20) {
    std::unique_lock lock(mutex_);
    std::optional<v1::WorkerMessage> found;
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
      for (; next_ < received_.size() && !found; ++next_) {
        if (wanted(received_[next_])) found = received_[next_];
      }
      return found.has_value();
    });
    return found;
  }
  int sessions() const {
    const std::lock_guard lock(mutex_);
    return sessions_;
  }
  // Whether the last session ended by the worker's own wish.
  bool ended_gracefully() const {
    const std::lock_guard lock(mutex_);
    return ended_gracefully_;
  }

 private:
  class Workers final : public v1::Workers::Service {
   public:
    explicit Workers(FakeCoordinator& owner) : owner_(owner) {}
    grpc::Status Session(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
      return owner_.serve(context, stream);
    }

   private:
    FakeCoordinator& owner_;
  };
  class Broker final : public v1::Broker::Service {
   public:
    explicit Broker(FakeCoordinator& owner) : owner_(owner) {}
    grpc::Status Publish(grpc::ServerContext*, const v1::PublishRequest* request,
                         v1::PublishResponse*) override {
      const std::lock_guard lock(owner_.mutex_);
      const bool fresh = owner_.published_.emplace(request->key().item(), request->value()).second;
      return fresh ? grpc::Status::OK : grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "published before");
    }
    grpc::Status LookUp(grpc::ServerContext*, const v1::LookUpRequest* request,
                        v1::LookUpResponse* response) override {
      const std::lock_guard lock(owner_.mutex_);
      const auto found = owner_.published_.find(request->key().item());
      if (found == owner_.published_.end()) return {grpc::StatusCode::DEADLINE_EXCEEDED, "rank is missing"};
      response->set_value(found->second);
      return grpc::Status::OK;
    }

   private:
    FakeCoordinator& owner_;
  };

  grpc::Status serve(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) {
    {
      const std::lock_guard lock(mutex_);
      ++sessions_;
      ended_gracefully_ = false;
      outgoing_.clear();
    }
    bool reading_ended = false;
    std::thread writer([&] { write_all(stream, reading_ended); });
    v1::WorkerMessage message;
    while (stream->Read(&message) && take(message)) {
    }
    const bool graceful = !context->IsCancelled();
    {
      const std::lock_guard lock(mutex_);
      reading_ended = true;
      ended_gracefully_ = graceful;
      changed_.notify_all();
    }
    writer.join();
    const std::lock_guard lock(mutex_);
    return refusal_;
  }

  // False: the session is refused.
  bool take(const v1::WorkerMessage& message) {
    const std::lock_guard lock(mutex_);
    if (message.has_register_() && !refusal_.ok()) return false;
    if (message.has_register_()) {
      v1::CoordinatorMessage registered;
      registered.mutable_registered()->set_lease_ms(2000);
      registered.mutable_registered()->set_leases_missed(3);
      registered.mutable_registered()->set_coordinator("fake");
      outgoing_.push_back(registered);
    }
    if (message.has_heartbeat() && answering_) {
      v1::CoordinatorMessage ack;
      ack.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
      outgoing_.push_back(ack);
    }
    received_.push_back(message);
    changed_.notify_all();
    return true;
  }

  void write_all(grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream,
                 const bool& ended) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended || stopping_ || !outgoing_.empty(); });
      if (ended || stopping_) return;
      const v1::CoordinatorMessage message = outgoing_.front();
      outgoing_.pop_front();
      lock.unlock();
      stream->Write(message);
      lock.lock();
    }
  }

  Workers workers_;
  Broker broker_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::WorkerMessage> received_;
  size_t next_ = 0;
  std::deque<v1::CoordinatorMessage> outgoing_;
  std::map<std::string, std::string> published_;
  int sessions_ = 0;
  bool answering_ = true;
  grpc::Status refusal_ = grpc::Status::OK;
  bool stopping_ = false;
  bool ended_gracefully_ = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace penstock::worker
