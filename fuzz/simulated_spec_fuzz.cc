#include "base/check.h"
#include "fuzz_target.h"
#include "wire/simulated_spec.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  const auto spec = fulldeck::wire::ParseSimulatedSpec(text);
  if (!spec) {
    FULLDECK_CHECK(spec.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  FULLDECK_CHECK(spec->kind != nullptr && spec->memory_bytes > 0);
  FULLDECK_CHECK(!spec->cards.empty() && spec->cards.size() <= fulldeck::wire::kMaxSimulatedCards);
  for (const auto& card : spec->cards) FULLDECK_CHECK(card.slow_factor >= 1);
  return 0;
}
