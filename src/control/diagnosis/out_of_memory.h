// Tells whose fault an "out of memory" is by the numbers in its line: this process asked for too much, or somebody else
// holds the card.
#pragma once

#include <optional>
#include <string_view>

namespace fulldeck::diagnosis {

enum class MemoryHog { kThisProcess, kAnotherProcess };

// Nothing when the line gives no numbers that decide it.
std::optional<MemoryHog> WhoHoldsTheMemory(std::string_view line);

}  // namespace fulldeck::diagnosis
