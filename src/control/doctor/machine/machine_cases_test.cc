// Expected verdicts of the checks of the group "machine".
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/machine/fake_machine_for_test.h"
#include "job/runs/run_registry.h"
#include "wire/process_identity.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

void Nothing(FakeMachine&) {}

void HideProcStatus(FakeMachine& fake) {
  fake.Remove("/proc/self/status");
}

// The run's launcher is dead; `rank` is the pid of one of its ranks, or 0.
void LeaveRun(FakeMachine& fake, int rank) {
  job::RunRecord record;
  record.run_id = "20260101-dead";
  record.user = "somebody";
  record.directory = fake.tree.string();
  record.command = {"train.py"};
  record.supervisor = {1, 1};  // another process has that pid
  record.front = {1, 1};
  if (rank != 0) record.ranks = {{0, *wire::IdentityOf(rank)}};
  record.cards = {std::nullopt};
  mkdir((fake.tree.string() + "/runtime").c_str(), 0700);
  const auto written = job::RunRegistry(fake.machine.environment).Write(record);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

}  // namespace

std::vector<CheckCase> MachineCases() {
  return {
      {"cores", "enough", Verdict::kOk, "", "32 processors for 8 ranks", Nothing},
      {"cores", "too few", Verdict::kWarn, "", "2 processors for 8 ranks: they take turns",
       [](FakeMachine& fake) { fake.Replace("/proc/self/status", "0-31", "0,5"); }},
      {"cores", "a quota of v2", Verdict::kWarn, "", "a cgroup quota leaves 4 of 32",
       [](FakeMachine& fake) { fake.Write("/sys/fs/cgroup/job/cpu.max", "400000 100000\n"); }},
      {"cores", "a quota of v1", Verdict::kWarn, "", "a cgroup quota leaves 3 of 32",
       [](FakeMachine& fake) {
         fake.Write("/proc/self/cgroup", "4:cpu,cpuacct:/job\n");
         fake.Write("/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
         fake.Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
         fake.Write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
       }},
      {"cores", "no /proc", Verdict::kCannotTell, "", "", HideProcStatus},

      {"memory", "enough", Verdict::kOk, "", "114 GiB left in this machine", Nothing},
      {"memory", "little", Verdict::kWarn, "I2", "for each of 8 ranks",
       [](FakeMachine& fake) { fake.Replace("/proc/meminfo", "120000000", "12000000"); }},
      {"memory", "hardly any", Verdict::kFail, "I2", "for each of 8 ranks",
       [](FakeMachine& fake) { fake.Replace("/proc/meminfo", "120000000", "1200000"); }},
      {"memory", "a limit of v2", Verdict::kFail, "I2", "the cgroup /job",
       [](FakeMachine& fake) {
         fake.Write("/sys/fs/cgroup/job/memory.max", "1073741824\n");
         fake.Write("/sys/fs/cgroup/job/memory.current", "536870912\n");
       }},
      {"memory", "a limit of v1", Verdict::kFail, "I2", "the cgroup /job",
       [](FakeMachine& fake) {
         fake.Write("/proc/self/cgroup", "4:memory:/job\n");
         fake.Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
         fake.Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "536870912\n");
       }},
      {"memory", "no /proc", Verdict::kCannotTell, "I2", "", [](FakeMachine& fake) { fake.Remove("/proc"); }},

      {"loader-workers", "as many as fit", Verdict::kOk, "", "8 ranks with 3 workers each are 32 processes", Nothing},
      {"loader-workers", "too many", Verdict::kWarn, "", "set num_workers to 3",
       [](FakeMachine& fake) { fake.machine.workers = 16; }},
      {"loader-workers", "not said", Verdict::kCannotTell, "", "3 for each rank fit",
       [](FakeMachine& fake) { fake.machine.workers = -1; }},

      {"open-files", "many", Verdict::kOk, "", "65536 open files allowed", Nothing},
      {"open-files", "few", Verdict::kWarn, "H1", "ulimit -n 1048576",
       [](FakeMachine& fake) { fake.Replace("/proc/self/limits", "65536  ", "256    "); }},
      {"open-files", "few, and no more to be had", Verdict::kFail, "H1", "the hard limit, which is 100",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "65536  ", "100    ");
         fake.Replace("/proc/self/limits", "1048576", "100    ");
       }},
      {"open-files", "no /proc", Verdict::kCannotTell, "H1", "Max open files",
       [](FakeMachine& fake) { fake.Remove("/proc/self/limits"); }},

      {"processes", "many", Verdict::kOk, "", "100000 more processes", Nothing},
      {"processes", "threads of this user that run count", Verdict::kWarn, "H1", "300 more processes",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max processes             100000", "Max processes             1300  ");
         fake.Write("/proc/100/status", "Uid:\t1000\t1000\t1000\t1000\nThreads:\t900\n");
         fake.Write("/proc/101/status", "Uid:\t1000\t0\t0\t0\nThreads:\t100\n");
         fake.Write("/proc/102/status", "Uid:\t1001\t1001\t1001\t1001\nThreads:\t500\n");
       }},
      {"processes", "more run than the limit", Verdict::kFail, "H1", "0 more processes",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max processes             100000", "Max processes             1300  ");
         fake.Write("/proc/100/status", "Uid:\t1000\t1000\t1000\t1000\nThreads:\t1400\n");
       }},
      {"processes", "a capability lifts the limit", Verdict::kOk, "", "unlimited more processes",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max processes             100000", "Max processes             10    ");
         fake.Replace("/proc/self/status", "CapEff:\t0000000000000000", "CapEff:\t0000000001000000");
       }},
      {"processes", "the user's threads cannot be counted", Verdict::kCannotTell, "H1", "ulimit -u",
       [](FakeMachine& fake) { fake.Replace("/proc/self/status", "Uid:", "Gid:"); }},
      {"processes", "a cgroup with few", Verdict::kWarn, "H1", "the cgroup /job",
       [](FakeMachine& fake) {
         fake.Write("/sys/fs/cgroup/job/pids.max", "512\n");
         fake.Write("/sys/fs/cgroup/job/pids.current", "12\n");
       }},
      {"processes", "a cgroup above with next to none", Verdict::kFail, "H1", "the cgroup /",
       [](FakeMachine& fake) {
         fake.Write("/sys/fs/cgroup/pids.max", "100\n");
         fake.Write("/sys/fs/cgroup/pids.current", "90\n");
       }},
      {"processes", "a cgroup of v1", Verdict::kFail, "H1", "the cgroup /job",
       [](FakeMachine& fake) {
         fake.Write("/proc/self/cgroup", "9:pids:/job\n");
         fake.Write("/sys/fs/cgroup/pids/job/pids.max", "100\n");
         fake.Write("/sys/fs/cgroup/pids/job/pids.current", "90\n");
       }},

      {"locked-memory", "unlimited", Verdict::kOk, "", "not limited", Nothing},
      {"locked-memory", "lifted by a capability", Verdict::kOk, "", "CAP_IPC_LOCK lifts",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max locked memory         unlimited",
                      "Max locked memory         65536    ");
         fake.Replace("/proc/self/status", "CapEff:\t0000000000000000", "CapEff:\t0000000000004000");
         fake.AddCard(0);
       }},
      {"locked-memory", "little, with cards", Verdict::kWarn, "H1", "64 KiB of locked memory",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max locked memory         unlimited",
                      "Max locked memory         65536    ");
         fake.AddCard(0);
       }},
      {"locked-memory", "little, with RDMA on several hosts", Verdict::kFail, "H1", "memlock=-1",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "Max locked memory         unlimited",
                      "Max locked memory         65536    ");
         fake.Write("/sys/class/infiniband/mlx5_0/fw_ver", "1");
         fake.machine.nodes = 2;
       }},

      {"core-files", "none", Verdict::kOk, "", "no core files", Nothing},
      {"core-files", "to a program", Verdict::kOk, "", "go to a program",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "0                    unlimited", "unlimited            unlimited");
         fake.Write("/proc/sys/kernel/core_pattern", "|/usr/share/apport\n");
       }},
      {"core-files", "of any size into the folder", Verdict::kWarn, "I5", "ulimit -c 0",
       [](FakeMachine& fake) {
         fake.Replace("/proc/self/limits", "0                    unlimited", "unlimited            unlimited");
       }},

      {"shm", "roomy", Verdict::kOk, "", "1 MiB written and read back", Nothing},
      {"shm", "cannot be written", Verdict::kFail, "H1", "--shm-size",
       [](FakeMachine& fake) { fake.kernel.write_error = EROFS; }},
      {"shm", "nearly full", Verdict::kWarn, "H1", "1 GiB of 500 GiB free",
       [](FakeMachine& fake) { fake.kernel.space.bytes_free = 1024 * kMiB; }},
      {"shm", "full", Verdict::kFail, "H1", "--shm-size",
       [](FakeMachine& fake) { fake.kernel.space.bytes_free = 10 * kMiB; }},
      {"shm", "not needed without workers", Verdict::kOk, "", "",
       [](FakeMachine& fake) {
         fake.kernel.space.bytes_free = 10 * kMiB;
         fake.machine.workers = 0;
       }},

      {"clock", "right", Verdict::kOk, "", "synchronised", Nothing},
      {"clock", "in 1970", Verdict::kFail, "", "that cannot be",
       [](FakeMachine& fake) { fake.kernel.clock.unix_seconds = 4711; }},
      {"clock", "jumps", Verdict::kWarn, "", "jumped by -250 ms",
       [](FakeMachine& fake) { fake.kernel.clock.jumped = std::chrono::milliseconds(-250); }},
      {"clock", "not synchronised, several hosts", Verdict::kWarn, "", "chronyd",
       [](FakeMachine& fake) {
         fake.kernel.clock.synchronized = false;
         fake.machine.nodes = 2;
       }},

      {"huge-pages", "given to both", Verdict::kOk, "", "and to a memfd", Nothing},
      {"huge-pages", "not given to a memfd", Verdict::kOk, "", "shmem_enabled: never",
       [](FakeMachine& fake) {
         fake.Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny\n");
         fake.kernel.huge_pages.shared = false;
       }},
      {"huge-pages", "never", Verdict::kWarn, "", "echo madvise",
       [](FakeMachine& fake) {
         fake.Write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
         fake.kernel.huge_pages = {false, false};
       }},
      // The setting that the kernel shows is not sufficient: memory may be fragmented.
      {"huge-pages", "allowed, and not given", Verdict::kWarn, "", "compact_memory",
       [](FakeMachine& fake) {
         fake.kernel.huge_pages = {false, false};
       }},
      {"huge-pages", "not told", Verdict::kCannotTell, "", "", [](FakeMachine& fake) { fake.kernel.huge_pages = {}; }},

      {"left-runs", "none", Verdict::kOk, "", "0 runs in the registry", Nothing},
      {"left-runs", "an entry of a dead launcher", Verdict::kWarn, "C8", "fulldeck stop 20260101-dead",
       [](FakeMachine& fake) { LeaveRun(fake, 0); }},
      {"left-runs", "a rank that still runs", Verdict::kFail, "C8", "1 of its processes still run",
       [](FakeMachine& fake) { LeaveRun(fake, fake.StartSleeper()); }},

      {"left-files", "none", Verdict::kOk, "", "0 segments", Nothing},
      {"left-files", "a segment of a dead process", Verdict::kWarn, "H1", "2 MiB in /dev/shm",
       [](FakeMachine& fake) { fake.Write("/dev/shm/torch_4711_123_0", std::string(2 * kMiB, 'x')); }},
      {"left-files", "a segment of a living one", Verdict::kOk, "", "0 segments",
       [](FakeMachine& fake) { fake.Write("/dev/shm/torch_1_123_0", std::string(2 * kMiB, 'x')); }},

      {"card-holders", "nobody", Verdict::kOk, "", "nobody holds any of 1 card",
       [](FakeMachine& fake) { fake.AddCard(0); }},
      {"card-holders", "somebody", Verdict::kWarn, "C8", "gcu 0 is held by pid",
       [](FakeMachine& fake) {
         device::Holder holder;
         holder.pid = fake.StartSleeper();
         holder.user = "alice";
         fake.AddCard(0).telemetry.holders->push_back(holder);
       }},
      {"card-holders", "cannot be told", Verdict::kCannotTell, "C8", "who holds gcu 0",
       [](FakeMachine& fake) { fake.AddCard(0).telemetry.holders.reset(); }},
  };
}

}  // namespace fulldeck::doctor
