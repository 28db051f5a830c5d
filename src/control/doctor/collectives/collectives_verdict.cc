#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/collectives/collectives_proof.h"

namespace fulldeck::doctor {
namespace {

using bench::OperationKind;

constexpr std::size_t kMinPairs = 3;
constexpr double kSlowShare = 1.0 / 3;

std::string List(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

double BytesMoved(const bench::Operation& operation, int ranks, std::uint64_t bytes) {
  const double n = ranks;
  const auto s = static_cast<double>(bytes);
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      return (5 * n - 2) * s;
    case OperationKind::kReduce:  // in, reduced, out on the root
      return (3 * n + 3) * s;
    case OperationKind::kBroadcast:
      return 2 * n * s;
    case OperationKind::kAllGather:
      return (2 + 2 * n) * s;
    case OperationKind::kReduceScatter:
      return (3 * n + 1) * s;
    case OperationKind::kGather:
    case OperationKind::kScatter:
      return 4 * s;
    case OperationKind::kAllToAll:
      return 4 * n * s;
    case OperationKind::kSendReceive:
      return 4 * s;
    case OperationKind::kBarrier:
      return 0;
  }
  return 0;
}

SlowPairs FindSlowPairs(const std::vector<PairFigures>& pairs) {
  SlowPairs found;
  if (pairs.empty()) return found;
  std::vector<double> speeds;
  for (const PairFigures& pair : pairs) speeds.push_back(pair.bytes_per_second);
  std::sort(speeds.begin(), speeds.end());
  found.median_bytes_per_second = speeds[speeds.size() / 2];
  if (pairs.size() < kMinPairs) return found;
  std::map<int, int> slow_of;
  std::map<int, int> all_of;
  for (const PairFigures& pair : pairs) {
    ++all_of[pair.from];
    ++all_of[pair.to];
    if (pair.bytes_per_second >= found.median_bytes_per_second * kSlowShare) continue;
    found.slow.push_back(pair);
    ++slow_of[pair.from];
    ++slow_of[pair.to];
  }
  std::sort(found.slow.begin(), found.slow.end(), [](const PairFigures& one, const PairFigures& other) {
    return one.bytes_per_second < other.bytes_per_second;
  });
  for (const auto& [rank, count] : slow_of) {
    const bool shared = static_cast<std::size_t>(count) == found.slow.size();
    if (shared && count >= 2 && 2 * count > all_of[rank]) found.rank = rank;
  }
  return found;
}

Absence FindAbsent(const std::vector<int>& silent, const std::vector<RankProgress>& progress, int step,
                   const std::string& states) {
  Absence absence;
  for (const int rank : silent) {
    const RankProgress& place = progress[static_cast<std::size_t>(rank)];
    const bool inside = place.step() == step && place.phase() == RankProgress::kInCall;
    if (!inside) absence.ranks.push_back(rank);
  }
  if (!absence.ranks.empty()) return absence;
  absence.inside = true;
  for (const int rank : silent) {
    const char state = states[static_cast<std::size_t>(rank)];
    if (state == 'T' || state == 't' || state == 'D' || state == 'Z') absence.ranks.push_back(rank);
  }
  return absence;
}

Finding WrongValueFinding(const Step& step, const std::vector<std::pair<int, StepAnswer::Wrong>>& wrong, int ranks) {
  Finding finding;
  finding.verdict = Verdict::kFail;
  const auto& [first_rank, first] = wrong.front();
  std::vector<int> where;
  bool one_source = true;
  for (const auto& [rank, value] : wrong) {
    where.push_back(rank);
    one_source = one_source && value.source_rank == first.source_rank;
  }
  const std::string what = Describe(step);
  const std::string numbers =
      fmt::format("element {} is {} and must be {}", first.element, first.found, first.expected);
  const std::string numbers_zh = fmt::format("第 {} 个元素为 {}，应为 {}", first.element, first.found, first.expected);
  std::string blame;
  std::string blame_zh;
  if (step.from >= 0) {
    blame = fmt::format("the pair {}–{} is wrong: what rank {} sent did not arrive at rank {} as it was", step.from,
                        step.to, first.source_rank, first_rank);
    blame_zh = fmt::format("rank {} 与 {} 之间有错：rank {} 发出的数据到达 rank {} 时已不同", step.from, step.to,
                           first.source_rank, first_rank);
  } else if (where.size() > 1 && one_source && first.source_rank >= 0) {
    blame = fmt::format("what rank {} gave is wrong on ranks {}", first.source_rank, List(where));
    blame_zh = fmt::format("rank {} 给出的数据在 rank {} 上都是错的", first.source_rank, List(where));
  } else if (where.size() == static_cast<std::size_t>(ranks) && ranks > 1) {
    blame = "all ranks got a wrong result: one of them gave something else; all_gather and the pairs say which";
    blame_zh = "所有 rank 的结果都错：其中一个 rank 给出的数据不对，见 all_gather 与两两测试";
  } else {
    blame = fmt::format("rank{} {} got a wrong result", where.size() > 1 ? "s" : "", List(where));
    blame_zh = fmt::format("rank {} 得到的结果是错的", List(where));
  }
  finding.evidence = {fmt::format("{}: {} (rank {}: {})", what, blame, first_rank, numbers),
                      fmt::format("{}：{}（rank {}：{}）", what, blame_zh, first_rank, numbers_zh)};
  finding.fix = {
      fmt::format("do not train on this: take the card or the library of that rank out, and try again; another backend "
                  "beside it (--backend gloo) "
                  "tells a card from a library"),
      "不要在此机器上训练：先排除该 rank 的卡或通信库再试；换一个后端对照（--backend gloo）可区分是卡还是库的问题"};
  finding.figures = {{"kind", "wrong-value"},
                     {"operation", step.operation->name},
                     {"step", what},
                     {"ranks", List(where)},
                     {"part_of", std::to_string(first.source_rank)}};
  if (step.from >= 0) finding.figures.emplace_back("pair", fmt::format("{}-{}", step.from, step.to));
  return finding;
}

}  // namespace fulldeck::doctor
