#include "net/token_auth.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "wire/sha256.h"

namespace fulldeck::net {

std::string MakeNonce() {
  wire::Sha256Digest bytes{};
  ssize_t got = 0;
  do {
    // Never short: the kernel returns up to 256 bytes without interruption.
    got = syscall(SYS_getrandom, bytes.data(), bytes.size(), 0U);
  } while (got < 0 && errno == EINTR);
  FULLDECK_CHECK(got == static_cast<ssize_t>(bytes.size()));
  return wire::HexOf(bytes);
}

std::string MakeProof(ProofRole role, std::string_view token, std::string_view member_nonce,
                      std::string_view coordinator_nonce) {
  std::string message = role == ProofRole::kMember ? "fulldeck hosts 1 member " : "fulldeck hosts 1 coordinator ";
  message += member_nonce;
  message += ' ';
  message += coordinator_nonce;
  return wire::HexOf(wire::HmacSha256(token, message));
}

}  // namespace fulldeck::net
