#include "runtime/data_parallel/data_parallel_buckets.h"

#include <ATen/ops/isfinite.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>

#include "base/text.h"
#include "runtime/data_parallel/nonfinite.h"
#include "torch_backend/backend.h"

namespace fulldeck::runtime {
namespace {

using std::chrono::steady_clock;

std::string BackendFor(const Team& team) {
  return team.group->getBackend(team.device.type())->getBackendName();
}

at::Tensor ValuesOf(const at::Tensor& bucket) {
  return bucket.layout() == at::kStrided ? bucket : bucket._values();
}

}  // namespace

// Invariants:
//   - In each backward pass the Reducer calls Start for the buckets 0 … count_−1 in order, and later Finish in the same
//     order. So finished_ is the index of the next result in buckets_.
//   - Collective calls match, because every decision about them depends only on what is equal on all ranks: the backend
//     (averages_, backend_checks_), the layout of a bucket, and its reduced values.
//   - Everything except reductions_ is accessed either by the backward pass, under the Reducer's lock, or by the
//   training
//     loop after backward has returned.
class Buckets::Hook final : public c10d::CommHookInterface {
 public:
  explicit Hook(std::shared_ptr<Buckets> buckets) : buckets_(std::move(buckets)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override { return buckets_->Start(bucket); }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    at::Tensor tensor = c10d::detail::parseCppCommHookResult(result);
    buckets_->Finish(tensor);
    return tensor;
  }

 private:
  const std::shared_ptr<Buckets> buckets_;
};

Buckets::Buckets(Team team, const std::vector<at::Tensor>& parameters, std::vector<std::string> names,
                 bool check_finite, std::function<void()> completed)
    : team_(std::move(team)),
      names_(std::move(names)),
      check_finite_(check_finite),
      completed_(std::move(completed)),
      averages_(BackendFor(team_) == "fulldeck"),
      host_can_time_(team_.device.is_cpu() || averages_) {
  for (std::size_t i = 0; i < parameters.size(); ++i) index_of_.emplace(parameters[i].unsafeGetTensorImpl(), i);
}

std::unique_ptr<c10d::CommHookInterface> Buckets::MakeHook() {
  return std::make_unique<Hook>(shared_from_this());
}

c10::intrusive_ptr<c10::ivalue::Future> Buckets::Start(c10d::GradBucket& bucket) {
  if (bucket.getIndex() == 0) {
    buckets_.clear();
    finished_ = 0;
    own_work_done_.reset();
    ++pass_;
  }
  at::Tensor& gradients = bucket.getBufferRef();
  Bucket& here = buckets_.emplace_back();
  if (check_finite_) {
    here.gradients.emplace(bucket);
    if (!backend_checks_) here.given = Scan(gradients);
  }
  c10d::AllreduceOptions options;
  if (averages_ && gradients.layout() == at::kStrided) {
    options.reduceOp = c10d::ReduceOp::AVG;
  } else {
    gradients.div_(team_.world_size);
  }
  std::vector<at::Tensor> tensors = {gradients};
  here.work = team_.group->allreduce(tensors, options);
  reductions_.fetch_add(1, std::memory_order_relaxed);
  last_start_ = steady_clock::now();
  if (bucket.isLast()) {
    count_ = buckets_.size();
    // Runs when the backward pass is complete, just before the Reducer begins to wait, because the Reducer queues its
    // own callback after this one. `pass` and finished_ detect a callback of an earlier pass that was aborted.
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), pass = pass_] {
      const auto self = weak.lock();
      if (!self || self->pass_ != pass || self->finished_ > 0) return;
      if (!self->host_can_time_) return;
      // Costs nothing extra: the calls wait for the card's work anyway.
      if (!self->team_.device.is_cpu())
        c10::impl::VirtualGuardImpl(self->team_.device.type()).getStream(self->team_.device).synchronize();
      self->own_work_done_ = steady_clock::now();
    });
  }
  return here.work->getFuture();
}

void Buckets::Finish(at::Tensor result) {
  if (finished_ >= buckets_.size()) return;
  Bucket& here = buckets_[finished_++];
  if (check_finite_) {
    if (torch_backend::NonfiniteOfCall(here.work)) {
      backend_checks_ = true;
    } else {
      here.reduced = Scan(result);
    }
  }
  if (finished_ < count_) return;
  // In the first step of a static graph the buckets are only started after backward.
  if (host_can_time_) wait_ = steady_clock::now() - own_work_done_.value_or(last_start_);
  completed_();
}

Buckets::ScanResult Buckets::Scan(const at::Tensor& bucket) {
  const at::Tensor values = ValuesOf(bucket);
  ScanResult scan;
  if (!values.is_floating_point() && !values.is_complex()) return scan;
  if (values.device().is_cpu() && values.is_contiguous() && CanFindNonfinite(values.scalar_type())) {
    scan.element = FirstNonfinite(values.const_data_ptr(), values.scalar_type(), values.numel());
  } else {
    scan.flag = at::isfinite(values).all();
  }
  return scan;
}

std::optional<std::uint64_t> Buckets::Settle(const ScanResult& scan, const at::Tensor& bucket) {
  if (!scan.flag.defined()) return scan.element;
  if (scan.flag.item<bool>()) return std::nullopt;
  const at::Tensor finite = at::isfinite(ValuesOf(bucket)).reshape({-1}).cpu().contiguous();
  const bool* const flags = finite.const_data_ptr<bool>();
  for (std::int64_t i = 0; i < finite.numel(); ++i) {
    if (!flags[i]) return static_cast<std::uint64_t>(i);
  }
  return 0;  // it was non-finite before the reduction, and has been overwritten since
}

NonfiniteGradient Buckets::Named(const Bucket& bucket, std::uint64_t element, int rank, std::uint64_t step) const {
  NonfiniteGradient found;
  found.rank = rank;
  found.step = step;
  const auto parameters = bucket.gradients->getParameters();
  const at::Tensor& buffer = bucket.gradients->getBuffer();
  const auto name_of = [&](std::size_t i) {
    const auto index = index_of_.find(parameters[i].unsafeGetTensorImpl());
    found.parameter = index == index_of_.end() ? "?" : names_[index->second];
    found.elements = static_cast<std::uint64_t>(parameters[i].numel());
  };
  if (buffer.layout() != at::kStrided) {
    // A sparse gradient has its own bucket; the element does not identify the row.
    name_of(0);
    return found;
  }
  const std::vector<at::Tensor> gradients = bucket.gradients->getGradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto begin = static_cast<std::uint64_t>(gradients[i].storage_offset() - buffer.storage_offset());
    if (element < begin || element >= begin + static_cast<std::uint64_t>(gradients[i].numel())) continue;
    name_of(i);
    found.element = element - begin;
    break;
  }
  return found;
}

std::optional<NonfiniteGradient> Buckets::FindNonfinite(std::uint64_t step) {
  if (!check_finite_) return std::nullopt;
  for (std::size_t i = 0; i < finished_; ++i) {
    const Bucket& bucket = buckets_[i];
    if (const auto record = torch_backend::NonfiniteOfCall(bucket.work)) {
      if (record->found) return Named(bucket, record->element, record->rank, step);
      continue;
    }
    const at::Tensor& buffer = bucket.gradients->getBuffer();
    const auto reduced = Settle(bucket.reduced, buffer);
    if (!reduced) continue;
    // The reduced values are identical on all ranks, so all ranks reach this collective call. Each reports whether its
    // own gradients were the cause.
    const bool mine = Settle(bucket.given, buffer).has_value();
    const std::vector<std::string> causes = GatherTexts(team_, "fulldeck/nonfinite", mine ? "1" : "0");
    int cause = -1;
    for (std::size_t rank = 0; rank < causes.size() && cause < 0; ++rank) {
      if (causes[rank] == "1") cause = static_cast<int>(rank);
    }
    return Named(bucket, *reduced, cause, step);
  }
  return std::nullopt;
}

void Buckets::Forget() {
  buckets_.clear();
  finished_ = 0;
}

}  // namespace fulldeck::runtime
