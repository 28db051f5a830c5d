// The fake itself (fake_machine_for_test.h), and the table of all groups' cases.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/subprocess.h"
#include "doctor/finding.h"
#include "doctor/machine/fake_machine_for_test.h"
#include "wire/variables.h"

namespace fulldeck::doctor {

base::Result<FileSystemSpace> FakeSystemCalls::Space(const std::string& folder) const {
  if (space_error != 0) return base::ErrnoError(folder, space_error);
  return space;
}
base::Result<void> FakeSystemCalls::WriteAndReadBack(const std::string& folder, std::size_t) const {
  if (write_error != 0) return base::ErrnoError("no file can be made in " + folder, write_error);
  return {};
}
base::Result<void> FakeSystemCalls::Reserve(const std::string&, std::uint64_t) const {
  if (reserve_error != 0) return base::ErrnoError("256 MiB cannot be had", reserve_error);
  return {};
}
base::Result<std::vector<base::Duration>> FakeSystemCalls::SyncTimes(const std::string& folder, int,
                                                                     base::Duration) const {
  if (sync_error != 0) return base::ErrnoError(folder, sync_error);
  return sync_times;
}
base::Result<void> FakeSystemCalls::MayUse(const std::string& path) const {
  if (!refused_node.empty() && path.ends_with(refused_node)) return base::ErrnoError(path, EACCES);
  return {};
}
base::Result<OrphanFate> FakeSystemCalls::OrphanAProcess(base::Duration) const {
  if (orphan_error != 0) return base::ErrnoError("no process can be forked", orphan_error);
  return orphan;
}
base::Result<std::vector<std::string>> FakeSystemCalls::Resolve(const std::string& name) const {
  if (resolved.empty()) return base::Error{"the host name " + name + " cannot be looked up"};
  return resolved;
}
base::Result<void> FakeSystemCalls::Echo(const std::string&) const {
  if (echo_error != 0) return base::ErrnoError("the connection does not come about", echo_error);
  return {};
}
base::Result<void> FakeSystemCalls::TryPort(int) const {
  if (port_error != 0) return base::ErrnoError("cannot listen", port_error);
  return {};
}

FakeMachine::FakeMachine() {
  Write("/proc/self/status",
        "Name:\tfulldeck\nUid:\t1000\t1000\t1000\t1000\nThreads:\t4\nCapEff:\t0000000000000000\nSeccomp:\t0\nCpus_"
        "allowed_list:\t0-31\n");
  Write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max core file size        0                    unlimited            bytes     \n"
        "Max processes             100000               100000               processes \n"
        "Max open files            65536                1048576              files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n");
  Write("/proc/meminfo", "MemTotal:       131072000 kB\nMemAvailable:   120000000 kB\nSwapFree: 0 kB\n");
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/proc/self/mountinfo",
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
        "31 22 8:2 / /data rw,relatime - xfs /dev/sdb1 rw\n");
  Write("/proc/sys/kernel/core_pattern", "core\n");
  Write("/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 5 1 1 1\n");
  Write("/proc/1/comm", "systemd\n");
  Write("/proc/net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Write("/dev/shm/unrelated", "x");
  machine.root = base::SystemRoot(tree.string());
  machine.environment.Set("FULLDECK_RUNTIME_DIR", tree.string() + "/runtime");
  machine.ranks = 8;
  machine.workers = 3;
  machine.work_dir = "/data";
  machine.python = kSystemPython;
  machine.kernel = &kernel;
}

FakeMachine::~FakeMachine() {
  stop_ = true;
  if (peer_.joinable()) peer_.join();
  for (const int pid : sleepers_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void FakeMachine::Remove(const std::string& absolute) const {
  std::filesystem::remove_all(tree.string() + absolute);
}

void FakeMachine::Replace(const std::string& absolute, const std::string& old, const std::string& with) const {
  const auto text = machine.root.ReadFile(absolute);
  ASSERT_TRUE(text.ok()) << absolute;
  const auto at = text->find(old);
  ASSERT_NE(at, std::string::npos) << old << " in " << absolute;
  std::string changed = *text;
  Write(absolute, changed.replace(at, old.size(), with));
}

device::Card& FakeMachine::AddCard(int index) {
  const std::string address = "0000:0" + std::to_string(index + 1) + ":00.0";
  const std::string folder = "/sys/bus/pci/devices/" + address;
  Write(folder + "/class", "0x120000\n");
  Write(folder + "/vendor", "0x1e36\n");
  Write(folder + "/device", "0xc035\n");
  Write(folder + "/current_link_width", "16\n");
  Write(folder + "/max_link_width", "16\n");
  Write(folder + "/iommu_group/type", "identity\n");
  Write("/dev/gcu" + std::to_string(index), "");
  Write("/dev/gcuctl", "");
  Write("/usr/lib/libefml.so", "");
  Write("/usr/bin/efsmi", "");
  std::filesystem::permissions(tree.string() + "/usr/bin/efsmi", std::filesystem::perms::all);
  device::Card card;
  card.vendor = "enflame";
  card.kind = "gcu";
  card.index = index;
  card.pci_address = address;
  card.numa_node = 0;
  card.collective_backend = "eccl";
  card.nodes = {"/dev/gcu" + std::to_string(index)};
  card.telemetry.holders.emplace();
  if (machine.inventory.vendors.empty()) {
    machine.inventory.vendors.emplace_back();
    machine.inventory.vendors.back().vendor = "enflame";
    machine.inventory.vendors.back().title = "Enflame";
    machine.inventory.vendors.back().cards.reserve(16);
  }
  auto& cards = machine.inventory.vendors.back().cards;
  cards.push_back(std::move(card));
  return cards.back();
}

int FakeMachine::StartSleeper() {
  base::SpawnOptions options;
  options.arguments = {"/bin/sleep", "600"};
  options.parent_death_signal = SIGKILL;
  const auto pid = base::Spawn(options);
  EXPECT_TRUE(pid.ok());
  if (!pid) return 0;
  sleepers_.push_back(*pid);
  return *pid;
}

void FakeMachine::StartPeer(PeerFaults faults) {
  constexpr char kToken[] = "of this scene";
  machine.environment.Set(wire::kTokenVariable, kToken);
  const auto loopback = net::ResolveHost("127.0.0.1", 0);
  ASSERT_TRUE(loopback.ok());
  auto listener = PeerListener::Open(loopback->front(), kToken, faults);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  listener_ = std::make_unique<PeerListener>(std::move(*listener));
  machine.peers.push_back("127.0.0.1:" + std::to_string(listener_->port()));
  peer_ = std::thread([this] {
    while (!stop_) listener_->Serve(std::chrono::milliseconds(20));
  });
}

std::string Judge(const Check& check, const CheckCase& one) {
  FakeMachine fake;
  one.arrange(fake);
  const std::vector<Finding> findings = check.run(fake.machine);
  const std::string name = std::string(one.id) + ", " + std::string(one.what) + ": ";
  const auto all = [&] {
    std::string text;
    for (const Finding& finding : findings) {
      text += "\n  " + std::string(NameOf(finding.verdict)) + " [" + finding.row + "] " + finding.evidence.english +
              " | " + finding.fix.english;
    }
    return text;
  };
  if (findings.empty()) return name + "nothing was found";
  if (Worst(findings) != one.verdict) return name + "not " + std::string(NameOf(one.verdict)) + all();
  for (const Finding& finding : findings) {
    if (finding.verdict != one.verdict) continue;
    const std::string text = finding.evidence.english + " | " + finding.fix.english;
    if (text.find(one.reports) == std::string::npos) continue;
    if (!one.row.empty() && finding.row != one.row) continue;
    if (finding.evidence.chinese.empty()) return name + "says nothing in Chinese" + all();
    if (finding.verdict != Verdict::kOk && (finding.fix.english.empty() || finding.fix.chinese.empty())) {
      return name + "no cure" + all();
    }
    return "";
  }
  return name + "no finding of row '" + std::string(one.row) + "' says '" + std::string(one.reports) + "'" + all();
}

namespace {

std::vector<CheckCase> AllCases() {
  std::vector<CheckCase> all;
  for (const auto group : {MachineCases, CardCases, StackCases, ContainerCases, NetworkCases, StorageCases}) {
    const std::vector<CheckCase> cases = group();
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

std::vector<Finding> AlwaysOk(const MachineUnderTest&) {
  return {Ok(Bilingual("everything is fine", "一切正常"))};
}

TEST(CheckTable, EveryCheckJudgesEveryCaseOfItsOwnAsItMust) {
  for (const CheckCase& one : AllCases()) {
    const auto checks = Checks();
    const auto check = std::find_if(checks.begin(), checks.end(), [&](const Check& c) { return c.id == one.id; });
    ASSERT_NE(check, checks.end()) << "a case for " << one.id << ", which is no check";
    EXPECT_EQ(Judge(*check, one), "");
  }
}

TEST(CheckTable, EveryCheckHasACaseItPassesAndOneItMustNotCallOk) {
  std::set<std::string_view> passing;
  std::set<std::string_view> failing;
  for (const CheckCase& one : AllCases()) (one.verdict == Verdict::kOk ? passing : failing).insert(one.id);
  for (const Check& check : Checks()) {
    EXPECT_TRUE(passing.count(check.id) != 0) << check.id << " is in no case ok";
    EXPECT_TRUE(failing.count(check.id) != 0) << check.id << " is ok in every case";
  }
}

TEST(CheckTable, ACheckThatAlwaysReportsOkIsFoundOut) {
  for (Check check : Checks()) {
    check.run = AlwaysOk;
    int warnings = 0;
    for (const CheckCase& one : AllCases()) {
      // Cards, interpreters and nodes are slow to set up, and one difference is enough.
      if (one.id != check.id || one.verdict == Verdict::kOk || warnings > 0) continue;
      if (!Judge(check, one).empty()) ++warnings;
    }
    EXPECT_GT(warnings, 0) << "nobody notices that " << check.id << " always says ok";
  }
}

TEST(CheckTable, ACleanMachineGivesNoWarning) {
  FakeMachine fake;
  for (int card = 0; card < 8; ++card) fake.AddCard(card);
  for (const Group group : {Group::kMachine, Group::kContainer, Group::kNetwork, Group::kStorage}) {
    for (const Check& check : Checks()) {
      if (check.group != group) continue;
      for (const Finding& finding : check.run(fake.machine)) {
        EXPECT_EQ(NameOf(finding.verdict), "ok") << check.id << ": " << finding.evidence.english;
        EXPECT_TRUE(finding.fix.english.empty()) << check.id;
      }
    }
  }
}

TEST(CheckTable, ChecksAreNamedOnceAndExplainedInBothLanguages) {
  std::set<std::string_view> ids;
  for (const Check& check : Checks()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_NE(check.run, nullptr) << check.id;
    for (const base::BilingualText* text : {&TextsOf(check).does, &TextsOf(check).proves}) {
      EXPECT_FALSE(text->english.empty()) << check.id;
      EXPECT_FALSE(text->chinese.empty()) << check.id;
    }
  }
  std::set<std::string_view> with_texts;
  for (const auto& [group, all] : AllCheckTexts()) {
    for (const CheckTexts& texts : all) {
      EXPECT_TRUE(with_texts.insert(texts.id).second) << "data/checks/" << group << ".toml: " << texts.id << " twice";
    }
  }
  EXPECT_EQ(with_texts, ids);
}

}  // namespace
}  // namespace fulldeck::doctor
