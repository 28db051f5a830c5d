// How often each operator ran on the simulated cards of this process, and whether it has a kernel of its own here or
// was given to the host's. Threads: all of it may be called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace fulldeck::simulator {

struct OperatorCount {
  std::string name;  // "aten::add.Tensor"
  bool native = false;
  std::atomic<std::uint64_t> calls{0};  // relaxed: a figure, which nothing else hangs on

  void Add() { calls.fetch_add(1, std::memory_order_relaxed); }
};

// The counter of that operator, made when it is not there; lives as long as the process. One lookup a kernel, not one a
// call.
OperatorCount& CountOf(std::string_view name, bool native);

// One line "CALLS native|fallback NAME\n" for each operator that was called, by name.
std::string CountsText();
void ResetCounts();

}  // namespace fulldeck::simulator
