#include "base/hash.h"

#define XXH_INLINE_ALL  // all static: no symbol of xxHash is exported
#include <xxhash.h>

#include <new>
#include <type_traits>

#include "base/text.h"

namespace fulldeck::base {
namespace {

// Copied with its bytes: for seed 0 the only pointer in it (to the secret) points to a constant.
static_assert(std::is_trivially_copyable_v<XXH3_state_t>);

const XXH3_state_t* StateIn(const std::byte* at) {
  return std::launder(reinterpret_cast<const XXH3_state_t*>(at));
}

}  // namespace

Hash::Hash() {
  static_assert(sizeof(XXH3_state_t) == sizeof state_ && alignof(XXH3_state_t) <= alignof(Hash));
  XXH3_64bits_reset(new (state_) XXH3_state_t);
}

void Hash::Add(const void* data, std::size_t bytes) {
  if (bytes != 0) XXH3_64bits_update(const_cast<XXH3_state_t*>(StateIn(state_)), data, bytes);
}

std::uint64_t Hash::Sum() const {
  return XXH3_64bits_digest(StateIn(state_));
}

std::uint64_t HashOf(std::string_view data) {
  return XXH3_64bits(data.data(), data.size());
}

std::string FormatHash(std::uint64_t sum) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[i] = kDigits[(sum >> (60 - 4 * i)) & 15];
  return text;
}

std::optional<std::uint64_t> ParseHash(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  return base::ParseInteger<std::uint64_t>(text, 16);
}

}  // namespace fulldeck::base
