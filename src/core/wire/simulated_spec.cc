#include "wire/simulated_spec.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "wire/variables.h"

namespace fulldeck::wire {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr double kMaxSlowFactor = 1000;

struct FaultOption {
  const char* name;
  std::uint32_t bit;
};
constexpr FaultOption kFaultOptions[] = {{"idle", kFaultIdle},   {"slow", kFaultSlow}, {"broken", kFaultBroken},
                                         {"lying", kFaultLying}, {"hung", kFaultHung}, {"dropped", kFaultDropped}};

std::string RightForms() {
  std::string kinds;
  for (const SimulatedKind& kind : SimulatedKinds()) kinds += (kinds.empty() ? "" : ", ") + std::string(kind.name);
  return "Right forms: KIND:COUNT[,OPTION=VALUE...], e.g. gcu:8 or npu:4,memory=64MiB,idle=3,slow=1+2:2.5. Kinds: " +
         kinds + ". Count: 1 to " + std::to_string(kMaxSimulatedCards) +
         ". Options: memory=SIZE, slow=CARDS:FACTOR, and idle, broken, lying, hung, dropped=CARDS, where CARDS is 3 or "
         "1+3 or 0-3.";
}

base::Error Wrong(std::string_view text, std::string_view part, std::string_view why) {
  return base::Error{std::string(kSimulateVariable) + "='" + base::Printable(text) + "': '" + base::Printable(part) +
                     "' " + std::string(why) + (why.ends_with("?") ? " " : ". ") + RightForms()};
}

// "3", "1+3", "0-3+6": card numbers below `count`.
std::optional<std::vector<int>> ParseCards(std::string_view text, int count) {
  std::vector<int> cards;
  for (const std::string_view part : base::Split(text, '+')) {
    const auto ends = base::Split(part, '-');
    if (ends.size() > 2) return std::nullopt;
    const auto first = base::ParseInteger<int>(ends.front());
    const auto last = base::ParseInteger<int>(ends.back());
    if (!first || !last || *first < 0 || *first > *last || *last >= count) return std::nullopt;
    for (int card = *first; card <= *last; ++card) cards.push_back(card);
  }
  return cards;
}

std::optional<std::string> ApplyFault(const FaultOption& option, std::string_view value, SimulatedSpec& spec) {
  double factor = 1;
  if (option.bit == kFaultSlow) {
    const auto colon = value.find(':');
    const auto parsed = colon == std::string_view::npos ? std::nullopt : base::ParseDecimal(value.substr(colon + 1));
    if (!parsed || *parsed < 1 || *parsed > kMaxSlowFactor) return "needs a factor from 1 to 1000, as in slow=2:1.5";
    factor = *parsed;
    value = value.substr(0, colon);
  }
  const int count = static_cast<int>(spec.cards.size());
  const auto cards = ParseCards(value, count);
  if (!cards) return "does not name cards from 0 to " + std::to_string(count - 1);
  for (const int card : *cards) {
    SimulatedCardSpec& target = spec.cards[static_cast<std::size_t>(card)];
    target.faults |= option.bit;
    if (option.bit == kFaultSlow) target.slow_factor = factor;
  }
  return std::nullopt;
}

}  // namespace

std::span<const SimulatedKind> SimulatedKinds() {
  static constexpr SimulatedKind kKinds[] = {
      {"gcu", "enflame", "S60", 48 * kGiB, true, {"TOPS_VISIBLE_DEVICES", ""}},
      {"xla", "enflame", "T20", 32 * kGiB, true, {"TOPS_VISIBLE_DEVICES", ""}},
      {"npu", "ascend", "910B", 64 * kGiB, true, {"ASCEND_RT_VISIBLE_DEVICES", ""}},
      {"mlu", "cambricon", "MLU590", 80 * kGiB, true, {"MLU_VISIBLE_DEVICES", ""}},
      {"musa", "moorethreads", "S4000", 48 * kGiB, true, {"MUSA_VISIBLE_DEVICES", ""}},
      {"sdaa", "tecorigin", "T100", 64 * kGiB, true, {"SDAA_VISIBLE_DEVICES", ""}},
      {"hpu", "habana", "Gaudi 2", 96 * kGiB, true, {"HABANA_VISIBLE_MODULES", ""}},
      {"cuda", "nvidia", "H100", 80 * kGiB, false, {"CUDA_VISIBLE_DEVICES", ""}},
      {"hip", "amd", "MI250", 64 * kGiB, false, {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}},
      {"xpu", "intel", "Max 1550", 128 * kGiB, false, {"ZE_AFFINITY_MASK", ""}},
  };
  return kKinds;
}

base::Result<SimulatedSpec> ParseSimulatedSpec(std::string_view text) {
  const auto parts = base::Split(text, ',');
  const std::string_view head = parts.front();
  const auto colon = head.find(':');
  const std::string_view kind_name = head.substr(0, colon);

  SimulatedSpec spec;
  std::vector<std::string> kind_names;
  for (const SimulatedKind& kind : SimulatedKinds()) {
    kind_names.emplace_back(kind.name);
    if (kind.name == kind_name) spec.kind = &kind;
  }
  if (spec.kind == nullptr) {
    const auto near = base::ClosestMatch(kind_name, kind_names);
    return Wrong(text, kind_name,
                 near ? "is not a kind of card; did you mean " + *near + "?" : "is not a kind of card");
  }
  const std::string_view count_text = colon == std::string_view::npos ? std::string_view{} : head.substr(colon + 1);
  const auto count = base::ParseInteger<int>(count_text);
  if (!count || *count < 1 || *count > kMaxSimulatedCards) return Wrong(text, head, "needs a number of cards");
  spec.cards.resize(static_cast<std::size_t>(*count));
  spec.memory_bytes = spec.kind->memory_bytes;

  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    const std::string_view name = parts[i].substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : parts[i].substr(equals + 1);
    std::vector<std::string> names = {"memory"};
    const FaultOption* fault = nullptr;
    for (const FaultOption& option : kFaultOptions) {
      names.emplace_back(option.name);
      if (name == option.name) fault = &option;
    }
    if (name == "memory") {
      const auto bytes = base::ParseByteSize(value);
      if (!bytes || *bytes == 0) return Wrong(text, parts[i], "is not a size such as 64MiB or 32GiB");
      spec.memory_bytes = *bytes;
    } else if (fault != nullptr) {
      if (const auto why = ApplyFault(*fault, value, spec)) return Wrong(text, parts[i], *why);
    } else {
      const auto near = base::ClosestMatch(name, names);
      return Wrong(text, parts[i], near ? "is not an option; did you mean " + *near + "?" : "is not an option");
    }
  }
  return spec;
}

base::Result<std::vector<int>> VisibleSimulatedCards(const SimulatedSpec& spec, const base::Environment& environment) {
  const int count = static_cast<int>(spec.cards.size());
  std::vector<int> visible;
  for (const std::string variable : spec.kind->visibility) {
    const auto value = variable.empty() ? std::nullopt : environment.Get(variable);
    if (!value) continue;
    if (base::Trim(*value).empty()) return visible;
    for (const std::string_view part : base::Split(*value, ',')) {
      const std::string_view entry = base::Trim(part);
      if (entry == "-1") return visible;
      const auto number = base::ParseInteger<int>(entry);
      const bool is_card = number && *number >= 0 && *number < count;
      if (!is_card || std::find(visible.begin(), visible.end(), *number) != visible.end()) {
        return base::Error{variable + "='" + base::Printable(*value) + "': '" + base::Printable(entry) + "' " +
                           (is_card ? "comes twice" : "names no simulated card") + ". Right form: numbers from 0 to " +
                           std::to_string(count - 1) + ", each once, with commas."};
      }
      visible.push_back(*number);
    }
    return visible;
  }
  for (int card = 0; card < count; ++card) visible.push_back(card);
  return visible;
}

}  // namespace fulldeck::wire
