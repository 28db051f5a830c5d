// The other side of the checks between nodes: `fulldeck doctor --listen PORT`. Answers on TCP and UDP to whoever has
// the token, keeps nothing of what it gets, and gives nothing away but that it is there.
//
// A message is 64 bytes: eight letters ("FDDOCTOR" of a request, "FDANSWER" of an answer, so that no answer is ever
// taken for a request), two big-endian 32-bit numbers, 16 random bytes that the answer repeats, and the HMAC-SHA256 of
// all that under the token. The first number of a request says what is asked; that of an answer repeats it.
//
// TCP: each echo (1) is answered on the same connection. After a sink (2) everything up to the end of the client's half
// is counted and thrown away; the answer is the count, a big-endian 64-bit number, and the connection ends. UDP: a
// datagram that begins with a request (3) is answered with 64 bytes whose second number is the datagram's length. No
// answer is larger than what it answers, and their number per second is limited.
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

inline constexpr int kPeerPort = 29533;  // where nothing else is said
inline constexpr int kMaxDatagramsPerSecond = 200;
enum class PeerRequest : std::uint32_t { kEcho = 1, kSink = 2, kDatagram = 3 };

inline constexpr std::size_t kPeerNonceBytes = 16;
using PeerNonce = std::array<char, kPeerNonceBytes>;
using PeerMessage = std::array<char, 64>;

PeerMessage MakePeerRequest(PeerRequest what, const PeerNonce& nonce, std::string_view token);
// Whether `bytes` are the answer to that request; its second number.
std::optional<std::uint32_t> ReadPeerAnswer(const PeerMessage& bytes, PeerRequest what, const PeerNonce& nonce,
                                            std::string_view token);
PeerNonce NewPeerNonce();

struct PeerFaults {
  std::size_t largest_datagram = 65536;  // larger ones get no answer, as on a path with a small MTU
  base::Duration pause{};                // before each read of a sink: a slow path
};

// The address at which other nodes reach this one, whose name leads to `address`. Many systems let a node's own name
// lead to loopback (127.0.1.1): then it is the address of the only other interface; an error names them where there are
// several. `address` itself where there is no other interface.
base::Result<std::string> ReachableAddress(const std::string& name, const net::HostAddress& address,
                                           const std::vector<NetworkInterface>& interfaces);

// Not thread safe: one thread opens and serves.
class PeerListener {
 public:
  // On that address alone; port 0: any free one. `token` is not empty. `faults` are for tests.
  static base::Result<PeerListener> Open(const net::HostAddress& address, std::string token, PeerFaults faults = {});

  int port() const { return port_; }

  // Serves for that long.
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
  // False: it is over.
  bool Advance(Connection& connection);

  int port_ = 0;
  std::string token_;
  base::TimePoint second_;  // in which `answered_` datagrams were answered
  int answered_ = 0;
  base::UniqueFd listener_;
  base::UniqueFd datagrams_;
  PeerFaults faults_;
  std::vector<Connection> connections_;
};

}  // namespace fulldeck::doctor
