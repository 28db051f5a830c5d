#include "job/card_leases.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/text.h"
#include "wire/private_folder.h"
#include "wire/simulated_state.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

constexpr char kSharedFolder[] = "/tmp/fulldeck-leases";
constexpr std::size_t kLongestName = 120;
constexpr std::size_t kLongestField = 128;
constexpr std::size_t kLongestLine = 3 * kLongestField;
constexpr int kAttempts = 100;
// Between two looks at what another process is about to finish: its permissions, its line.
constexpr std::chrono::milliseconds kMoment{2};

std::string Sanitised(std::string_view text) {
  std::string name(text.substr(0, kLongestName));
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  std::replace_if(
      name.begin(), name.end(), [&](char c) { return !plain(c); }, '_');
  return name;
}

std::string FileName(const device::Card& card) {
  std::string which = "index-" + std::to_string(card.index);
  for (const auto* told : {&card.serial, &card.uuid, &card.pci_address}) {
    if (!told->has_value() || (*told)->empty()) continue;
    which = **told;
    break;
  }
  return Sanitised(card.kind + "-" + which) + ".lock";
}

// Made under another name and moved, so that no other user ever meets it without its permissions.
base::Result<void> MakeSharedFolder(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) return base::ErrnoError(folder);
    std::string draft = folder + ".XXXXXX";
    if (mkdtemp(draft.data()) == nullptr) return base::ErrnoError("cannot make " + folder);
    const bool made = chmod(draft.c_str(), 01777) == 0 && rename(draft.c_str(), folder.c_str()) == 0;
    const int error = errno;
    if (!made) rmdir(draft.c_str());
    // Somebody else was faster, and its folder is in use already.
    if (!made && error != ENOTEMPTY && error != EEXIST && error != EPERM && error != EACCES) {
      return base::ErrnoError("cannot make " + folder, error);
    }
    if (lstat(folder.c_str(), &status) != 0) return base::ErrnoError("cannot make " + folder);
  }
  if (!S_ISDIR(status.st_mode)) {
    return base::Error{
        fmt::format("{} is not a folder, so the cards' leases cannot be kept there; remove it, or set {}", folder,
                    wire::kLeaseDirVariable)};
  }
  if ((status.st_mode & 0002) != 0 && (status.st_mode & S_ISVTX) == 0) {
    return base::Error{fmt::format("{} lets every user remove the leases of others; chmod 1777 it, or set {}", folder,
                                   wire::kLeaseDirVariable)};
  }
  return {};
}

base::Result<void> MakeFolder(const device::Card& card, const std::string& folder,
                              const base::Environment& environment) {
  if (!card.simulated) return MakeSharedFolder(folder);
  const auto parent =
      wire::MakePrivateFolder(wire::SimulatedServer::FolderFor(environment), wire::kSimulateDirVariable);
  if (!parent) return parent.error();
  return wire::MakePrivateFolder(folder, wire::kSimulateDirVariable);
}

base::Error NotALease(const std::string& path, std::string_view what) {
  return base::Error{
      fmt::format("{} is {}, where the lease of a card should be: something else put it there. Remove it "
                  "when no run uses the card",
                  path, what)};
}

// An existing file is opened without O_CREAT: with fs.protected_regular the kernel refuses O_CREAT on other users'
// files in a sticky folder. An invalid descriptor: it came or went just now, try again.
base::Result<base::UniqueFd> OpenLockFile(const std::string& path, bool last_attempt) {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  base::UniqueFd file(open(path.c_str(), kFlags));
  if (file.valid()) return file;
  if (errno == ELOOP) return NotALease(path, "a symbolic link");
  if (errno == EISDIR) return NotALease(path, "a folder");
  if (errno == ENXIO) return NotALease(path, "a socket or device");
  // Another user has made it and not yet opened it to all.
  if (errno == EACCES && !last_attempt) return base::UniqueFd();
  if (errno != ENOENT) return base::ErrnoError("cannot open the lease " + path);
  file.Reset(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666));
  if (!file.valid()) {
    if (errno == EEXIST || (errno == ENOENT && !last_attempt)) return base::UniqueFd();
    return base::ErrnoError("cannot make the lease " + path);
  }
  // The umask must not keep other users' runs from it.
  if (fchmod(file.get(), 0666) != 0) return base::ErrnoError("cannot open the lease " + path + " to other users");
  return file;
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
  // The lease is the lock; a full disk only keeps others from reading whose it is.
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

std::optional<LeaseOwner> ReadOwnerSoon(int fd) {
  // Who has just taken the lock writes its line a moment later.
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kMoment);
    if (auto owner = ReadOwner(fd)) return owner;
  }
  return std::nullopt;
}

void Release(Lease& lease) {
  // Unlinked while it is locked, so that whoever waits with the old file open sees that it is no longer the card's.
  // What another user made in the sticky folder can only be emptied.
  if (lease.process == getpid() && IsStillAt(lease.lock.get(), lease.path) && unlink(lease.path.c_str()) != 0) {
    [[maybe_unused]] const int emptied = ftruncate(lease.lock.get(), 0);
  }
  lease.lock.Reset();
}

}  // namespace

std::string CardLeases::FolderFor(const device::Card& card, const base::Environment& environment) {
  if (card.simulated) {
    // Two simulated servers of one user have different state, and so different leases.
    const auto spec = wire::ParseSimulatedSpec(environment.Get(wire::kSimulateVariable).value_or(""));
    if (!spec) return wire::SimulatedServer::FolderFor(environment) + "/simulated.leases";
    const std::string state = wire::SimulatedServer::PathFor(*spec, environment);
    return state.substr(0, state.rfind('.')) + ".leases";
  }
  std::string folder = environment.Get(wire::kLeaseDirVariable).value_or("");
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder.empty() ? kSharedFolder : folder;
}

base::Result<bool> CardLeases::Take(const device::Card& card, const LeaseOwner& owner,
                                    const base::Environment& environment, std::optional<LeaseOwner>* held_by) {
  if (held_by != nullptr) held_by->reset();
  const std::string folder = FolderFor(card, environment);
  const auto made = MakeFolder(card, folder, environment);
  if (!made) return made.error();
  const std::string path = folder + "/" + FileName(card);
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    auto file = OpenLockFile(path, attempt == kAttempts);
    if (!file) return file.error();
    if (!file->valid()) {
      std::this_thread::sleep_for(kMoment);
      continue;
    }
    struct stat status {};
    if (fstat(file->get(), &status) != 0) return base::ErrnoError(path);
    if (!S_ISREG(status.st_mode)) return NotALease(path, "no plain file");
    // It would be overwritten, whatever it is elsewhere.
    if (status.st_nlink > 1) return NotALease(path, "another name of a file elsewhere");
    int locked = -1;
    do {
      locked = flock(file->get(), LOCK_EX | LOCK_NB);
    } while (locked != 0 && errno == EINTR);
    if (locked != 0 && errno != EWOULDBLOCK) return base::ErrnoError("cannot lock the lease " + path);
    if (locked != 0) {
      const std::optional<LeaseOwner> holder = ReadOwnerSoon(file->get());
      // Its holder may have removed it meanwhile; then the card is free, or somebody else's.
      if (!IsStillAt(file->get(), path)) continue;
      if (held_by != nullptr) *held_by = holder;
      return false;
    }
    if (!IsStillAt(file->get(), path)) continue;
    WriteOwner(file->get(), owner);
    held_.push_back({device::NameOf(card), path, std::move(*file), getpid()});
    return true;
  }
  return base::Error{
      fmt::format("the lease {} came and went {} times while it was being taken; try again", path, kAttempts)};
}

void CardLeases::GiveBack(const std::string& card) {
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const Lease& lease) { return lease.card == card; });
  if (found == held_.end()) return;
  Release(*found);
  held_.erase(found);
}

CardLeases::~CardLeases() {
  for (Lease& lease : held_) Release(lease);
}

}  // namespace fulldeck::job
