#include <algorithm>

#include "base/text.h"
#include "base/usable_cpus.h"
#include "collectives/memory/available_memory.h"
#include "doctor/machine/machine_checks.h"
#include "doctor/machine/proc_status.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGoodForARank = 2048 * kMiB;
constexpr std::uint64_t kMinForARank = 512 * kMiB;
// A clock before this date is wrong: this code was written after 2026-01-01.
constexpr std::int64_t kWritten = 1'767'225'600;
constexpr std::int64_t kFarFuture = kWritten + std::int64_t{20} * 365 * 86'400;
constexpr base::Duration kJump = std::chrono::milliseconds(10);

struct Cpus {
  int allowed = 0;
  int usable = 0;  // within the quota
};

std::optional<Cpus> ReadCpus(const MachineUnderTest& machine) {
  const auto allowed = CountAllowedCpus(machine.root);
  if (!allowed) return std::nullopt;
  return Cpus{*allowed, base::UsableCpus(machine.root, *allowed)};
}

Finding UnknownCpus() {
  return CannotTell(
      Bilingual("/proc/self/status has no list of allowed processors", "/proc/self/status 中没有可用处理器列表"),
      Bilingual("look whether /proc is mounted", "检查 /proc 是否已挂载"));
}

}  // namespace

std::vector<Finding> CheckCores(const MachineUnderTest& machine) {
  const auto cpus = ReadCpus(machine);
  if (!cpus) return {UnknownCpus()};
  const Figures figures = {{"allowed", std::to_string(cpus->allowed)},
                           {"usable", std::to_string(cpus->usable)},
                           {"ranks", std::to_string(machine.ranks)}};
  const base::BilingualText quota =
      cpus->usable < cpus->allowed ? Bilingual(" (a cgroup quota leaves {} of {})",
                                               "（cgroup 配额只留下 {1} 个中的 {0} 个）", cpus->usable, cpus->allowed)
                                   : base::BilingualText{};
  if (cpus->usable >= machine.ranks) {
    return {Ok({fmt::format("{} for {}{}", base::Counted(cpus->usable, "processor"),
                            base::Counted(machine.ranks, "rank"), quota.english),
                fmt::format("{} 个处理器，{} 个 rank{}", cpus->usable, machine.ranks, quota.chinese)},
               figures)};
  }
  return {Warn(
      {fmt::format("{} for {}{}: they take turns", base::Counted(cpus->usable, "processor"),
                   base::Counted(machine.ranks, "rank"), quota.english),
       fmt::format("{} 个处理器要跑 {} 个 rank{}：只能轮流运行", cpus->usable, machine.ranks, quota.chinese)},
      Bilingual("give the container more processors (docker: --cpus, --cpuset-cpus; Slurm: --cpus-per-task), or start "
                "fewer ranks",
                "给容器更多处理器（docker：--cpus、--cpuset-cpus；Slurm：--cpus-per-task），或减少 rank"),
      "", figures)};
}

std::vector<Finding> CheckMemory(const MachineUnderTest& machine) {
  const auto available = collectives::ReadAvailableMemory(machine.root);
  if (!available) {
    return {CannotTell(Bilingual("neither /proc/meminfo nor a cgroup tells how much memory is left",
                                 "/proc/meminfo 和 cgroup 都没有给出剩余内存"),
                       Bilingual("look whether /proc is mounted", "检查 /proc 是否已挂载"), "I2")};
  }
  const std::uint64_t each = available->bytes / static_cast<std::uint64_t>(machine.ranks);
  const Figures figures = {{"bytes_available", std::to_string(available->bytes)},
                           {"bytes_per_rank", std::to_string(each)}};
  const base::BilingualText seen =
      Bilingual("{} left in {}, {} for each of {} ranks", "{1} 剩余 {0}，{3} 个 rank 每个 {2}",
                base::FormatByteSize(available->bytes), available->of, base::FormatByteSize(each), machine.ranks);
  if (each >= kGoodForARank) return {Ok(seen, figures)};
  const base::BilingualText fix = Bilingual(
      "start fewer ranks or loader workers, free memory, or raise the limit (docker: --memory); a rank "
      "with torch needs about 2 GiB",
      "减少 rank 或数据加载进程、释放内存，或提高上限（docker：--memory）；带 torch 的 rank 约需 2 GiB");
  if (each < kMinForARank) return {Fail(seen, fix, "I2", figures)};
  return {Warn(seen, fix, "I2", figures)};
}

std::vector<Finding> CheckLoaderWorkers(const MachineUnderTest& machine) {
  const auto cpus = ReadCpus(machine);
  if (!cpus) return {UnknownCpus()};
  const int fitting = std::max(cpus->usable / std::max(machine.ranks, 1) - 1, 0);
  if (machine.workers < 0) {
    return {CannotTell(
        Bilingual("how many workers a rank's data loader has was not said; {} for each rank fit on {} processors",
                  "没有说明每个 rank 的数据加载进程数；{1} 个处理器上每个 rank 可有 {0} 个", fitting, cpus->usable),
        Bilingual("fulldeck doctor --workers N", "fulldeck doctor --workers N"), "",
        {{"fitting", std::to_string(fitting)}})};
  }
  const std::int64_t wanted = std::int64_t{machine.ranks} * (machine.workers + 1);
  const Figures figures = {{"wanted", std::to_string(wanted)},
                           {"usable", std::to_string(cpus->usable)},
                           {"fitting", std::to_string(fitting)}};
  const base::BilingualText seen = Bilingual("{} ranks with {} workers each are {} processes on {} processors",
                                             "{} 个 rank、每个 {} 个 worker，共 {} 个进程，{} 个处理器", machine.ranks,
                                             machine.workers, wanted, cpus->usable);
  if (wanted <= cpus->usable || machine.workers == 0) return {Ok(seen, figures)};
  return {Warn(seen,
               Bilingual("set num_workers to {}: more of them take processors from the ranks",
                         "将 num_workers 设为 {}：更多 worker 会抢走 rank 的处理器", fitting),
               "", figures)};
}

std::vector<Finding> CheckClock(const MachineUnderTest& machine) {
  const WallClock clock = machine.kernel->Clock();
  const Figures figures = {{"unix_seconds", std::to_string(clock.unix_seconds)},
                           {"synchronised", clock.synchronized ? (*clock.synchronized ? "yes" : "no") : "unknown"}};
  if (clock.unix_seconds < kWritten || clock.unix_seconds > kFarFuture) {
    return {Fail(Bilingual("the clock says second {} of the Unix era: that cannot be",
                           "系统时间为 Unix 第 {} 秒：不可能", clock.unix_seconds),
                 Bilingual("set the clock: chronyd or timedatectl set-ntp true on the host",
                           "校准时间：在宿主机上启用 chronyd 或 timedatectl set-ntp true"),
                 "", figures)};
  }
  const base::Duration jump = clock.jumped < base::Duration() ? -clock.jumped : clock.jumped;
  if (jump > kJump) {
    return {Warn(Bilingual("the wall clock jumped by {} ms within a moment", "系统时间瞬间跳变了 {} 毫秒",
                           std::chrono::duration_cast<std::chrono::milliseconds>(clock.jumped).count()),
                 Bilingual("find what sets it (two time services?): time-outs and logs are wrong while it jumps",
                           "找出是谁在改时间（两个对时服务？）：跳变期间超时和日志都不可信"),
                 "", figures)};
  }
  if (machine.nodes > 1 && clock.synchronized != std::optional(true)) {
    return {Warn(clock.synchronized
                     ? Bilingual("the kernel says that the clock is not synchronised, and there are several hosts",
                                 "内核报告时间未同步，而运行涉及多台主机")
                     : Bilingual("whether the clock is synchronised cannot be asked, and there are several hosts",
                                 "无法查询时间是否同步，而运行涉及多台主机"),
                 Bilingual("start chronyd or systemd-timesyncd on every host, so that times in logs can be compared",
                           "在每台主机启用 chronyd 或 systemd-timesyncd，使各主机日志时间可比"),
                 "", figures)};
  }
  return {Ok(!clock.synchronized ? Bilingual("set, and steady; whether it is synchronised may not be asked here",
                                             "时间正确且平稳；此处无权查询是否同步")
             : *clock.synchronized
                 ? Bilingual("set, steady and synchronised", "时间正确、平稳且已同步")
                 : Bilingual("set, and steady; not synchronised, which matters with several hosts alone",
                             "时间正确且平稳；未同步，但只影响多主机运行"),
             figures)};
}

std::vector<Finding> CheckHugePages(const MachineUnderTest& machine) {
  // "always [madvise] never": the selected mode, for the report. The verdict depends on what the kernel really gave.
  const auto chosen = [&](const char* file) -> std::string {
    const std::string line =
        machine.root.ReadLine(std::string("/sys/kernel/mm/transparent_hugepage/") + file).value_or("");
    const auto open = line.find('[');
    const auto close = line.find(']', open == std::string::npos ? 0 : open);
    if (open == std::string::npos || close == std::string::npos) return "unknown";
    return base::Printable(line.substr(open + 1, close - open - 1));
  };
  const HugePages given = machine.kernel->TryHugePages();
  const auto word = [](std::optional<bool> value) { return !value ? "unknown" : *value ? "given" : "not given"; };
  const Figures figures = {{"anonymous", word(given.anonymous)},
                           {"memfd", word(given.shared)},
                           {"enabled", chosen("enabled")},
                           {"shmem_enabled", chosen("shmem_enabled")}};
  if (!given.anonymous) {
    return {CannotTell(
        Bilingual("the kernel does not show whether memory is in huge pages", "内核没有显示内存是否为大页"),
        Bilingual("nothing to do, unless large copies are slow", "除非大块拷贝很慢，否则无需处理"), "", figures)};
  }
  if (!*given.anonymous) {
    return {Warn(Bilingual("anonymous memory that asks for huge pages is not given them (enabled: {})",
                           "匿名内存申请大页未得到（enabled：{}）", chosen("enabled")),
                 chosen("enabled") == "never"
                     ? Bilingual("on the node, as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                                 "在宿主机上以 root 执行：echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
                     : Bilingual("memory may be fragmented: as root, echo 1 > /proc/sys/vm/compact_memory",
                                 "内存可能碎片化：以 root 执行 echo 1 > /proc/sys/vm/compact_memory"),
                 "", figures)};
  }
  if (given.shared.value_or(false)) {
    return {Ok(Bilingual("huge pages were given to anonymous memory and to a memfd", "匿名内存与 memfd 都得到了大页"),
               figures)};
  }
  return {
      Ok(Bilingual("a huge page was given to anonymous memory; to a memfd, as collectives use: {} (shmem_enabled: {}, "
                   "advise would give them)",
                   "匿名内存得到了大页；集合通信所用的 memfd：{}（shmem_enabled：{}，设为 advise 即可得到）",
                   word(given.shared), chosen("shmem_enabled")),
         figures)};
}

}  // namespace fulldeck::doctor
