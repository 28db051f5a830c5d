// Many processes write as fast as they can; the follower must lose nothing and stay small.
// FULLDECK_FLOOD=RANKS,MEGABYTES makes the test larger: 64,100 is the size that fulldeck guarantees.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "logs/log_follower.h"
#include "logs/log_testing.h"
#include "temporary_folder.h"

namespace fulldeck::logs {
namespace {

using namespace std::chrono_literals;
using testing_support::RunUntil;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// What a rank does: writes lines of many lengths, in chunks that end anywhere.
[[noreturn]] void WriteLikeARank(const std::string& path, int rank, std::size_t bytes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = open(path.c_str(), O_WRONLY | O_APPEND);
  unsigned random = static_cast<unsigned>(rank) * 7919 + 1;
  std::string pending;
  std::size_t written = 0;
  for (std::uint64_t number = 0; written < bytes; ++number) {
    random = random * 1103515245 + 12345;
    pending += "rank " + std::to_string(rank) + " line " + std::to_string(number) + " ";
    pending.append((random >> 16) % 160, static_cast<char>('a' + number % 26));
    pending += '\n';
    const std::size_t chunk = (random >> 8) % 8192;
    if (pending.size() < chunk + 200) continue;
    if (write(file, pending.data(), pending.size() - chunk % 100) < 0) _exit(1);
    written += pending.size() - chunk % 100;
    pending.erase(0, pending.size() - chunk % 100);
  }
  if (write(file, pending.data(), pending.size()) < 0) _exit(1);
  _exit(0);
}

// The value of a line of /proc/self/status, in megabytes.
long StatusMegabytes(const std::string& name) {
  std::istringstream status(testing_support::ContentOf("/proc/self/status"));
  for (std::string word; status >> word;) {
    long kilobytes = 0;
    if (word == name + ":" && status >> kilobytes) return kilobytes / 1024;
  }
  return -1;
}

// Earlier tests of this process used memory, too.
long MegabytesBefore() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  return StatusMegabytes("VmRSS");
}

TEST(LogFlood, LosesAndTearsNoLineAndStaysSmall) {
  int ranks = 16;
  int megabytes = 4;
  if (const char* setting = std::getenv("FULLDECK_FLOOD")) {
    const auto parts = base::Split(setting, ',');
    ASSERT_EQ(parts.size(), 2U);
    ranks = base::ParseInteger<int>(parts[0]).value();
    megabytes = base::ParseInteger<int>(parts[1]).value();
  }
  const testing_support::WithoutSigpipe without_sigpipe;
  const fulldeck::testing::TemporaryFolder folder;
  const auto path_of = [&](int rank) { return folder.string() + "/" + std::to_string(rank); };
  // The worst case: the console is never read.
  auto console = base::MakePipe();
  ASSERT_TRUE(console.ok());

  base::EventLoop loop;
  LogFollowerOptions options;
  options.merged_path = folder.string() + "/train.log";
  options.stdout_fd = options.stderr_fd = console->write_end.get();
  options.warn = [](const std::string& sentence) { ADD_FAILURE() << sentence; };
  const long before = MegabytesBefore();
  const base::TimePoint start = base::SteadyClock::Instance().Now();
  {
    LogFollower follower(loop, options);
    int running = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      testing_support::AppendTo(path_of(rank), "");
      FollowedStream stream;
      stream.path = path_of(rank);
      stream.prefix = "[" + std::to_string(rank) + "] ";
      stream.console_fd = rank % 2 == 0 ? 1 : -1;
      ASSERT_TRUE(follower.Follow(stream).ok());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) WriteLikeARank(path_of(rank), rank, static_cast<std::size_t>(megabytes) * 1'000'000);
      const auto watch = loop.WhenExited(pid, [&running](std::optional<int> status) {
        EXPECT_EQ(status, 0);
        --running;
      });
      ASSERT_TRUE(watch.ok());
      ++running;
    }
    ASSERT_TRUE(RunUntil(
        loop, [&] { return running == 0; }, 900s));
    follower.Drain(10ms);
    EXPECT_GT(follower.dropped_console_lines(), 0U);
  }
  const base::Duration took = base::SteadyClock::Instance().Now() - start;
  const long peak = StatusMegabytes("VmHWM");
  std::printf("%d ranks x %d MB: %.1f s, peak of this process %ld MB, %ld MB before\n", ranks, megabytes,
              std::chrono::duration<double>(took).count(), peak, before);
  ASSERT_GT(before, 0);
  if (!kSanitized) {
    EXPECT_LE(peak - before, 24);
  }

  std::vector<std::ifstream> files;
  for (int rank = 0; rank < ranks; ++rank) files.emplace_back(path_of(rank), std::ios::binary);
  std::ifstream merged(options.merged_path, std::ios::binary);
  std::string expected;
  for (std::string line; std::getline(merged, line);) {
    ASSERT_TRUE(line.starts_with("[")) << line;
    const int rank = base::ParseInteger<int>(std::string_view(line).substr(1, line.find(']') - 1)).value_or(-1);
    ASSERT_TRUE(rank >= 0 && rank < ranks) << line;
    ASSERT_TRUE(std::getline(files[static_cast<std::size_t>(rank)], expected)) << line;
    ASSERT_EQ(line, "[" + std::to_string(rank) + "] " + expected);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_FALSE(std::getline(files[static_cast<std::size_t>(rank)], expected))
        << "rank " << rank << " said " << expected;
  }
}

}  // namespace
}  // namespace fulldeck::logs
