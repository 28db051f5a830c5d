#include "job/cards/card_leases.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/files/system_root.h"
#include "base/text.h"
#include "wire/private_folder.h"
#include "wire/simulated_state.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

constexpr char kTemporary[] = "/tmp";
constexpr char kPrefix[] = "fulldeck-lease-";
constexpr char kSuffix[] = ".lock";
constexpr std::size_t kLongestName = 120;
constexpr std::size_t kLongestField = 128;
constexpr std::size_t kLongestLine = 3 * kLongestField;
constexpr int kAttempts = 100;
constexpr uid_t kUnknownUser = 65534;  // owner of files whose user is not mapped in this user namespace

// Follows a symbolic link at /tmp only if it belongs to root.
std::string TemporaryFolder() {
  struct stat status {};
  std::array<char, PATH_MAX> real{};
  const bool link = lstat(kTemporary, &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid == 0;
  return link && realpath(kTemporary, real.data()) != nullptr ? real.data() : kTemporary;
}

// In a container of a user who is not root, the machine's root is an unmapped user.
bool MayBeTheMachinesRoot(const struct stat& status) {
  if (status.st_uid != kUnknownUser || (status.st_mode & S_ISVTX) == 0) return false;
  const auto map = base::SystemRoot().ReadLine("/proc/self/uid_map");
  return map && map->find("4294967295") == std::string::npos;  // not the initial user namespace
}

std::string Sanitized(std::string_view text) {
  std::string name(text.substr(0, kLongestName));
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  std::replace_if(
      name.begin(), name.end(), [&](char c) { return !plain(c); }, '_');
  return name;
}

// The start of the names of all lease files of the card.
std::string PrefixOf(const device::Card& card) {
  std::string which = "index-" + std::to_string(card.index);
  for (const auto* identity : {&card.serial, &card.uuid, &card.pci_address}) {
    if (!identity->has_value() || (*identity)->empty()) continue;
    which = **identity;
    break;
  }
  return kPrefix + Sanitized(card.kind + "-" + which) + ".";
}

// Succeeds only for a folder in which nobody but root, the file's owner and perhaps this user can remove a lease
// file.
base::Result<void> CheckSharedFolder(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return base::ErrnoError(folder);
  if (!S_ISDIR(status.st_mode)) {
    return base::Error{
        fmt::format("{} is not a folder, so the cards' leases cannot be kept there; remove it, or set {}", folder,
                    wire::kLeaseDirVariable)};
  }
  if ((status.st_mode & 0022) != 0 && (status.st_mode & S_ISVTX) == 0) {
    return base::Error{fmt::format("{} lets other users remove the leases of others; chmod 1777 it, or set {}", folder,
                                   wire::kLeaseDirVariable)};
  }
  const bool trusted = status.st_uid == 0 || status.st_uid == geteuid() || MayBeTheMachinesRoot(status) ||
                       (folder == kTemporary && status.st_uid == kUnknownUser);
  if (!trusted) {
    return base::Error{
        fmt::format("{} belongs to user {}, who can remove the leases of others; chown it to root, or set {}", folder,
                    status.st_uid, wire::kLeaseDirVariable)};
  }
  return {};
}

// Creates the folder under another name and renames it, so that no other user ever sees it without its permissions.
base::Result<void> MakeSharedFolder(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) return base::ErrnoError(folder);
    std::string draft = folder + ".XXXXXX";
    if (mkdtemp(draft.data()) == nullptr) return base::ErrnoError("cannot make " + folder);
    const bool made = chmod(draft.c_str(), 01777) == 0 && rename(draft.c_str(), folder.c_str()) == 0;
    const int error = errno;
    if (!made) rmdir(draft.c_str());
    // Another process was faster, and its folder is already in use.
    if (!made && error != ENOTEMPTY && error != EEXIST && error != EPERM && error != EACCES) {
      return base::ErrnoError("cannot make " + folder, error);
    }
  }
  return CheckSharedFolder(folder);
}

base::Result<void> MakeFolder(const device::Card& card, const std::string& folder,
                              const base::Environment& environment) {
  if (!card.simulated) return MakeSharedFolder(folder);
  const auto parent =
      wire::MakePrivateFolder(wire::SimulatedServer::FolderFor(environment), wire::kSimulateDirVariable);
  if (!parent) return parent.error();
  return wire::MakePrivateFolder(folder, wire::kSimulateDirVariable);
}

bool IsStillAt(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::string Field(std::string_view text) {
  std::string field = base::Printable(text.substr(0, kLongestField));
  std::replace(field.begin(), field.end(), '\t', ' ');
  return field;
}

void WriteOwner(int fd, const LeaseOwner& owner) {
  const std::string line = fmt::format("{}\t{}\t{}\n", Field(owner.run_id), Field(owner.user), owner.pid);
  // The lock is the lease; a full disk only prevents others from reading whose it is.
  if (ftruncate(fd, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = pwrite(fd, line.data(), line.size(), 0);
}

std::optional<LeaseOwner> ReadOwner(int fd) {
  std::array<char, kLongestLine + 1> bytes;
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  if (got <= 0 || got > static_cast<ssize_t>(kLongestLine)) return std::nullopt;
  std::string_view line(bytes.data(), static_cast<std::size_t>(got));
  if (line.back() != '\n') return std::nullopt;
  line.remove_suffix(1);
  const auto fields = base::Split(line, '\t');
  if (fields.size() != 3) return std::nullopt;
  const auto pid = base::ParseInteger<int>(fields[2]);
  if (fields[0].empty() || !pid || *pid <= 0 || line.find('\n') != std::string_view::npos) return std::nullopt;
  return LeaseOwner{Field(fields[0]), Field(fields[1]), *pid};
}

std::string UserName(uid_t uid) {
  const passwd* const entry = getpwuid(uid);
  return entry != nullptr ? Field(entry->pw_name) : std::to_string(uid);
}

// Takes an exclusive lock on this open file; false if another holder has one, or on error.
bool LockWhole(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

// Only queries the lock: a reader never prevents the owner from taking it.
bool IsLocked(int fd) {
  struct flock whole {};
  whole.l_type = F_RDLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

// Creates a file that this process has locked, and that others can read but not lock. Its random name prevents others
// from creating it first, and its mode is 0600 until it is locked. Invalid, with errno, if that fails.
base::UniqueFd MakeLockFile(const std::string& prefix, std::string* path) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::uint64_t chance = 0;
    if (getrandom(&chance, sizeof chance, 0) != static_cast<ssize_t>(sizeof chance)) return {};
    *path = fmt::format("{}{:016x}{}", prefix, chance, kSuffix);
    base::UniqueFd file(open(path->c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid() && errno == EEXIST) continue;
    if (!file.valid()) return file;
    // Between open and lock, another run of this user may have removed the file as an orphan.
    if (LockWhole(file.get()) && fchmod(file.get(), 0644) == 0 && IsStillAt(file.get(), *path)) return file;
    unlink(path->c_str());
  }
  errno = EAGAIN;
  return {};
}

// Removes the file of a killed run. Locks it first, so that a file that was just created is not taken from its
// creator.
void RemoveIfLeft(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.valid() && LockWhole(file.get()) && IsStillAt(file.get(), path)) unlink(path.c_str());
}

enum class Other { kNone, kAlsoTakesIt, kHasIt };

// Judges another lease file. Only the owner of a file (or root) can have locked it, so the owner of the file is the
// holder, whatever its content says.
Other Inspect(const std::string& path, std::optional<LeaseOwner>* owner) {
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  // A lease is never a link, folder, fifo or unreadable file. A lease that is being created is unreadable, too; its
  // creator looks for ours after it has made its file readable.
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1) {
    return Other::kNone;
  }
  if ((status.st_mode & 0022) != 0) return Other::kNone;
  if (!IsLocked(file.get())) {
    if (status.st_uid == geteuid() || geteuid() == 0) RemoveIfLeft(path);
    return Other::kNone;
  }
  *owner = ReadOwner(file.get()).value_or(LeaseOwner{"", "", 0});
  (*owner)->user = UserName(status.st_uid);
  return (*owner)->run_id.empty() ? Other::kAlsoTakesIt : Other::kHasIt;
}

Other CheckOthers(const std::string& folder, const std::string& prefix, const std::string& own,
                  std::optional<LeaseOwner>* owner) {
  Other found = Other::kNone;
  for (const std::string& name : base::SystemRoot().List(folder)) {
    const std::string path = folder + "/" + name;
    // Compare the length, too: the serial of another card may have this one as a prefix.
    const bool ours =
        name.starts_with(prefix) && name.ends_with(kSuffix) && name.size() == own.size() - folder.size() - 1;
    if (!ours || path == own) continue;
    std::optional<LeaseOwner> whose;
    const Other one = Inspect(path, &whose);
    if (one == Other::kNone || found == Other::kHasIt) continue;
    found = one;
    *owner = whose;
  }
  return found;
}

void Release(Lease& lease) {
  // Unlink while locked: no other run can find the file without its lock.
  if (lease.process == getpid() && IsStillAt(lease.lock.get(), lease.path)) unlink(lease.path.c_str());
  lease.lock.Reset();
}

// A random delay, so that two runs that collided do not collide again.
void WaitAMoment(int attempt) {
  std::uint32_t chance = 0;
  if (getrandom(&chance, sizeof chance, 0) < 0) chance = static_cast<std::uint32_t>(getpid());
  std::this_thread::sleep_for(std::chrono::microseconds(chance % (500 * std::min(attempt, 20)) + 50));
}

}  // namespace

std::string CardLeases::FolderFor(const device::Card& card, const base::Environment& environment) {
  if (card.simulated) {
    // Two simulated servers of one user have separate state, and so separate leases.
    const auto spec = wire::ParseSimulatedSpec(environment.Get(wire::kSimulateVariable).value_or(""));
    if (!spec) return wire::SimulatedServer::FolderFor(environment) + "/simulated.leases";
    const std::string state = wire::SimulatedServer::PathFor(*spec, environment);
    return state.substr(0, state.rfind('.')) + ".leases";
  }
  std::string folder = environment.Get(wire::kLeaseDirVariable).value_or("");
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (!folder.empty()) return folder;
  // Prefer /tmp itself: a folder in it would belong to the user who created it first. Use one only if /tmp is not
  // suitable.
  const std::string temporary = TemporaryFolder();
  return CheckSharedFolder(temporary) ? temporary : temporary + "/fulldeck-leases";
}

// Invariant: at most one run holds a card. Every taker locks a file of its own before it looks for other locked
// files, so of two concurrent takers at least one sees the other. The owner's line is written only after no other
// locked file was found. So a locked file with this line is a lease, and one without it belongs to a taker that is
// still looking: then both release their files and retry after a random delay.
base::Result<bool> CardLeases::Take(const device::Card& card, const LeaseOwner& owner,
                                    const base::Environment& environment, std::optional<LeaseOwner>* held_by) {
  if (held_by != nullptr) held_by->reset();
  const std::string folder = FolderFor(card, environment);
  const auto made = MakeFolder(card, folder, environment);
  if (!made) return made.error();
  const std::string prefix = PrefixOf(card);
  for (int attempt = 1;; ++attempt) {
    Lease lease{device::NameOf(card), "", {}, getpid(), folder + "/" + prefix, owner};
    lease.lock = MakeLockFile(lease.prefix, &lease.path);
    if (!lease.lock.valid()) return base::ErrnoError("cannot make a lease in " + folder);
    std::optional<LeaseOwner> whose;
    const Other other = CheckOthers(folder, prefix, lease.path, &whose);
    if (other == Other::kNone) {
      WriteOwner(lease.lock.get(), owner);
      held_.push_back(std::move(lease));
      return true;
    }
    Release(lease);
    if (other == Other::kHasIt || attempt == kAttempts) {
      if (held_by != nullptr) *held_by = whose;
      return false;
    }
    WaitAMoment(attempt);
  }
}

void CardLeases::GiveBack(const std::string& card) {
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const Lease& lease) { return lease.card == card; });
  if (found == held_.end()) return;
  Release(*found);
  held_.erase(found);
}

void CardLeases::Refresh() {
  for (Lease& lease : held_) {
    if (IsStillAt(lease.lock.get(), lease.path)) {
      futimens(lease.lock.get(), nullptr);
      continue;
    }
    std::string path;
    base::UniqueFd lock = MakeLockFile(lease.prefix, &path);
    if (!lock.valid()) continue;  // tried again next time
    WriteOwner(lock.get(), lease.owner);
    lease.lock = std::move(lock);
    lease.path = path;
  }
}

CardLeases::~CardLeases() {
  for (Lease& lease : held_) Release(lease);
}

}  // namespace fulldeck::job
