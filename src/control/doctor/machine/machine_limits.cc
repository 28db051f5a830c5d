#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "doctor/machine/machine_checks.h"
#include "doctor/machine/proc_status.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kShmOfAWorker = 128 * kMiB;
constexpr std::uint64_t kPinned = 64 * kMiB;

Finding UnknownLimit(const char* name) {
  return CannotTell(Bilingual("/proc/self/limits does not tell about '{}'", "/proc/self/limits 中没有“{}”", name),
                    Bilingual("look whether /proc is mounted", "检查 /proc 是否已挂载"), "H1");
}

std::uint64_t Ranks(const MachineUnderTest& machine) {
  return static_cast<std::uint64_t>(machine.ranks);
}
std::uint64_t Workers(const MachineUnderTest& machine, int default_workers) {
  return static_cast<std::uint64_t>(machine.workers < 0 ? default_workers : machine.workers);
}

struct PidsLeft {
  std::uint64_t left = ResourceLimit::kUnlimited;
  std::string of;
};

// kUnlimited if there is no file or no number in it.
std::uint64_t NumberIn(const base::SystemRoot& root, const std::string& path) {
  const std::string line = root.ReadLine(path).value_or("max");
  return base::ParseInteger<std::uint64_t>(line).value_or(ResourceLimit::kUnlimited);
}

// The minimum over all cgroups above this process.
PidsLeft ReadPidsLeft(const base::SystemRoot& root) {
  PidsLeft least;
  const auto membership = root.ReadFile("/proc/self/cgroup", 1 << 16);
  if (!membership) return least;
  for (const std::string_view line : base::Split(*membership, '\n')) {
    const auto parts = base::Split(line, ':');
    if (parts.size() < 3) continue;
    const bool version_2 = parts[0] == "0" && parts[1].empty();
    if (!version_2 && parts[1] != "pids") continue;
    std::string cgroup(line.substr(parts[0].size() + parts[1].size() + 2));
    for (;;) {
      if (cgroup.ends_with('/')) cgroup.pop_back();
      const std::string folder = (version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids") + cgroup;
      const std::uint64_t limit = NumberIn(root, folder + "/pids.max");
      const std::uint64_t used = NumberIn(root, folder + "/pids.current");
      if (limit != ResourceLimit::kUnlimited && used != ResourceLimit::kUnlimited) {
        const std::uint64_t left = limit > used ? limit - used : 0;
        if (left < least.left) least = {left, "the cgroup " + (cgroup.empty() ? "/" : base::Printable(cgroup))};
      }
      const auto parent = cgroup.rfind('/');
      if (parent == std::string::npos) break;
      cgroup.resize(parent);
    }
  }
  return least;
}

// A field of /proc/PID/status; its first word as a number.
std::optional<std::uint64_t> NumberOf(std::string_view status, std::string_view field) {
  for (const std::string_view line : base::Split(status, '\n')) {
    if (!line.starts_with(field) || !line.substr(field.size()).starts_with(':')) continue;
    const std::string_view value = base::Trim(line.substr(field.size() + 1));
    return base::ParseInteger<std::uint64_t>(value.substr(0, value.find_first_of(" \t")));
  }
  return std::nullopt;
}

// Threads of all processes of this user, which is what RLIMIT_NPROC counts. Processes of other PID namespaces are not
// visible.
std::optional<std::uint64_t> CountThreadsOfThisUser(const base::SystemRoot& root) {
  const auto own = root.ReadFile("/proc/self/status", 1 << 16);
  const auto user = own ? NumberOf(*own, "Uid") : std::nullopt;
  if (!user) return std::nullopt;
  std::uint64_t threads = 0;
  for (const std::string& name : root.List("/proc")) {
    if (!base::ParseInteger<int>(name)) continue;
    const auto status = root.ReadFile("/proc/" + name + "/status", 1 << 16);
    if (status && NumberOf(*status, "Uid") == user) threads += NumberOf(*status, "Threads").value_or(1);
  }
  return threads;
}

// What RLIMIT_NPROC leaves to this user; absent if unknown. The kernel does not apply it to processes with
// CAP_SYS_ADMIN or CAP_SYS_RESOURCE.
struct UserLimit {
  std::optional<std::uint64_t> left;
  std::uint64_t running = 0;
  bool lifted = false;
};

UserLimit ReadUserLimit(const base::SystemRoot& root, const ResourceLimit& limit) {
  UserLimit user;
  user.lifted =
      HasCapability(root, kCapabilityAdmin).value_or(false) || HasCapability(root, kCapabilityResource).value_or(false);
  const auto running = CountThreadsOfThisUser(root);
  user.running = running.value_or(0);
  if (user.lifted || limit.soft == ResourceLimit::kUnlimited) {
    user.left = ResourceLimit::kUnlimited;
  } else if (running) {
    user.left = limit.soft > *running ? limit.soft - *running : 0;
  }
  return user;
}

}  // namespace

std::vector<Finding> CheckOpenFiles(const MachineUnderTest& machine) {
  const auto limit = ReadLimit(machine.root, "Max open files");
  if (!limit) return {UnknownLimit("Max open files")};
  // Libraries and data, a few sockets to every rank of the run, and the batches that workers pass as descriptors.
  const std::uint64_t needed =
      256 + 8 * Ranks(machine) * static_cast<std::uint64_t>(machine.nodes) + 64 * Workers(machine, 2);
  const Figures figures = {
      {"soft", FormatLimit(limit->soft)}, {"hard", FormatLimit(limit->hard)}, {"needed", std::to_string(needed)}};
  const base::BilingualText seen =
      Bilingual("{} open files allowed, about {} needed by a rank", "允许打开 {} 个文件，一个 rank 约需 {} 个",
                FormatLimit(limit->soft), needed);
  if (limit->soft >= needed) return {Ok(seen, figures)};
  const base::BilingualText fix =
      limit->hard >= needed
          ? Bilingual("before the start: ulimit -n {}", "启动前执行：ulimit -n {}",
                      limit->hard == ResourceLimit::kUnlimited ? "65536" : FormatLimit(limit->hard))
          : Bilingual(
                "raise the hard limit, which is {}: docker run --ulimit nofile=65536:65536, or "
                "/etc/security/limits.conf",
                "提高硬上限（现为 {}）：docker run --ulimit nofile=65536:65536，或 /etc/security/limits.conf",
                FormatLimit(limit->hard));
  if (limit->soft < 128) return {Fail(seen, fix, "H1", figures)};
  return {Warn(seen, fix, "H1", figures)};
}

std::vector<Finding> CheckProcesses(const MachineUnderTest& machine) {
  const auto limit = ReadLimit(machine.root, "Max processes");
  if (!limit) return {UnknownLimit("Max processes")};
  const PidsLeft cgroup = ReadPidsLeft(machine.root);
  const UserLimit user = ReadUserLimit(machine.root, *limit);
  // torch and a vendor's runtime start several threads in each process; all of them count.
  const std::uint64_t least = 16 * Ranks(machine);
  const std::uint64_t good = Ranks(machine) * (64 + 16 * Workers(machine, 2));
  if (!user.left && cgroup.left >= good) {
    return {CannotTell(Bilingual("the limit of this user is {}, and how many threads run cannot be counted",
                                 "本用户上限为 {}，但无法统计已有线程数", FormatLimit(limit->soft)),
                       Bilingual("compare by hand: ulimit -u, and ps -eLo user= | sort | uniq -c",
                                 "手动比较：ulimit -u 与 ps -eLo user= | sort | uniq -c"),
                       "H1", {{"limit", FormatLimit(limit->soft)}, {"good", std::to_string(good)}})};
  }
  const std::uint64_t left = std::min(user.left.value_or(ResourceLimit::kUnlimited), cgroup.left);
  const std::string of = cgroup.left <= left && !cgroup.of.empty() ? cgroup.of
                         : user.lifted                             ? "this user (a capability lifts the limit)"
                                                                   : "this user";
  const Figures figures = {{"left", FormatLimit(left)},
                           {"limit", FormatLimit(limit->soft)},
                           {"running", std::to_string(user.running)},
                           {"good", std::to_string(good)}};
  const base::BilingualText seen =
      Bilingual("{} more processes and threads allowed by {} ({} of this user run); about {} needed by {} ranks",
                "{1} 还允许 {0} 个进程和线程（本用户已有 {2} 个），{4} 个 rank 约需 {3} 个", FormatLimit(left), of,
                user.running, good, machine.ranks);
  if (left >= good) return {Ok(seen, figures)};
  const base::BilingualText fix = Bilingual(
      "raise it: docker run --pids-limit -1, Slurm and Kubernetes: the limit of the job; for a user: "
      "ulimit -u",
      "提高上限：docker run --pids-limit -1；Slurm、Kubernetes：作业的上限；用户级：ulimit -u");
  if (left < least) return {Fail(seen, fix, "H1", figures)};
  return {Warn(seen, fix, "H1", figures)};
}

std::vector<Finding> CheckLockedMemory(const MachineUnderTest& machine) {
  const auto limit = ReadLimit(machine.root, "Max locked memory");
  if (!limit) return {UnknownLimit("Max locked memory")};
  const bool lifted = HasCapability(machine.root, kCapabilityIpcLock).value_or(false);
  const bool rdma = !machine.root.List("/sys/class/infiniband").empty();
  const bool cards = !machine.inventory.Cards().empty() && !machine.inventory.simulated;
  const std::string size = limit->soft == ResourceLimit::kUnlimited ? "unlimited" : base::FormatByteSize(limit->soft);
  const Figures figures = {
      {"bytes", FormatLimit(limit->soft)}, {"lifted", lifted ? "yes" : "no"}, {"rdma", rdma ? "yes" : "no"}};
  if (limit->soft == ResourceLimit::kUnlimited)
    return {Ok(Bilingual("locked memory is not limited", "锁定内存没有上限"), figures)};
  if (lifted) {
    return {Ok(Bilingual("CAP_IPC_LOCK lifts the limit of {}", "CAP_IPC_LOCK 免除了 {} 的上限", size), figures)};
  }
  const base::BilingualText fix =
      Bilingual("docker run --ulimit memlock=-1, or /etc/security/limits.conf: * - memlock unlimited",
                "docker run --ulimit memlock=-1，或 /etc/security/limits.conf：* - memlock unlimited");
  if (rdma) {
    const base::BilingualText seen =
        Bilingual("{} of locked memory, and an RDMA adapter is there, which needs every buffer locked",
                  "锁定内存上限 {}，而机器有 RDMA 网卡，其缓冲区必须锁定", size);
    return {machine.nodes > 1 ? Fail(seen, fix, "H1", figures) : Warn(seen, fix, "H1", figures)};
  }
  if (cards && limit->soft < kPinned) {
    return {Warn(Bilingual("{} of locked memory: pinned buffers of a card's runtime may not fit",
                           "锁定内存上限 {}：加速卡运行时的锁页缓冲区可能放不下", size),
                 fix, "H1", figures)};
  }
  return {Ok(Bilingual("{} of locked memory; no RDMA adapter here that would need more",
                       "锁定内存上限 {}；没有需要更多的 RDMA 网卡", size),
             figures)};
}

std::vector<Finding> CheckCoreFiles(const MachineUnderTest& machine) {
  const auto limit = ReadLimit(machine.root, "Max core file size");
  if (!limit) return {UnknownLimit("Max core file size")};
  const std::string pattern = base::Printable(machine.root.ReadLine("/proc/sys/kernel/core_pattern").value_or("core"));
  const Figures figures = {{"bytes", FormatLimit(limit->soft)}, {"pattern", pattern}};
  if (limit->soft == 0) {
    return {Ok(Bilingual("no core files; the rank agent writes its own crash report",
                         "不写 core 文件；崩溃报告由 rank agent 写出"),
               figures)};
  }
  if (pattern.starts_with('|')) {
    return {Ok(Bilingual("core files go to a program: {}", "core 文件交给程序处理：{}", pattern), figures)};
  }
  const std::string size =
      limit->soft == ResourceLimit::kUnlimited ? "of any size" : "of " + base::FormatByteSize(limit->soft);
  if (limit->soft <= 1024 * kMiB) {
    return {Ok(Bilingual("core files {}, as {}", "core 文件 {}，写入 {}", size, pattern), figures)};
  }
  return {
      Warn(Bilingual("core files {}, as {}: {} ranks that crash write all their memory to disk",
                     "core 文件 {}，写入 {}：{} 个 rank 崩溃时会把全部内存写到磁盘", size, pattern, machine.ranks),
           Bilingual("before the start: ulimit -c 0, unless you want them", "启动前执行：ulimit -c 0，除非确实需要"),
           "I5", figures)};
}

std::vector<Finding> CheckShm(const MachineUnderTest& machine) {
  const std::string folder = machine.root.Path("/dev/shm");
  const auto tried = machine.kernel->WriteAndReadBack(folder, kMiB);
  if (!tried) {
    return {
        Fail(Bilingual("/dev/shm cannot be used: {}", "/dev/shm 不可用：{}", base::Printable(tried.error().message)),
             Bilingual("mount it: docker run --shm-size=16g, Kubernetes: an emptyDir of medium Memory at /dev/shm",
                       "挂载它：docker run --shm-size=16g；Kubernetes：在 /dev/shm 挂 medium 为 Memory 的 emptyDir"),
             "H1")};
  }
  const auto space = machine.kernel->Space(folder);
  if (!space) {
    return {CannotTell(Bilingual("1 MiB was written to /dev/shm; its size cannot be read: {}",
                                 "已写入 /dev/shm 1 MiB；但无法读取其大小：{}", base::Printable(space.error().message)),
                       Bilingual("df /dev/shm", "df /dev/shm"), "H1")};
  }
  const std::uint64_t needed = Ranks(machine) * std::max<std::uint64_t>(Workers(machine, 2), 1) * kShmOfAWorker;
  const Figures figures = {{"bytes", std::to_string(space->bytes)},
                           {"bytes_free", std::to_string(space->bytes_free)},
                           {"needed", std::to_string(needed)}};
  const base::BilingualText seen =
      Bilingual("1 MiB written and read back; {} of {} free, {} wanted for {} ranks",
                "写入并读回 1 MiB；共 {1}，剩余 {0}，{3} 个 rank 约需 {2}", base::FormatByteSize(space->bytes_free),
                base::FormatByteSize(space->bytes), base::FormatByteSize(needed), machine.ranks);
  // Without workers no batch uses shared memory.
  if (space->bytes_free >= needed || machine.workers == 0) return {Ok(seen, figures)};
  const base::BilingualText fix = Bilingual(
      "docker run --shm-size={0} or --ipc=host; on a host: mount -o remount,size={0} /dev/shm; or fewer "
      "workers",
      "docker run --shm-size={0} 或 --ipc=host；宿主机：mount -o remount,size={0} /dev/shm；或减少 worker",
      fmt::format("{}m", std::max<std::uint64_t>(needed * 2 / kMiB, 1024)));
  if (space->bytes_free < needed / 8) return {Fail(seen, fix, "H1", figures)};
  return {Warn(seen, fix, "H1", figures)};
}

}  // namespace fulldeck::doctor
