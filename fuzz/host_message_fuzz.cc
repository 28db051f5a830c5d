#include <algorithm>

#include "base/check.h"
#include "fuzz_target.h"
#include "nodes/host_messages.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck;
  using namespace fulldeck::nodes;
  const auto message = DecodeHostMessage(fulldeck::fuzz::AsText(data, size));
  if (!message) {
    CHECK(message.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  // What was understood can be said again, and is then understood in the same way.
  const std::string said = EncodeHostMessage(*message);
  CHECK(said.size() <= net::kLongestMessage);
  CHECK(std::none_of(said.begin(), said.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
  const auto again = DecodeHostMessage(said);
  CHECK(again.ok());
  CHECK(EncodeHostMessage(*again) == said);
  return 0;
}
