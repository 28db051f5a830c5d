#include "launcher/progress.h"

#include <fmt/format.h>

#include <optional>

namespace fulldeck::launcher {

std::string ProgressLine(const wire::RankBoard& board, base::Duration since_start) {
  std::optional<wire::Loop> first;
  std::optional<wire::Loop> last;
  int last_rank = 0;
  std::uint64_t samples = 0;
  for (int local_rank = 0; local_rank < board.run().local_ranks; ++local_rank) {
    const auto loop = board.ReadLoop(local_rank);
    if (!loop || loop->step_at_ns == 0) continue;
    samples += loop->samples;
    if (!first || loop->step > first->step) first = loop;
    if (!last || loop->step < last->step) {
      last = loop;
      last_rank = board.run().first_rank + local_rank;
    }
  }
  if (!first) return "";
  std::string line = fmt::format("step {}", first->step);
  if (first->total_steps > 0) line += fmt::format("/{}", first->total_steps);
  if (first->loss) line += fmt::format(", loss {:.4g}", *first->loss);
  const double seconds = std::chrono::duration<double>(since_start).count();
  if (samples > 0 && seconds > 0) line += fmt::format(", {:.1f} samples/s", static_cast<double>(samples) / seconds);
  line += fmt::format(", {:.0f} s", seconds);
  if (last->step < first->step) line += fmt::format("; rank {} is at step {}", last_rank, last->step);
  return line;
}

}  // namespace fulldeck::launcher
