#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "doctor/machine/container_checks.h"
#include "doctor/machine/proc_status.h"
#include "wire/process_identity.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kDockersDefault = std::uint64_t{64} << 20;
constexpr int kManyZombies = 10;
// A working init reaps within milliseconds; the rest is a margin for a loaded machine.
constexpr base::Duration kOrphanTimeout = std::chrono::seconds(5);

// The purpose of a facility, and whether runs fail without it.
struct FacilityUse {
  std::string_view name;
  bool needed;
  base::BilingualText use;
};

const std::vector<FacilityUse>& FacilityUses() {
  static const std::vector<FacilityUse> uses = {
      {"memfd_create", true, Bilingual("shared memory of the collectives", "集合通信的共享内存")},
      {"SCM_RIGHTS", true, Bilingual("ranks hand that memory to each other", "rank 之间传递共享内存")},
      {"pidfd_open", false, Bilingual("a rank's death is seen at once", "立即发现 rank 死亡")},
      {"sched_setaffinity", false, Bilingual("--numa-binding", "--numa-binding")},
      {"get_mempolicy", false, Bilingual("buffers beside their processor", "缓冲区贴近处理器分配")},
      {"process_vm_readv", false,
       Bilingual("debuggers, py-spy, OpenMPI's single copy", "调试器、py-spy、OpenMPI 单次拷贝")},
  };
  return uses;
}

int CountZombiesOfInit(const base::SystemRoot& root) {
  int zombies = 0;
  for (const std::string& name : root.List("/proc")) {
    const auto pid = base::ParseInteger<int>(name);
    const auto stat = pid ? wire::ReadProcessStat(*pid, root) : std::nullopt;
    if (stat && stat->state == 'Z' && stat->parent == 1) ++zombies;
  }
  return zombies;
}

}  // namespace

std::optional<std::string> FindContainer(const base::SystemRoot& root) {
  if (root.Exists("/run/secrets/kubernetes.io")) return "Kubernetes";
  const auto cgroup = root.ReadFile("/proc/self/cgroup", 1 << 16);
  if (cgroup) {
    const std::pair<const char*, const char*> kinds[] = {{"kubepods", "Kubernetes"},
                                                         {"docker", "Docker"},
                                                         {"libpod", "Podman"},
                                                         {"lxc", "LXC"},
                                                         {"containerd", "containerd"}};
    for (const auto& [word, name] : kinds) {
      if (cgroup->find(word) != std::string::npos) return name;
    }
  }
  if (root.Exists("/.dockerenv")) return "Docker";
  if (root.Exists("/run/.containerenv")) return "Podman";
  if (root.Exists("/.singularity.d")) return "Singularity";
  // An overlay as the root file system indicates a container; among machines only live systems have one.
  const auto mounts = root.ReadFile("/proc/self/mountinfo");
  if (!mounts) return std::nullopt;
  for (const std::string_view line : base::Split(*mounts, '\n')) {
    const auto words = base::Split(line, ' ');
    if (words.size() > 4 && words[4] == "/" && line.find(" - overlay ") != std::string_view::npos) return "a container";
  }
  return std::nullopt;
}

std::vector<Finding> CheckContainerInit(const MachineUnderTest& machine) {
  const auto container = FindContainer(machine.root);
  const base::BilingualText where =
      container ? Bilingual("in {}", "在容器中（{}）", *container) : Bilingual("not in a container", "不在容器中");
  const int zombies = CountZombiesOfInit(machine.root);
  const auto fate = machine.kernel->OrphanAProcess(kOrphanTimeout);
  if (!fate) {
    return {CannotTell({fmt::format("{}; no orphan could be made: {}", where.english, fate.error().message),
                        fmt::format("{}；无法制造孤儿进程：{}", where.chinese, fate.error().message)},
                       Bilingual("see the check processes", "见检查 processes"), "C8")};
  }
  const std::string adopter =
      base::Printable(machine.root.ReadLine(fmt::format("/proc/{}/comm", fate->adopter)).value_or("?"));
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(fate->took).count();
  const Figures figures = {{"container", container.value_or("")},
                           {"reaped", fate->reaped ? "yes" : "no"},
                           {"milliseconds", std::to_string(milliseconds)},
                           {"adopter", std::to_string(fate->adopter)},
                           {"init", adopter},
                           {"zombies", std::to_string(zombies)}};
  const base::BilingualText fix =
      Bilingual("start the container with an init: docker run --init; Kubernetes: shareProcessNamespace",
                "给容器加 init：docker run --init；Kubernetes：shareProcessNamespace");
  if (!fate->reaped) {
    return {Warn({fmt::format("{}; process {} ({}) did not reap an orphan within {} ms", where.english, fate->adopter,
                              adopter, milliseconds),
                  fmt::format("{}；{} 号进程（{}）在 {} 毫秒内没有回收孤儿进程", where.chinese, fate->adopter, adopter,
                              milliseconds)},
                 fix, "C8", figures)};
  }
  if (zombies >= kManyZombies) {
    return {
        Warn({fmt::format("{}; an orphan was reaped, but {} dead processes wait for process 1", where.english, zombies),
              fmt::format("{}；孤儿进程已被回收，但 1 号进程仍有 {} 个僵尸进程", where.chinese, zombies)},
             fix, "C8", figures)};
  }
  return {Ok({fmt::format("{}; process {} ({}) reaped an orphan within {} ms", where.english, fate->adopter, adopter,
                          milliseconds),
              fmt::format("{}；{} 号进程（{}）在 {} 毫秒内回收了孤儿进程", where.chinese, fate->adopter, adopter,
                          milliseconds)},
             figures)};
}

std::vector<Finding> CheckShmSize(const MachineUnderTest& machine) {
  const auto space = machine.kernel->Space(machine.root.Path("/dev/shm"));
  if (!space) {
    return {CannotTell(Bilingual("the size of /dev/shm cannot be read: {}", "无法读取 /dev/shm 大小：{}",
                                 base::Printable(space.error().message)),
                       Bilingual("see the check shm", "见检查 shm"), "H1")};
  }
  const Figures figures = {{"bytes", std::to_string(space->bytes)}};
  const std::string size = base::FormatByteSize(space->bytes);
  if (space->bytes > kDockersDefault) return {Ok(Bilingual("/dev/shm has {}", "/dev/shm 大小为 {}", size), figures)};
  // Without data loader workers torch does not use it; fulldeck's collectives do not either.
  const base::BilingualText seen =
      Bilingual("/dev/shm has {}, which is what Docker gives unless it is told: loader workers die of SIGBUS",
                "/dev/shm 只有 {}，即 Docker 默认值：数据加载进程会因 SIGBUS 死亡", size);
  const base::BilingualText fix =
      Bilingual("docker run --shm-size=16g, or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm",
                "docker run --shm-size=16g 或 --ipc=host；Kubernetes：在 /dev/shm 挂 medium 为 Memory 的 emptyDir");
  return {machine.workers == 0 ? Warn(seen, fix, "H1", figures) : Fail(seen, fix, "H1", figures)};
}

std::vector<Finding> CheckFacilities(const MachineUnderTest& machine) {
  std::vector<Finding> findings;
  std::vector<std::string> working;
  for (const Facility& facility : machine.kernel->TryFacilities()) {
    if (facility.error == 0) {
      working.push_back(facility.name);
      continue;
    }
    const auto& uses = FacilityUses();
    const auto use =
        std::find_if(uses.begin(), uses.end(), [&](const FacilityUse& u) { return u.name == facility.name; });
    const bool needed = use == uses.end() || use->needed;
    const base::BilingualText what = use == uses.end() ? base::BilingualText{"", ""} : use->use;
    const std::string why = std::strerror(facility.error);
    const base::BilingualText seen = {fmt::format("{} is refused ({}): {}", facility.name, why, what.english),
                                      fmt::format("{} 被拒绝（{}）：{}", facility.name, why, what.chinese)};
    const base::BilingualText fix = Bilingual(
        "docker run --security-opt seccomp=unconfined, or a profile that allows it; an old kernel (uname "
        "-r) may not have it",
        "docker run --security-opt seccomp=unconfined，或允许它的策略；旧内核（uname -r）可能没有");
    const Figures figures = {{"call", facility.name}, {"errno", std::to_string(facility.error)}};
    findings.push_back(needed ? Fail(seen, fix, "H1", figures) : Warn(seen, fix, "H1", figures));
  }
  if (findings.empty()) {
    findings.push_back(Ok(Bilingual("done: {}", "已实际执行：{}", base::Join(working, ", "))));
  }
  return findings;
}

std::vector<Finding> CheckCapabilities(const MachineUnderTest& machine) {
  const auto lock = HasCapability(machine.root, kCapabilityIpcLock);
  const auto trace = HasCapability(machine.root, kCapabilityPtrace);
  const auto nice = HasCapability(machine.root, kCapabilityNice);
  if (!lock || !trace || !nice) {
    return {
        CannotTell(Bilingual("/proc/self/status does not tell the capabilities", "/proc/self/status 中没有权能信息"),
                   Bilingual("look whether /proc is mounted", "检查 /proc 是否已挂载"), "H1")};
  }
  const std::string seccomp = base::Printable(StatusField(machine.root, "Seccomp").value_or("?"));
  const bool rdma = !machine.root.List("/sys/class/infiniband").empty();
  const auto limit = ReadLimit(machine.root, "Max locked memory");
  const bool bounded = limit && limit->soft != ResourceLimit::kUnlimited;
  const auto word = [](bool has) { return has ? "yes" : "no"; };
  const Figures figures = {{"ipc_lock", word(*lock)},
                           {"sys_ptrace", word(*trace)},
                           {"sys_nice", word(*nice)},
                           {"seccomp", seccomp},
                           {"rdma", word(rdma)}};
  if (rdma && !*lock && bounded) {
    return {Warn(
        Bilingual("an RDMA adapter is there, and this process has neither CAP_IPC_LOCK nor unlimited locked memory",
                  "有 RDMA 网卡，但本进程既无 CAP_IPC_LOCK 也没有不限量的锁定内存"),
        Bilingual("docker run --cap-add IPC_LOCK --ulimit memlock=-1",
                  "docker run --cap-add IPC_LOCK --ulimit memlock=-1"),
        "H1", figures)};
  }
  return {Ok(
      Bilingual("IPC_LOCK {} (RDMA), SYS_PTRACE {} (debuggers of other users' processes), SYS_NICE {} (memory on other "
                "nodes), seccomp mode {}; RDMA adapter: {}",
                "IPC_LOCK {}（RDMA），SYS_PTRACE {}（调试其他用户的进程），SYS_NICE {}（跨节点内存），seccomp 模式 "
                "{}；RDMA 网卡：{}",
                word(*lock), word(*trace), word(*nice), seccomp, word(rdma)),
      figures)};
}

}  // namespace fulldeck::doctor
