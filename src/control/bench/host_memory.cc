#include "bench/host_memory.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "base/text.h"
#include "collectives/kernels/reduce_kernel.h"

namespace fulldeck::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kArrayBytesTogether = std::uint64_t{512} << 20;  // of all threads together
constexpr std::uint64_t kMinArrayBytes = std::uint64_t{16} << 20;        // per thread
constexpr int kPasses = 7;

std::optional<std::uint64_t> NumberIn(const base::SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  return line ? base::ParseInteger<std::uint64_t>(*line) : std::nullopt;
}

// The folder of the memory cgroup below its mount. Version 2 has one line "0::/path"; version 1 has one with "memory".
std::optional<std::uint64_t> LeftInCgroup(const base::SystemRoot& root) {
  const auto text = root.ReadFile("/proc/self/cgroup");
  if (!text) return std::nullopt;
  std::optional<std::uint64_t> least;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto parts = base::Split(line, ':');
    if (parts.size() < 3) continue;
    const bool second = parts[1].empty();
    if (!second && parts[1] != "memory") continue;
    const std::string mount = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // In a container the mount may itself be the cgroup, whatever the path is.
    for (const std::string& folder : {mount + std::string(parts[2] == "/" ? "" : parts[2]), mount}) {
      const auto limit = NumberIn(root, folder + (second ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used = NumberIn(root, folder + (second ? "/memory.current" : "/memory.usage_in_bytes"));
      if (!limit || !used) continue;
      const std::uint64_t left = *limit > *used ? *limit - *used : 0;
      least = std::min(least.value_or(left), left);
    }
  }
  return least;
}

using Block = float __attribute__((vector_size(64)));
constexpr std::size_t kBlockBytes = sizeof(Block);
using AddFunction = void (*)(Block* a, const Block* b, std::size_t blocks);

void AddPlain(Block* a, const Block* b, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) a[i] += b[i];
}

#if defined(__x86_64__)
// The same with wider registers, with which a single CPU reaches a higher memory bandwidth.
__attribute__((target("avx512f"))) void AddWide(Block* a, const Block* b, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) a[i] += b[i];
}
__attribute__((target("avx2"))) void AddHalfWide(Block* a, const Block* b, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) a[i] += b[i];
}
#endif

AddFunction WidestAdd() {
#if defined(__x86_64__)
  // Not __builtin_cpu_supports: the toolchains for old C libraries lack its table.
  if (collectives::CanRun(collectives::InstructionSet::kAvx512)) return AddWide;
  if (collectives::CanRun(collectives::InstructionSet::kAvx2)) return AddHalfWide;
#endif
  return AddPlain;
}

// Threads that make passes at the same time.
class Passes {
 public:
  Passes(int threads, std::uint64_t array_bytes)
      : threads_(threads), blocks_(array_bytes / kBlockBytes), begins_(threads), ends_(threads) {}

  void Work(int thread, int cpu) {
    pthread_setname_np(pthread_self(), "bench-memory");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpu), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    const auto bytes = blocks_ * kBlockBytes;
    const std::unique_ptr<void, decltype(&std::free)> a(std::aligned_alloc(kBlockBytes, bytes), &std::free);
    const std::unique_ptr<void, decltype(&std::free)> b(std::aligned_alloc(kBlockBytes, bytes), &std::free);
    const bool has_memory = a != nullptr && b != nullptr;
    if (has_memory) {
      std::memset(a.get(), 0, bytes);
      std::memset(b.get(), 0, bytes);
    } else {
      failed_.store(true);
    }
    for (int pass = 0; pass < kPasses; ++pass) {
      Barrier();
      if (failed_.load()) return;
      begins_[static_cast<std::size_t>(thread)] = Clock::now();
      add_(static_cast<Block*>(a.get()), static_cast<const Block*>(b.get()), blocks_);
      ends_[static_cast<std::size_t>(thread)] = Clock::now();
      Barrier();
      if (thread == 0) Note();
    }
  }

  double bytes_per_second() const { return failed_.load() ? 0 : best_; }

 private:
  // Yields while waiting: there is one thread per CPU, but other processes may run there too.
  void Barrier() {
    const int round = round_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_.store(0);
      round_.fetch_add(1);
      return;
    }
    while (round_.load() == round) std::this_thread::yield();
  }

  void Note() {
    const Clock::time_point begin = *std::min_element(begins_.begin(), begins_.end());
    const Clock::time_point end = *std::max_element(ends_.begin(), ends_.end());
    const double took = std::chrono::duration<double>(end - begin).count();
    const double moved = 3.0 * static_cast<double>(blocks_ * kBlockBytes) * threads_;
    if (took > 0) best_ = std::max(best_, moved / took);
  }

  const int threads_;
  const std::size_t blocks_;
  const AddFunction add_ = WidestAdd();
  std::vector<Clock::time_point> begins_;
  std::vector<Clock::time_point> ends_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
  std::atomic<bool> failed_{false};
  double best_ = 0;
};

}  // namespace

std::optional<std::uint64_t> AvailableMemory(const base::SystemRoot& root) {
  std::optional<std::uint64_t> available;
  if (const auto text = root.ReadFile("/proc/meminfo")) {
    for (const std::string_view line : base::Split(*text, '\n')) {
      constexpr std::string_view kName = "MemAvailable:";
      if (!line.starts_with(kName)) continue;
      const std::string_view value = base::Trim(line.substr(kName.size()));
      const auto kibibytes = base::ParseInteger<std::uint64_t>(value.substr(0, value.find(' ')));
      if (kibibytes) available = *kibibytes * 1024;
    }
  }
  const auto left = LeftInCgroup(root);
  if (!available || !left) return available ? available : left;
  return std::min(*available, *left);
}

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

double MeasureMemorySpeed(const std::vector<int>& cpus) {
  const auto threads = static_cast<int>(cpus.size());
  const std::uint64_t each = std::max(kMinArrayBytes, kArrayBytesTogether / 2 / static_cast<std::uint64_t>(threads));
  Passes passes(threads, each / kBlockBytes * kBlockBytes);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&passes, &cpus, i] { passes.Work(i, cpus[static_cast<std::size_t>(i)]); });
  }
  for (std::thread& worker : workers) worker.join();
  return passes.bytes_per_second();
}

}  // namespace fulldeck::bench
