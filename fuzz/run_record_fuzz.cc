#include "base/check.h"
#include "fuzz_target.h"
#include "job/runs/run_registry.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::job;
  const auto record = ParseRunRecord(fulldeck::fuzz::AsText(data, size));
  if (!record) {
    FULLDECK_CHECK(record.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  FULLDECK_CHECK(!record->run_id.empty() && record->run_id.find('\x1b') == std::string::npos);
  FULLDECK_CHECK(record->world_size >= 1 && record->ranks.size() <= 4096 && record->cards.size() <= 4096);
  // A parsed record parses again to the same meaning after formatting. Only a long command is truncated.
  RunRecord first = *record;
  auto again = ParseRunRecord(FormatRunRecord(first));
  FULLDECK_CHECK(again.ok());
  first.command.clear();
  again->command.clear();
  FULLDECK_CHECK(FormatRunRecord(*again) == FormatRunRecord(first));
  return 0;
}
