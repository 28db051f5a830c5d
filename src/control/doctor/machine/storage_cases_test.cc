// What the checks of the group "storage" must say to which machine.
#include <gtest/gtest.h>

#include "doctor/machine/scene_for_test.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void Nothing(Scene&) {}

// The folder of the scene is a real one; what its mount is, mountinfo says.
void MountAs(Scene& scene, const std::string& type) {
  scene.subject.work_dir = scene.tree.string();
  scene.Write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 0:9 / " + scene.tree.string() +
                                          " rw - " + type + " somewhere rw\n");
}

}  // namespace

std::vector<CheckCase> StorageCases() {
  return {
      {"work-dir", "writable", Verdict::kOk, "", "1 MiB written, synced, renamed, read back and removed",
       [](Scene& scene) { scene.subject.work_dir = scene.tree.string(); }},
      {"work-dir", "to be made", Verdict::kOk, "", "is not there yet",
       [](Scene& scene) { scene.subject.work_dir = scene.tree.string() + "/a/b"; }},
      {"work-dir", "read only", Verdict::kFail, "", "choose another folder",
       [](Scene& scene) { scene.kernel.write_error = EROFS; }},
      {"work-dir", "full", Verdict::kFail, "I5", "free space or raise the quota",
       [](Scene& scene) { scene.kernel.write_error = EDQUOT; }},
      {"work-dir", "a real one below a file", Verdict::kFail, "", "no file can be made",
       [](Scene& scene) {
         scene.Write("/file", "x");
         scene.subject.work_dir = scene.tree.string() + "/file";
         scene.subject.kernel = &Kernel::OfThisMachine();
       }},

      {"free-space", "much", Verdict::kOk, "", "256 MiB were given and taken back", Nothing},
      {"free-space", "some", Verdict::kWarn, "I5", "12 bytes a parameter",
       [](Scene& scene) { scene.kernel.space.bytes_free = 5 * kGiB; }},
      {"free-space", "none", Verdict::kFail, "I5", "make room",
       [](Scene& scene) { scene.kernel.space.bytes_free = 1 << 20; }},
      {"free-space", "a quota", Verdict::kFail, "I5", "a quota is used up",
       [](Scene& scene) { scene.kernel.reserve_error = EDQUOT; }},
      {"free-space", "a file system that refuses to reserve", Verdict::kCannotTell, "I5", "cannot be tried",
       [](Scene& scene) { scene.kernel.reserve_error = EOPNOTSUPP; }},
      {"free-space", "cannot be read", Verdict::kCannotTell, "I5", "df",
       [](Scene& scene) { scene.kernel.space_error = EIO; }},

      {"inodes", "many", Verdict::kOk, "", "900000 of 1000000 files free", Nothing},
      {"inodes", "no such number", Verdict::kOk, "", "no fixed number",
       [](Scene& scene) { scene.kernel.space.files = scene.kernel.space.files_free = 0; }},
      {"inodes", "few", Verdict::kWarn, "I5", "remove small files",
       [](Scene& scene) { scene.kernel.space.files_free = 500; }},
      {"inodes", "none", Verdict::kFail, "I5", "0 of 1000000", [](Scene& scene) { scene.kernel.space.files_free = 0; }},

      {"sync-time", "fast", Verdict::kOk, "", "3.0 ms", Nothing},
      {"sync-time", "slow", Verdict::kWarn, "", "less busy disk",
       [](Scene& scene) { scene.kernel.sync_times = {std::chrono::milliseconds(300)}; }},
      {"sync-time", "seconds", Verdict::kFail, "", "2500.0 ms",
       [](Scene& scene) { scene.kernel.sync_times = {std::chrono::milliseconds(2500)}; }},
      {"sync-time", "cannot be done", Verdict::kCannotTell, "", "work-dir",
       [](Scene& scene) { scene.kernel.sync_error = EROFS; }},

      {"file-system", "a disk", Verdict::kOk, "", "xfs", [](Scene& scene) { MountAs(scene, "xfs"); }},
      {"file-system", "shared", Verdict::kOk, "", "shared by the hosts",
       [](Scene& scene) {
         MountAs(scene, "nfs4");
         scene.subject.hosts = 4;
       }},
      {"file-system", "a disk of one host of several", Verdict::kWarn, "", "the other 3 hosts do not see",
       [](Scene& scene) {
         MountAs(scene, "ext4");
         scene.subject.hosts = 4;
       }},
      {"file-system", "a container's layer", Verdict::kWarn, "H1", "gone with the container",
       [](Scene& scene) { MountAs(scene, "overlay"); }},
      {"file-system", "a program's", Verdict::kWarn, "", "fuse.juicefs",
       [](Scene& scene) { MountAs(scene, "fuse.juicefs"); }},
      {"file-system", "in memory", Verdict::kWarn, "", "in memory", [](Scene& scene) { MountAs(scene, "tmpfs"); }},
      {"file-system", "not told", Verdict::kCannotTell, "", "stat -f",
       [](Scene& scene) { scene.Remove("/proc/self/mountinfo"); }},
  };
}

}  // namespace fulldeck::doctor
