// What the Gloo endpoint keeps of its peers and its transfers. Plain data, guarded by the endpoint's mutex.
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

namespace penstock::worker {

using UnboundBuffer = ::gloo::transport::UnboundBuffer;

// Posted at once per peer, so that announcements need no round trip.
inline constexpr int kControlReceives = 32;

enum class ControlKind : uint32_t { Ready = 1, Goodbye = 2, GoodbyeSeen = 3, Abort = 4 };

struct ControlMessage {
  ControlKind kind = ControlKind::Ready;
  uint32_t reason_size = 0;
  int64_t first = 0;   // Ready: number of the receive. Goodbye: messages sent
  int64_t second = 0;  // Ready: bytes. Goodbye: messages received
  std::array<char, 232> reason{};
};

// A control message that stays where it is until Gloo has written it.
struct ControlSend {
  ControlMessage message;
  std::unique_ptr<UnboundBuffer> buffer;
};

enum class Direction : uint8_t { Send, Receive };

struct GlooTransfer {
  Direction direction = Direction::Send;
  int peer = -1;
  void* data = nullptr;
  int64_t bytes = 0;
  int64_t id = -1;       // -1: this record is free
  bool started = false;  // its payload has been handed to Gloo
  std::unique_ptr<UnboundBuffer> payload;
  ControlSend ready;  // of a receive
};

struct GlooPeer {
  int rank = -1;
  int64_t sends = 0;     // posted so far
  int64_t receives = 0;  // posted so far
  int64_t announcements = 0;
  std::deque<int64_t> announced;          // sizes of the peer's receives that no send of ours has met yet
  std::deque<GlooTransfer*> unannounced;  // our sends that no receive of the peer has met yet
  ControlSend goodbye;
  ControlSend goodbye_seen;
  ControlSend abort;
  bool goodbye_received = false;
  bool goodbye_acknowledged = false;
  int64_t sends_at_goodbye = 0;  // of the peer
  int64_t receives_at_goodbye = 0;
  std::array<ControlMessage, kControlReceives> control;
  std::array<std::unique_ptr<UnboundBuffer>, kControlReceives> control_buffers;
  std::thread control_thread;

  bool farewell_complete() const { return goodbye_received && goodbye_acknowledged; }
};

}  // namespace penstock::worker
