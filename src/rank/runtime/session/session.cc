#include "fulldeck/session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <mutex>

#include "base/host_name.h"
#include "base/log.h"
#include "base/text.h"
#include "fulldeck/memory.h"
#include "fulldeck/random.h"
#include "runtime/cards/backend_choice.h"
#include "runtime/cards/device_choice.h"
#include "runtime/cards/device_proof.h"
#include "runtime/cards/limits.h"
#include "runtime/cards/random_generators.h"
#include "runtime/session/session_cards.h"
#include "runtime/session/session_environment.h"
#include "runtime/session/session_heartbeat.h"
#include "runtime/session/session_loop.h"
#include "runtime/session/session_store.h"

namespace fulldeck {
namespace {

using std::chrono::milliseconds;

// Rank 0 hosts the store: it waits this long for ranks that have not left yet.
constexpr milliseconds kLeaveTimeout = std::chrono::seconds(30);
constexpr milliseconds kLeaveTimeoutAfterRefusal = std::chrono::seconds(5);

std::string AbortKey(int generation) {
  return "aborted/" + std::to_string(generation);
}

fulldeck_board* OpenBoard() {
  fulldeck_board* board = nullptr;
  const int code = fulldeck_board_open(&board);
  if (code == 0) return board;
  // Not having a board is not an error: something else started the program. Report an unusable board.
  if (code != -ENOENT) {
    base::Log(base::Severity::kWarning,
              "the monitor will not see this rank: " + base::Printable(fulldeck_board_error()));
  }
  return nullptr;
}

struct BoardCloser {
  void operator()(fulldeck_board* board) const { fulldeck_board_close(board); }
};

}  // namespace

class Session::Impl {
 public:
  explicit Impl(const SessionOptions& session_options);

  void Begin();
  // Begin has thrown. Every rank reads what the ranks found out together before the store goes away.
  void GiveUp() noexcept;
  void End() noexcept;

  const SessionOptions options;
  const runtime::LaunchFacts facts;
  const std::unique_ptr<fulldeck_board, BoardCloser> board;
  Team team;
  runtime::Limits limits;
  runtime::BackendKind kind = runtime::BackendKind::kFulldeck;
  std::string backend;
  std::string backend_reason;
  std::string line;
  std::string settings;
  std::uint64_t seed = 0;
  int generation = 0;
  runtime::LoopClock loop;
  std::unique_ptr<runtime::Heartbeat> heartbeat;
  std::list<std::weak_ptr<std::function<void(const Team&)>>> regroup_callbacks;
  // Guards team.group against AbortGroup from another thread.
  std::mutex group_mutex;

 private:
  std::string Serial(const runtime::ChosenDevice& chosen) const {
    return chosen.is_launchers ? base::Printable(facts.card_serial) : std::string();
  }
  bool CheckCards(const std::string& serial);
  void MakeFirstGroup(bool one_rank_per_card);
  void CheckMemory();
  void AnnounceLeave(milliseconds timeout);
  bool watermark_logged_ = false;
};

Session::Impl::Impl(const SessionOptions& session_options)
    : options(session_options),
      facts(runtime::ReadLaunchFacts(base::Environment::OfThisProcess())),
      board(OpenBoard()),
      loop(board.get()) {}

void Session::Impl::Begin() {
  if (options.world_size && *options.world_size != facts.world_size) {
    throw Refusal("the program asks for " + std::to_string(*options.world_size) + " ranks, and WORLD_SIZE is " +
                  std::to_string(facts.world_size) + ". Start it with fulldeck run --nproc-per-node " +
                  std::to_string(*options.world_size) + ", or ask for " + std::to_string(facts.world_size) + ".");
  }
  fulldeck_board_identity(board.get(), FULLDECK_BOARD_RUNTIME, nullptr);
  loop.Enter(Phase::kInit);
  heartbeat = std::make_unique<runtime::Heartbeat>(board.get());

  runtime::LimitsRequest request;
  request.open_files = options.open_files;
  request.threads = options.threads ? options.threads : facts.threads;
  request.ranks_here = facts.local_world_size.value_or(1);
  request.cudnn_benchmark = options.cudnn_benchmark;
  limits = runtime::SetLimits(request);
  settings = limits.ToText();

  const runtime::ChosenDevice chosen = runtime::ChooseDevice({options.device, options.torch_plugins, &facts});
  runtime::ProveDevice(chosen.device, options.proof_timeout);
  fulldeck_board_probed(board.get());
  const std::string serial = Serial(chosen);

  team.rank = facts.rank;
  team.world_size = facts.world_size;
  team.local_rank = facts.local_rank;
  team.device = chosen.device;
  team.board = board.get();
  team.timeout = options.timeout;
  team.store = runtime::OpenStore(facts, options.timeout);
  MakeFirstGroup(CheckCards(serial));

  line = "rank " + std::to_string(team.rank) + "/" + std::to_string(team.world_size) + ", backend " + backend + " (" +
         backend_reason + "), device " + team.device.str() + (serial.empty() ? "" : ", card serial " + serial) +
         ", host " + base::HostName();
  base::Log(base::Severity::kInfo, line);
  CheckMemory();
  loop.RunPeriodically([this] { CheckMemory(); });
}

void Session::Impl::CheckMemory() {
  MemoryFigures figures = ReadMemory(team.device);
  const auto taken = [&] {
    if (!figures.reserved || !figures.total || *figures.total == 0) return 0.0;
    return static_cast<double>(*figures.reserved) / static_cast<double>(*figures.total);
  };
  if (options.memory_watermark > 0 && taken() > options.memory_watermark) {
    const std::string before = figures.ToText();
    const bool released = ReleaseCaches(team.device);
    figures = ReadMemory(team.device);
    if (!watermark_logged_) {
      watermark_logged_ = true;
      base::Log(base::Severity::kWarning,
                "rank " + std::to_string(team.rank) + ": more than " +
                    std::to_string(static_cast<int>(options.memory_watermark * 100)) + " % of the memory of " +
                    team.device.str() + " was taken (" + before + "); " +
                    (released ? "caches were given back, and will be from now on: " + figures.ToText() + "."
                              : std::string("its allocator cannot give caches back.")));
    }
  }
  if (figures.used) fulldeck_board_memory(board.get(), *figures.used, figures.peak.value_or(*figures.used));
}

// Whether every rank has a card of its own.
bool Session::Impl::CheckCards(const std::string& serial) {
  runtime::CardClaim mine;
  mine.node = runtime::ThisNodeKey();
  if (!team.device.is_cpu()) {
    mine.device = team.device.str();
    mine.serial = serial;
    mine.visible = runtime::VisibleLists();
  }
  std::vector<runtime::CardClaim> claims;
  for (const std::string& text : GatherTexts(team, "start", mine.ToText())) {
    claims.push_back(runtime::CardClaim::FromText(text));
  }
  const auto [first, second] = runtime::FindSharedCard(claims);
  if (first < 0) return true;
  if (options.share_cards || facts.share_cards) return false;
  const runtime::CardClaim& card = claims[static_cast<std::size_t>(first)];
  throw Refusal("ranks " + std::to_string(first) + " and " + std::to_string(second) + " of host " + base::HostName() +
                " compute on one card, " + base::Printable(card.device) +
                (card.serial.empty() ? "" : " (serial " + base::Printable(card.serial) + ")") +
                ": each needs one of its own. Start as many ranks as there are cards, or allow it with fulldeck run "
                "--share-cards or FULLDECK_SHARE_CARDS=1.");
}

void Session::Impl::MakeFirstGroup(bool one_rank_per_card) {
  runtime::BackendFacts about;
  about.requested = !options.backend.empty() ? options.backend : facts.backend;
  about.requested_by = !options.backend.empty() ? "the program" : "FULLDECK_BACKEND";
  about.type = team.device.type();
  about.device = team.device.str();
  about.one_rank_per_card = one_rank_per_card;
  about.nccl_lacks = runtime::WhatNcclLacks(about.type);
  about.fulldeck_lacks = runtime::WhatFulldeckLacks(team.world_size);
  const runtime::BackendChoice choice = runtime::ChooseBackend(about);
  kind = choice.kind;
  backend_reason = choice.reason;
  std::string failure;
  try {
    team.group = runtime::MakeGroup(team, kind, generation);
  } catch (const std::exception& error) {
    failure = error.what();
    failure = base::Printable(failure.substr(0, std::min(failure.find('\n'), std::size_t{400})));
    if (failure.empty()) failure = "no reason was given";
  }
  // If one rank cannot do it, none can.
  const auto failures = GatherTexts(team, "group", failure);
  const auto failed = std::find_if(failures.begin(), failures.end(), [](const auto& text) { return !text.empty(); });
  if (failed != failures.end()) {
    const std::string why = "rank " + std::to_string(failed - failures.begin()) + ": " + base::Printable(*failed);
    const bool may_be_gloo = about.requested.empty() && kind != runtime::BackendKind::kGloo &&
                             (team.device.is_cpu() || team.device.is_cuda());
    if (!may_be_gloo) {
      throw Error("the process group (" + std::string(runtime::NameOf(kind)) + ") cannot be made: " + why);
    }
    backend_reason = std::string(runtime::NameOf(kind)) + " cannot work, " + why;
    kind = runtime::BackendKind::kGloo;
    team.group = runtime::MakeGroup(team, kind, generation);
  }
  backend = runtime::NameOf(kind);
}

void Session::Impl::AnnounceLeave(milliseconds timeout) {
  team.store->set("farewell/" + std::to_string(team.rank), std::string("1"));
  if (team.rank != 0 || timeout.count() == 0) return;
  std::vector<std::string> keys;
  for (int rank = 0; rank < team.world_size; ++rank) keys.push_back("farewell/" + std::to_string(rank));
  team.store->wait(keys, std::min(timeout, options.timeout));
}

void Session::Impl::GiveUp() noexcept {
  try {
    if (team.store != nullptr) AnnounceLeave(kLeaveTimeoutAfterRefusal);
  } catch (const std::exception&) {
    // Ranks that have not arrived by now have not begun.
  }
}

void Session::Impl::End() noexcept {
  try {
    heartbeat.reset();
    if (team.group == nullptr) return;
    loop.Enter(Phase::kFinished);
    // A rank that exits because of an error does not wait for the others, which may be waiting for it.
    AnnounceLeave(std::uncaught_exceptions() == 0 ? kLeaveTimeout : milliseconds(0));
    team.group->shutdown();
  } catch (const std::exception&) {
    // The others have exited, or take longer than rank 0 can wait. There is no one left to report to.
  }
}

// ---- creation ----

namespace {

std::mutex g_mutex;
std::weak_ptr<Session> g_session;

}  // namespace

Session::Session() = default;

std::shared_ptr<Session> Session::FromEnvironment(const SessionOptions& options) {
  const std::lock_guard lock(g_mutex);
  if (auto session = g_session.lock()) {
    if (session->impl_->options == options) return session;
    throw Error(
        "this process has a session already, and it was made with other options. Make it once, or let go of the "
        "first.");
  }
  std::shared_ptr<Session> session(new Session);
  session->impl_ = std::make_unique<Impl>(options);
  try {
    session->impl_->Begin();
  } catch (const std::exception& error) {
    fulldeck_board_set_error(session->impl_->board.get(), error.what());
    session->impl_->GiveUp();
    throw;
  }
  g_session = session;
  return session;
}

Session::~Session() {
  if (impl_) impl_->End();
}

// ---- accessors ----

const Team& Session::team() const {
  return impl_->team;
}
const std::string& Session::backend() const {
  return impl_->backend;
}
const std::string& Session::backend_reason() const {
  return impl_->backend_reason;
}
const std::string& Session::line() const {
  return impl_->line;
}
const std::string& Session::settings() const {
  return impl_->settings;
}
std::uint64_t Session::seed() const {
  return impl_->seed;
}
int Session::generation() const {
  return impl_->generation;
}

// ---- seeds ----

void Session::Seed(std::uint64_t seed) {
  impl_->seed = seed;
  runtime::SeedGenerators(device(), seed);
}

void Session::SeedDropout(std::uint64_t epoch) {
  runtime::SeedGenerators(
      device(), RandomStream(impl_->seed, Purpose::kDropout, epoch, static_cast<std::uint64_t>(rank())).Next64());
}

// ---- training loop ----

Step::Step(Step&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}

Step::~Step() {
  if (session_ != nullptr) session_->impl_->loop.Abandon();
}

void Step::Enter(Phase phase) {
  if (session_ != nullptr) session_->impl_->loop.Enter(phase);
}

void Step::Done(std::optional<double> loss, std::uint64_t samples) {
  if (session_ == nullptr) return;
  std::exchange(session_, nullptr)->impl_->loop.Done(loss, samples);
}

Step Session::BeginStep() {
  impl_->loop.BeginStep();
  return Step(*this);
}
void Session::EnterPhase(Phase phase) {
  impl_->loop.Enter(phase);
}
void Session::SetProgress(std::uint64_t steps_done, std::uint64_t total_steps, std::uint64_t epoch) {
  impl_->loop.SetProgress(steps_done, total_steps, epoch);
}
std::uint64_t Session::steps_done() const {
  return impl_->loop.figures().step;
}
void Session::AddCommunicationTime(std::chrono::nanoseconds time) {
  impl_->loop.AddCommunication(time);
}
std::optional<CardUse> Session::card_use() const {
  switch (fulldeck_board_card_use(impl_->board.get())) {
    case FULLDECK_BOARD_CARD_BUSY:
      return CardUse::kBusy;
    case FULLDECK_BOARD_CARD_IDLE:
      return CardUse::kIdle;
    case FULLDECK_BOARD_CARD_UNKNOWN:
      return CardUse::kUnknown;
    default:
      return std::nullopt;
  }
}

void Session::SetFingerprints(std::uint64_t batch, std::uint64_t parameters) {
  impl_->loop.SetFingerprints(batch, parameters);
}

// ---- after a group failed ----

void Session::AbortGroup(const std::string& reason) {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int generation = 0;
  {
    const std::lock_guard lock(impl_->group_mutex);
    group = impl_->team.group;
    generation = impl_->generation;
  }
  // Store the reason before the abort: a rank that finds its group aborted looks for it.
  const std::string text = "rank " + std::to_string(rank()) + ": " + reason;
  impl_->team.store->compareSet(AbortKey(generation), std::string(), text);
  group->abort();
}

void Session::WatchForAborts() {
  Impl& impl = *impl_;
  if (impl.kind == runtime::BackendKind::kGloo && world_size() > 1) {
    throw Refusal(
        "a wait in Gloo cannot be ended from outside, so that ranks cannot get each other out of it. Use the "
        "backend fulldeck (FULLDECK_BACKEND=fulldeck), or do without what needs it (oom = \"halve\").");
  }
  // Within one node the shared-memory backend notifies all ranks immediately.
  if (world_size() == 1 || (impl.kind == runtime::BackendKind::kFulldeck && impl.facts.one_node())) return;
  const auto store = runtime::SecondConnection(impl.facts, impl.team.store, impl.options.timeout);
  impl.heartbeat->Watch([&impl, store, last = -1]() mutable {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    int generation = 0;
    {
      const std::lock_guard lock(impl.group_mutex);
      group = impl.team.group;
      generation = impl.generation;
    }
    if (generation == last || !store->check({AbortKey(generation)})) return;
    last = generation;
    group->abort();
  });
}

std::optional<std::string> Session::WhyAborted() {
  const std::string key = AbortKey(impl_->generation);
  if (!impl_->team.store->check({key})) return std::nullopt;
  const auto bytes = impl_->team.store->get(key);
  return std::string(bytes.begin(), bytes.end());
}

void Session::Regroup(const std::string& reason) {
  Impl& impl = *impl_;
  fulldeck::Barrier(impl.team, "regroup");
  const auto old = impl.team.group;
  old->abort();
  const auto made = runtime::MakeGroup(impl.team, impl.kind, impl.generation + 1);
  {
    const std::lock_guard lock(impl.group_mutex);
    impl.team.group = made;
    ++impl.generation;
  }
  fulldeck_board_set_error(impl.board.get(), reason.c_str());
  for (auto at = impl.regroup_callbacks.begin(); at != impl.regroup_callbacks.end();) {
    if (const auto callback = at->lock()) {
      (*callback)(impl.team);
      ++at;
    } else {
      at = impl.regroup_callbacks.erase(at);
    }
  }
}

std::shared_ptr<void> Session::OnRegroup(std::function<void(const Team&)> callback) {
  auto kept = std::make_shared<std::function<void(const Team&)>>(std::move(callback));
  impl_->regroup_callbacks.push_back(kept);
  return kept;
}

}  // namespace fulldeck
