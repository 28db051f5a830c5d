// What all ranks have, side by side, and the words for who differs from whom.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fulldeck/team.h"

namespace fulldeck::runtime {

// `rows`: of each rank one word a name, equal where the thing is. Empty: all rows are the same. Most ranks are right;
// where there is no majority the text says so.
std::string DescribeDifference(const std::vector<std::vector<std::int64_t>>& rows,
                               const std::vector<std::string>& names);

// A collective: the vectors of all ranks (one length, one type) as the rows of a matrix, on their device.
at::Tensor RowsOfRanks(const Team& team, const at::Tensor& mine);

// "rank 3", "ranks 1, 3 and 4".
std::string RankList(const std::vector<int>& ranks);

}  // namespace fulldeck::runtime
