#include "base/check.h"
#include "fuzz_target.h"
#include "job/runs/run_registry.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::job;
  const auto record = ParseRunRecord(fulldeck::fuzz::AsText(data, size));
  if (!record) {
    CHECK(record.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  CHECK(!record->run_id.empty() && record->run_id.find('\x1b') == std::string::npos);
  CHECK(record->world_size >= 1 && record->ranks.size() <= 4096 && record->cards.size() <= 4096);
  // What was understood once is understood again, and means the same. A long command alone is cut short.
  RunRecord first = *record;
  auto again = ParseRunRecord(FormatRunRecord(first));
  CHECK(again.ok());
  first.command.clear();
  again->command.clear();
  CHECK(FormatRunRecord(*again) == FormatRunRecord(first));
  return 0;
}
