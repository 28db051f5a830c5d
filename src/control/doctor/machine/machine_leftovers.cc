#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "device/card.h"
#include "doctor/machine/machine_checks.h"
#include "job/cards/card_holders.h"
#include "job/runs/run_orphans.h"
#include "job/runs/run_registry.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kWorthSaying = std::uint64_t{1} << 20;
constexpr std::size_t kMaxNamed = 8;

std::string Pids(const std::vector<wire::ProcessIdentity>& processes) {
  std::vector<std::string> pids;
  for (const wire::ProcessIdentity& process : processes) {
    if (pids.size() == kMaxNamed) {
      pids.emplace_back("…");
      break;
    }
    pids.push_back(std::to_string(process.pid));
  }
  return base::Join(pids, ", ");
}

// torch names its segments torch_PID_RANDOM_COUNT.
std::optional<int> OwnerOfSegment(std::string_view name) {
  const auto parts = base::Split(name, '_');
  if (parts.size() < 3 || parts[0] != "torch") return std::nullopt;
  return base::ParseInteger<int>(parts[1]);
}

Finding HeldBy(const device::Card& card, const job::CardHolder& holder) {
  const std::string memory = holder.holder.memory_bytes ? ", " + base::FormatByteSize(*holder.holder.memory_bytes) : "";
  const Figures figures = {{"card", device::NameOf(card)},
                           {"pid", std::to_string(holder.process.pid)},
                           {"user", holder.holder.user.value_or("")},
                           {"run", holder.run_id.value_or("")}};
  const base::BilingualText seen = Bilingual(
      "{} is held by pid {} ({}{}): {}", "{} 被进程 {} 占用（{}{}）：{}", device::NameOf(card), holder.process.pid,
      holder.holder.user.value_or("owner unknown"), memory, holder.holder.command.value_or("command unknown"));
  if (holder.run_id) {
    return Warn(seen,
                Bilingual("it is a rank of your run {0}: wait for it, or fulldeck stop {0}",
                          "它是你的运行 {0} 的 rank：等它结束，或 fulldeck stop {0}", *holder.run_id),
                "C8", figures);
  }
  if (!holder.certain) {
    return Warn(seen,
                Bilingual("the driver counts processes as the host does: look for it there",
                          "驱动使用宿主机的进程号：请在宿主机上查看"),
                "C8", figures);
  }
  return Warn(seen,
              Bilingual("ask its owner to end it; your own: fulldeck stop --holders {}:{}",
                        "请其所有者结束它；自己的进程：fulldeck stop --holders {}:{}", card.kind, card.index),
              "C8", figures);
}

}  // namespace

std::vector<Finding> CheckLeftRuns(const MachineUnderTest& machine) {
  std::vector<std::string> warnings;
  const auto runs = job::RunRegistry(machine.environment).List(&warnings);
  std::vector<Finding> findings;
  for (const auto& run : runs) {
    if (run.alive) continue;
    const job::RunOrphans orphans = job::FindOrphans(run.record);
    const base::BilingualText fix = Bilingual("fulldeck stop {}", "fulldeck stop {}", run.record.run_id);
    const Figures figures = {{"run", run.record.run_id}, {"processes", std::to_string(orphans.processes.size())}};
    if (!orphans.processes.empty()) {
      findings.push_back(Fail(Bilingual("the launcher of run {} is dead, and {} of its processes still run: pid {}",
                                        "运行 {} 的启动器已死，仍有 {} 个进程在运行：pid {}", run.record.run_id,
                                        orphans.processes.size(), Pids(orphans.processes)),
                              fix, "C8", figures));
    } else {
      findings.push_back(Warn(Bilingual("the launcher of run {} was killed; its entry is left",
                                        "运行 {} 的启动器被杀；登记仍在", run.record.run_id),
                              fix, "C8", figures));
    }
  }
  for (const std::string& warning : warnings) {
    const std::string sentence = base::Printable(warning);
    findings.push_back(CannotTell({sentence, sentence},
                                  Bilingual("look at it where it belongs, or remove it", "到其所属环境查看，或删除它"),
                                  "C8"));
  }
  if (findings.empty()) {
    findings.push_back(Ok({base::Counted(runs.size(), "run") + " in the registry, and none was left by a dead launcher",
                           fmt::format("登记中有 {} 个运行，没有死掉的启动器遗留的", runs.size())}));
  }
  return findings;
}

std::vector<Finding> CheckLeftFiles(const MachineUnderTest& machine) {
  if (!machine.root.Exists("/dev/shm/.")) {
    return {CannotTell(Bilingual("there is no /dev/shm", "没有 /dev/shm"), Bilingual("see the check shm", "见检查 shm"),
                       "H1")};
  }
  std::uint64_t bytes = 0;
  int segments = 0;
  std::vector<std::string> owners;
  for (const std::string& name : machine.root.List("/dev/shm")) {
    const auto owner = OwnerOfSegment(name);
    if (!owner || machine.root.Exists("/proc/" + std::to_string(*owner))) continue;
    std::error_code error;
    const auto size = std::filesystem::file_size(machine.root.Path("/dev/shm/" + name), error);
    if (error) continue;
    bytes += size;
    ++segments;
    const std::string pid = std::to_string(*owner);
    const bool known = std::find(owners.begin(), owners.end(), pid) != owners.end();
    if (!known && owners.size() < kMaxNamed) owners.push_back(pid);
  }
  const Figures figures = {{"segments", std::to_string(segments)}, {"bytes", std::to_string(bytes)}};
  if (bytes < kWorthSaying) {
    return {Ok({base::Counted(segments, "segment") + " of torch in /dev/shm without a process",
                fmt::format("/dev/shm 中进程已死的 torch 共享内存段：{} 个", segments)},
               figures)};
  }
  return {Warn(
      Bilingual("{} in /dev/shm belong to torch ({} segments), whose processes (pid {}) are not seen here any more",
                "/dev/shm 中有 {} 属于 torch（{} 个共享内存段），其进程（pid {}）已不存在", base::FormatByteSize(bytes),
                segments, base::Join(owners, ", ")),
      Bilingual("remove them when no other container shares this /dev/shm: rm /dev/shm/torch_PID_*",
                "若没有其他容器共享此 /dev/shm，可删除：rm /dev/shm/torch_PID_*"),
      "H1", figures)};
}

std::vector<Finding> CheckCardHolders(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return {};
  const auto runs = job::RunRegistry(machine.environment).List();
  std::vector<Finding> findings;
  std::vector<std::string> unknown;
  for (const device::Card* card : cards) {
    const auto holders = job::HoldersOf(*card, runs);
    if (!holders) {
      unknown.push_back(device::NameOf(*card));
      continue;
    }
    for (const job::CardHolder& holder : *holders) {
      if (!holder.is_caller) findings.push_back(HeldBy(*card, holder));
    }
  }
  if (!unknown.empty()) {
    findings.push_back(
        CannotTell(Bilingual("who holds {}: the driver does not say, and other users' processes cannot be looked into",
                             "无法得知谁占用 {}：驱动不提供，且无权查看其他用户的进程", base::Join(unknown, ", ")),
                   Bilingual("ask again as root", "以 root 再试"), "C8"));
  }
  if (findings.empty()) {
    findings.push_back(Ok({"nobody holds any of " + base::Counted(cards.size(), "card"),
                           fmt::format("{} 张卡均无人占用", cards.size())}));
  }
  return findings;
}

}  // namespace fulldeck::doctor
