// Names of the environment variables that fulldeck reads or sets. One table, also the source of docs/environment.md.
#pragma once

#include <span>

namespace fulldeck::wire {

inline constexpr char kSimulateVariable[] = "FULLDECK_SIMULATE";
inline constexpr char kSimulateDirVariable[] = "FULLDECK_SIMULATE_DIR";
inline constexpr char kNoColorVariable[] = "NO_COLOR";

struct VariableRow {
  const char* name;
  const char* meaning;
  const char* example;
};

std::span<const VariableRow> Variables();

}  // namespace fulldeck::wire
