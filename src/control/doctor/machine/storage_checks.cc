#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "doctor/finding.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = 1024 * kMiB;
// Weights, two moments and an average are 16 bytes per parameter; four such checkpoints of a model with 300 million
// parameters are 18 GiB.
constexpr std::uint64_t kGoodSpace = 20 * kGiB;
constexpr std::uint64_t kMinSpace = kGiB;
constexpr std::uint64_t kReserved = 256 * kMiB;
constexpr std::uint64_t kGoodFiles = 10'000;
constexpr std::uint64_t kMinFiles = 100;
constexpr int kSyncs = 15;
constexpr base::Duration kSyncTimeout = std::chrono::seconds(2);
constexpr base::Duration kSlowSync = std::chrono::milliseconds(100);
constexpr base::Duration kBadSync = std::chrono::seconds(1);

// The folder itself, or its nearest existing parent: a run would create the rest.
std::string NearestFolder(const std::string& work_dir) {
  std::filesystem::path path = work_dir;
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

std::string Milliseconds(base::Duration duration) {
  return fmt::format("{:.1f} ms", std::chrono::duration<double, std::milli>(duration).count());
}

struct Mount {
  std::string point;
  std::string type;
};

// mountinfo escapes a space as \040.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_code = text[i] == '\\' && i + 3 < text.size();
    const auto code = is_code ? base::ParseInteger<int>(text.substr(i + 1, 3), 8) : std::nullopt;
    if (code) {
      plain += static_cast<char>(*code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The last mount whose mount point is a parent of `path`; later mounts cover earlier ones.
std::optional<Mount> MountOf(const base::SystemRoot& root, const std::string& path) {
  const auto text = root.ReadFile("/proc/self/mountinfo", std::size_t{4} << 20);
  if (!text) return std::nullopt;
  std::optional<Mount> found;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = base::Split(line.substr(0, dash), ' ');
    const auto after = base::Split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.empty()) continue;
    const std::string point = Unescaped(before[4]);
    const bool above = point == "/" || path == point || path.starts_with(point + "/");
    if (above && (!found || point.size() >= found->point.size())) found = Mount{point, std::string(after[0])};
  }
  return found;
}

enum class Kind { kLocal, kShared, kUserSpace, kLayer, kMemory };

Kind KindOf(std::string_view type) {
  for (const char* shared : {"nfs", "nfs4", "lustre", "gpfs", "ceph", "beegfs", "cifs", "smb3", "ocfs2", "gfs2",
                             "orangefs", "pvfs2", "afs"}) {
    if (type == shared) return Kind::kShared;
  }
  // s3fs, goofys, JuiceFS, shared folders of virtual machines
  if (type.starts_with("fuse") || type == "9p" || type == "virtiofs") return Kind::kUserSpace;
  if (type == "overlay" || type == "aufs") return Kind::kLayer;
  if (type == "tmpfs" || type == "ramfs") return Kind::kMemory;
  return Kind::kLocal;
}

std::vector<Finding> CheckWorkDir(const MachineUnderTest& machine) {
  const std::string folder = NearestFolder(machine.work_dir);
  const std::string shown = base::Printable(machine.work_dir);
  const auto done = machine.kernel->WriteAndReadBack(folder, kMiB);
  if (done) {
    const bool there = folder == machine.work_dir;
    return {Ok(there ? Bilingual("1 MiB written, synced, renamed, read back and removed in {}",
                                 "在 {} 写入、同步、改名、读回并删除了 1 MiB", shown)
                     : Bilingual("{0} is not there yet; 1 MiB written, synced, renamed, read back and removed in {1}",
                                 "{0} 尚不存在；已在 {1} 写入、同步、改名、读回并删除 1 MiB", shown,
                                 base::Printable(folder)))};
  }
  const bool full = done.error().system_error == ENOSPC || done.error().system_error == EDQUOT;
  return {Fail(Bilingual("{} cannot be written: {}", "{} 无法写入：{}", shown, base::Printable(done.error().message)),
               full ? Bilingual("free space or raise the quota, or name another folder with --work-dir",
                                "清理空间或提高配额，或用 --work-dir 换一个目录")
                    : Bilingual("choose another folder (--work-dir), or mend its owner and permissions: ls -ld {}",
                                "换一个目录（--work-dir），或修正其属主和权限：ls -ld {}", base::Printable(folder)),
               full ? "I5" : "", {{"errno", std::to_string(done.error().system_error)}})};
}

std::vector<Finding> CheckFreeSpace(const MachineUnderTest& machine) {
  const std::string folder = NearestFolder(machine.work_dir);
  const auto space = machine.kernel->Space(folder);
  if (!space) {
    return {CannotTell(Bilingual("the space of {} cannot be read: {}", "无法读取 {} 的空间：{}",
                                 base::Printable(machine.work_dir), base::Printable(space.error().message)),
                       Bilingual("df {}", "df {}", base::Printable(folder)), "I5")};
  }
  const Figures figures = {{"bytes", std::to_string(space->bytes)}, {"bytes_free", std::to_string(space->bytes_free)}};
  const base::BilingualText seen = Bilingual(
      "{} of {} free", "共 {1}，剩余 {0}", base::FormatByteSize(space->bytes_free), base::FormatByteSize(space->bytes));
  const base::BilingualText fix = Bilingual(
      "make room, or name another folder: a checkpoint takes 12 bytes a parameter with AdamW (weights and two "
      "moments), 16 "
      "with an average, and the newest three and the one being written are there at a time",
      "清理空间或换目录：AdamW 的检查点每个参数占 12 字节（权重和两个矩），带滑动平均为 16 "
      "字节；最新三个与正在写的一个会同时存在");
  if (space->bytes_free < kMinSpace) return {Fail(seen, fix, "I5", figures)};
  if (space->bytes_free < kGoodSpace) return {Warn(seen, fix, "I5", figures)};
  // df does not show quotas, so allocate some space.
  const auto mount = MountOf(machine.root, folder);
  if (mount && KindOf(mount->type) == Kind::kMemory) {
    return {Ok({seen.english + " (in memory)", seen.chinese + "（在内存中）"}, figures)};
  }
  const auto reserved = machine.kernel->Reserve(folder, kReserved);
  if (reserved) {
    return {Ok({seen.english + "; 256 MiB were given and taken back", seen.chinese + "；已实际申请并归还 256 MiB"},
               figures)};
  }
  const int error = reserved.error().system_error;
  if (error == ENOSPC || error == EDQUOT) {
    return {Fail({seen.english + ", but 256 MiB are refused: " + base::Printable(reserved.error().message),
                  seen.chinese + "，但申请 256 MiB 被拒绝：" + base::Printable(reserved.error().message)},
                 Bilingual("a quota is used up: quota -s, lfs quota, or ask who runs the file system",
                           "配额用尽：quota -s、lfs quota，或询问文件系统管理员"),
                 "I5", figures)};
  }
  return {CannotTell(
      {fmt::format("{}; whether a quota leaves 256 MiB of it cannot be tried: {}", seen.english,
                   base::Printable(reserved.error().message)),
       fmt::format("{}；无法确认配额是否还留有 256 MiB：{}", seen.chinese, base::Printable(reserved.error().message))},
      Bilingual("ask the file system: quota -s, lfs quota -h {0}, or df {0}",
                "查询文件系统：quota -s、lfs quota -h {0} 或 df {0}", base::Printable(folder)),
      "I5", figures)};
}

std::vector<Finding> CheckInodes(const MachineUnderTest& machine) {
  const std::string folder = NearestFolder(machine.work_dir);
  const auto space = machine.kernel->Space(folder);
  if (!space) {
    return {CannotTell(Bilingual("the inodes of {} cannot be read: {}", "无法读取 {} 的 inode：{}",
                                 base::Printable(machine.work_dir), base::Printable(space.error().message)),
                       Bilingual("df -i {}", "df -i {}", base::Printable(folder)), "I5")};
  }
  const Figures figures = {{"files", std::to_string(space->files)}, {"files_free", std::to_string(space->files_free)}};
  if (space->files == 0) {
    return {Ok(Bilingual("this file system has no fixed number of files", "此文件系统没有固定的文件数上限"), figures)};
  }
  const base::BilingualText seen =
      Bilingual("{} of {} files free", "可建文件共 {1} 个，剩余 {0} 个", space->files_free, space->files);
  const base::BilingualText fix = Bilingual("remove small files (caches, unpacked data sets), or name another folder",
                                            "删除小文件（缓存、解包的数据集），或换目录");
  if (space->files_free < kMinFiles) return {Fail(seen, fix, "I5", figures)};
  if (space->files_free < kGoodFiles) return {Warn(seen, fix, "I5", figures)};
  return {Ok(seen, figures)};
}

std::vector<Finding> CheckSyncTime(const MachineUnderTest& machine) {
  const std::string folder = NearestFolder(machine.work_dir);
  auto took = machine.kernel->SyncTimes(folder, kSyncs, kSyncTimeout);
  if (!took || took->empty()) {
    return {CannotTell(
        Bilingual("no file could be synced in {}: {}", "无法在 {} 同步文件：{}", base::Printable(machine.work_dir),
                  took ? std::string("none") : base::Printable(took.error().message)),
        Bilingual("see the check work-dir", "见检查 work-dir"))};
  }
  std::sort(took->begin(), took->end());
  const base::Duration median = (*took)[took->size() / 2];
  const base::Duration worst = took->back();
  const Figures figures = {
      {"median_us", std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(median).count())},
      {"worst_us", std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(worst).count())},
      {"times", std::to_string(took->size())}};
  const base::BilingualText seen =
      Bilingual("a write of 4 KiB is on disk after {} (median of {}; the slowest {})",
                "4 KiB 写盘用时 {}（{} 次中位数；最慢 {}）", Milliseconds(median), took->size(), Milliseconds(worst));
  if (median < kSlowSync) return {Ok(seen, figures)};
  const base::BilingualText fix =
      Bilingual("let checkpoints go to a faster or less busy disk, save less often, or in the background",
                "把检查点写到更快或更空闲的磁盘，减少保存频率，或在后台保存");
  if (median >= kBadSync) return {Fail(seen, fix, "", figures)};
  return {Warn(seen, fix, "", figures)};
}

std::vector<Finding> CheckFileSystem(const MachineUnderTest& machine) {
  const std::string folder = NearestFolder(machine.work_dir);
  const auto mount = MountOf(machine.root, folder);
  if (!mount) {
    return {CannotTell(Bilingual("/proc/self/mountinfo does not tell which file system {} is on",
                                 "/proc/self/mountinfo 没有给出 {} 所在的文件系统", base::Printable(machine.work_dir)),
                       Bilingual("stat -f {}", "stat -f {}", base::Printable(folder)))};
  }
  const std::string type = base::Printable(mount->type);
  const std::string point = base::Printable(mount->point);
  const Figures figures = {{"type", type}, {"mount", point}};
  switch (KindOf(mount->type)) {
    case Kind::kShared:
      return {Ok(Bilingual("{} at {}: shared by the hosts that mount it; checkpoints are seen by all of them",
                           "{}（{}）：挂载它的主机共享；检查点对所有主机可见", type, point),
                 figures)};
    case Kind::kUserSpace:
      return {Warn(Bilingual("{} at {}: a file system of a program; a rename or a sync may not be what it says",
                             "{}（{}）：用户态文件系统；改名和同步未必可靠", type, point),
                   Bilingual("write checkpoints to a local disk or NFS, and copy them there afterwards",
                             "把检查点写到本地盘或 NFS，之后再拷贝过去"),
                   "", figures)};
    case Kind::kLayer:
      return {Warn(
          Bilingual("{} at {}: the container's own layer; what is written there is gone with the container, and slow",
                    "{}（{}）：容器自身的层；容器删除后数据丢失，且较慢", type, point),
          Bilingual("mount a folder of the host: docker run -v /data:/data, and --work-dir /data/…",
                    "挂载宿主机目录：docker run -v /data:/data，并用 --work-dir /data/…"),
          "H1", figures)};
    case Kind::kMemory:
      return {Warn(Bilingual("{} at {}: in memory; checkpoints take memory from the ranks and are gone after a restart",
                             "{}（{}）：在内存中；检查点占用 rank 的内存，重启后丢失", type, point),
                   Bilingual("name a folder on a disk with --work-dir", "用 --work-dir 指定磁盘上的目录"), "",
                   figures)};
    case Kind::kLocal:
      break;
  }
  if (machine.nodes > 1) {
    return {Warn(
        Bilingual("{} at {}: a disk of this host alone; the other {} hosts do not see its checkpoints",
                  "{}（{}）：仅本机磁盘；其他 {} 台主机看不到检查点", type, point, machine.nodes - 1),
        Bilingual(
            "name a folder on a shared file system with --work-dir, or a resume after the loss of a host finds nothing",
            "用 --work-dir 指定共享文件系统上的目录，否则丢失一台主机后无法续训"),
        "", figures)};
  }
  return {Ok(Bilingual("{} at {}: a disk of this host", "{}（{}）：本机磁盘", type, point), figures)};
}

}  // namespace

std::vector<Check> StorageChecks() {
  return {
      {"work-dir", Group::kStorage, CheckWorkDir},       {"free-space", Group::kStorage, CheckFreeSpace},
      {"inodes", Group::kStorage, CheckInodes},          {"sync-time", Group::kStorage, CheckSyncTime},
      {"file-system", Group::kStorage, CheckFileSystem},
  };
}

}  // namespace fulldeck::doctor
