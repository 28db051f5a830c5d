// For tests: ranks as processes, with the environment that a launcher would set.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "torch_backend/ranks_for_test.h"

namespace fulldeck::runtime {

// Below the ephemeral port range of the kernel, and a different one for each test.
inline int FreePort() {
  static int next = 0;
  return 20000 + (getpid() * 16 + next++) % 12000;
}

// In a rank: sets the variables of a launcher and clears fulldeck's other ones.
inline void SetVariables(const torch_backend::RankOfTest& self, int port) {
  for (const char* name :
       {"FULLDECK_DEVICE", "FULLDECK_CARD_SERIAL", "FULLDECK_SIMULATE", "FULLDECK_BACKEND", "FULLDECK_BOARD_FD",
        "FULLDECK_TORCH_PLUGIN", "FULLDECK_SHARE_CARDS", "TORCHELASTIC_USE_AGENT_STORE"}) {
    unsetenv(name);
  }
  const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
  set("RANK", self.rank);
  set("LOCAL_RANK", self.rank);
  set("WORLD_SIZE", self.size);
  set("LOCAL_WORLD_SIZE", self.size);
  set("MASTER_PORT", port);
  set("OMP_NUM_THREADS", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
}

inline void RunSession(int ranks, const std::function<void(const torch_backend::RankOfTest&)>& body,
                       const torch_backend::RanksOptions& options = {}) {
  const int port = FreePort();
  torch_backend::RunRanks(
      ranks,
      [&](const torch_backend::RankOfTest& self) {
        SetVariables(self, port);
        body(self);
      },
      options);
}

}  // namespace fulldeck::runtime
