// One rank's part in a training run: which rank it is, the device that it computes on, the group through which it talks
// to the others, and what the monitor sees of it. The first thing that a training program makes, and the last that
// goes:
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
// From the environment: RANK (0), WORLD_SIZE (1), LOCAL_RANK (0), LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1),
// MASTER_PORT (29500), as any launcher of torch programs sets them; FULLDECK_… as docs/environment.md says. A value
// that cannot be is an Error that names the variable.
//
// What it does, in this order: reads the environment; sets and reads back the process's limits; chooses the device and
// proves that it computes; meets the other ranks; refuses two ranks on one card; makes the process group with the
// backend that suits the device; says so in one line on stderr:
//   fulldeck: rank 3/8, backend fulldeck (no vendor library is reachable from C++), device gcu:3, card serial T20-0042,
//   host node-a
// docs/training-session.md has the rules.
//
// Threads: the session belongs to the thread of the training loop; what other threads may call says so. It starts one
// thread, `fulldeck-heart`, which writes a sign of life on the rank board once a second and ends with the session.
// Processes: not to be used in a child made by fork.
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
  std::optional<int> world_size;  // that the program was written for; another one is refused
  std::string device;             // "cpu", "cuda", "gcu:3"; empty: FULLDECK_DEVICE, else what the machine has
  std::string backend;            // "nccl", "fulldeck", "gloo"; empty: FULLDECK_BACKEND, else chosen from the device
  bool share_cards = false;       // several ranks may use one card; also FULLDECK_SHARE_CARDS=1
  std::vector<std::string> torch_plugins;  // libraries of vendors, before those of FULLDECK_TORCH_PLUGIN
  std::chrono::milliseconds timeout = std::chrono::minutes(10);         // of meeting, barriers and collectives
  std::chrono::milliseconds proof_timeout = std::chrono::seconds(120);  // of the device's proof
  int open_files = 4096;                                                // the limit is raised to it
  std::optional<int> threads;           // of ATen; absent: OMP_NUM_THREADS, else processors / ranks of the host
  std::optional<bool> cudnn_benchmark;  // absent: torch's default
  // Above this share of the device's memory, torch's caches are given back after a step (memory.h). 0: never.
  double memory_watermark = 0;

  bool operator==(const SessionOptions&) const = default;
};

// What the training loop does, as the rank board tells it.
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

// One training step, from BeginStep to Done; its times go to the rank board. Costs about a microsecond. One that goes
// without Done (an exception) counts for nothing.
class FULLDECK_RUNTIME_API Step {
 public:
  Step(Step&& other) noexcept;
  Step& operator=(Step&&) = delete;
  ~Step();

  // What comes from now on is this.
  void Enter(Phase phase);
  // `loss` as this rank knows it, without waiting for a card where that costs; `samples`: of this rank in this step.
  void Done(std::optional<double> loss, std::uint64_t samples);

 private:
  friend class Session;
  explicit Step(Session& session) : session_(&session) {}
  Session* session_;
};

class FULLDECK_RUNTIME_API Session {
 public:
  // Blocks until all ranks have called it. While a session lives, a second call gives the same one; with other options
  // than those that it was made with it is an Error. Throws Error, or Refusal where training would go wrong.
  static std::shared_ptr<Session> FromEnvironment(const SessionOptions& options = {});
  // Rank 0, which serves the store, waits a while for the others to leave.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The group in it changes when the ranks regroup: who keeps a copy asks to be told (OnRegroup).
  const Team& team() const;
  int rank() const { return team().rank; }
  int world_size() const { return team().world_size; }
  int local_rank() const { return team().local_rank; }
  c10::Device device() const { return team().device; }
  bool is_main() const { return team().is_main(); }
  const std::string& backend() const;         // "fulldeck"
  const std::string& backend_reason() const;  // "the ranks compute on processors"
  const std::string& line() const;            // that was said on stderr, without "fulldeck: "
  // What was set of the process, as it was read back: "open files 4096, threads 2, cudnn_benchmark off".
  const std::string& settings() const;

  // ---- the ranks together (team.h has the contract) ----

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

  // Torch's generators, of the host and of the device, equal on all ranks, so that every rank makes the same weights.
  // The seed is also the one that the sampler and the streams of random.h should get: seed().
  void Seed(std::uint64_t seed);
  // From here on torch's generators differ between the ranks: for dropout, after the model is made. `epoch`: so that a
  // resumed run does not repeat the first epoch's.
  void SeedDropout(std::uint64_t epoch = 0);
  std::uint64_t seed() const;

  // ---- the loop, for the monitor ----

  // Time since the last step's end, and until the first Enter, counts as waiting for data.
  Step BeginStep();
  void EnterPhase(Phase phase);  // outside of steps: loading, validation, checkpoint, finished
  // For `fulldeck top`: where a resumed run stands and how far it goes. 0: not known.
  void SetProgress(std::uint64_t steps_done, std::uint64_t total_steps, std::uint64_t epoch);
  std::uint64_t steps_done() const;
  // Time that the loop's thread waited for other ranks while it computed: DataParallel tells it. Any thread.
  void AddCommunicationTime(std::chrono::nanoseconds time);
  // The figures of the next step's end; 0: what was set since the last one stays, none at first.
  void SetFingerprints(std::uint64_t batch, std::uint64_t parameters);

  // Whether the launcher has seen this rank's card at work for it lately, from the card's own telemetry. Nothing where
  // the rank has no card, or nobody watches it.
  std::optional<CardUse> card_use() const;

  // ---- a group that failed ----

  // Ends every rank's wait in the group with an error, for good; `reason` can be had by all with WhyAborted. For a rank
  // that cannot go on as planned while the others wait for it. Any thread.
  void AbortGroup(const std::string& reason);
  // From now on this rank can be got out of its waits in the group by another's AbortGroup, also where the backend does
  // not tell the others by itself: the session's thread looks in the store four times a second. Refused with Gloo,
  // whose waits cannot be ended from outside.
  void WatchForAborts();
  // The reason that some rank gave for aborting the current group; nothing where nobody has.
  std::optional<std::string> WhyAborted();
  // All ranks call it after the group was aborted: they meet, and get a new group. `reason` goes to the rank board.
  // Those that asked to be told are, in the order in which they asked. The old group's memory (DDP's buckets) goes when
  // the last who holds it lets go.
  void Regroup(const std::string& reason);
  // How often the ranks have regrouped.
  int generation() const;
  // The callback lives as long as the handle that is returned, and must not outlive the session's own thread rule.
  [[nodiscard]] std::shared_ptr<void> OnRegroup(std::function<void(const Team&)> callback);

 private:
  friend class Step;
  Session();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck
