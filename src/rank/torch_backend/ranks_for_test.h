// For tests: ranks are processes, forked before torch has started any thread, that rendezvous through a file.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "torch_backend/backend.h"

namespace fulldeck::torch_backend {

// In a rank: a failed expectation ends the rank with the reason on stderr.
#define MUST(condition) \
  if (!(condition)) throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition)
#define MUST_EQUAL(actual, expected)                                                                                 \
  do {                                                                                                               \
    const at::Tensor actual_ = (actual);                                                                             \
    const at::Tensor expected_ = (expected);                                                                         \
    if (!at::equal(actual_, expected_)) {                                                                            \
      std::ostringstream text_;                                                                                      \
      text_ << __FILE__ << ":" << __LINE__ << ": " #actual " is\n" << actual_ << "\nand not\n" << expected_ << "\n"; \
      throw std::runtime_error(text_.str());                                                                         \
    }                                                                                                                \
  } while (false)
// The message of the exception that the expression throws.
#define MUST_THROW(expression)                                                                                \
  [&]() -> std::string {                                                                                      \
    try {                                                                                                     \
      expression;                                                                                             \
    } catch (const std::exception& error_) {                                                                  \
      return error_.what();                                                                                   \
    }                                                                                                         \
    throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": nothing is thrown"); \
  }()
inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct RankOfTest {
  int rank = 0;
  int size = 0;
  c10::intrusive_ptr<c10d::Store> store;

  BackendRequest Request(std::chrono::milliseconds timeout = std::chrono::seconds(60)) const;
  c10::intrusive_ptr<c10d::Backend> Backend() const { return MakeBackend(Request()); }
};

struct RanksOptions {
  std::chrono::seconds limit{120};
  // Expected exit status of each rank: 0 success, a signal as −number. Empty: all 0.
  std::vector<int> exit_statuses;
  bool through_exit = false;  // end with exit() and its handlers, instead of _exit()
};
inline BackendRequest RankOfTest::Request(std::chrono::milliseconds timeout) const {
  BackendRequest request;
  request.store = store;
  request.rank = rank;
  request.size = size;
  request.timeout = timeout;
  return request;
}

// Runs the body in `size` processes and expects them to end as specified within the limit. Kills those that do not.
inline void RunRanks(int size, const std::function<void(const RankOfTest&)>& body, const RanksOptions& options = {}) {
  char folder[] = "/tmp/fulldeck-torch-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/store";
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int code = 0;
      try {
        // One thread per rank: there are more ranks than CPU cores.
        at::set_num_threads(1);
        body({rank, size, c10::make_intrusive<c10d::FileStore>(file, -1)});
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        code = 1;
      }
      if (options.through_exit) std::exit(code);
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  const auto deadline = std::chrono::steady_clock::now() + options.limit;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = children[static_cast<std::size_t>(rank)];
    int status = 0;
    while (true) {
      const pid_t ended = waitpid(child, &status, WNOHANG);
      if (ended == child) break;
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "rank " << rank << " did not end in time";
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const int exit_status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    const auto index = static_cast<std::size_t>(rank);
    EXPECT_EQ(exit_status, index < options.exit_statuses.size() ? options.exit_statuses[index] : 0)
        << "of rank " << rank;
  }
  unlink(file.c_str());
  rmdir(folder);
}

}  // namespace fulldeck::torch_backend
