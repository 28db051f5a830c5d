// The input is used as both the version file and the information file.
#include "base/check.h"
#include "device/text/nvidia_proc_text.h"
#include "fuzz_target.h"
#include "reading_invariants.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  const auto version = fulldeck::device::ParseNvidiaVersion(text);
  FULLDECK_CHECK(!version || (!version->empty() && !fulldeck::testing::HasControlCharacter(*version)));
  FULLDECK_CHECK(fulldeck::testing::BrokenInvariant(fulldeck::device::ParseNvidiaInformation(text)).empty());
  return 0;
}
