// One rank's part in a training run: which rank it is, the device that it computes on, the process group through which
// it communicates, and what the monitor shows of it. It is the first object that a training program creates and the
// last that it destroys:
//
//   auto session = fulldeck::Session::FromEnvironment();
//   session->Seed(42);
//   model->to(session->device());
//   for (…) {
//     auto step = session->BeginStep();           // waiting for data
//     auto batch = loader.Next();
//     step.Enter(fulldeck::Phase::kCompute);
//     …
//     step.Done(loss, batch_size);
//   }
//
// Reads from the environment: RANK (0), WORLD_SIZE (1), LOCAL_RANK (0), LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1),
// MASTER_PORT (29500), as any launcher of torch programs sets them; FULLDECK_… as described in docs/environment.md. An
// invalid value is an Error that names the variable.
//
// What it does, in this order: reads the environment; sets and reads back the process's limits; chooses the device and
// verifies that it computes; joins the rendezvous of the ranks; refuses two ranks on one card; creates the process
// group with the backend that suits the device; prints one line on stderr:
//   fulldeck: rank 3/8, backend fulldeck (no vendor library is reachable from C++), device gcu:3, card serial T20-0042,
//   host node-a
// docs/training-session.md describes the rules.
//
// Threads: the session belongs to the thread of the training loop; what other threads may call is marked. It starts one
// thread, `fulldeck-beat`, which writes a heartbeat to the rank board once a second and ends with the session.
// Processes: not for use in a child made by fork.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace fulldeck {

struct SessionOptions {
  std::optional<int> world_size;  // that the program requires; any other is refused
  std::string device;             // "cpu", "cuda", "gcu:3"; empty: FULLDECK_DEVICE, otherwise what the machine has
  std::string backend;            // "nccl", "fulldeck", "gloo"; empty: FULLDECK_BACKEND, otherwise chosen by device
  bool share_cards = false;       // several ranks may use one card; also FULLDECK_SHARE_CARDS=1
  std::vector<std::string> torch_plugins;  // vendors' libraries, loaded before those of FULLDECK_TORCH_PLUGIN
  std::chrono::milliseconds timeout = std::chrono::minutes(10);         // of rendezvous, barriers and collectives
  std::chrono::milliseconds proof_timeout = std::chrono::seconds(120);  // of the device's probe
  int open_files = 4096;                                                // RLIMIT_NOFILE is raised to this
  std::optional<int> threads;           // of ATen; absent: OMP_NUM_THREADS, otherwise CPU cores / ranks of the node
  std::optional<bool> cudnn_benchmark;  // absent: torch's default
  // If more than this share of the device's memory is in use after a step, torch's caches are released (memory.h). 0:
  // never.
  double memory_watermark = 0;

  bool operator==(const SessionOptions&) const = default;
};

// What the training loop is doing, as shown on the rank board.
enum class Phase {
  kStarting = FULLDECK_BOARD_STARTING,
  kInit = FULLDECK_BOARD_INIT,
  kLoading = FULLDECK_BOARD_LOADING,
  kCompiling = FULLDECK_BOARD_COMPILING,
  kData = FULLDECK_BOARD_DATA,
  kCompute = FULLDECK_BOARD_COMPUTE,
  kCommunication = FULLDECK_BOARD_COMMUNICATION,
  kCheckpoint = FULLDECK_BOARD_CHECKPOINT,
  kValidation = FULLDECK_BOARD_VALIDATION,
  kFinished = FULLDECK_BOARD_FINISHED,
  kOther = FULLDECK_BOARD_OTHER_PHASE,
};

class Session;

// See Session::card_use.
enum class CardUse { kUnknown, kBusy, kIdle };

// One training step, from BeginStep to Done; its times go to the rank board. Costs about a microsecond. A step that is
// destroyed without Done (an exception) is not counted.
class FULLDECK_RUNTIME_API Step {
 public:
  Step(Step&& other) noexcept;
  Step& operator=(Step&&) = delete;
  ~Step();

  // The loop is in this phase from now on.
  void Enter(Phase phase);
  // `loss` as this rank knows it; pass nullopt if reading it would wait for a card. `samples`: of this rank in this
  // step.
  void Done(std::optional<double> loss, std::uint64_t samples);

 private:
  friend class Session;
  explicit Step(Session& session) : session_(&session) {}
  Session* session_;
};

class FULLDECK_RUNTIME_API Session {
 public:
  // Blocks until all ranks have called it. While a session lives, another call returns the same one; a call with
  // different options is an Error. Throws Error, or Refusal if the training would be wrong.
  static std::shared_ptr<Session> FromEnvironment(const SessionOptions& options = {});
  // Rank 0 waits up to 30 s for the others, because it hosts the store.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Its group changes when the ranks regroup: if you keep a copy, register with OnRegroup.
  const Team& team() const;
  int rank() const { return team().rank; }
  int world_size() const { return team().world_size; }
  int local_rank() const { return team().local_rank; }
  c10::Device device() const { return team().device; }
  bool is_main() const { return team().is_main(); }
  const std::string& backend() const;         // "fulldeck"
  const std::string& backend_reason() const;  // "the ranks compute on processors"
  const std::string& line() const;            // as printed on stderr, without "fulldeck: "
  // The process settings that were changed, as read back: "open files 4096, threads 2, cudnn_benchmark off".
  const std::string& settings() const;

  // ---- ranks together (contract: team.h) ----

  void Barrier(std::string_view name, std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    fulldeck::Barrier(team(), name, timeout);
  }
  void OnMain(std::string_view name, const std::function<void()>& work,
              std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    fulldeck::OnMain(team(), name, work, timeout);
  }
  void MainFirst(std::string_view name, const std::function<void()>& work,
                 std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    fulldeck::MainFirst(team(), name, work, timeout);
  }

  // ---- seeds (random.h) ----

  // Seeds torch's generators, of the CPU and of the device, equally on all ranks, so that every rank initializes the
  // same weights. Also use this seed for the sampler and the streams of random.h: seed().
  void Seed(std::uint64_t seed);
  // From here on torch's generators differ between ranks: for dropout, call it after the model is created. `epoch`: so
  // that a resumed run does not repeat the random numbers of the first epoch.
  void SeedDropout(std::uint64_t epoch = 0);
  std::uint64_t seed() const;

  // ---- training loop, for the monitor ----

  // The time since the end of the last step counts as waiting for data until the first Enter.
  Step BeginStep();
  void EnterPhase(Phase phase);  // outside steps: loading, validation, checkpoint, finished
  // For `fulldeck top`: at which step a resumed run starts and where it ends. 0: not known.
  void SetProgress(std::uint64_t steps_done, std::uint64_t total_steps, std::uint64_t epoch);
  std::uint64_t steps_done() const;
  // Time that the loop's thread waited for other ranks while computing; DataParallel calls this. Any thread.
  void AddCommunicationTime(std::chrono::nanoseconds time);
  // Hashes for the end of the next step; 0 keeps the value that was set last, none at first.
  void SetFingerprints(std::uint64_t batch, std::uint64_t parameters);

  // Whether the launcher has recently seen this rank's card busy with this rank's work, from the card's own telemetry.
  // Nullopt if the rank has no card or it is not watched.
  std::optional<CardUse> card_use() const;

  // ---- after a group failed ----

  // Permanently ends every rank's wait in the group with an error; all ranks can read `reason` with WhyAborted. For a
  // rank that cannot continue as planned while the others wait for it. Any thread.
  void AbortGroup(const std::string& reason);
  // From now on another rank's AbortGroup ends this rank's waits in the group, even if the backend does not notify the
  // other ranks by itself: the session's thread polls the store four times a second. Refused with Gloo, whose waits
  // cannot be ended from outside.
  void WatchForAborts();
  // The reason that some rank gave for aborting the current group; nullopt if no rank has aborted it.
  std::optional<std::string> WhyAborted();
  // All ranks call it after the group was aborted: they rendezvous and create a new group. `reason` goes to the rank
  // board. Calls the OnRegroup callbacks in the order of registration. The old group's memory (DDP's buckets) is freed
  // when its last holder releases it.
  void Regroup(const std::string& reason);
  // Number of regroups so far.
  int generation() const;
  // The callback stays registered as long as the returned handle lives. It runs on the training loop's thread, and the
  // handle belongs to that thread too.
  [[nodiscard]] std::shared_ptr<void> OnRegroup(std::function<void(const Team&)> callback);

 private:
  friend class Step;
  Session();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck
