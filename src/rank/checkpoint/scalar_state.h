// The part of a checkpoint that is not tensors (state.json): numbers and strings by name. Numbers are restored with the
// same bits, including infinities and NaN; a string may contain any bytes.
//
// Pure functions; thread safe.
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

// JSON with one name per line. Doubles are written so that they are read back exactly; those that JSON cannot
// represent, and strings that are not UTF-8, are written as {"double_bits": "16 digits"} and {"hex": "…"}. Names must
// be UTF-8.
base::Result<std::string> FormatScalars(const ScalarState& state);
base::Result<ScalarState> ParseScalars(std::string_view text);

}  // namespace fulldeck::checkpoint
