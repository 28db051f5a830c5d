// Expected verdicts of the checks of the group "storage".
#include <gtest/gtest.h>

#include "doctor/machine/fake_machine_for_test.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void Nothing(FakeMachine&) {}

// The folder of the fake is a real one; mountinfo determines its mount.
void MountAs(FakeMachine& fake, const std::string& type) {
  fake.machine.work_dir = fake.tree.string();
  fake.Write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 0:9 / " + fake.tree.string() +
                                         " rw - " + type + " somewhere rw\n");
}

}  // namespace

std::vector<CheckCase> StorageCases() {
  return {
      {"work-dir", "writable", Verdict::kOk, "", "1 MiB written, synced, renamed, read back and removed",
       [](FakeMachine& fake) { fake.machine.work_dir = fake.tree.string(); }},
      {"work-dir", "to be made", Verdict::kOk, "", "is not there yet",
       [](FakeMachine& fake) { fake.machine.work_dir = fake.tree.string() + "/a/b"; }},
      {"work-dir", "read only", Verdict::kFail, "", "choose another folder",
       [](FakeMachine& fake) { fake.kernel.write_error = EROFS; }},
      {"work-dir", "full", Verdict::kFail, "I5", "free space or raise the quota",
       [](FakeMachine& fake) { fake.kernel.write_error = EDQUOT; }},
      {"work-dir", "a real one below a file", Verdict::kFail, "", "no file can be made",
       [](FakeMachine& fake) {
         fake.Write("/file", "x");
         fake.machine.work_dir = fake.tree.string() + "/file";
         fake.machine.kernel = &SystemCalls::OfThisMachine();
       }},

      {"free-space", "much", Verdict::kOk, "", "256 MiB were given and taken back", Nothing},
      {"free-space", "some", Verdict::kWarn, "I5", "12 bytes a parameter",
       [](FakeMachine& fake) { fake.kernel.space.bytes_free = 5 * kGiB; }},
      {"free-space", "none", Verdict::kFail, "I5", "make room",
       [](FakeMachine& fake) { fake.kernel.space.bytes_free = 1 << 20; }},
      {"free-space", "a quota", Verdict::kFail, "I5", "a quota is used up",
       [](FakeMachine& fake) { fake.kernel.reserve_error = EDQUOT; }},
      {"free-space", "a file system that refuses to reserve", Verdict::kCannotTell, "I5", "cannot be tried",
       [](FakeMachine& fake) { fake.kernel.reserve_error = EOPNOTSUPP; }},
      {"free-space", "cannot be read", Verdict::kCannotTell, "I5", "df",
       [](FakeMachine& fake) { fake.kernel.space_error = EIO; }},

      {"inodes", "many", Verdict::kOk, "", "900000 of 1000000 files free", Nothing},
      {"inodes", "no such number", Verdict::kOk, "", "no fixed number",
       [](FakeMachine& fake) { fake.kernel.space.files = fake.kernel.space.files_free = 0; }},
      {"inodes", "few", Verdict::kWarn, "I5", "remove small files",
       [](FakeMachine& fake) { fake.kernel.space.files_free = 500; }},
      {"inodes", "none", Verdict::kFail, "I5", "0 of 1000000",
       [](FakeMachine& fake) { fake.kernel.space.files_free = 0; }},

      {"sync-time", "fast", Verdict::kOk, "", "3.0 ms", Nothing},
      {"sync-time", "slow", Verdict::kWarn, "", "less busy disk",
       [](FakeMachine& fake) { fake.kernel.sync_times = {std::chrono::milliseconds(300)}; }},
      {"sync-time", "seconds", Verdict::kFail, "", "2500.0 ms",
       [](FakeMachine& fake) { fake.kernel.sync_times = {std::chrono::milliseconds(2500)}; }},
      {"sync-time", "cannot be done", Verdict::kCannotTell, "", "work-dir",
       [](FakeMachine& fake) { fake.kernel.sync_error = EROFS; }},

      {"file-system", "a disk", Verdict::kOk, "", "xfs", [](FakeMachine& fake) { MountAs(fake, "xfs"); }},
      {"file-system", "shared", Verdict::kOk, "", "shared by the hosts",
       [](FakeMachine& fake) {
         MountAs(fake, "nfs4");
         fake.machine.nodes = 4;
       }},
      {"file-system", "a disk of one host of several", Verdict::kWarn, "", "the other 3 hosts do not see",
       [](FakeMachine& fake) {
         MountAs(fake, "ext4");
         fake.machine.nodes = 4;
       }},
      {"file-system", "a container's layer", Verdict::kWarn, "H1", "gone with the container",
       [](FakeMachine& fake) { MountAs(fake, "overlay"); }},
      {"file-system", "a program's", Verdict::kWarn, "", "fuse.juicefs",
       [](FakeMachine& fake) { MountAs(fake, "fuse.juicefs"); }},
      {"file-system", "in memory", Verdict::kWarn, "", "in memory", [](FakeMachine& fake) { MountAs(fake, "tmpfs"); }},
      {"file-system", "not told", Verdict::kCannotTell, "", "stat -f",
       [](FakeMachine& fake) { fake.Remove("/proc/self/mountinfo"); }},
  };
}

}  // namespace fulldeck::doctor
