#include <algorithm>

#include "base/check.h"
#include "bench/collectives_bench.h"

namespace fulldeck::bench {

const char* NameOf(Contender contender) {
  switch (contender) {
    case Contender::kFulldeck:
      return "fulldeck";
    case Contender::kFulldeckShared:
      return "fulldeck-shared";
    case Contender::kTorch:
      return "torch";
    case Contender::kGloo:
      return "gloo";
    case Contender::kOpenMpi:
      return "openmpi";
  }
  return "";
}

std::vector<std::uint64_t> SlowestOf(const std::vector<std::vector<std::uint64_t>>& times_by_rank) {
  std::vector<std::uint64_t> slowest;
  for (const auto& times : times_by_rank) {
    if (slowest.empty()) slowest = times;
    FULLDECK_CHECK(times.size() == slowest.size());
    for (std::size_t i = 0; i < times.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
  }
  return slowest;
}

Figures FiguresOf(std::vector<std::uint64_t> slowest_ns) {
  Figures figures;
  figures.calls = static_cast<int>(slowest_ns.size());
  if (slowest_ns.empty()) return figures;
  std::sort(slowest_ns.begin(), slowest_ns.end());
  const std::size_t count = slowest_ns.size();
  const auto seconds = [&](std::size_t i) { return static_cast<double>(slowest_ns[i]) * 1e-9; };
  figures.median = count % 2 == 1 ? seconds(count / 2) : (seconds(count / 2 - 1) + seconds(count / 2)) / 2;
  figures.p95 = seconds(std::min(count - 1, count * 95 / 100));
  figures.least = seconds(0);
  return figures;
}

std::optional<double> MemoryBound(Contender contender, const Operation& operation, int ranks, std::uint64_t bytes,
                                  double memory_bytes_per_second) {
  if (operation.kind != OperationKind::kAllReduce || memory_bytes_per_second <= 0 || ranks < 2) return std::nullopt;
  const double size = static_cast<double>(bytes);
  if (contender == Contender::kFulldeck) return (5.0 * ranks - 2) * size / memory_bytes_per_second;
  if (contender == Contender::kFulldeckShared) return 2.0 * ranks * size / memory_bytes_per_second;
  return std::nullopt;
}

}  // namespace fulldeck::bench
