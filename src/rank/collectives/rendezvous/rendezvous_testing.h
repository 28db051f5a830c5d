// Members of a rendezvous inside a test: requests, members in their own processes, and use of the result. All waits
// have a timeout that is longer than any healthy machine needs.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "collectives/rendezvous/rendezvous.h"
#include "fulldeck/collectives.h"

namespace fulldeck::testing {

inline constexpr std::uint64_t kTestControlBytes = 4096;
inline constexpr std::uint64_t kTestSegmentBytes = std::uint64_t{1} << 16;

inline base::TimePoint After(base::Duration duration) {
  return base::SteadyClock::Instance().Now() + duration;
}

template <typename Condition>
bool PollUntilTrue(Condition condition, base::Duration timeout = std::chrono::seconds(30)) {
  const base::TimePoint deadline = After(timeout);
  while (!condition()) {
    if (base::SteadyClock::Instance().Now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Names are unique per test and process, so that concurrent tests do not join each other's groups.
inline std::string UniqueName(const std::string& name) {
  return name + " " + std::to_string(getpid());
}

inline collectives::RendezvousRequest MakeRequest(const std::string& name, int rank, int size,
                                                  base::Duration timeout = std::chrono::seconds(60)) {
  collectives::RendezvousRequest request;
  request.name = name;
  request.key = "the key of the test";
  request.rank = rank;
  request.size = size;
  request.segment = *collectives::SharedMemory::Create("test segment", kTestSegmentBytes);
  request.info = {kTestSegmentBytes, rank + 1};
  if (rank == 0) request.control = *collectives::SharedMemory::Create("test control", kTestControlBytes);
  request.control_bytes = kTestControlBytes;
  request.deadline = After(timeout);
  return request;
}

// Lets every member write into its own segment and read all others. Empty: everything was as expected.
inline std::string UseRendezvous(const collectives::Rendezvous& rendezvous, int rank) {
  const auto size = static_cast<int>(rendezvous.segments.size());
  const auto word = [](const std::shared_ptr<collectives::SharedMemory>& memory) {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(memory->data());
  };
  for (int other = 0; other < size; ++other) {
    const collectives::MemberInfo& info = rendezvous.infos[static_cast<std::size_t>(other)];
    if (info.segment_bytes != kTestSegmentBytes || info.node != other + 1) {
      return "the note of rank " + std::to_string(other) + " is not its own";
    }
  }
  *word(rendezvous.segments[static_cast<std::size_t>(rank)]) = static_cast<std::uint32_t>(rank) + 100;
  std::atomic<std::uint32_t>& arrived = *word(rendezvous.control);
  ++arrived;  // pairs with the load below: earlier writes are visible after it
  if (!PollUntilTrue([&] { return arrived.load() >= static_cast<std::uint32_t>(size); }))
    return "the others did not come";
  for (int other = 0; other < size; ++other) {
    if (*word(rendezvous.segments[static_cast<std::size_t>(other)]) != static_cast<std::uint32_t>(other) + 100) {
      return "the segment of rank " + std::to_string(other) + " is not its own";
    }
  }
  if (!rendezvous.watch.Dead().empty()) return "somebody is said to be dead";
  // No member leaves while others still read.
  ++arrived;
  if (!PollUntilTrue([&] { return arrived.load() >= 2 * static_cast<std::uint32_t>(size); })) return "the others left";
  return "";
}

// "ok", "timeout: text", …
inline std::string ReportOf(const collectives::RendezvousOutcome& outcome, int rank) {
  if (outcome.rendezvous) {
    const std::string wrong = UseRendezvous(*outcome.rendezvous, rank);
    return wrong.empty() ? "ok" : wrong;
  }
  std::string code = "code " + std::to_string(outcome.failure.code);
  if (outcome.failure.code == FULLDECK_ERROR_SYSTEM) code = "system";
  if (outcome.failure.code == FULLDECK_ERROR_PEER_LOST) code = "peer lost";
  if (outcome.failure.code == FULLDECK_ERROR_TIMEOUT) code = "timeout";
  if (outcome.failure.code == FULLDECK_ERROR_STRANGER) code = "stranger";
  return code + ": " + outcome.failure.text;
}

inline std::string RendezvousAndReport(collectives::RendezvousRequest request) {
  const int rank = request.rank;
  return ReportOf(collectives::RunRendezvous(std::move(request)), rank);
}

// Runs all members as threads of this process; returns the report of each.
inline std::vector<std::string> RendezvousInThreads(std::vector<collectives::RendezvousRequest> requests) {
  std::vector<std::string> reports(requests.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { reports[i] = RendezvousAndReport(std::move(requests[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

// A process that does one thing and reports the result. Killed by the destructor at the latest.
class MemberProcess {
 public:
  explicit MemberProcess(const std::function<std::string()>& body) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      close(ends[0]);
      const std::string report = body();
      const ssize_t written = write(ends[1], report.data(), report.size());
      _exit(written == static_cast<ssize_t>(report.size()) ? 0 : 1);
    }
    close(ends[1]);
    report_.Reset(ends[0]);
  }
  ~MemberProcess() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  MemberProcess(MemberProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), report_(std::move(other.report_)) {}
  MemberProcess& operator=(MemberProcess&&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const { kill(pid_, number); }
  // Its report; "killed" if it exited without one, "too late" if it is still running.
  std::string Report(base::Duration timeout = std::chrono::seconds(90)) {
    const base::TimePoint deadline = After(timeout);
    std::string text;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - After({}));
      pollfd one{report_.get(), POLLIN, 0};
      if (left.count() <= 0 || poll(&one, 1, static_cast<int>(left.count())) == 0) return "too late";
      std::array<char, 4096> buffer{};
      const ssize_t got = read(report_.get(), buffer.data(), buffer.size());
      if (got <= 0) return text.empty() ? "killed" : text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  pid_t pid_ = -1;
  base::UniqueFd report_;
};

inline MemberProcess MemberInProcess(const std::function<collectives::RendezvousRequest()>& make_request) {
  return MemberProcess([&] { return RendezvousAndReport(make_request()); });
}

inline int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace fulldeck::testing
