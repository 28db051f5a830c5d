#include "launcher/hang_watch.h"

#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "launcher/process_tree.h"

namespace fulldeck::launcher {
namespace {

using base::Duration;
using diagnosis::ProcessSample;
using diagnosis::RankLife;
using diagnosis::RankNow;

// Walking all of /proc costs a few milliseconds.
constexpr Duration kWalkInterval = std::chrono::seconds(1);

std::uint64_t Number(const std::vector<std::string_view>& fields, std::size_t index) {
  return index < fields.size() ? base::ParseInteger<std::uint64_t>(fields[index]).value_or(0) : 0;
}

Duration Ticks(std::uint64_t ticks) {
  static const long per_second = std::max(1L, sysconf(_SC_CLK_TCK));
  return Duration(static_cast<std::int64_t>(ticks) * (1'000'000'000 / per_second));
}

// Of all threads, what its ended children took included; and the state of the main thread.
bool AddStat(const base::SystemRoot& root, const std::string& folder, ProcessSample& sample, bool is_rank) {
  const auto text = root.ReadFile(folder + "/stat", 4096);
  if (!text) return false;
  // The name in brackets may hold anything, brackets too.
  const auto bracket = text->rfind(") ");
  if (bracket == std::string::npos) return false;
  const std::vector<std::string_view> fields = base::Split(std::string_view(*text).substr(bracket + 2), ' ');
  constexpr std::size_t kMinorFaults = 7, kMajorFaults = 9, kUser = 11, kSystem = 12, kChildUser = 13,
                        kChildSystem = 14;
  if (is_rank && !fields.empty() && !fields[0].empty()) sample.state = fields[0][0];
  sample.page_faults += Number(fields, kMinorFaults) + Number(fields, kMajorFaults);
  sample.processor += Ticks(Number(fields, kUser) + Number(fields, kSystem));
  if (is_rank) sample.processor += Ticks(Number(fields, kChildUser) + Number(fields, kChildSystem));
  return true;
}

std::uint64_t IoOf(const base::SystemRoot& root, const std::string& folder) {
  const auto text = root.ReadFile(folder + "/io", 4096);
  std::uint64_t bytes = 0;
  if (!text) return 0;
  for (const std::string_view line : base::Split(*text, '\n')) {
    if (!line.starts_with("rchar: ") && !line.starts_with("wchar: ")) continue;
    bytes += base::ParseInteger<std::uint64_t>(line.substr(7)).value_or(0);
  }
  return bytes;
}

bool IsTraced(const base::SystemRoot& root, const std::string& folder) {
  const auto text = root.ReadFile(folder + "/status", 16384);
  if (!text) return false;
  for (const std::string_view line : base::Split(*text, '\n')) {
    constexpr std::string_view kTitle = "TracerPid:";
    if (line.starts_with(kTitle)) return base::Trim(line.substr(kTitle.size())) != "0";
  }
  return false;
}

}  // namespace

std::optional<ProcessSample> SampleProcess(const base::SystemRoot& root, pid_t pid,
                                           const std::vector<pid_t>& descendants) {
  ProcessSample sample;
  const std::string folder = "/proc/" + std::to_string(pid);
  if (!AddStat(root, folder, sample, true)) return std::nullopt;
  // Whoever waits for a processor wants to work, however long the queue is.
  if (const auto line = root.ReadLine(folder + "/schedstat")) {
    sample.processor += Duration(static_cast<std::int64_t>(Number(base::Split(*line, ' '), 1)));
  }
  sample.io_bytes = IoOf(root, folder);
  sample.traced = IsTraced(root, folder);
  sample.place = base::Printable(root.ReadLine(folder + "/wchan").value_or(""));
  if (sample.place == "0") sample.place.clear();
  sample.exact_place = root.ReadLine(folder + "/syscall").value_or(sample.place);
  for (const pid_t child : descendants) {
    const std::string its_folder = "/proc/" + std::to_string(child);
    if (!AddStat(root, its_folder, sample, false)) continue;
    sample.io_bytes += IoOf(root, its_folder);
  }
  return sample;
}

std::optional<diagnosis::CallSeen> LatestCall(const wire::RankBoard& board, int local_rank) {
  std::optional<wire::Collective> latest;
  for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
    const auto call = board.ReadCollective(local_rank, slot);
    if (call && call->sequence > 0 && (!latest || call->since_ns > latest->since_ns)) latest = call;
  }
  if (!latest) return std::nullopt;
  return diagnosis::CallSeen{latest->name,     latest->group, latest->sequence, latest->operation,
                             latest->datatype, latest->count, latest->bytes};
}

std::vector<RankNow> HangWatch::ReadRanks() const {
  const wire::RankBoard& board = group_.board();
  std::vector<RankNow> ranks;
  ranks.reserve(group_.ranks().size());
  for (const Rank& rank : group_.ranks()) {
    RankNow now;
    if (rank.ending) {
      now.life = rank.ending->ending.ok() ? RankLife::kEnded : RankLife::kFailed;
    } else if (rank.stopped) {
      now.life = RankLife::kStopped;
    }
    now.loop = board.ReadLoop(rank.local_rank);
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      auto call = board.ReadCollective(rank.local_rank, slot);
      if (call) now.groups.push_back(std::move(*call));
    }
    ranks.push_back(std::move(now));
  }
  return ranks;
}

void HangWatch::AddProcesses(std::vector<RankNow>& ranks, base::TimePoint now) {
  if (now - walked_ >= kWalkInterval) {
    walked_ = now;
    descendants_.assign(ranks.size(), {});
    const std::vector<TreeProcess> all = Descendants(getpid());
    for (const Rank& rank : group_.ranks()) {
      // Parents come before their children in a walk down from us.
      std::vector<pid_t> mine = {rank.pid};
      for (const TreeProcess& process : all) {
        if (std::find(mine.begin(), mine.end(), process.parent) != mine.end()) mine.push_back(process.pid);
      }
      mine.erase(mine.begin());
      descendants_[static_cast<std::size_t>(rank.local_rank)] = std::move(mine);
    }
  }
  for (const Rank& rank : group_.ranks()) {
    if (rank.ending || rank.pid <= 0) continue;
    const auto index = static_cast<std::size_t>(rank.local_rank);
    ranks[index].process = SampleProcess(root_, rank.pid, descendants_[index]);
  }
}

diagnosis::HangVerdict HangWatch::Look(base::TimePoint now) {
  std::vector<RankNow> ranks = ReadRanks();
  if (judge_.WantsProcesses()) AddProcesses(ranks, now);

  std::vector<std::optional<diagnosis::WaitingNow>> waiting;
  for (const RankNow& rank : ranks) {
    auto& mine = waiting.emplace_back();
    for (const wire::Collective& call : rank.groups) {
      if (rank.life != RankLife::kThere || call.operation == FULLDECK_BOARD_MEETING) continue;
      if (!mine) mine.emplace();
      mine->sampled = mine->sampled || diagnosis::IsRecorded(call.name);
      mine->waited += Duration(static_cast<std::int64_t>(call.waited_ns));
      if (!rank.loop || rank.loop->step == 0) mine->steps = std::max(mine->steps, call.completed);
    }
    if (mine && rank.loop && rank.loop->step > 0) mine->steps = rank.loop->step;
  }
  if (const auto found = stragglers_.Judge(now, waiting)) new_straggler_ = found;
  return judge_.Judge(now, ranks);
}

std::optional<diagnosis::HangVerdict> HangWatch::LookForDifferentCalls(base::TimePoint now) {
  return judge_.Differing(now, ReadRanks());
}

}  // namespace fulldeck::launcher
