// The variables that a launcher sets for a rank, parsed and checked. Pure: takes the variables as a value and reads
// nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"

namespace fulldeck::runtime {

struct LaunchFacts {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::optional<int> local_world_size;  // absent: not set, and there are several ranks
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 29500;
  bool store_is_launchers = false;  // TORCHELASTIC_USE_AGENT_STORE: the launcher serves the store, not rank 0
  std::string attempt = "0";        // TORCHELASTIC_RESTART_COUNT

  std::string device;       // FULLDECK_DEVICE, or empty
  std::string card_serial;  // FULLDECK_CARD_SERIAL, or empty
  std::string backend;      // FULLDECK_BACKEND, or empty
  bool share_cards = false;
  std::vector<std::string> torch_plugins;  // FULLDECK_TORCH_PLUGIN
  bool simulated = false;                  // FULLDECK_SIMULATE is set
  std::optional<int> threads;              // OMP_NUM_THREADS

  // Whether all ranks are on this node, according to the variables.
  bool one_node() const;
};

// Throws an Error that names the variable and its value.
LaunchFacts ReadLaunchFacts(const base::Environment& variables);

}  // namespace fulldeck::runtime
