// The remote side of the checks between nodes: `fulldeck doctor --listen PORT`. Answers on TCP and UDP to peers that
// have the token, stores nothing that it receives, and reveals only that it exists.
//
// A message is 64 bytes: eight letters ("FDDOCTOR" of a request, "FDANSWER" of an answer, so that an answer is never
// taken for a request), two big-endian 32-bit numbers, 16 random bytes that the answer repeats, and the HMAC-SHA256 of
// all that under the token. The first number of a request is its kind; an answer repeats it.
//
// TCP: each echo (1) is answered on the same connection. After a sink (2) everything until the client shuts down its
// half is counted and discarded; the answer is the count, a big-endian 64-bit number, and the connection ends. UDP: a
// datagram that begins with a request (3) is answered with 64 bytes whose second number is the datagram's length. An
// answer is never larger than its request, and their number per second is limited.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "doctor/machine/system_calls.h"
#include "net/host_address.h"

namespace fulldeck::doctor {

inline constexpr int kPeerPort = 29533;  // the default
inline constexpr int kMaxDatagramsPerSecond = 200;
enum class PeerRequest : std::uint32_t { kEcho = 1, kSink = 2, kDatagram = 3 };

inline constexpr std::size_t kPeerNonceBytes = 16;
using PeerNonce = std::array<char, kPeerNonceBytes>;
using PeerMessage = std::array<char, 64>;

PeerMessage MakePeerRequest(PeerRequest what, const PeerNonce& nonce, std::string_view token);
// Verifies that `bytes` are the answer to that request; returns its second number.
std::optional<std::uint32_t> ReadPeerAnswer(const PeerMessage& bytes, PeerRequest what, const PeerNonce& nonce,
                                            std::string_view token);
PeerNonce NewPeerNonce();

struct PeerFaults {
  std::size_t largest_datagram = 65536;  // larger ones get no answer, as on a path with a small MTU
  base::Duration pause{};                // before each read of a sink: a slow path
};

// The address at which other nodes reach this one, whose name resolves to `address`. On many systems a node's own name
// resolves to loopback (127.0.1.1): then it is the address of the only other interface, or an error that names them if
// there are several. Returns `address` itself if there is no other interface.
base::Result<std::string> ReachableAddress(const std::string& name, const net::HostAddress& address,
                                           const std::vector<NetworkInterface>& interfaces);

// Not thread safe: the same thread opens and serves.
class PeerListener {
 public:
  // Listens only on that address; port 0: any free port. `token` must not be empty. `faults` are for tests.
  static base::Result<PeerListener> Open(const net::HostAddress& address, std::string token, PeerFaults faults = {});

  int port() const { return port_; }

  // Serves for the duration `time`.
  void Serve(base::Duration time);

 private:
  struct Connection {
    base::UniqueFd fd;
    std::vector<char> request;
    bool proven = false;  // has sent a request with the token
    bool sinks = false;
    std::uint64_t count = 0;
    base::TimePoint heard;
  };

  void Accept();
  void AnswerDatagram();
  // False: the connection has ended.
  bool Advance(Connection& connection);

  int port_ = 0;
  std::string token_;
  base::TimePoint second_;  // the second in which `answered_` datagrams were answered
  int answered_ = 0;
  base::UniqueFd listener_;
  base::UniqueFd datagrams_;
  PeerFaults faults_;
  std::vector<Connection> connections_;
};

}  // namespace fulldeck::doctor
