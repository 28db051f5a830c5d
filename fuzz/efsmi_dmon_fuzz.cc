#include "base/check.h"
#include "device/text/efsmi_text.h"
#include "fuzz_target.h"
#include "reading_invariants.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto reading = fulldeck::device::ParseEfsmiDmon(fulldeck::fuzz::AsText(data, size));
  FULLDECK_CHECK(fulldeck::testing::BrokenInvariant(reading).empty());
  return 0;
}
