#include "wire/variables.h"

namespace fulldeck::wire {

std::span<const VariableRow> Variables() {
  static constexpr VariableRow kRows[] = {
      {kSimulateVariable,
       "Stands in for a server: this many simulated cards of this kind, instead of the real ones. Forms: fulldeck "
       "devices "
       "--help.",
       "gcu:8,memory=32GiB,idle=3"},
      {kSimulateDirVariable,
       "Folder that holds what simulated cards share between processes. Default: $XDG_RUNTIME_DIR/fulldeck, else "
       "/tmp/fulldeck-UID.",
       "/tmp/my-simulated-server"},
      {kNoColorVariable, "Set and not empty: no colour, also on a terminal.", "1"},
      {kRuntimeDirVariable,
       "Folder of the registry of running runs, which ps, stop, logs and top read. Default: $XDG_RUNTIME_DIR/fulldeck, "
       "else /tmp/fulldeck-UID.",
       "/run/user/1000/fulldeck"},
      {kLeaseDirVariable,
       "Folder of the card leases, shared by all users of a machine; of root, mode 1777. Default: /tmp.",
       "/var/lock/fulldeck"},
      {kEventsVariable,
       "File to which fulldeck run appends the run's events, one JSON object per line, next to events.jsonl in the "
       "run's "
       "folder.",
       "/data/runs/events.jsonl"},
      {kChecksOffVariable,
       "Codes of silent errors, separated by commas, that fulldeck run neither reports nor counts for --strict "
       "(docs/python.md).",
       "F6,C6"},
      {kTokenVariable,
       "Secret that launchers on several hosts must share before they talk to each other. Default: the value of "
       "--rdzv-id.",
       "6f1d0c7e"},
      {kCollectivesKernelVariable,
       "Instruction set of the collectives' arithmetic: plain, avx2, avx512 or neon. Default: the best one. All give "
       "the "
       "same bits.",
       "avx2"},
      {kCollectivesChunkVariable,
       "Size of the pieces in which collectives move data; rank 0's counts. Default: from ranks and processors.",
       "512KiB"},
      {kCollectivesNodesVariable,
       "NUMA node of each rank, for groups of this many ranks; rank 0's counts. Default: where each rank runs.",
       "0,0,0,0,1,1,1,1"},
      {kCollectivesTraceVariable,
       "Folder into which every group of the collectives writes what its calls did when (docs/collectives.md).",
       "/tmp/trace"},
      {kTorchPluginVariable,
       "Libraries that teach torch a vendor's device, separated by colons: a C++ training program loads them when its "
       "device needs them. Those of fulldeck run --torch-plugin come first.",
       "/opt/vendor/lib/libtorch_gcu.so"},
      {kBackendVariable,
       "Backend of a C++ training program's process group: nccl, fulldeck or gloo. Default: chosen from the device.",
       "gloo"},
      {kAdaptVariable,
       "0: Python ranks find torch and the frameworks as they are installed, without fulldeck's adapters "
       "(docs/python.md). fulldeck run --no-adapt sets it.",
       "0"},
      {kProbeVariable,
       "0: a Python rank does not try its card with a small computation before it uses it. fulldeck run --no-probe "
       "sets it.",
       "0"},
      {"FULLDECK_HOST_COLLECTIVES",
       "1: Python ranks on T20 stacks take fulldeck's collectives through host memory, also where the vendor's could "
       "be "
       "had (docs/python.md).",
       "1"},
      {kPlaceVariable,
       "1: a module that is not on its rank's card when it is wrapped is moved there, not refused. fulldeck run "
       "--place "
       "sets it.",
       "1"},
      {kTimeoutVariable,
       "Seconds after which the calls of torch.distributed in an unmodified Python program give up. fulldeck run "
       "--timeout sets it. Default: what the program says, else torch's 30 minutes.",
       "120"},
      {kTraceDdpVariable,
       "1: each Python rank says where its model is before it is wrapped. fulldeck run --trace-ddp sets it.", "1"},
      {kAccelerateConfigVariable,
       "File of Accelerate whose settings the Python ranks get, absolute. fulldeck run --accelerate-config sets it.",
       "/data/accelerate.yaml"},
      {kMpStartMethodVariable,
       "Default start method of multiprocessing in Python ranks: fork, spawn or forkserver; one that the program sets "
       "itself wins. fulldeck run --mp-start-method sets it.",
       "spawn"},
      {kOpencvThreadsVariable,
       "Threads of OpenCV in Python ranks and their data loaders, set when cv2 is imported; 0: none of its own. "
       "fulldeck "
       "run --opencv-threads sets it.",
       "0"},
      {kRunIdVariable, "Set by the launcher in each rank: name of the run.", "20240517-101500-4242"},
      {kRunDirVariable, "Set by the launcher in each rank: the run's directory, absolute.",
       "/data/runs/20261115-091500-k3fq"},
      {kRankPidVariable,
       "Set by the launcher in each rank: pid of the rank itself, so that the agent stays quiet in its children.",
       "31337"},
      {kDeviceVariable, "Set by the launcher in each rank that has a card: the card as torch calls it.", "gcu:3"},
      {kCardSerialVariable, "Set by the launcher in each rank that has a card: serial number of the card.", "T20-0042"},
      {kBoardFdVariable, "Set by the launcher in each rank: descriptor of the rank board.", "5"},
      {kBoardSlotVariable, "Set by the launcher in each rank: number of its record on the rank board.", "3"},
      {kAgentVariable, "Set by the launcher in each rank: path of the preloaded agent library.",
       "/opt/fulldeck/lib/libfulldeck_agent.so"},
      {kCrashFileVariable, "Set by the launcher in each rank: file that the agent writes a crash report to.",
       "/data/runs/20261115-091500-k3fq/attempt_0/3/crash.txt"},
      {kStackFileVariable,
       "Set by the launcher in each rank: file that the agent writes the stacks of all threads to when it is asked.",
       "/data/runs/20261115-091500-k3fq/attempt_0/3/stacks.txt"},
      {kCollectivesKeyVariable,
       "Set by the launcher in each rank: a secret of the run's ranks, so that no other user can take the places where "
       "their collectives meet. Not set for several launchers without FULLDECK_TOKEN.",
       "0f3c9a51d2e84b77a6c1905e3db8f24c"},
      {kShareCardsVariable,
       "Set by the launcher in each rank where --share-cards was given: 1, several ranks may use one card.", "1"},
  };
  return kRows;
}

}  // namespace fulldeck::wire
