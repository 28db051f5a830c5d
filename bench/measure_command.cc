// measure_command RUNS COMMAND…: runs a command many times, discards its output, and prints one line of JSON: wall time
// per run in milliseconds (median and 95th percentile) and its maximum resident memory. It is a separate program
// because a process inherits the peak memory of the process that forks it, so a measuring Python would report its own.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const long runs = argc > 3 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (runs < 1) {
    std::fputs("usage: measure_command RUNS CODE COMMAND...\n", stderr);
    return 2;
  }
  const long code = std::strtol(argv[2], nullptr, 10);
  std::vector<double> milliseconds;
  long peak_kib = 0;
  for (long i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) {
      const int nowhere = open("/dev/null", O_RDWR);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
      execvp(argv[3], argv + 3);
      _exit(127);
    }
    int status = 0;
    rusage usage{};
    if (wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) != code) {
      std::fprintf(stderr, "measure_command: run %ld of %s did not end with code %ld\n", i, argv[3], code);
      return 1;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(took.count());
    peak_kib = std::max(peak_kib, usage.ru_maxrss);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto at = [&](double share) {
    return milliseconds[static_cast<std::size_t>(share * static_cast<double>(milliseconds.size() - 1))];
  };
  std::printf("{\"runs\": %ld, \"median_ms\": %.3f, \"p95_ms\": %.3f, \"peak_mib\": %.1f}\n", runs, at(0.5), at(0.95),
              static_cast<double>(peak_kib) / 1024);
  return 0;
}
