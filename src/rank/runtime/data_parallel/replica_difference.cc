#include "runtime/data_parallel/replica_difference.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace fulldeck::runtime {
namespace {

constexpr std::size_t kMaxNames = 5;

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string DescribeDifference(const std::vector<std::vector<std::int64_t>>& rows,
                               const std::vector<std::string>& names) {
  std::map<std::vector<std::int64_t>, std::vector<int>> classes;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) classes[rows[rank]].push_back(static_cast<int>(rank));
  if (classes.size() < 2) return {};
  const auto largest = std::max_element(classes.begin(), classes.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  const bool majority = largest->second.size() * 2 > rows.size();

  std::vector<std::size_t> differing;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool same = std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row[i] == rows[0][i]; });
    if (!same) differing.push_back(i);
  }
  std::string where;
  for (std::size_t i = 0; i < std::min(differing.size(), kMaxNames); ++i)
    where += (i == 0 ? "" : ", ") + base::Printable(names[differing[i]]);
  if (differing.size() > kMaxNames) where += ", …";
  where += " (" + std::to_string(differing.size()) + " of " + std::to_string(names.size()) + ")";

  if (majority) {
    std::vector<int> others;
    for (const auto& class_ : classes) {
      if (&class_.second != &largest->second) others.insert(others.end(), class_.second.begin(), class_.second.end());
    }
    std::sort(others.begin(), others.end());
    return RankList(others) + (others.size() == 1 ? " differs from the " : " differ from the ") +
           std::to_string(largest->second.size()) + " others, which agree; first in " + where;
  }
  std::string sides;
  for (const auto& class_ : classes) sides += (sides.empty() ? "" : "; ") + RankList(class_.second);
  return "the ranks differ, and there is no majority to tell who is right (" + sides + "); first in " + where;
}

}  // namespace fulldeck::runtime
