#include <set>

#include "base/check.h"
#include "device/visibility.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  using namespace fulldeck::device;
  std::vector<Card> cards(4);
  for (int i = 0; i < 4; ++i) {
    cards[static_cast<std::size_t>(i)].index = i;
    cards[static_cast<std::size_t>(i)].uuid = "GPU-" + std::string(1, static_cast<char>('a' + i)) + "b23-4567";
  }
  for (const VendorTraits& traits : AllVendorTraits()) {
    const auto list = ParseVisibility(traits, "VISIBLE", std::string(text), cards);
    if (!list) {
      FULLDECK_CHECK(list.error().message.find('\x1b') == std::string::npos);
      continue;
    }
    const std::set<std::size_t> distinct(list->cards.begin(), list->cards.end());
    FULLDECK_CHECK(distinct.size() == list->cards.size() && distinct.size() <= cards.size());
  }
  return 0;
}
