// Counts how often each operator ran on the simulated cards of this process, and whether it has its own kernel here or
// fell back to the CPU's. Any thread may call anything here.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace fulldeck::simulator {

struct OperatorCount {
  std::string name;  // "aten::add.Tensor"
  bool native = false;
  std::atomic<std::uint64_t> calls{0};  // relaxed: a statistic that orders nothing

  void Add() { calls.fetch_add(1, std::memory_order_relaxed); }
};

// The counter of that operator, created on first use; never freed. Looked up once per kernel, not per call.
OperatorCount& CountOf(std::string_view name, bool native);

// One line "CALLS native|fallback NAME\n" for each operator that was called, sorted by name.
std::string CountsText();
void ResetCounts();

}  // namespace fulldeck::simulator
