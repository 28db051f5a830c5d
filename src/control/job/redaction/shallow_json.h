// Parses JSON from a run folder, which may contain untrusted files. A file of nothing but brackets, parsed and
// printed again, grows with the square of its size. So JSON that is nested deeper than anything that fulldeck writes
// is rejected. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace fulldeck::job {

inline constexpr int kDeepestJson = 64;

// Discarded (is_discarded()) if it is not JSON or nested too deep.
nlohmann::ordered_json ParseShallow(std::string_view text);

}  // namespace fulldeck::job
