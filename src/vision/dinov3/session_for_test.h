// For tests: ranks as processes with one session each, on the CPU or on simulated cards.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fulldeck/session.h"

namespace fulldeck::dinov3 {

inline const char kSimulator[] = FULLDECK_BUILD_DIR "/lib/libfulldeck_sim.so";

// In a rank: an expectation; if it fails, the rank exits with this message on stderr.
inline void RankMust(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

// Runs the body in `ranks` processes. Each one executes this program again with only the running test, because torch's
// threads and its list of devices do not survive a bare fork. So the test must not do anything before this call.
// `cards`: as in FULLDECK_SIMULATE ("gcu:2"), one per rank; empty: CPU.
inline void RunSessions(int ranks, const std::string& cards, const std::function<void(Session&)>& body) {
  if (std::getenv("FULLDECK_TEST_IS_RANK") != nullptr) {
    int code = 0;
    try {
      at::set_num_threads(1);
      SessionOptions options;
      if (cards.empty()) options.device = "cpu";
      const auto session = Session::FromEnvironment(options);
      body(*session);
      session->Barrier("end");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %s: %s\n", std::getenv("RANK"), error.what());
      code = 1;
    }
    std::fflush(nullptr);
    _exit(code);
  }

  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
  const std::string port = std::to_string(20000 + (getpid() * 16 + ranks) % 12000);
  char folder[] = "/tmp/fulldeck-dinov3-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
      for (const char* name : {"FULLDECK_DEVICE", "FULLDECK_CARD_SERIAL", "FULLDECK_SIMULATE", "FULLDECK_BACKEND",
                               "FULLDECK_BOARD_FD", "FULLDECK_TORCH_PLUGIN", "GTEST_OUTPUT"})
        unsetenv(name);
      for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(rank));
      for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, std::to_string(ranks));
      set("FULLDECK_TEST_IS_RANK", "1");
      set("MASTER_ADDR", "127.0.0.1");
      set("MASTER_PORT", port);
      // Some virtual machines announce AMX but reject oneDNN's AMX kernels.
      set("ONEDNN_MAX_CPU_ISA", "AVX512_CORE");
      if (!cards.empty()) {
        set("FULLDECK_SIMULATE", cards);
        set("FULLDECK_SIMULATE_DIR", folder);
        set("FULLDECK_TORCH_PLUGIN", kSimulator);
        set("FULLDECK_DEVICE", cards.substr(0, cards.find(':') + 1) + std::to_string(rank));
      }
      execl("/proc/self/exe", "dinov3_test", filter.c_str(), "--gtest_brief=1", nullptr);
      _exit(127);
    }
    children.push_back(child);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  for (const pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "a rank did not end in time";
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(system(("rm -r " + std::string(folder)).c_str()), 0);
}

}  // namespace fulldeck::dinov3
