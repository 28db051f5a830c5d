// Compares what all ranks have, and describes which ranks differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fulldeck/team.h"

namespace fulldeck::runtime {

// `rows`: per rank one word per name, equal if the contents are equal. Returns an empty string if all rows are equal.
// The majority is assumed to be right; if there is none, the text says so.
std::string DescribeDifference(const std::vector<std::vector<std::int64_t>>& rows,
                               const std::vector<std::string>& names);

// A collective: the vectors of all ranks (same length and type) as the rows of a matrix, on their device.
at::Tensor RowsOfRanks(const Team& team, const at::Tensor& mine);

// "rank 3", "ranks 1, 3 and 4".
std::string RankList(const std::vector<int>& ranks);

}  // namespace fulldeck::runtime
