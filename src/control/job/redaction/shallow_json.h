// JSON out of a run folder, which may be anybody's. Taken apart and printed again, a file of nothing but brackets grows
// with the square of its size, so that what is nested deeper than anything fulldeck writes is no JSON here. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace fulldeck::job {

inline constexpr int kDeepestJson = 64;

// Discarded (is_discarded()) where it is no JSON, or too deep.
nlohmann::ordered_json ParseShallow(std::string_view text);

}  // namespace fulldeck::job
