#include "fulldeck/micro_batches.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "fulldeck/memory.h"
#include "runtime/cards/random_generators.h"
#include "runtime/data_parallel/micro_batches_plan.h"
#include "runtime/data_parallel/micro_batches_state.h"

namespace fulldeck {
namespace {

using runtime::Reached;

// Prefix of the abort reason that identifies out of memory.
constexpr char kTag[] = "out of memory ";

constexpr std::chrono::milliseconds kGrace(300);

const char* PlaceOf(Reached reached) {
  return reached == Reached::kGradients ? "in forward or backward" : "in the optimizer";
}

}  // namespace

OutOfMemory OutOfMemoryFromText(std::string_view text) {
  if (text == "fail") return OutOfMemory::kFail;
  if (text == "halve") return OutOfMemory::kHalve;
  throw Error("oom is \"" + base::Printable(text.substr(0, 40)) + "\", and must be \"fail\" or \"halve\".");
}

std::vector<MicroBatch> CutIntoMicroBatches(std::int64_t samples, std::int64_t micro_batch) {
  if (samples <= 0) throw Error("a step of " + std::to_string(samples) + " samples cannot be.");
  if (micro_batch < 0) throw Error("a micro-batch of " + std::to_string(micro_batch) + " samples cannot be.");
  const std::int64_t count = micro_batch == 0 ? 1 : (samples + micro_batch - 1) / micro_batch;
  std::vector<MicroBatch> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    MicroBatch part;
    part.index = i;
    part.count = count;
    part.begin = samples * i / count;
    part.size = samples * (i + 1) / count - part.begin;
    part.total = samples;
    parts.push_back(part);
  }
  return parts;
}

class MicroBatches::Impl {
 public:
  Impl(Session& session, torch::optim::Optimizer& optimizer, MicroBatchOptions options)
      : session_(session), optimizer_(optimizer), options_(std::move(options)), micro_batch_(options_.micro_batch) {
    if (micro_batch_ < 0) throw Error("a micro-batch of " + std::to_string(micro_batch_) + " samples cannot be.");
    if (!halves()) return;
    runtime::CheckOptimizerIsKnown(optimizer_);
    session_.WatchForAborts();
  }

  void Run(std::int64_t samples, const std::function<void(const MicroBatch&)>& work);

  std::int64_t micro_batch() const { return micro_batch_; }
  int times_halved() const { return times_halved_; }

 private:
  bool halves() const { return options_.oom == OutOfMemory::kHalve; }
  void Attempt(std::int64_t samples, const std::function<void(const MicroBatch&)>& work);
  void Vote();
  bool Recover(const std::string& mine);
  void Repair(const runtime::RepairPlan& plan);
  [[noreturn]] void Fail(const std::string& what) const;

  Session& session_;
  torch::optim::Optimizer& optimizer_;
  const MicroBatchOptions options_;
  std::int64_t micro_batch_;
  int times_halved_ = 0;

  std::uint64_t run_ = 0;  // number of the step; the same on all ranks
  // Of the current attempt.
  Reached reached_ = Reached::kGradients;
  std::int64_t largest_micro_batch_ = 0;
  // False until the optimizer has completed once at this size.
  bool proven_ = false;
  std::unique_ptr<runtime::OptimizerSnapshot> snapshot_;
};

void MicroBatches::Impl::Attempt(std::int64_t samples, const std::function<void(const MicroBatch&)>& work) {
  reached_ = Reached::kGradients;
  largest_micro_batch_ = 0;
  optimizer_.zero_grad();
  const std::vector<MicroBatch> parts = CutIntoMicroBatches(samples, micro_batch_);
  for (const MicroBatch& part : parts) largest_micro_batch_ = std::max(largest_micro_batch_, part.size);
  for (const MicroBatch& part : parts) work(part);
  if (halves() && !proven_) snapshot_ = std::make_unique<runtime::OptimizerSnapshot>(optimizer_);
  reached_ = Reached::kPartlyStepped;
  if (options_.apply) {
    options_.apply();
  } else {
    optimizer_.step();
  }
  reached_ = Reached::kStepped;
  if (!halves()) return;
  Vote();
  proven_ = true;
  snapshot_.reset();
}

// A rank that failed in the optimizer aborts the group instead of calling this; then no rank passes the vote.
void MicroBatches::Impl::Vote() {
  if (session_.world_size() == 1) return;
  std::vector<at::Tensor> one = {at::ones({1}, at::kInt)};
  session_.team().group->allreduce(one)->wait();
}

void MicroBatches::Impl::Run(std::int64_t samples, const std::function<void(const MicroBatch&)>& work) {
  ++run_;
  std::vector<at::Tensor> random;
  std::vector<at::Tensor> kept;
  if (halves()) {
    random = runtime::GeneratorStates(session_.device());
    for (const at::Tensor& tensor : options_.restored) kept.push_back(tensor.detach().clone());
  }
  while (true) {
    std::exception_ptr error;
    try {
      Attempt(samples, work);
      return;
    } catch (...) {
      error = std::current_exception();
    }
    std::string mine;
    const bool is_mine = IsOutOfMemory(error, &mine);
    if (!halves()) {
      if (is_mine) Fail(mine);
      std::rethrow_exception(error);
    }
    if (is_mine) {
      // Other ranks may still be leaving a call of the group that this rank has already left. That call is all but
      // complete, so do not abort it.
      std::this_thread::sleep_for(kGrace);
      session_.AbortGroup(kTag + std::string(PlaceOf(reached_)) + " (" + session_.device().str() + ": " +
                          ReadMemory(session_.device()).ToText() + "): " + mine);
    } else {
      // Another rank may have ended this rank's wait; if none has, it is an ordinary error.
      const auto why = session_.WhyAborted();
      if (!why || why->find(kTag) == std::string::npos) std::rethrow_exception(error);
    }
    // The exception may hold memory of the failed attempt.
    error = nullptr;
    if (Recover(mine)) return;
    const c10::NoGradGuard no_grad;
    runtime::RestoreGenerators(session_.device(), random);
    for (std::size_t i = 0; i < kept.size(); ++i) options_.restored[i].detach().copy_(kept[i]);
  }
}

// All ranks call this after one of them ran out of memory. True: the step is complete nevertheless.
bool MicroBatches::Impl::Recover(const std::string& mine) {
  const std::string why = session_.WhyAborted().value_or(mine);
  optimizer_.zero_grad();
  ReleaseCaches(session_.device());

  // Ranks may have different numbers of samples, but the size that is halved must be the same on all.
  const auto texts = GatherTexts(session_.team(), "out of memory",
                                 std::string(1, static_cast<char>(reached_)) + "," + std::to_string(run_) + "," +
                                     std::to_string(largest_micro_batch_));
  std::vector<runtime::Arrival> arrivals;
  std::int64_t largest = 0;
  for (const std::string& text : texts) {
    const auto fields = base::Split(text, ',');
    if (fields.size() != 3 || fields[0].size() != 1) throw Error("another rank runs another version of fulldeck.");
    arrivals.push_back({base::ParseInteger<std::uint64_t>(fields[1]).value_or(0), static_cast<Reached>(fields[0][0])});
    largest = std::max(largest, base::ParseInteger<std::int64_t>(fields[2]).value_or(0));
  }
  if (largest <= 1) {
    throw Error("micro-batches of one sample do not fit: " + base::Printable(why) +
                ". Take a smaller model or input, or a card with more memory.");
  }
  session_.Regroup(why);
  const runtime::RepairPlan plan = runtime::PlanRepair(arrivals);
  Repair(plan);
  snapshot_.reset();
  proven_ = false;
  micro_batch_ = (largest + 1) / 2;
  ++times_halved_;
  const bool is_done = plan.is_done[static_cast<std::size_t>(session_.rank())];
  base::Log(base::Severity::kWarning,
            "rank " + std::to_string(session_.rank()) + ": OUT OF MEMORY in step " + std::to_string(run_) + ": " +
                base::Printable(why) + ". All ranks go on with micro-batches of at most " +
                std::to_string(micro_batch_) + " instead of " + std::to_string(largest) +
                " samples and add up as many more of them; the global batch stays the same. " +
                (is_done ? "The step was completed." : "The step is repeated."));
  return is_done;
}

// Makes parameters and optimizer state equal and consistent on all ranks.
void MicroBatches::Impl::Repair(const runtime::RepairPlan& plan) {
  if (plan.source >= 0) {
    if (reached_ == Reached::kPartlyStepped) optimizer_.state().clear();
    runtime::BroadcastOptimizer(session_.team(), optimizer_, plan.source);
  }
  if (!plan.from_copies) return;
  if (snapshot_ == nullptr) {
    throw Error(
        "every rank ran out of memory in the middle of an optimizer step, and none has the state from before it. "
        "Start again from the last checkpoint, with smaller micro-batches.");
  }
  snapshot_->Restore(optimizer_);
}

void MicroBatches::Impl::Fail(const std::string& what) const {
  const c10::Device device = session_.device();
  throw Error("rank " + std::to_string(session_.rank()) + " ran out of memory " + PlaceOf(reached_) + " on " +
              device.str() + " with " + std::to_string(largest_micro_batch_) + " samples at once: " + what +
              " The card: " + ReadMemory(device).ToText() +
              ". Set MicroBatchOptions::micro_batch to a smaller number (the global batch stays the same), or oom = "
              "\"halve\" to have that done when it is needed.");
}

MicroBatches::MicroBatches(Session& session, torch::optim::Optimizer& optimizer, MicroBatchOptions options)
    : impl_(std::make_unique<Impl>(session, optimizer, std::move(options))) {}
MicroBatches::~MicroBatches() = default;

void MicroBatches::Run(std::int64_t samples, const std::function<void(const MicroBatch&)>& forward_and_backward) {
  impl_->Run(samples, forward_and_backward);
}

std::int64_t MicroBatches::micro_batch() const {
  return impl_->micro_batch();
}

int MicroBatches::times_halved() const {
  return impl_->times_halved();
}

}  // namespace fulldeck
