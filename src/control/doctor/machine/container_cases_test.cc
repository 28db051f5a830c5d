// Expected verdicts of the checks of the group "container".
#include <gtest/gtest.h>

#include "doctor/machine/container_checks.h"
#include "doctor/machine/fake_machine_for_test.h"

namespace fulldeck::doctor {
namespace {

void Nothing(FakeMachine&) {}
void TwoCards(FakeMachine& fake) {
  fake.AddCard(0);
  fake.AddCard(1);
}

}  // namespace

std::vector<CheckCase> ContainerCases() {
  return {
      {"container-init", "a machine", Verdict::kOk, "", "not in a container; process 1 (systemd) reaped", Nothing},
      {"container-init", "a process 1 that never reaps, before anything has piled up", Verdict::kWarn, "C8",
       "process 1 (python3) did not reap an orphan",
       [](FakeMachine& fake) {
         fake.Write("/proc/1/comm", "python3\n");
         fake.kernel.orphan = {false, 1, std::chrono::seconds(3)};
       }},
      {"container-init", "no process can be forked", Verdict::kCannotTell, "C8", "no orphan could be made",
       [](FakeMachine& fake) { fake.kernel.orphan_error = EAGAIN; }},
      {"container-init", "a container whose script does not reap", Verdict::kWarn, "C8",
       "12 dead processes wait for process 1",
       [](FakeMachine& fake) {
         fake.Write("/.dockerenv", "");
         fake.Write("/proc/1/comm", "python3\n");
         for (int pid = 100; pid < 112; ++pid) {
           fake.Write("/proc/" + std::to_string(pid) + "/stat",
                      std::to_string(pid) + " (rank) Z 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 5 1 1 1\n");
         }
       }},

      {"device-nodes", "all there", Verdict::kOk, "", "Enflame: 2 nodes for 2 cards", TwoCards},
      {"device-nodes", "a card without a node", Verdict::kFail, "D2", "1 of 2 × /dev/gcuN",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Write("/.dockerenv", "");
         fake.Remove("/dev/gcu1");
       }},
      {"device-nodes", "a container that was given some", Verdict::kOk, "", "1 of the 2 cards of this machine",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Write("/.dockerenv", "");
         fake.Remove("/dev/gcu1");
         fake.machine.ranks = 1;
       }},
      {"device-nodes", "a machine whose driver has made no node", Verdict::kFail, "D2", "install or load the driver",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/dev/gcu0");
         fake.Remove("/dev/gcu1");
         fake.machine.ranks = 1;
       }},
      {"device-nodes", "a machine without the control node", Verdict::kWarn, "D2", "not there yet: /dev/gcuctl",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/dev/gcuctl");
       }},
      {"device-nodes", "no control node", Verdict::kFail, "D2", "--device /dev/gcuctl",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Write("/.dockerenv", "");
         fake.Remove("/dev/gcuctl");
       }},
      {"device-nodes", "a node that may not be used", Verdict::kFail, "I11", "may not read and write /dev/gcu1",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.kernel.refused_node = "/dev/gcu1";
       }},

      {"vendor-libraries", "there", Verdict::kOk, "", "/usr/lib/libefml.so", TwoCards},
      {"vendor-libraries", "through LD_LIBRARY_PATH", Verdict::kOk, "", "/somewhere/libefml.so.1",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/usr/lib/libefml.so");
         fake.Write("/somewhere/libefml.so.1", "");
         fake.machine.environment.Set("LD_LIBRARY_PATH", "/nowhere:/somewhere");
       }},
      {"vendor-libraries", "not mounted", Verdict::kFail, "D8", "install or load the driver of Enflame",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/usr/lib/libefml.so");
       }},

      {"vendor-tool", "there", Verdict::kOk, "", "efsmi", TwoCards},
      {"vendor-tool", "not there", Verdict::kWarn, "H2", "its tool efsmi is not in PATH",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/usr/bin/efsmi");
       }},

      {"shm-size", "large", Verdict::kOk, "", "/dev/shm has 500 GiB", Nothing},
      {"shm-size", "what Docker gives", Verdict::kFail, "H1", "--shm-size=16g",
       [](FakeMachine& fake) { fake.kernel.space.bytes = std::uint64_t{64} << 20; }},
      {"shm-size", "what Docker gives, without workers", Verdict::kWarn, "H1", "--ipc=host",
       [](FakeMachine& fake) {
         fake.kernel.space.bytes = std::uint64_t{64} << 20;
         fake.machine.workers = 0;
       }},

      {"system-calls", "all allowed", Verdict::kOk, "", "done: memfd_create, SCM_RIGHTS, pidfd_open", Nothing},
      {"system-calls", "no shared memory", Verdict::kFail, "H1", "memfd_create is refused",
       [](FakeMachine& fake) { fake.kernel.facilities[0].error = EPERM; }},
      {"system-calls", "no pidfd", Verdict::kWarn, "H1", "pidfd_open is refused",
       [](FakeMachine& fake) { fake.kernel.facilities[2].error = ENOSYS; }},

      {"capabilities", "nothing needs any", Verdict::kOk, "", "IPC_LOCK no", Nothing},
      {"capabilities", "RDMA without the right to lock", Verdict::kWarn, "H1", "--cap-add IPC_LOCK",
       [](FakeMachine& fake) {
         fake.Write("/sys/class/infiniband/mlx5_0/fw_ver", "1");
         fake.Replace("/proc/self/limits", "Max locked memory         unlimited",
                      "Max locked memory         65536    ");
       }},
      {"capabilities", "no /proc", Verdict::kCannotTell, "H1", "",
       [](FakeMachine& fake) { fake.Remove("/proc/self/status"); }},
  };
}

namespace {

TEST(FindContainer, KnowsTheUsualKinds) {
  FakeMachine fake;
  EXPECT_EQ(FindContainer(fake.machine.root), std::nullopt);
  fake.Write("/proc/self/cgroup", "0::/kubepods/besteffort/pod1\n");
  EXPECT_EQ(FindContainer(fake.machine.root), "Kubernetes");
  fake.Write("/proc/self/cgroup", "0::/\n");
  fake.Write("/run/.containerenv", "");
  EXPECT_EQ(FindContainer(fake.machine.root), "Podman");
  fake.Remove("/run/.containerenv");
  fake.Write("/proc/self/mountinfo", "22 1 0:44 / / rw,relatime - overlay overlay rw\n");
  EXPECT_EQ(FindContainer(fake.machine.root), "a container");
}

TEST(ContainerChecks, CheckNoVendorWhereCardsAreSimulatedOrThereAreNone) {
  FakeMachine fake;
  EXPECT_TRUE(CheckDeviceNodes(fake.machine).empty());
  fake.AddCard(0);
  fake.machine.inventory.simulated = true;
  EXPECT_TRUE(CheckDeviceNodes(fake.machine).empty());
  EXPECT_TRUE(CheckVendorTool(fake.machine).empty());
}

}  // namespace
}  // namespace fulldeck::doctor
