// How two launchers prove to each other that they know the token of the run without sending it: each answers the
// other's nonce. A proof is bound to both nonces and to the role, so that it can be neither reflected nor replayed.
#pragma once

#include <string>
#include <string_view>

namespace fulldeck::net {

// 64 hexadecimal digits from the kernel's random source.
std::string MakeNonce();

enum class ProofRole { kMember, kCoordinator };
std::string MakeProof(ProofRole role, std::string_view token, std::string_view member_nonce,
                      std::string_view coordinator_nonce);

}  // namespace fulldeck::net
