// The part of a checkpoint that is not tensors (state.json): numbers and texts by name. Numbers come back with the same
// bits, infinities and NaN too; a text may be any bytes.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace fulldeck::checkpoint {

constexpr std::uint64_t kMaxStateBytes = 256 << 20;

using Scalar = std::variant<bool, std::int64_t, double, std::string>;
using ScalarState = std::map<std::string, Scalar>;

// JSON, one name a line. Doubles are written so that they are read back exactly; those that JSON cannot write, and
// texts that are not UTF-8, stand as {"double_bits": "16 digits"} and {"hex": "…"}. Names must be UTF-8.
base::Result<std::string> FormatScalars(const ScalarState& state);
base::Result<ScalarState> ParseScalars(std::string_view text);

}  // namespace fulldeck::checkpoint
