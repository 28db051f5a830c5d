#include "wire/simulated_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/check.h"
#include "base/files/unique_fd.h"
#include "wire/private_folder.h"
#include "wire/process_identity.h"
#include "wire/variables.h"

namespace fulldeck::wire {
namespace {

constexpr char kMagic[] = "FDSIMCRD";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kBucketNs = std::uint64_t{1} << kBusyBucketShift;
constexpr std::uint64_t kBusyMask = 0xffffffffULL;
// Whole buckets in the window of a reading, in addition to the one being filled.
constexpr std::uint64_t kWindowBuckets = 8;
static_assert(kWindowBuckets + 2 <= kBusyBuckets);

std::uint64_t Nanoseconds(base::TimePoint when) {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

void AddToBucket(SimulatedSlot& slot, std::uint64_t bucket, std::uint64_t busy) {
  std::atomic<std::uint64_t>& word = slot.buckets[bucket % kBusyBuckets];
  const std::uint64_t tag = (bucket & kBusyMask) << 32;
  std::uint64_t before = word.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do {
    const std::uint64_t sum = ((before & ~kBusyMask) == tag ? before & kBusyMask : 0) + busy;
    after = tag | std::min(sum, kBusyMask);
  } while (!word.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

// Busy nanoseconds of the slot in the window that ends now.
std::uint64_t BusyInWindow(const SimulatedSlot& slot, std::uint64_t now) {
  const std::uint64_t current = now >> kBusyBucketShift;
  std::uint64_t busy = 0;
  for (std::uint64_t bucket = current - kWindowBuckets; bucket <= current; ++bucket) {
    const std::uint64_t word = slot.buckets[bucket % kBusyBuckets].load(std::memory_order_relaxed);
    if (word >> 32 == (bucket & kBusyMask)) busy += word & kBusyMask;
  }
  const std::uint64_t running_since = slot.running_since_ns.load(std::memory_order_relaxed);
  const std::uint64_t window_begin = (current - kWindowBuckets) << kBusyBucketShift;
  if (running_since != 0 && running_since < now) busy += now - std::max(running_since, window_begin);
  return busy;
}

bool Alive(const SimulatedSlot& slot) {
  // Pairs with the release store in TakeSlot: if a pid is visible, so is its start time.
  const std::uint32_t pid = slot.pid.load(std::memory_order_acquire);
  if (pid == 0) return false;
  const ProcessIdentity identity{static_cast<int>(pid), slot.start_ticks.load(std::memory_order_relaxed)};
  return IsAlive(identity);
}

base::Result<SimulatedServerState*> Map(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return base::ErrnoError(path);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    return base::Error{path + " is not a file of yours; set " + kSimulateDirVariable + " to a folder of your own"};
  }
  if (static_cast<std::uint64_t>(status.st_size) != sizeof(SimulatedServerState)) {
    return base::Error{path + " has " + std::to_string(status.st_size) + " bytes where " +
                       std::to_string(sizeof(SimulatedServerState)) +
                       " are right: it was written by another version. Remove it when nothing uses it"};
  }
  void* memory = mmap(nullptr, sizeof(SimulatedServerState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return base::ErrnoError("cannot map " + path);
  return static_cast<SimulatedServerState*>(memory);
}

}  // namespace

std::string SimulatedServer::FolderFor(const base::Environment& environment) {
  const auto named = environment.Get(kSimulateDirVariable);
  return named && !named->empty() ? *named : RuntimeFolder(environment);
}

std::string SimulatedServer::PathFor(const SimulatedSpec& spec, const base::Environment& environment) {
  return FolderFor(environment) + "/simulated-" + spec.kind->name + "-" + std::to_string(spec.cards.size()) + ".state";
}

base::Result<std::unique_ptr<SimulatedServer>> SimulatedServer::OpenToUse(const std::string& path) {
  // It must be this user's own: another user's file would be mapped and written.
  const auto folder = MakePrivateFolder(path.substr(0, path.rfind('/')), kSimulateDirVariable);
  if (!folder) return folder.error();
  base::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid() && errno == ENOENT) {
    // Completed under another name and then linked, so that no process ever maps half a header.
    const std::string draft = path + "." + std::to_string(getpid());
    base::UniqueFd made(open(draft.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
    const BytesHeader header = MakeHeader(kMagic, kVersion, sizeof(SimulatedServerState));
    const bool written = made.valid() && ftruncate(made.get(), sizeof(SimulatedServerState)) == 0 &&
                         pwrite(made.get(), &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
                         (link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
    const int error = errno;
    unlink(draft.c_str());
    if (!written) return base::ErrnoError("cannot make " + path, error);
    file.Reset(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  }
  if (!file.valid()) return base::ErrnoError(path);
  const auto state = Map(file.get(), path);
  if (!state) return state.error();
  std::unique_ptr<SimulatedServer> server(new SimulatedServer(*state));
  const auto fits = CheckHeader((*state)->header, kMagic, kVersion, sizeof(SimulatedServerState), path);
  if (!fits) return fits.error();
  return server;
}

base::Result<std::unique_ptr<SimulatedServer>> SimulatedServer::OpenToWatch(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return std::unique_ptr<SimulatedServer>();
  return OpenToUse(path);
}

SimulatedServer::~SimulatedServer() {
  munmap(state_, sizeof *state_);
}

SimulatedCardState& SimulatedServer::Card(int card) const {
  FULLDECK_CHECK(card >= 0 && card < kMaxSimulatedCards);
  return state_->cards[static_cast<std::size_t>(card)];
}

SimulatedUse SimulatedServer::Use(int card, base::TimePoint now) const {
  SimulatedUse use;
  const std::uint64_t now_ns = Nanoseconds(now);
  const std::uint64_t window = kWindowBuckets * kBucketNs + (now_ns & (kBucketNs - 1));
  std::uint64_t busy = 0;
  int number = -1;
  for (const SimulatedSlot& slot : Card(card).slots) {
    ++number;
    const bool alive = Alive(slot);
    if (const std::uint64_t ticks = slot.start_ticks.load(std::memory_order_relaxed); ticks != 0) {
      std::uint64_t worked = slot.busy_ns.load(std::memory_order_relaxed);
      const std::uint64_t since = slot.running_since_ns.load(std::memory_order_relaxed);
      if (alive && since != 0 && since < now_ns) worked += now_ns - since;
      use.work.push_back({number, static_cast<int>(slot.pid.load(std::memory_order_relaxed)), ticks, worked});
    }
    if (!alive) continue;
    const std::uint64_t bytes = slot.bytes_held.load(std::memory_order_relaxed);
    use.bytes_held += bytes;
    use.users.push_back({static_cast<int>(slot.pid.load(std::memory_order_relaxed)), bytes});
    busy += BusyInWindow(slot, now_ns);
  }
  use.utilization_percent = std::min(100.0, 100.0 * static_cast<double>(busy) / static_cast<double>(window));
  return use;
}

std::uint32_t SimulatedServer::Faults(int card) const {
  return Card(card).faults.load(std::memory_order_relaxed);
}

double SimulatedServer::SlowFactor(int card) const {
  const std::uint32_t milli = Card(card).slow_factor_milli.load(std::memory_order_relaxed);
  return milli == 0 ? 1.0 : milli / 1000.0;
}

void SimulatedServer::SetFaults(int card, std::uint32_t faults, double slow_factor) {
  Card(card).slow_factor_milli.store(static_cast<std::uint32_t>(slow_factor * 1000), std::memory_order_relaxed);
  Card(card).faults.store(faults, std::memory_order_relaxed);
}

SimulatedSlot* SimulatedServer::TakeSlot(int card) {
  SimulatedSlot* fresh = TakeSlot(card, true);
  return fresh != nullptr ? fresh : TakeSlot(card, false);
}

SimulatedSlot* SimulatedServer::TakeSlot(int card, bool unused) {
  const ProcessIdentity self = ThisProcess();
  for (SimulatedSlot& slot : Card(card).slots) {
    if (unused && slot.start_ticks.load(std::memory_order_relaxed) != 0) continue;
    std::uint32_t owner = slot.pid.load(std::memory_order_acquire);
    if (owner != 0 && Alive(slot)) continue;
    // The process that sets the claim to its own pid fills the slot. A claimant that died half-way is not alive, so the
    // slot is not lost.
    std::uint32_t claim = slot.claim.load(std::memory_order_relaxed);
    if (claim != 0 && claim != owner && IsAlive({static_cast<int>(claim), 0})) continue;
    if (!slot.claim.compare_exchange_strong(claim, static_cast<std::uint32_t>(self.pid), std::memory_order_acquire)) {
      continue;
    }
    slot.pid.store(0, std::memory_order_relaxed);
    slot.start_ticks.store(self.start_ticks, std::memory_order_relaxed);
    slot.bytes_held.store(0, std::memory_order_relaxed);
    slot.bytes_peak.store(0, std::memory_order_relaxed);
    slot.operations.store(0, std::memory_order_relaxed);
    slot.busy_ns.store(0, std::memory_order_relaxed);
    slot.running_since_ns.store(0, std::memory_order_relaxed);
    for (auto& bucket : slot.buckets) bucket.store(0, std::memory_order_relaxed);
    slot.pid.store(static_cast<std::uint32_t>(self.pid), std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void SimulatedServer::GiveBack(SimulatedSlot& slot) {
  slot.pid.store(0, std::memory_order_release);
  slot.claim.store(0, std::memory_order_release);
}

bool SimulatedServer::Hold(int card, SimulatedSlot& slot, std::uint64_t bytes, std::uint64_t limit) {
  if (bytes > limit) return false;
  const std::uint64_t mine = slot.bytes_held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::uint64_t total = 0;
  for (const SimulatedSlot& other : Card(card).slots) {
    if (other.pid.load(std::memory_order_acquire) != 0) total += other.bytes_held.load(std::memory_order_relaxed);
  }
  if (total > limit) {
    // Check which holders are still alive only if the limit seems exceeded.
    total = 0;
    for (const SimulatedSlot& other : Card(card).slots) {
      if (&other == &slot || Alive(other)) total += other.bytes_held.load(std::memory_order_relaxed);
    }
  }
  if (total > limit) {
    slot.bytes_held.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  std::uint64_t peak = slot.bytes_peak.load(std::memory_order_relaxed);
  while (peak < mine && !slot.bytes_peak.compare_exchange_weak(peak, mine, std::memory_order_relaxed)) {
  }
  return true;
}

void SimulatedServer::Release(SimulatedSlot& slot, std::uint64_t bytes) {
  slot.bytes_held.fetch_sub(bytes, std::memory_order_relaxed);
}

void SimulatedServer::Begin(SimulatedSlot& slot, base::TimePoint begin) {
  std::uint64_t none = 0;
  // With several threads on the card, the first one's start is kept; the others count when they end.
  slot.running_since_ns.compare_exchange_strong(none, Nanoseconds(begin), std::memory_order_relaxed);
}

void SimulatedServer::End(SimulatedSlot& slot, base::TimePoint begin, base::TimePoint end) {
  const std::uint64_t begin_ns = Nanoseconds(begin);
  const std::uint64_t end_ns = Nanoseconds(end);
  std::uint64_t mine = begin_ns;
  slot.running_since_ns.compare_exchange_strong(mine, 0, std::memory_order_relaxed);
  slot.operations.fetch_add(1, std::memory_order_relaxed);
  if (end_ns <= begin_ns) return;
  slot.busy_ns.fetch_add(end_ns - begin_ns, std::memory_order_relaxed);
  const std::uint64_t last = end_ns >> kBusyBucketShift;
  const std::uint64_t first =
      std::max(begin_ns >> kBusyBucketShift, last - std::min<std::uint64_t>(last, kBusyBuckets - 1));
  for (std::uint64_t bucket = first; bucket <= last; ++bucket) {
    const std::uint64_t from = std::max(begin_ns, bucket << kBusyBucketShift);
    const std::uint64_t to = std::min(end_ns, (bucket + 1) << kBusyBucketShift);
    if (to > from) AddToBucket(slot, bucket, to - from);
  }
}

}  // namespace fulldeck::wire
