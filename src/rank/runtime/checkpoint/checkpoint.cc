#include "fulldeck/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/exchange.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"
#include "runtime/checkpoint/checkpoint_state.h"

namespace fulldeck {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::KeptCheckpoint;
using runtime::Loading;
using runtime::SavedTensor;
using runtime::StateSnapshot;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kAlignment = 64;
// With the rest of a checkpoint::ReadyToSave they stay below the limit of GatherTexts.
constexpr std::size_t kMaxRankText = 48 << 10;
constexpr std::size_t kMaxReason = 4000;

std::uint64_t Aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The value; throws its error.
template <typename T>
T ValueOf(base::Result<T> result) {
  if (!result) throw Error(result.error().message);
  return std::move(*result);
}

std::string RankKey(const std::string& name, std::size_t rank) {
  return name + "/rank/" + std::to_string(rank);
}

// The first non-empty text; with the rank's number if there are several ranks.
std::string FirstError(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) return (texts.size() == 1 ? "" : "rank " + std::to_string(rank) + ": ") + texts[rank];
  }
  return "";
}

StateSnapshot TakeSnapshot(const State& state) {
  StateSnapshot snapshot;
  for (const State::Impl::Entry& entry : state.parts().entries) entry.save(snapshot);
  for (const StateSnapshot::Part& part : snapshot.parts) {
    for (const SavedTensor& tensor : part.tensors) runtime::CheckSavable(part.name, tensor);
  }
  return snapshot;
}

std::uint64_t BytesOf(const StateSnapshot& snapshot) {
  std::uint64_t bytes = 0;
  for (const StateSnapshot::Part& part : snapshot.parts) {
    for (const SavedTensor& tensor : part.tensors) bytes += Aligned(tensor.tensor.nbytes());
  }
  return bytes;
}

}  // namespace

SaveFailed::~SaveFailed() = default;

// The background save, on rank 0:
//   - buffer_ has one owner at a time. The training thread writes it only while no save is running (MakeReady waits, or
//     the save is refused); from BackgroundSaver::Start until busy() is false, only the writer's thread reads it.
//   - Start comes after the barrier "checkpoint copy": the copy is complete, so training may change the tensors.
//   - The writer reports through TakeOutcome, which only the training thread calls. The failure counters therefore need
//     no lock.
// On all ranks: whether a save starts, fails or throws is decided from the texts of "checkpoint ready", which are equal
// everywhere, so the collective calls match.
class Checkpoints::Impl {
 public:
  Impl(std::string directory, const Team& team, CheckpointOptions options)
      : directory_(std::move(directory)), team_(team), options_(std::move(options)) {
    while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
    std::string problem;
    if (team_.is_main()) problem = OpenStore();
    const auto texts = GatherTexts(team_, "checkpoint directory", problem.substr(0, kMaxReason));
    if (!texts.at(0).empty()) throw Error("checkpoints cannot be written: " + texts[0]);
  }

  ~Impl() {
    if (saver_ == nullptr) return;
    saver_->Wait();
    // A failure was printed on stderr when it happened.
  }

  void Prepare(const State& state) {
    if (!team_.is_main()) return;
    std::uint64_t bytes = BytesOf(TakeSnapshot(state));
    for (const State::Impl::Entry& entry : state.parts().entries) {
      if (entry.bytes_to_come) bytes += entry.bytes_to_come();
    }
    if (auto reserved = buffer_.Reserve(bytes); !reserved) throw Error(reserved.error().message);
  }

  SaveReport Save(std::int64_t step, const State& state, std::optional<double> score) {
    const auto began = Clock::now();
    if (step < 0 || static_cast<std::uint64_t>(step) > checkpoint::kMaxStep)
      throw Error("step " + std::to_string(step) + " cannot be saved: it must be 0 or more, of 15 digits at most.");
    if (score && !std::isfinite(*score))
      throw Error("step " + std::to_string(step) + " cannot be saved: its score is not a finite number.");
    SaveReport report;
    StateSnapshot snapshot;
    if (team_.is_main()) MakeReady(state, report, snapshot);

    // One exchange synchronizes the ranks, sends rank 0's decisions to all, and the per-rank state to rank 0. All ranks
    // use the same texts from here on, so they take the same branches and their collective calls match.
    const auto texts = GatherTexts(team_, "checkpoint ready", ToBytes(ReadyOfThisRank(state, report)));
    std::vector<checkpoint::ReadyToSave> ready;
    for (const std::string& text : texts) ready.push_back(ValueOf(checkpoint::ParseReadyToSave(text)));
    for (std::size_t rank = 0; rank < ready.size(); ++rank) {
      if (!ready[rank].problem.empty())
        throw Error("checkpoint of step " + std::to_string(step) + " not saved: rank " + std::to_string(rank) + ": " +
                    ready[rank].problem);
    }
    const checkpoint::ReadyToSave& from_main = ready.at(0);
    report.started = from_main.started;
    if (!from_main.earlier_failure.empty()) {
      report.earlier_failure = from_main.earlier_failure;
      unreported_failure_.reset();
    }
    const bool too_many = from_main.too_many_failures;

    if (report.started) {
      checkpoint::Contents contents;
      if (team_.is_main()) {
        for (std::size_t rank = 0; rank < ready.size(); ++rank) {
          for (std::size_t i = 0; i < state.parts().rank_entries.size(); ++i)
            snapshot.scalars[RankKey(state.parts().rank_entries[i].name, rank)] = ready[rank].rank_texts.at(i);
        }
        Copy(snapshot, contents);
        report.bytes = copied_bytes_;
        contents.step = static_cast<std::uint64_t>(step);
        contents.world_size = static_cast<std::uint64_t>(team_.world_size);
        contents.score = score;
        contents.scalars = std::move(snapshot.scalars);
      }
      Barrier(team_, "checkpoint copy");
      if (team_.is_main()) saver_->Start(std::move(contents));
    }
    report.stall = Clock::now() - began;
    if (too_many) throw SaveFailed(TooManyText(*report.earlier_failure));
    return report;
  }

  void Check() {
    if (!team_.is_main() || saver_->busy()) return;
    TakeOutcome();
    if (unreported_failure_ && failed_in_a_row_ > options_.failed_saves_allowed) {
      throw SaveFailed(TooManyText(*std::exchange(unreported_failure_, std::nullopt)));
    }
  }

  void Finish() {
    std::string problem;
    if (team_.is_main()) {
      saver_->Wait();
      TakeOutcome();
      problem = std::exchange(unreported_failure_, std::nullopt).value_or("").substr(0, kMaxReason);
    }
    const auto texts = GatherTexts(team_, "checkpoint finish", problem);
    if (!texts.at(0).empty()) throw SaveFailed("the last checkpoint is not saved: " + texts[0]);
  }

  std::optional<LoadReport> Load(State& state) {
    const auto began = Clock::now();
    if (team_.is_main()) saver_->Wait();
    LoadReport report;
    std::optional<CheckpointReader> reader;
    const std::vector<std::string> folders = FoldersToTry();
    for (const std::string& folder : folders) {
      reader = OpenTogether(folder, report);
      if (reader) break;
    }
    if (!reader) {
      if (folders.empty()) return std::nullopt;
      throw Error("no checkpoint in \"" + base::Printable(directory_) + "\" is good:\n  " +
                  base::Join(report.passed_over, "\n  ") +
                  "\nNothing was loaded. To begin anew all the same, use another directory.");
    }
    Loading loading(*reader, team_);
    CheckTogether(state, loading, report.folder);
    LoadTogether(state, loading, report.folder);
    report.step = static_cast<std::int64_t>(reader->manifest().step);
    report.saved_by_ranks = static_cast<int>(reader->manifest().world_size);
    report.bytes = reader->manifest().bytes();
    report.took = Clock::now() - began;
    if (team_.is_main()) {
      saver_->SetTrust(reader->manifest().step, KeptCheckpoint::Trust::kVerified);
      Prepare(state);
      if (options_.announce)
        base::Log(base::Severity::kInfo, "checkpoint of step " + std::to_string(report.step) +
                                             " loaded and verified (" + base::FormatByteSize(report.bytes) + " in " +
                                             base::FormatSeconds(report.took) + ").");
    }
    return report;
  }

  std::optional<std::int64_t> durable_step() const {
    const auto step = saver_ == nullptr ? std::nullopt : saver_->last_durable_step();
    return step ? std::optional(static_cast<std::int64_t>(*step)) : std::nullopt;
  }
  const std::string& directory() const { return directory_; }

 private:
  checkpoint::Files& files() { return options_.files != nullptr ? *options_.files : real_files_; }

  std::string OpenStore() {
    checkpoint::StoreOptions options;
    options.keep = {static_cast<std::size_t>(std::max(options_.keep_last, 0)),
                    static_cast<std::size_t>(std::max(options_.keep_best, 0))};
    options.read_back = options_.read_back;
    auto store = checkpoint::Store::Open(files(), directory_, options,
                                         [](const std::string& text) { base::Log(base::Severity::kWarning, text); });
    if (!store) return store.error().message;
    saver_ = std::make_unique<checkpoint::BackgroundSaver>(
        std::move(*store), [this](const checkpoint::SaveOutcome& outcome) { Ended(outcome); });
    return "";
  }

  // On the writer's thread: reads only members that never change while saver_ exists.
  void Ended(const checkpoint::SaveOutcome& outcome) const {
    if (outcome.failure) {
      base::Log(base::Severity::kError,
                *outcome.failure + " Training goes on; the checkpoints before it are untouched.");
    } else if (options_.announce) {
      base::Log(base::Severity::kInfo, "checkpoint of step " + std::to_string(outcome.step) + " is durable (" +
                                           base::FormatByteSize(outcome.bytes) + ", " +
                                           base::FormatSeconds(outcome.took) + " after the step).");
    }
    if (options_.on_ended) options_.on_ended(static_cast<std::int64_t>(outcome.step), outcome.failure);
  }

  void TakeOutcome() {
    const auto outcome = saver_->TakeOutcome();
    if (!outcome) return;
    failed_in_a_row_ = outcome->failure ? failed_in_a_row_ + 1 : 0;
    unreported_failure_ = outcome->failure;
  }

  std::string TooManyText(const std::string& last) const {
    return last + " " +
           (failed_in_a_row_ > 1 ? std::to_string(failed_in_a_row_) + " saves in a row have failed." : "") +
           " The state in memory is good; make room or choose another directory.";
  }

  // On rank 0, before the exchange with the other ranks: everything that can fail, including the allocation. Afterwards
  // no save is running (or report.started is false), so the training thread owns buffer_.
  void MakeReady(const State& state, SaveReport& report, StateSnapshot& snapshot) {
    ready_problem_.clear();
    const auto began = Clock::now();
    if (saver_->busy()) {
      if (options_.when_busy == CheckpointOptions::WhenBusy::kRefuse) {
        report.started = false;
        return;
      }
      saver_->Wait();
      report.waited = Clock::now() - began;
      if (options_.announce && report.waited > std::chrono::milliseconds(100))
        base::Log(base::Severity::kInfo, "training waited " + base::FormatSeconds(report.waited) +
                                             " for the checkpoint before to be written; save less often, or use a "
                                             "faster disk.");
    }
    TakeOutcome();
    try {
      snapshot = TakeSnapshot(state);
      const std::uint64_t bytes = BytesOf(snapshot);
      report.buffer_grew = bytes > buffer_.size();
      if (auto reserved = buffer_.Reserve(bytes); !reserved) throw Error(reserved.error().message);
    } catch (const std::exception& error) {
      ready_problem_ = error.what();
    }
  }

  checkpoint::ReadyToSave ReadyOfThisRank(const State& state, const SaveReport& report) const {
    checkpoint::ReadyToSave ready;
    std::string problem = ready_problem_;
    std::size_t bytes = 0;
    try {
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        ready.rank_texts.push_back(entry.save(team_));
        bytes += ready.rank_texts.back().size();
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (bytes > kMaxRankText)
      problem = "the texts that each rank saves have " + std::to_string(bytes) + " bytes together; at most " +
                std::to_string(kMaxRankText) + " are allowed.";
    if (!problem.empty()) {
      ready = {};
      ready.problem = problem.substr(0, kMaxReason);
      return ready;
    }
    ready.started = report.started;
    if (team_.is_main() && report.started) {
      ready.earlier_failure = unreported_failure_.value_or("").substr(0, kMaxReason);
      ready.too_many_failures = unreported_failure_ && failed_in_a_row_ > options_.failed_saves_allowed;
    }
    return ready;
  }

  // Copies into the staging buffer. CPU memory in file layout is copied with all cores, other tensors through torch.
  // Precondition: no save is running.
  void Copy(const StateSnapshot& snapshot, checkpoint::Contents& contents) {
    const at::NoGradGuard no_grad;
    std::vector<checkpoint::CopyJob> jobs;
    std::uint64_t at = 0;
    copied_bytes_ = 0;
    for (const StateSnapshot::Part& part : snapshot.parts) {
      contents.parts.push_back({part.name, {}});
      for (const SavedTensor& named : part.tensors) {
        const at::Tensor& tensor = named.tensor;
        unsigned char* const to = buffer_.data() + at;
        const std::uint64_t bytes = tensor.nbytes();
        if (bytes != 0 && runtime::IsPlain(tensor)) {
          jobs.push_back({tensor.const_data_ptr(), to, bytes});
        } else if (bytes != 0) {
          at::from_blob(to, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type())).copy_(tensor);
        }
        contents.parts.back().tensors.push_back({named.name, *runtime::DtypeOf(tensor), runtime::ShapeOf(tensor), to});
        at += Aligned(bytes);
        copied_bytes_ += bytes;
      }
    }
    checkpoint::CopyAll(jobs);
  }

  // Rank 0 lists the folders; all ranks try the same ones.
  std::vector<std::string> FoldersToTry() {
    checkpoint::FoundFolders mine;
    if (team_.is_main()) {
      auto found = checkpoint::ListCheckpoints(files(), directory_);
      if (!found) mine.problem = found.error().message.substr(0, kMaxReason);
      if (found) {
        for (const checkpoint::FoundCheckpoint& checkpoint : *found) {
          if (mine.folders.size() < 1000) mine.folders.push_back(checkpoint.folder);
        }
      }
    }
    const auto texts = GatherTexts(team_, "checkpoints found", ToBytes(mine));
    checkpoint::FoundFolders found = ValueOf(checkpoint::ParseFoundFolders(texts.at(0)));
    if (!found.problem.empty()) throw Error("checkpoints cannot be read: " + found.problem);
    return std::move(found.folders);
  }

  // Every rank verifies the manifest, the headers and its share of the data. The checkpoint is valid if all ranks
  // agree.
  std::optional<CheckpointReader> OpenTogether(const std::string& folder, LoadReport& report) {
    const std::string path = directory_ + "/" + folder;
    auto reader = CheckpointReader::Open(files(), path);
    auto good = reader
                    ? reader->Verify(static_cast<std::size_t>(team_.rank), static_cast<std::size_t>(team_.world_size))
                    : base::Result<void>(reader.error());
    const auto texts =
        GatherTexts(team_, "checkpoint verified", good ? std::string() : good.error().message.substr(0, kMaxReason));
    const std::string complaint = FirstError(texts);
    if (complaint.empty()) {
      report.folder = path;
      return std::move(*reader);
    }
    report.passed_over.push_back(complaint);
    if (team_.is_main()) {
      if (const auto step = checkpoint::StepOfFolderName(folder)) saver_->SetTrust(*step, KeptCheckpoint::Trust::kBad);
      base::Log(base::Severity::kWarning,
                "checkpoint " + base::Printable(folder) +
                    " is damaged and PASSED OVER, training goes back to the one before: " + complaint);
    }
    return std::nullopt;
  }

  void CheckTogether(const State& state, Loading& loading, const std::string& folder) {
    std::string mine;
    try {
      for (const State::Impl::Entry& entry : state.parts().entries) entry.check(loading);
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        for (std::size_t rank = 0; rank < loading.reader().manifest().world_size; ++rank)
          (void)loading.Scalar<std::string>(RankKey(entry.name, rank));
      }
      mine = base::Join(loading.problems(), "\n  ");
    } catch (const std::exception& error) {
      mine = error.what();
    }
    const std::string complaint = FirstError(GatherTexts(team_, "checkpoint fits", mine.substr(0, 60 << 10)));
    if (!complaint.empty())
      throw Error("the checkpoint \"" + base::Printable(folder) +
                  "\" is good but does not fit this program; nothing was changed:\n  " + complaint);
  }

  void LoadTogether(State& state, Loading& loading, const std::string& folder) {
    std::string problem;
    try {
      for (const State::Impl::Entry& entry : state.parts().entries) entry.load(loading);
      loading.Finish();
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        std::vector<std::string> texts;
        for (std::size_t rank = 0; rank < loading.reader().manifest().world_size; ++rank)
          texts.push_back(std::get<std::string>(loading.reader().scalars().at(RankKey(entry.name, rank))));
        entry.load(texts, loading);
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const std::string complaint = FirstError(GatherTexts(team_, "checkpoint loaded", problem.substr(0, kMaxReason)));
    if (!complaint.empty())
      throw Error(
          "the checkpoint \"" + base::Printable(folder) +
          "\" could not be loaded after it was found good. The state is partly changed and must not be trained: " +
          complaint);
  }

  std::string directory_;
  Team team_;
  CheckpointOptions options_;
  checkpoint::RealFiles real_files_;
  checkpoint::StagingBuffer buffer_;
  std::uint64_t copied_bytes_ = 0;
  std::string ready_problem_;
  int failed_in_a_row_ = 0;
  std::optional<std::string> unreported_failure_;
  std::unique_ptr<checkpoint::BackgroundSaver> saver_;  // on rank 0 only; declared last, so destroyed first: its thread
                                                        // reads buffer_
};

Checkpoints::Checkpoints(std::string directory, const Team& team, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(std::move(directory), team, std::move(options))) {}
Checkpoints::~Checkpoints() = default;

void Checkpoints::Prepare(const State& state) {
  impl_->Prepare(state);
}
SaveReport Checkpoints::Save(std::int64_t step, const State& state, std::optional<double> score) {
  return impl_->Save(step, state, score);
}
void Checkpoints::Check() {
  impl_->Check();
}
std::optional<LoadReport> Checkpoints::Load(State& state) {
  return impl_->Load(state);
}
void Checkpoints::Finish() {
  impl_->Finish();
}
std::optional<std::int64_t> Checkpoints::durable_step() const {
  return impl_->durable_step();
}
const std::string& Checkpoints::directory() const {
  return impl_->directory();
}

}  // namespace fulldeck
