// The other side of the checks between hosts: `fulldeck doctor --listen PORT`. Answers on TCP and UDP, keeps nothing of
// what it gets, and gives nothing away but that it is there.
//
// TCP: a request is 16 bytes, "FDDOCTOR" and two big-endian 32-bit numbers: what (1 echo, 2 sink) and 0. Each echo is
// answered with the same 16 bytes, on the same connection. After a sink everything up to the end of the client's half
// is counted and thrown away; the answer is the count, a big-endian 64-bit number, and the connection ends. UDP: a
// datagram that begins with "FDDOCTOR" is answered with "FDDOCTOR" and its length, a big-endian 32-bit number.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace fulldeck::doctor {

inline constexpr std::string_view kPeerMagic = "FDDOCTOR";
inline constexpr int kPeerPort = 29533;  // where nothing else is said
enum class PeerRequest : std::uint32_t { kEcho = 1, kSink = 2 };
inline constexpr std::size_t kPeerRequestBytes = 16;

struct PeerFaults {
  std::size_t largest_datagram = 65536;  // larger ones get no answer, as on a path with a small MTU
  base::Duration pause{};                // before each read of a sink: a slow path
};

// Not thread safe: one thread opens and serves.
class PeerListener {
 public:
  // Port 0: any free one. `faults` are for tests.
  static base::Result<PeerListener> Open(int port, PeerFaults faults = {});

  int port() const { return port_; }

  // Serves for that long.
  void Serve(base::Duration time);

 private:
  struct Connection {
    base::UniqueFd fd;
    std::vector<char> request;
    bool sinks = false;
    std::uint64_t count = 0;
    base::TimePoint heard;
  };

  void Accept();
  void AnswerDatagram();
  // False: it is over.
  bool Advance(Connection& connection);

  int port_ = 0;
  base::UniqueFd listener_;
  base::UniqueFd datagrams_;
  PeerFaults faults_;
  std::vector<Connection> connections_;
};

}  // namespace fulldeck::doctor
