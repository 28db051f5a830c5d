#include "job/launch/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "device/vendor_traits.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

// The number that torch gives the card: 3 of "cuda:3".
std::optional<std::size_t> TorchNumber(const device::Card& card) {
  if (!card.torch_device) return std::nullopt;
  const auto colon = card.torch_device->rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  return base::ParseInteger<std::size_t>(std::string_view(*card.torch_device).substr(colon + 1));
}

struct ListInForce {
  std::string variable;
  std::optional<std::string> value;  // absent: all cards are visible
};

// nullopt if the vendor has no such variable.
std::optional<ListInForce> FindList(const base::Environment& callers, const device::Card& card) {
  const device::VendorTraits* traits = device::FindVendorTraits(card.vendor);
  if (traits == nullptr || traits->visibility_variable[0] == '\0') return std::nullopt;
  for (const std::string variable : {traits->visibility_variable, traits->second_visibility_variable}) {
    if (variable.empty()) continue;
    if (auto value = callers.Get(variable)) return ListInForce{variable, std::move(value)};
  }
  return ListInForce{traits->visibility_variable, std::nullopt};
}

// How a list names the card: the entry of the list in force that made it visible, otherwise the vendor's number.
std::string EntryFor(const device::Card& card, const std::optional<std::string>& list) {
  const auto number = TorchNumber(card);
  if (list && number) {
    const auto entries = base::Split(*list, ',');
    if (*number < entries.size()) return std::string(base::Trim(entries[*number]));
  }
  return std::to_string(card.index);
}

void SetUnlessThere(base::Environment& environment, const char* name, std::string value) {
  if (!environment.Get(name)) environment.Set(name, std::move(value));
}

void SetOrRemove(base::Environment& environment, const char* name, const std::optional<std::string>& value) {
  if (value) {
    environment.Set(name, *value);
  } else {
    environment.Remove(name);
  }
}

void SetTorchVariables(base::Environment& environment, const AttemptContext& attempt, const RankContext& rank) {
  const auto set = [&](const char* name, int value) { environment.Set(name, std::to_string(value)); };
  const int global_rank = attempt.first_rank + rank.local_rank;
  set("RANK", global_rank);
  set("WORLD_SIZE", attempt.world_size);
  set("LOCAL_RANK", attempt.virtual_local_rank ? 0 : rank.local_rank);
  set("LOCAL_WORLD_SIZE", attempt.local_world_size);
  set("GROUP_RANK", attempt.group_rank);
  set("GROUP_WORLD_SIZE", attempt.group_world_size);
  environment.Set("ROLE_NAME", attempt.role);
  set("ROLE_RANK", global_rank);
  set("ROLE_WORLD_SIZE", attempt.world_size);
  environment.Set("MASTER_ADDR", attempt.master_addr);
  set("MASTER_PORT", attempt.master_port);
  set("TORCHELASTIC_RESTART_COUNT", attempt.attempt);
  set("TORCHELASTIC_MAX_RESTARTS", attempt.max_restarts);
  environment.Set("TORCHELASTIC_RUN_ID", attempt.run_id);
  // Rank 0 hosts the store itself, so that all versions of torch and programs in C++ agree.
  environment.Set("TORCHELASTIC_USE_AGENT_STORE", "False");
  SetOrRemove(environment, "TORCHELASTIC_ERROR_FILE",
              rank.error_file.empty() ? std::nullopt : std::optional(rank.error_file));
  SetUnlessThere(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  SetUnlessThere(environment, "OMP_NUM_THREADS", std::to_string(rank.threads));
  // The caller asks for more threads than the rank's share of the cores. Waiting threads must not spin, because they
  // would keep the threads that they wait for from running.
  const auto threads = base::ParseInteger<int>(environment.Get("OMP_NUM_THREADS").value_or(""));
  if (threads && *threads > rank.threads && !environment.Get("GOMP_SPINCOUNT") && !environment.Get("KMP_BLOCKTIME")) {
    SetUnlessThere(environment, "OMP_WAIT_POLICY", "passive");
  }
  // Without it, Accelerate makes every CPU rank a separate rank 0.
  if (attempt.cpu_requested) SetUnlessThere(environment, "ACCELERATE_USE_CPU", "true");
}

void SetCardVariables(base::Environment& environment, const base::Environment& callers, const AttemptContext& attempt,
                      const RankContext& rank) {
  if (attempt.visible_devices) environment.Set(attempt.visible_devices->first, attempt.visible_devices->second);
  if (rank.card == nullptr) return;
  const device::Card& card = *rank.card;
  bool narrowed = attempt.visible_devices.has_value();
  if (attempt.virtual_local_rank) {
    if (auto list = FindList(callers, card)) {
      if (attempt.visible_devices) list = ListInForce{attempt.visible_devices->first, attempt.visible_devices->second};
      environment.Set(list->variable, EntryFor(card, list->value));
      narrowed = true;
    }
  }
  if (card.vendor == "enflame") {
    SetUnlessThere(environment, "ECCL_BACKEND", "eccl");
    SetUnlessThere(environment, "ECCL_DEVICE_TYPE", "gcu");
  }
  // fulldeck numbers cards by PCI bus; CUDA by default puts the fastest card first. A list that the caller wrote uses
  // the caller's order.
  const bool is_ours = narrowed && !callers.Get("CUDA_VISIBLE_DEVICES");
  if (is_ours && card.vendor == "nvidia") SetUnlessThere(environment, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

// A list that hides all cards: CUDA stops at the first number that does not exist. It has an entry for each rank,
// because some programs read the entry of LOCAL_RANK if the adapters report that CUDA is available.
std::string ListOfNone(int ranks) {
  return base::Join(std::vector<std::string>(static_cast<std::size_t>(std::max(ranks, 1)), "-1"), ",");
}

void SetOurVariables(base::Environment& environment, const AttemptContext& attempt, const RankContext& rank) {
  const auto unless_empty = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
  };
  std::optional<std::string> device;
  std::optional<std::string> serial;
  if (rank.card != nullptr) {
    device = rank.card->torch_device;
    if (attempt.virtual_local_rank && rank.card->torch_type) device = *rank.card->torch_type + ":0";
    serial = rank.card->serial;
  }
  const bool has_board = attempt.board_fd >= 0;
  environment.Set(wire::kRunIdVariable, attempt.run_id);
  SetOrRemove(environment, wire::kRunDirVariable, unless_empty(attempt.run_dir));
  SetOrRemove(environment, wire::kBoardFdVariable,
              has_board ? std::optional(std::to_string(attempt.board_fd)) : std::nullopt);
  SetOrRemove(environment, wire::kBoardSlotVariable,
              has_board ? std::optional(std::to_string(rank.local_rank)) : std::nullopt);
  SetOrRemove(environment, wire::kCrashFileVariable, unless_empty(rank.crash_file));
  SetOrRemove(environment, wire::kStackFileVariable, unless_empty(rank.stack_file));
  SetOrRemove(environment, wire::kAgentVariable, attempt.agent_library);
  SetOrRemove(environment, wire::kCollectivesKeyVariable, unless_empty(attempt.collectives_key));
  SetOrRemove(environment, wire::kDeviceVariable, device);
  SetOrRemove(environment, wire::kCardSerialVariable, serial);
  SetOrRemove(environment, wire::kShareCardsVariable,
              attempt.share_cards ? std::optional<std::string>("1") : std::nullopt);
  if (!attempt.torch_plugins.empty()) {
    const auto callers = environment.Get(wire::kTorchPluginVariable);
    environment.Set(wire::kTorchPluginVariable,
                    attempt.torch_plugins + (callers && !callers->empty() ? ":" + std::string(*callers) : ""));
  }
  for (const auto& variable : attempt.adapter_variables) environment.Set(variable.first, variable.second);
  // Neither a program that was written for CUDA nor its children may find a real card of the machine instead of the
  // simulated one. Hide them even if the adapters are on: those are only in the rank's own Python.
  const bool is_simulated = rank.card != nullptr && rank.card->simulated && rank.card->kind != "cuda";
  if (is_simulated) environment.Set("CUDA_VISIBLE_DEVICES", ListOfNone(attempt.local_world_size));
  // The spawner sets it, because only the spawner knows the pid. Remove the one of an outer run's rank.
  environment.Remove(wire::kRankPidVariable);
}

// The user's libraries stay first: theirs may need to be first, fulldeck's need not.
std::string PreloadWith(const std::optional<std::string>& callers, const std::string& library) {
  if (!callers || callers->empty()) return library;
  for (const std::string_view part : base::Split(*callers, ':')) {
    for (const std::string_view entry : base::Split(part, ' ')) {
      if (entry == library) return *callers;
    }
  }
  return *callers + ":" + library;
}

std::string PythonPathWith(const std::string& folder, const std::optional<std::string>& callers) {
  if (!callers || callers->empty()) return folder;
  if (base::Split(*callers, ':').front() == folder) return *callers;
  return folder + ":" + *callers;
}

}  // namespace

std::vector<std::string> RankEnvironment(const base::Environment& callers, const AttemptContext& attempt,
                                         const RankContext& rank) {
  base::Environment environment = callers;
  SetTorchVariables(environment, attempt, rank);
  SetCardVariables(environment, callers, attempt, rank);
  SetOurVariables(environment, attempt, rank);
  // The launchers' secret. A rank does not need it, and passes its environment on to its children and logs.
  environment.Remove(wire::kTokenVariable);
  if (attempt.agent_library) {
    environment.Set("LD_PRELOAD", PreloadWith(callers.Get("LD_PRELOAD"), *attempt.agent_library));
  }
  if (attempt.python_hook) {
    environment.Set("PYTHONPATH", PythonPathWith(*attempt.python_hook, callers.Get("PYTHONPATH")));
  }
  std::vector<std::string> entries;
  entries.reserve(environment.all().size());
  for (const auto& variable : environment.all()) entries.push_back(variable.first + "=" + variable.second);
  return entries;
}

std::vector<std::pair<std::string, std::string>> AdapterVariables(const LaunchFlags& flags) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (!flags.adapt) variables.emplace_back(wire::kAdaptVariable, "0");
  if (!flags.probe) variables.emplace_back(wire::kProbeVariable, "0");
  if (flags.place) variables.emplace_back(wire::kPlaceVariable, "1");
  if (flags.trace_ddp) variables.emplace_back(wire::kTraceDdpVariable, "1");
  if (flags.timeout) {
    const std::chrono::duration<double> seconds = *flags.timeout;
    variables.emplace_back(wire::kTimeoutVariable, fmt::format("{:g}", seconds.count()));
  }
  if (!flags.accelerate_config.empty()) {
    variables.emplace_back(wire::kAccelerateConfigVariable, flags.accelerate_config);
  }
  if (!flags.mp_start_method.empty()) variables.emplace_back(wire::kMpStartMethodVariable, flags.mp_start_method);
  if (flags.opencv_threads) variables.emplace_back(wire::kOpencvThreadsVariable, std::to_string(*flags.opencv_threads));
  return variables;
}

std::optional<std::pair<std::string, std::string>> NarrowedVisibility(const base::Environment& callers,
                                                                      const std::vector<device::Card>& cards) {
  if (cards.empty()) return std::nullopt;
  const auto list = FindList(callers, cards.front());
  if (!list) return std::nullopt;
  bool is_so_already = true;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    // A card without a known torch name is identified by its index, as long as all cards are visible.
    const auto by_index = list->value ? std::nullopt : std::optional(static_cast<std::size_t>(cards[i].index));
    const auto number = TorchNumber(cards[i]);
    is_so_already = is_so_already && (number ? number : by_index) == i;
  }
  if (is_so_already) return std::nullopt;
  std::vector<std::string> entries;
  entries.reserve(cards.size());
  for (const device::Card& card : cards) entries.push_back(EntryFor(card, list->value));
  return std::pair(list->variable, base::Join(entries, ","));
}

}  // namespace fulldeck::job
