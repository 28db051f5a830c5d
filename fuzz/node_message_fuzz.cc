#include <algorithm>

#include "base/check.h"
#include "fuzz_target.h"
#include "nodes/node_messages.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck;
  using namespace fulldeck::nodes;
  const auto message = DecodeNodeMessage(fulldeck::fuzz::AsText(data, size));
  if (!message) {
    FULLDECK_CHECK(message.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  // A decoded message can be encoded again, and decodes to the same.
  const std::string encoded = EncodeNodeMessage(*message);
  FULLDECK_CHECK(encoded.size() <= net::kLongestMessage);
  FULLDECK_CHECK(
      std::none_of(encoded.begin(), encoded.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
  const auto again = DecodeNodeMessage(encoded);
  FULLDECK_CHECK(again.ok());
  FULLDECK_CHECK(EncodeNodeMessage(*again) == encoded);
  return 0;
}
