#include "launcher/run_plan.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>

#include "base/files/system_root.h"
#include "base/host_name.h"
#include "base/text.h"
#include "device/host.h"
#include "device/inventory.h"
#include "job/cards/card_selection.h"
#include "job/cards/device_choice.h"
#include "job/launch/agent_choice.h"
#include "job/launch/rank_environment.h"
#include "launcher/cpu_binding.h"
#include "launcher/program.h"
#include "wire/sha256.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

using base::Error;
using wire::ExitCode;

std::string UserName() {
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(getuid());
}

// Two files per rank, and some for the launcher itself. In a rank the board has a high descriptor number.
base::Result<void> RaiseDescriptorLimit(int ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return base::ErrnoError("RLIMIT_NOFILE");
  const rlim_t needed = std::max<rlim_t>(static_cast<rlim_t>(ranks) * 4 + 64, kBoardDescriptor + 16);
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < needed) {
    return Error{
        fmt::format("{} ranks need {} open files, and this session may open {}. Raise the limit: ulimit -Hn {}, "
                    "or nofile in /etc/security/limits.conf",
                    ranks, needed, limit.rlim_max, needed)};
  }
  constexpr rlim_t kPlenty = 65'536;
  const rlim_t wanted = limit.rlim_max == RLIM_INFINITY ? kPlenty : std::min(limit.rlim_max, kPlenty);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return base::ErrnoError("RLIMIT_NOFILE");
  }
  return {};
}

std::optional<std::string> BesideProgram(const std::string& relative) {
  std::string folder = base::ExecutablePath();
  folder.erase(folder.rfind('/'));
  folder += "/../" + relative;
  std::array<char, PATH_MAX> resolved{};
  if (realpath(folder.c_str(), resolved.data()) == nullptr) return std::nullopt;
  return std::string(resolved.data());
}

void ChooseAgent(RunPlan& plan) {
  if (!plan.flags.agent) return;
  plan.python_hook = BesideProgram("lib/fulldeck_hook");
  if (!plan.python_hook) plan.notes.push_back("the Python hook is not installed beside fulldeck: no Python stacks");
  const auto library = BesideProgram("lib/libfulldeck_agent.so");
  if (!library) {
    plan.notes.push_back("the rank agent (libfulldeck_agent.so) is not installed beside fulldeck: no crash reports");
    return;
  }
  const job::AgentVerdict verdict = job::MayPreload(plan.program.front(), base::SystemRoot(), plan.environment);
  if (verdict.may_preload) {
    plan.agent_library = *library;
  } else {
    plan.notes.push_back("no crash reports: the rank agent is left out, because " + verdict.reason);
  }
}

std::string DescribeOwner(const std::optional<job::LeaseOwner>& owner) {
  if (!owner) return "another run";
  if (owner->run_id.empty()) return "a run of user " + owner->user;
  return fmt::format("run {} (user {}, pid {})", owner->run_id, owner->user, owner->pid);
}

// The first `wanted` cards that no other run holds; all free cards if `wanted` is absent.
base::Result<std::vector<device::Card>> LeaseCards(RunPlan& plan, const std::vector<device::Card>& candidates,
                                                   std::optional<std::size_t> wanted, bool may_skip) {
  std::vector<device::Card> leased;
  std::vector<std::string> taken;
  const job::LeaseOwner owner{plan.run_id, plan.user, getpid()};
  for (const device::Card& card : candidates) {
    if (wanted && leased.size() == *wanted) break;
    std::optional<job::LeaseOwner> held_by;
    const auto got = plan.leases.Take(card, owner, plan.environment, &held_by);
    if (!got) return got.error();
    if (*got) {
      leased.push_back(card);
      continue;
    }
    taken.push_back(fmt::format("{} is used by {}", device::NameOf(card), DescribeOwner(held_by)));
    if (!may_skip) break;
  }
  const bool too_few = leased.empty() || (wanted && leased.size() < *wanted);
  if (!too_few) {
    for (const std::string& sentence : taken) plan.notes.push_back(sentence + "; it is left out of this run");
    return leased;
  }
  // A simulated server costs nothing, so every run can have its own.
  const bool simulated = !candidates.empty() && candidates.front().simulated;
  return Error{fmt::format(
      "{} card{} asked for and {} free: {}. Wait for it, stop it (fulldeck ps, fulldeck stop), name other cards with "
      "--devices, {}or allow sharing with --share-leases",
      wanted.value_or(candidates.size()), wanted.value_or(2) == 1 ? " was" : "s were",
      leased.size() == 1 ? "1 is" : fmt::format("{} are", leased.size()), base::Join(taken, "; "),
      simulated
          ? fmt::format("set {} to a folder of its own for another simulated server, ", wire::kSimulateDirVariable)
          : "")};
}

// Makes torch see exactly the chosen cards, in their order.
void NarrowVisibility(RunPlan& plan, std::vector<device::Card>& chosen) {
  if (plan.flags.virtual_local_rank) return;
  plan.visible_devices = job::NarrowedVisibility(plan.environment, chosen);
  if (!plan.visible_devices) return;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i].torch_type) chosen[i].torch_device = *chosen[i].torch_type + ":" + std::to_string(i);
  }
  plan.notes.push_back(fmt::format("{}={} is set for the ranks, so that LOCAL_RANK is the number of each rank's card",
                                   plan.visible_devices->first, plan.visible_devices->second));
}

// A policy that fails because of cards must not be silently satisfied when there are none.
base::Result<void> CheckIdleCardPolicy(const job::LaunchFlags& flags, const std::vector<device::Card>& cards) {
  const bool strict = flags.idle_card == job::IdleCardPolicy::kFail || flags.idle_card == job::IdleCardPolicy::kRequire;
  if (!strict || !cards.empty()) return {};
  const char* const policy = flags.idle_card == job::IdleCardPolicy::kFail ? "fail" : "require";
  if (flags.nproc_kind == "cpu") {
    return Error{fmt::format(
        "--idle-card {} cannot be kept: no card is used, because --nproc-per-node cpu puts the ranks on the "
        "processors. Remove one of the two flags",
        policy)};
  }
  return Error{fmt::format(
      "--idle-card {} cannot be kept: no card was found (fulldeck devices --all says why), and the ranks would "
      "run on the processors. Remove --idle-card if that is intended",
      policy)};
}

base::Result<void> PlanCards(RunPlan& plan, const std::optional<job::ClusterPlace>& cluster, ExitCode* code) {
  device::InventoryReader reader({.root = base::SystemRoot(), .environment = plan.environment});
  *code = ExitCode::kBadEnvironment;
  // A CPU run does not need to wait for the card libraries.
  const auto choice = job::ParseDeviceChoice(plan.flags.devices);
  const bool on_cpu =
      ((choice && choice->cpu) || plan.flags.nproc_kind == "cpu") && !plan.environment.Get(wire::kSimulateVariable);
  const auto inventory = on_cpu ? base::Result<device::Inventory>(device::Inventory()) : reader.Read();
  if (!inventory) return inventory.error();
  for (const device::VendorReport& vendor : inventory->vendors) {
    for (const device::Card& card : vendor.cards) {
      for (const std::string& note : card.notes) plan.notes.push_back(device::NameOf(card) + ": " + note);
    }
  }
  *code = ExitCode::kRefusedCards;
  const base::SystemRoot root;
  const device::HostTopology host = device::ReadTopology(root);
  auto selection = job::SelectCards(plan.flags, *inventory, static_cast<int>(host.cpus.size()),
                                    cluster ? cluster->local_launcher : 0, cluster ? cluster->local_launchers : 1);
  if (!selection) return selection.error();
  plan.cpu_requested = selection->cpu_requested;
  plan.notes.insert(plan.notes.end(), selection->notes.begin(), selection->notes.end());
  int ranks = selection->ranks;
  std::vector<device::Card> cards = std::move(selection->cards);
  const auto provable = CheckIdleCardPolicy(plan.flags, cards);
  if (!provable) return provable.error();

  const bool share = plan.flags.share_cards || plan.flags.style != job::LaunchStyle::kFulldeck;
  if (!cards.empty() && static_cast<std::size_t>(ranks) > cards.size() && share && !plan.flags.share_cards) {
    plan.notes.push_back(
        fmt::format("WARNING: {} ranks on {} cards: several ranks share a card, which is slow and may run "
                    "out of memory. Ask for {} ranks to give each its own",
                    ranks, cards.size(), cards.size()));
  }
  if (!cards.empty() && !plan.flags.ignore_leases && !plan.flags.dry_run) {
    // A fixed number of ranks needs that many cards; otherwise the run takes what is free.
    const bool named = choice && !choice->indices.empty();
    std::optional<std::size_t> wanted;
    if (plan.flags.nproc || named) wanted = std::min(cards.size(), static_cast<std::size_t>(ranks));
    auto leased = LeaseCards(plan, cards, wanted, !named);
    if (!leased) return leased.error();
    if (!wanted) ranks = static_cast<int>(leased->size());
    cards = std::move(*leased);
  }
  if (!cards.empty()) NarrowVisibility(plan, cards);

  const auto placements = job::Place({cards, host, ranks, share});
  if (!placements) return placements.error();
  for (const job::RankPlacement& placement : *placements) {
    PlannedRank rank{placement, std::nullopt, CpusFor(plan.flags.numa_binding, placement, host, root)};
    if (placement.card) rank.card = cards[*placement.card];
    if (plan.flags.numa_binding != job::NumaBinding::kNone && rank.bound_to.empty()) {
      return Error{"this machine does not tell the processors that --numa-binding asks for; leave it away"};
    }
    plan.ranks.push_back(std::move(rank));
  }
  return {};
}

base::Result<RunDirectory> MakeRunDirectory(const RunPlan& plan, const std::string& name) {
  const bool for_others = plan.flags.style != job::LaunchStyle::kTorchrun;
  if (plan.flags.log_dir) return RunDirectory::Make(*plan.flags.log_dir, name, for_others);
  if (for_others) return RunDirectory::Make("fulldeck_runs", name);
  // torchrun writes nothing to the working directory, so neither does its replacement. In a folder that all users
  // share, other users must not be able to read the logs or to replace them with links.
  const std::string temporary = plan.environment.Get("TMPDIR").value_or("");
  const auto folder = PrivateLogFolder(temporary.empty() ? "/tmp" : temporary);
  if (!folder) return folder.error();
  return RunDirectory::Make(*folder, name, false);
}

std::string CollectivesKey(const RunPlan& plan) {
  if (plan.flags.max_nodes > 1) {
    const std::string token = plan.environment.Get(wire::kTokenVariable).value_or("");
    return token.empty() ? "" : wire::HexOf(wire::HmacSha256(token, "collectives of run " + plan.run_id));
  }
  std::array<std::uint8_t, 16> chance{};
  if (getrandom(chance.data(), chance.size(), 0) != static_cast<ssize_t>(chance.size())) return "";
  std::string key;
  for (const std::uint8_t byte : chance) key += fmt::format("{:02x}", byte);
  return key;
}

// A folder name; the run id may be any string that the user chose.
std::string FolderName(const std::string& run_id) {
  std::string name = run_id.substr(0, 100);
  for (char& letter : name) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '_' || letter == '.';
    if (!plain) letter = '_';
  }
  return name.empty() || name[0] == '.' ? "_" + name : name;
}

}  // namespace

std::string DescribeCard(const PlannedRank& rank) {
  if (!rank.card) return "the host's processors";
  const auto& identity = rank.card->serial ? rank.card->serial : rank.card->uuid;
  return fmt::format("{}{}{}", device::NameOf(*rank.card), identity ? fmt::format(" (serial {})", *identity) : "",
                     rank.card->simulated ? " simulated" : "");
}

std::vector<std::string> DescribePlacement(const RunPlan& plan) {
  std::vector<std::string> lines;
  for (const PlannedRank& rank : plan.ranks) {
    lines.push_back(
        fmt::format("local rank {}: {}, {}, {} thread{}", rank.placement.rank, DescribeCard(rank),
                    rank.bound_to.empty() ? "any processor" : "processors " + device::FormatCpuList(rank.bound_to),
                    rank.placement.threads, rank.placement.threads == 1 ? "" : "s"));
  }
  return lines;
}

std::vector<std::string> DescribeEnvironment(const RunPlan& plan) {
  job::AttemptContext attempt;
  attempt.run_id = plan.run_id;
  attempt.role = plan.flags.role;
  attempt.max_restarts = plan.flags.max_restarts;
  attempt.local_world_size = static_cast<int>(plan.ranks.size());
  attempt.group_world_size = plan.flags.max_nodes;
  attempt.world_size = attempt.local_world_size * attempt.group_world_size;
  attempt.cpu_requested = plan.cpu_requested;
  attempt.virtual_local_rank = plan.flags.virtual_local_rank;
  attempt.share_cards = plan.flags.share_cards;
  attempt.torch_plugins = plan.flags.torch_plugins;
  attempt.adapter_variables = job::AdapterVariables(plan.flags);
  attempt.agent_library = plan.agent_library;
  attempt.python_hook = plan.python_hook;
  attempt.visible_devices = plan.visible_devices;
  job::RankContext rank;
  rank.threads = plan.ranks.front().placement.threads;
  rank.card = plan.ranks.front().card ? &*plan.ranks.front().card : nullptr;
  std::vector<std::string> shown;
  for (const std::string& variable : job::RankEnvironment(plan.environment, attempt, rank)) {
    const std::string name = variable.substr(0, variable.find('='));
    const bool later = name == "MASTER_ADDR" || name == "MASTER_PORT" || name == wire::kRunDirVariable;
    const bool callers = plan.environment.Get(name) == variable.substr(name.size() + 1);
    if (!later && !callers) shown.push_back(base::Printable(variable));
  }
  return shown;
}

base::Result<std::unique_ptr<RunPlan>> MakeRunPlan(const job::LaunchFlags& flags, const base::Environment& environment,
                                                   const std::optional<job::ClusterPlace>& cluster,
                                                   ExitCode* code_of_refusal) {
  auto plan = std::make_unique<RunPlan>();
  plan->flags = flags;
  plan->environment = environment;
  plan->run_id = flags.rdzv_id.value_or(NewRunId());
  plan->host_name = base::HostName();
  if (plan->host_name.empty()) plan->host_name = "localhost";
  plan->user = UserName();
  plan->collectives_key = CollectivesKey(*plan);

  *code_of_refusal = ExitCode::kCannotStart;
  const std::string executable_path = base::ExecutablePath();
  auto program = ResolveProgram(flags, environment, executable_path.substr(0, executable_path.rfind('/')));
  if (!program) return program.error();
  plan->program = std::move(*program);

  const auto cards = PlanCards(*plan, cluster, code_of_refusal);
  if (!cards) return cards.error();

  *code_of_refusal = ExitCode::kCannotStart;
  const auto limit = RaiseDescriptorLimit(static_cast<int>(plan->ranks.size()));
  if (!limit) return limit.error();
  ChooseAgent(*plan);
  if (flags.master_port && *flags.master_port != 0) {
    *code_of_refusal = ExitCode::kPortTaken;
    auto port = net::MasterPort::Named(*flags.master_port);
    if (!port) return port.error();
    plan->named_port = std::move(*port);
  }
  if (!flags.dry_run) {
    *code_of_refusal = ExitCode::kCannotStart;
    const bool several = flags.max_nodes > 1;
    auto directory =
        MakeRunDirectory(*plan, FolderName(plan->run_id) + (several ? "." + FolderName(plan->host_name) : ""));
    if (!directory) return directory.error();
    plan->directory = std::move(*directory);
  }
  return plan;
}

}  // namespace fulldeck::launcher
