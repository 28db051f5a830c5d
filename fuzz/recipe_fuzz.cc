#include <string>

#include "base/check.h"
#include "config/plan.h"
#include "config/read.h"
#include "fuzz_target.h"

namespace {

using namespace fulldeck::config;

// An accepted config can be written, read back unchanged, and planned.
void CheckAccepted(const Config& config) {
  const std::string text = ToResolvedText(config);
  const auto again = FromResolvedText(text, "again");
  FULLDECK_CHECK(again.ok());
  FULLDECK_CHECK(*again == config);
  FULLDECK_CHECK(ToResolvedText(*again) == text);
  MachineFacts machine;
  machine.ranks = 8;
  machine.cards = 8;
  machine.training_samples = 1000;
  const auto plan = MakePlan(config, machine);
  if (plan) FULLDECK_CHECK(!plan->ToText(config, machine).empty());
}

void CheckRefused(const std::string& message) {
  FULLDECK_CHECK(!message.empty() && message.size() < 1'000'000);
  FULLDECK_CHECK(message.find('\x1b') == std::string::npos);
}

}  // namespace

// Three readers, selected by the first byte. 's': lines of --set on a valid config; 'r': the resolved form; otherwise
// TOML.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  if (text.starts_with('s')) {
    std::vector<std::string> assignments;
    std::string line;
    for (const char letter : text.substr(1)) {
      if (letter == '\n' && assignments.size() < 100) {
        assignments.push_back(std::move(line));
        line.clear();
      } else {
        line += letter;
      }
    }
    assignments.push_back(line);
    const auto config = ReadToml("name = \"x\"\nsteps = 5000\n", "f", assignments);
    config ? CheckAccepted(*config) : CheckRefused(config.error().message);
    return 0;
  }
  if (text.starts_with('r')) {
    const auto config = FromResolvedText(text.substr(1), "f");
    config ? CheckAccepted(*config) : CheckRefused(config.error().message);
    const auto older = FromOlderResolvedText(text.substr(1), "f");
    if (!older) CheckRefused(older.error().message);
    return 0;
  }
  const auto config = ReadToml(text, "f", {});
  config ? CheckAccepted(*config) : CheckRefused(config.error().message);
  return 0;
}
