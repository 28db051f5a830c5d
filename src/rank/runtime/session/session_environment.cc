#include "runtime/session/session_environment.h"

#include "base/text.h"
#include "fulldeck/error.h"
#include "wire/variables.h"

namespace fulldeck::runtime {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr std::size_t kMaxShown = 80;

std::string Shown(const std::string& name, const std::string& value) {
  const std::string text = base::Printable(value.substr(0, kMaxShown));
  return name + " is \"" + text + (value.size() > kMaxShown ? "…" : "") + "\"";
}

std::optional<int> Number(const base::Environment& variables, const std::string& name, int smallest, int largest) {
  const auto value = variables.Get(name);
  if (!value) return std::nullopt;
  const auto number = base::ParseInteger<int>(*value);
  if (!number || *number < smallest || *number > largest) {
    throw Error(Shown(name, *value) + ", and must be a whole number from " + std::to_string(smallest) + " to " +
                std::to_string(largest) +
                ". It is the launcher's to set: start the program with fulldeck run, or "
                "unset it.");
  }
  return number;
}

bool Flag(const base::Environment& variables, const std::string& name) {
  const auto value = variables.Get(name);
  if (!value || value->empty() || *value == "0") return false;
  if (*value == "1") return true;
  throw Error(Shown(name, *value) + ", and must be 0 or 1.");
}

}  // namespace

bool LaunchFacts::one_node() const {
  if (local_world_size) return *local_world_size == world_size;
  return world_size == 1 || master_address == "localhost" || master_address == "::1" ||
         master_address.rfind("127.", 0) == 0;
}

LaunchFacts ReadLaunchFacts(const base::Environment& variables) {
  LaunchFacts facts;
  facts.world_size = Number(variables, "WORLD_SIZE", 1, kMaxRanks).value_or(1);
  const auto rank = Number(variables, "RANK", 0, kMaxRanks - 1);
  if (!rank && facts.world_size > 1) {
    throw Error("WORLD_SIZE is " + std::to_string(facts.world_size) +
                " and RANK is not set: every process would be rank 0. Start the program with fulldeck run, or set "
                "both.");
  }
  facts.rank = rank.value_or(0);
  if (facts.rank >= facts.world_size) {
    throw Error("RANK is " + std::to_string(facts.rank) + ", and must be less than WORLD_SIZE, which is " +
                std::to_string(facts.world_size) + (variables.Get("WORLD_SIZE") ? "." : " because it is not set."));
  }
  facts.local_rank = Number(variables, "LOCAL_RANK", 0, kMaxRanks - 1).value_or(0);
  facts.local_world_size = Number(variables, "LOCAL_WORLD_SIZE", 1, kMaxRanks);
  if (!facts.local_world_size && facts.world_size == 1) facts.local_world_size = 1;
  if (facts.local_world_size) {
    if (*facts.local_world_size > facts.world_size) {
      throw Error("LOCAL_WORLD_SIZE is " + std::to_string(*facts.local_world_size) +
                  ", and must not be more than WORLD_SIZE, which is " + std::to_string(facts.world_size) + ".");
    }
    if (facts.local_rank >= *facts.local_world_size) {
      throw Error("LOCAL_RANK is " + std::to_string(facts.local_rank) +
                  ", and must be less than LOCAL_WORLD_SIZE, which is " + std::to_string(*facts.local_world_size) +
                  ".");
    }
  }
  if (const auto address = variables.Get("MASTER_ADDR")) {
    if (address->empty() || address->size() > 255 || base::Printable(*address) != *address ||
        address->find_first_of(" /") != std::string::npos) {
      throw Error(Shown("MASTER_ADDR", *address) + ", and must be the address or the name of the host of rank 0.");
    }
    facts.master_address = *address;
  }
  facts.master_port = static_cast<std::uint16_t>(Number(variables, "MASTER_PORT", 1, 65535).value_or(29500));
  facts.store_is_launchers = variables.Get("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto attempt = Number(variables, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30)) {
    facts.attempt = std::to_string(*attempt);
  }

  facts.device = variables.Get(wire::kDeviceVariable).value_or("");
  facts.card_serial = variables.Get(wire::kCardSerialVariable).value_or("");
  facts.backend = variables.Get(wire::kBackendVariable).value_or("");
  facts.share_cards = Flag(variables, wire::kShareCardsVariable);
  if (const auto plugins = variables.Get(wire::kTorchPluginVariable)) {
    for (const std::string_view path : base::Split(*plugins, ':')) {
      if (!path.empty()) facts.torch_plugins.emplace_back(path);
    }
  }
  facts.simulated = !variables.Get(wire::kSimulateVariable).value_or("").empty();
  // A list ("4,2") is for nested regions; use the first value. A value that OpenMP itself would reject is not reported
  // here.
  if (const auto threads = variables.Get("OMP_NUM_THREADS")) {
    const auto number = base::ParseInteger<int>(base::Trim(base::Split(*threads, ',').front()));
    if (number && *number > 0 && *number <= 4096) facts.threads = number;
  }
  return facts;
}

}  // namespace fulldeck::runtime
