#include "fulldeck/data_parallel.h"

#include <c10/core/GradMode.h>
#include <c10/util/env.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "base/text.h"
#include "fulldeck/rank_board.h"
#include "fulldeck/replica_check.h"
#include "fulldeck/session.h"
#include "runtime/data_parallel/data_parallel_buckets.h"
#include "runtime/data_parallel/data_parallel_wrap.h"
#include "runtime/data_parallel/graph_sink.h"
#include "runtime/data_parallel/reducer_minor.h"

namespace fulldeck {
namespace {

constexpr std::size_t kMaxNames = 5;

DataParallelOptions Checked(const DataParallelOptions& options) {
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1)
    throw Error("buckets of " + std::to_string(options.bucket_bytes) + " and " +
                std::to_string(options.first_bucket_bytes) + " bytes are impossible; at least 1.");
  if (options.hash_every < 0)
    throw Error("hash_every of " + std::to_string(options.hash_every) + " is impossible; 0 is never.");
  return options;
}

// Ranks with different values of these would make different calls.
std::vector<std::string> Settings(const DataParallelOptions& options) {
  std::vector<std::string> lines;
  const auto add = [&](const char* name, std::int64_t value) {
    lines.push_back(std::string("option ") + name + " " + std::to_string(value));
  };
  add("find_unused_parameters", options.find_unused_parameters);
  add("static_graph", options.static_graph);
  add("broadcast_buffers", options.broadcast_buffers);
  add("bucket_bytes", options.bucket_bytes);
  add("first_bucket_bytes", options.first_bucket_bytes);
  add("check_parameters", options.check_parameters);
  add("check_finite", options.check_finite);
  add("hash_every", options.hash_every);
  return lines;
}

}  // namespace

// Owned jointly with hooks in the graph, which only hold weak references.
struct DataParallelCore::Impl : std::enable_shared_from_this<Impl> {
  Impl(Team of_team, const DataParallelOptions& of_options, runtime::Trained of_trained)
      : team(std::move(of_team)),
        options(of_options),
        trained(std::move(of_trained)),
        touched(trained.parameters.size()) {
    for (const at::Tensor& parameter : trained.parameters) known.insert(parameter.unsafeGetTensorImpl());
    if (options.hash_every > 0) replicas.emplace(team, options.hash_every);
  }

  // For a step that is refused: the parameters without a gradient.
  std::string Untouched() const {
    std::string text;
    std::size_t count = 0;
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (touched[i].load(std::memory_order_relaxed) != 0) continue;
      if (++count <= kMaxNames) text += (text.empty() ? "" : ", ") + base::Printable(trained.names[i]);
    }
    if (count > kMaxNames) text += ", …";
    return std::to_string(count) + " of " + std::to_string(touched.size()) + " parameters (" + text + ")";
  }
  bool AnyTouched() const {
    return std::any_of(touched.begin(), touched.end(),
                       [](const auto& flag) { return flag.load(std::memory_order_relaxed) != 0; });
  }
  bool AllTouched() const {
    return std::all_of(touched.begin(), touched.end(),
                       [](const auto& flag) { return flag.load(std::memory_order_relaxed) != 0; });
  }
  void ForgetTouched() {
    for (auto& flag : touched) flag.store(0, std::memory_order_relaxed);
  }
  // Creates what depends on the team's group: the Reducer and its buckets.
  void Connect();

  Team team;
  const DataParallelOptions options;
  const runtime::Trained trained;
  std::unordered_set<const c10::TensorImpl*> known;  // the trainable parameters

  // Which parameters received gradients since the last complete reduction. Written by backward's threads (relaxed); the
  // loop reads it after backward has returned, which orders the accesses.
  std::vector<std::atomic<std::uint8_t>> touched;
  std::shared_ptr<runtime::Buckets> buckets;
  std::optional<runtime::GradientWatch> watch;
  std::shared_ptr<c10d::Reducer> reducer;

  int unsynchronized = 0;    // number of live NoSync guards
  bool synchronizes = true;  // whether the last training forward prepared its backward to reduce
  bool armed = false;        // a forward prepared a reducing backward, which has not completed
  bool reduced = false;      // a reduction has completed since the last step
  bool static_is_set = false;
  bool must_delay = false;  // for a static graph: the first backward reduces only at its end
  std::uint64_t steps = 0;
  std::uint64_t reductions_before = 0;  // through groups that no longer exist

  std::optional<ReplicaCheck> replicas;
  std::vector<NamedTensor> contents;  // compared by the replica check
};

void DataParallelCore::Impl::Connect() {
  static_is_set = false;
  must_delay = options.static_graph;
  buckets = std::make_shared<runtime::Buckets>(team, trained.parameters, trained.names, options.check_finite,
                                               [weak = weak_from_this()] {
                                                 const auto alive = weak.lock();
                                                 if (!alive) return;
                                                 alive->ForgetTouched();
                                                 alive->armed = false;
                                                 alive->reduced = true;
                                               });
  runtime::ReducerRequest request;
  request.parameters = trained.parameters;
  request.names = trained.names;
  request.sparse = trained.sparse;
  request.group = team.group;
  request.bucket_bytes = options.bucket_bytes;
  request.first_bucket_bytes = options.first_bucket_bytes;
  request.find_unused_parameters = options.find_unused_parameters;
  request.static_graph = options.static_graph;
  request.gradient_as_bucket_view = options.gradient_as_bucket_view;
  reducer = runtime::MakeReducer(request);
  reducer->register_comm_hook(buckets->MakeHook());
}

void DataParallelCore::UseTeam(const Team& team) {
  Impl& impl = *impl_;
  impl.reducer->remove_autograd_hooks();
  // They may be views of buckets in the old group's memory.
  for (at::Tensor parameter : impl.trained.parameters) parameter.mutable_grad() = at::Tensor();
  impl.reductions_before += impl.buckets->reductions();
  impl.team = team;
  impl.ForgetTouched();
  impl.synchronizes = true;
  impl.armed = false;
  impl.reduced = false;
  if (impl.options.hash_every > 0) impl.replicas.emplace(team, impl.options.hash_every);
  impl.Connect();
}

DataParallelCore::DataParallelCore(std::shared_ptr<torch::nn::Module> module, const Team& team,
                                   const DataParallelOptions& options)
    : module_(std::move(module)) {
  if (!module_) throw Error("there is no module to wrap.");
  if (!team.group || !team.store) throw Error("the team has no process group or no store.");
  if (team.group->getSize() != team.world_size || team.group->getRank() != team.rank)
    throw Refusal("the team says rank " + std::to_string(team.rank) + " of " + std::to_string(team.world_size) +
                  ", and its process group is rank " + std::to_string(team.group->getRank()) + " of " +
                  std::to_string(team.group->getSize()) + ".");
  runtime::AgreeOnModule(*module_, team, Settings(Checked(options)));
  runtime::CopyFromFirstRank(*module_, team);
  if (options.check_parameters) runtime::CompareContents(*module_, team);

  impl_ = std::make_shared<Impl>(team, options, runtime::TrainedParameters(*module_));
  // Created before the Reducer: the Reducer's hook on the last parameter may end the pass, and this hook must run
  // before.
  impl_->watch.emplace(impl_->trained.parameters, [weak = std::weak_ptr(impl_)](std::size_t index) {
    if (const auto alive = weak.lock()) alive->touched[index].store(1, std::memory_order_relaxed);
  });
  // Buckets in shared memory, if the backend supports it. A value set by the user is kept.
  c10::utils::set_env("DDP_DISABLE_COMM_MEM", "0", /*overwrite=*/false);
  impl_->Connect();
}

DataParallelCore::DataParallelCore(std::shared_ptr<torch::nn::Module> module, Session& session,
                                   const DataParallelOptions& options)
    : DataParallelCore(std::move(module), session.team(), options) {
  session_ = &session;
  regroup_subscription_ = session.OnRegroup([this](const Team& team) { UseTeam(team); });
}

DataParallelCore::~DataParallelCore() {
  if (impl_ && impl_->reducer) impl_->reducer->remove_autograd_hooks();
}

// ---- forward ----

void DataParallelCore::BeginForward(const std::vector<const at::Tensor*>& inputs) {
  Impl& impl = *impl_;
  std::vector<at::Tensor> batch;
  batch.reserve(inputs.size());
  for (const at::Tensor* const input : inputs) batch.push_back(*input);
  CheckBatch(batch, impl.team.device);
  if (!c10::GradMode::is_enabled()) return;  // evaluation, possibly on one rank only: nothing is communicated
  const bool first_after_reduction = impl.synchronizes;
  impl.synchronizes = impl.unsynchronized == 0;
  if (impl.synchronizes && impl.armed && impl.AnyTouched()) CheckReduced();
  if (impl.synchronizes) {
    if (impl.options.static_graph && !impl.static_is_set) {
      // Not earlier: the Reducer would count the gradients of all backward passes up to the first that reduces,
      // including those under NoSync, and then wait for the same number in each step.
      impl.reducer->set_static_graph();
      impl.static_is_set = true;
    }
    impl.reducer->prepare_for_forward();
  }
  runtime::RebuildBuckets(*impl.reducer);
  // During accumulation the buffers are not synchronized, as if the module ran one large batch.
  if (impl.options.broadcast_buffers && first_after_reduction)
    runtime::BroadcastQuietly(runtime::BuffersOf(*module_), impl.team);
}

void DataParallelCore::EndForward(const std::vector<at::Tensor*>& outputs) {
  Impl& impl = *impl_;
  if (!c10::GradMode::is_enabled() || !impl.synchronizes) return;
  const bool searches = impl.options.find_unused_parameters && !impl.options.static_graph;
  std::vector<at::Tensor> searched;
  if (searches) {
    for (const at::Tensor* const output : outputs) {
      if (output->defined()) searched.push_back(*output);
    }
  }
  impl.reducer->prepare_for_backward(searched);
  impl.armed = true;
  // With a static graph in every step: all steps must look the same to the Reducer as the first, including outputs that
  // the loss does not use.
  if (!searches && !impl.options.static_graph) return;
  runtime::PassThroughSink(outputs, [weak = impl.weak_from_this()] {
    const auto alive = weak.lock();
    if (!alive || !alive->must_delay) return;
    alive->must_delay = false;
    torch::autograd::Engine::get_default_engine().queue_callback([weak] {
      if (const auto still_alive = weak.lock()) still_alive->reducer->delay_all_reduce();
    });
  });
}

DataParallelCore::Unsynchronised::Unsynchronised(DataParallelCore& model) : model_(model) {
  ++model_.impl_->unsynchronized;
}
DataParallelCore::Unsynchronised::~Unsynchronised() {
  --model_.impl_->unsynchronized;
}

// ---- the step ----

void DataParallelCore::CheckReduced() {
  const Impl& impl = *impl_;
  const std::string step = "step " + std::to_string(impl.steps + 1) + " is refused: ";
  if (!impl.AnyTouched()) {
    if (impl.reduced) return;
    throw Refusal(step + "there was no backward pass since the last step, so that no gradient was reduced.");
  }
  if (impl.armed && impl.synchronizes) {
    if (impl.AllTouched())
      throw Refusal(step +
                    "the last backward did not come to the end of its reductions, so that not all gradients are those "
                    "of all ranks.");
    throw Refusal(step + "backward brought no gradient for " + impl.Untouched() +
                  ", so that not all gradients were reduced. The loss does not depend on them on rank " +
                  std::to_string(impl.team.rank) +
                  ". Give find_unused_parameters (or static_graph, if it is so in every step), or freeze them.");
  }
  if (!impl.synchronizes) {
    throw Refusal(step +
                  "gradients were accumulated under NoSync and not reduced afterwards. The last backward before a step "
                  "must run outside of NoSync.");
  }
  throw Refusal(step +
                "backward brought gradients that were not reduced over the ranks: the forward pass went around "
                "DataParallel. Call Forward of the wrapper and not of the module itself.");
}

namespace {

// Every rank throws; the board shows which one caused it. The board's error section may be written through a separate
// mapping.
void ReportNonfinite(int rank, const std::string& text) {
  fulldeck_board* board = nullptr;
  if (fulldeck_board_open(&board) != 0) return;
  fulldeck_board_set_failure(board, FULLDECK_BOARD_FAILURE_NONFINITE, rank, text.c_str());
  fulldeck_board_close(board);
}

}  // namespace

std::optional<NonfiniteGradient> DataParallelCore::nonfinite() {
  return impl_->buckets->FindNonfinite(impl_->steps + 1);
}

void DataParallelCore::CheckFinite() {
  const auto found = nonfinite();
  if (!found) return;
  const std::string where = base::Printable(found->parameter) + " (element " + std::to_string(found->element) + " of " +
                            std::to_string(found->elements) + ")";
  const std::string step = "step " + std::to_string(found->step) + ": ";
  if (found->rank < 0)
    throw Error(
        step + "the sum over the ranks of the gradient of " + where +
        " is not finite, while each rank's part is: it overflowed. No parameter was changed. Scale the loss down, "
        "or reduce in a wider type.");
  const std::string text = step + "rank " + std::to_string(found->rank) +
                           " gave a gradient that is not finite: " + where +
                           ". No parameter was changed. Look at that rank's batch, at the learning rate, and at "
                           "logarithms and divisions in the loss; with 16-bit types use a GradScaler.";
  ReportNonfinite(found->rank, text);
  throw Error(text);
}

void DataParallelCore::StepDone() {
  Impl& impl = *impl_;
  ++impl.steps;
  impl.reduced = false;
  impl.ForgetTouched();
  if (session_ != nullptr) {
    if (const auto waited = communication_wait()) session_->AddCommunicationTime(*waited);
    session_->SetFingerprints(0, parameters_fingerprint());
  }
  impl.buckets->Forget();
  if (!impl.replicas) return;
  if (impl.replicas->begins()) {
    const runtime::Trained now = runtime::TrainedParameters(*module_);
    bool same = now.parameters.size() == impl.trained.parameters.size();
    for (std::size_t i = 0; same && i < now.parameters.size(); ++i)
      same = now.parameters[i].is_same(impl.trained.parameters[i]);
    if (!same)
      throw Refusal(
          "the module's parameters are not those that were wrapped: some were exchanged, added or frozen "
          "since, and are not reduced. Wrap the module when it is complete.");
    impl.contents.clear();
    for (std::size_t i = 0; i < now.parameters.size(); ++i) impl.contents.push_back({now.names[i], now.parameters[i]});
  }
  impl.replicas->Step(impl.contents, impl.steps);
}

void DataParallelCore::Step(torch::optim::Optimizer& optimizer) {
  CheckReduced();
  CheckFinite();
  CheckOptimizer(optimizer);
  optimizer.step();
  StepDone();
}

void DataParallelCore::CheckOptimizer(torch::optim::Optimizer& optimizer) const {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (impl_->known.count(parameter.unsafeGetTensorImpl()) > 0) return;
    }
  }
  throw Refusal(
      "the optimizer holds none of the wrapped module's parameters: its step would change nothing. Make it "
      "from the parameters of the module as it was wrapped.");
}

// ---- accessors ----

const Team& DataParallelCore::team() const {
  return impl_->team;
}
const DataParallelOptions& DataParallelCore::options() const {
  return impl_->options;
}
const std::vector<at::Tensor>& DataParallelCore::parameters() const {
  return impl_->trained.parameters;
}
const std::vector<std::string>& DataParallelCore::parameter_names() const {
  return impl_->trained.names;
}
std::uint64_t DataParallelCore::steps() const {
  return impl_->steps;
}
std::uint64_t DataParallelCore::reductions() const {
  return impl_->reductions_before + impl_->buckets->reductions();
}
std::size_t DataParallelCore::buckets() const {
  return impl_->buckets->count();
}
std::optional<std::chrono::nanoseconds> DataParallelCore::communication_wait() const {
  return impl_->buckets->wait();
}
std::uint64_t DataParallelCore::parameters_fingerprint() const {
  return impl_->replicas ? impl_->replicas->fingerprint() : 0;
}

}  // namespace fulldeck
