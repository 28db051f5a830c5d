// How two launchers prove to each other that they know the token of the run without telling it: each answers the
// other's random number. An answer is bound to both numbers and to the role, so neither can be sent back or used again.
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
