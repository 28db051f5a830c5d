// Decides from the numbers in an "out of memory" line whether this process requested too much or another process holds
// the card's memory.
#pragma once

#include <optional>
#include <string_view>

namespace fulldeck::diagnosis {

enum class MemoryHog { kThisProcess, kAnotherProcess };

// nullopt if the line lacks the numbers to decide.
std::optional<MemoryHog> WhoHoldsTheMemory(std::string_view line);

}  // namespace fulldeck::diagnosis
