// Names of the environment variables that fulldeck reads or sets. One table, also the source of docs/environment.md.
#pragma once

#include <span>

namespace fulldeck::wire {

inline constexpr char kSimulateVariable[] = "FULLDECK_SIMULATE";
inline constexpr char kSimulateDirVariable[] = "FULLDECK_SIMULATE_DIR";
inline constexpr char kNoColorVariable[] = "NO_COLOR";

// Set by the launcher for a rank.
inline constexpr char kRunIdVariable[] = "FULLDECK_RUN_ID";
inline constexpr char kEventsVariable[] = "FULLDECK_EVENTS";
inline constexpr char kRunDirVariable[] = "FULLDECK_RUN_DIR";
inline constexpr char kRankPidVariable[] = "FULLDECK_RANK_PID";
inline constexpr char kDeviceVariable[] = "FULLDECK_DEVICE";
inline constexpr char kCardSerialVariable[] = "FULLDECK_CARD_SERIAL";
inline constexpr char kBoardFdVariable[] = "FULLDECK_BOARD_FD";
inline constexpr char kBoardSlotVariable[] = "FULLDECK_BOARD_SLOT";
inline constexpr char kAgentVariable[] = "FULLDECK_AGENT";
inline constexpr char kCrashFileVariable[] = "FULLDECK_CRASH_FILE";
inline constexpr char kStackFileVariable[] = "FULLDECK_STACK_FILE";
inline constexpr char kShareCardsVariable[] = "FULLDECK_SHARE_CARDS";
inline constexpr char kCollectivesKeyVariable[] = "FULLDECK_COLLECTIVES_KEY";

// Settings of the launcher, for users.
inline constexpr char kChecksOffVariable[] = "FULLDECK_CHECKS_OFF";
inline constexpr char kTokenVariable[] = "FULLDECK_TOKEN";
inline constexpr char kRuntimeDirVariable[] = "FULLDECK_RUNTIME_DIR";
inline constexpr char kCollectivesKernelVariable[] = "FULLDECK_COLLECTIVES_KERNEL";
inline constexpr char kCollectivesChunkVariable[] = "FULLDECK_COLLECTIVES_PIECE";
inline constexpr char kCollectivesTraceVariable[] = "FULLDECK_COLLECTIVES_TRACE";
inline constexpr char kCollectivesNodesVariable[] = "FULLDECK_COLLECTIVES_NODES";
inline constexpr char kLeaseDirVariable[] = "FULLDECK_LEASE_DIR";

// Settings of the C++ runtime, for users.
inline constexpr char kTorchPluginVariable[] = "FULLDECK_TORCH_PLUGIN";
inline constexpr char kBackendVariable[] = "FULLDECK_BACKEND";

// Settings of the adapters in Python ranks (python/fulldeck/adapters), for users; flags of the launcher set them too.
inline constexpr char kAdaptVariable[] = "FULLDECK_ADAPT";
inline constexpr char kProbeVariable[] = "FULLDECK_PROBE";
inline constexpr char kPlaceVariable[] = "FULLDECK_PLACE";
inline constexpr char kTimeoutVariable[] = "FULLDECK_TIMEOUT";
inline constexpr char kTraceDdpVariable[] = "FULLDECK_TRACE_DDP";
inline constexpr char kAccelerateConfigVariable[] = "FULLDECK_ACCELERATE_CONFIG";
inline constexpr char kMpStartMethodVariable[] = "FULLDECK_MP_START_METHOD";
inline constexpr char kOpencvThreadsVariable[] = "FULLDECK_OPENCV_THREADS";

// The meaning begins with "Set by the launcher" if users do not set the variable.
struct VariableRow {
  const char* name;
  const char* meaning;
  const char* example;
};

std::span<const VariableRow> Variables();

}  // namespace fulldeck::wire
