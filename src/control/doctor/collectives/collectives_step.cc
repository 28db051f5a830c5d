#include "doctor/collectives/collectives_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "fulldeck/collectives.h"

namespace fulldeck::doctor {
namespace {

using Json = nlohmann::ordered_json;
using bench::Element;
using bench::FindOperation;

constexpr std::size_t kLongestText = 4000;
// The values shift by this many elements per call. It is coprime to the period.
constexpr std::uint64_t kShift = 1009;
constexpr std::uint64_t kMaxValues = 13;
constexpr std::uint64_t kSmallCount = 4099;
constexpr std::uint64_t kWraps = std::numeric_limits<std::uint64_t>::max();

constexpr Element kOthers[] = {
    {"bool", FULLDECK_BOOL, 1, kWraps},
    {"uint16", FULLDECK_UINT16, 2, kWraps},
    {"uint32", FULLDECK_UINT32, 4, kWraps},
    {"uint64", FULLDECK_UINT64, 8, kWraps},
};
constexpr std::array<std::string_view, 8> kReductions = {"sum", "avg", "min", "max", "prod", "and", "or", "xor"};

bool IsFloat(const Element& element) {
  return element.exact_to != kWraps;
}

bool Fits(const Element& element, std::string_view reduction, int ranks) {
  const bool is_bool = element.datatype == FULLDECK_BOOL;
  if (reduction == "and" || reduction == "or") return !IsFloat(element);
  if (reduction == "xor") return !IsFloat(element) && !is_bool;
  // Sums must not wrap around before the division, and the results must be exact.
  if (reduction == "avg")
    return !is_bool && element.bytes >= 2 &&
           4 + 2 * static_cast<std::uint64_t>(ranks) <= std::min<std::uint64_t>(element.exact_to, 120);
  return true;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string TextIn(const Json& json) {
  return base::Printable(json.get_ref<const std::string&>().substr(0, kLongestText));
}

}  // namespace

const Element* FindProofElement(std::string_view name) {
  if (const Element* found = bench::FindElement(name)) return found;
  const auto* found =
      std::find_if(std::begin(kOthers), std::end(kOthers), [&](const Element& one) { return name == one.name; });
  return found != std::end(kOthers) ? found : nullptr;
}

std::vector<Step> StepsOf(const ProofShape& shape) {
  std::vector<Step> steps;
  const auto add = [&](const char* operation, const Element& element, std::string_view reduction, int root,
                       std::uint64_t count, int calls, bool sized) {
    Step step;
    step.number = static_cast<int>(steps.size()) + 1;
    step.operation = FindOperation(operation);
    step.element = &element;
    step.reduction = reduction;
    step.root = root;
    step.count = count;
    step.calls = calls;
    step.sized = sized;
    steps.push_back(step);
  };
  const Element& plain = *bench::FindElement("float32");
  add("barrier", plain, "sum", 0, 0, 20, true);

  std::vector<const Element*> elements;
  for (const std::string& name : bench::ElementNames()) elements.push_back(bench::FindElement(name));
  if (shape.all_types) {
    for (const Element& element : kOthers) elements.push_back(&element);
  }
  for (const Element* element : elements) {
    for (const std::string_view reduction : kReductions) {
      const bool once = reduction == "sum" || element == &plain ||
                        (element->datatype == FULLDECK_INT32 && !Fits(plain, reduction, shape.ranks));
      if (Fits(*element, reduction, shape.ranks) && (shape.all_types || once))
        add("all_reduce", *element, reduction, 0, kSmallCount, 2, false);
    }
  }
  for (const char* operation : {"broadcast", "reduce", "gather", "scatter"}) {
    for (int root = 0; root < shape.ranks; ++root) add(operation, plain, "sum", root, kSmallCount, 2, false);
  }
  for (const char* type : {"float32", "uint8"}) {
    for (const char* operation : {"all_gather", "reduce_scatter", "all_to_all"})
      add(operation, *FindProofElement(type), "sum", 0, kSmallCount, 2, false);
  }
  for (const std::uint64_t bytes : shape.sizes) {
    for (const char* name :
         {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"}) {
      const std::uint64_t all = std::max<std::uint64_t>(1, bytes / plain.bytes);
      const auto chunks = static_cast<std::uint64_t>(shape.ranks);
      // Many short calls are as informative as a few long ones.
      add(name, plain, "sum", 0, FindOperation(name)->in_chunks ? (all + chunks - 1) / chunks : all,
          bytes > (1 << 20) ? 3 : 12, true);
    }
  }
  return steps;
}

Step PairStep(int number, int from, int to, std::uint64_t bytes, int calls) {
  Step step;
  step.number = number;
  step.operation = FindOperation("send_receive");
  step.element = bench::FindElement("float32");
  step.from = from;
  step.to = to;
  step.count = std::max<std::uint64_t>(1, bytes / step.element->bytes);
  step.calls = calls;
  step.sized = true;
  return step;
}

std::string Describe(const Step& step) {
  if (step.from >= 0)
    return fmt::format("send and receive between ranks {} and {} ({} × {})", step.from, step.to, step.element->name,
                       step.count);
  if (!step.operation->has_size) return fmt::format("{}()", step.operation->name);
  return fmt::format("{}({}{} × {}{})", step.operation->name, step.operation->reduces ? step.reduction + ", " : "",
                     step.element->name, step.count,
                     step.operation->has_root ? fmt::format(", root {}", step.root) : "");
}

std::string LineOf(const Step& step) {
  return Dump({{"do", "prove"},
               {"number", step.number},
               {"operation", step.operation->name},
               {"datatype", step.element->name},
               {"reduction", step.reduction},
               {"root", step.root},
               {"from", step.from},
               {"to", step.to},
               {"count", step.count},
               {"calls", step.calls},
               {"sized", step.sized}});
}

base::Result<Step> ReadStep(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  const base::Error error{"an order of the doctor cannot be understood: " + base::Printable(line.substr(0, 80))};
  for (const char* name : {"number", "root", "from", "to", "count", "calls"}) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) return error;
  }
  for (const char* name : {"operation", "datatype", "reduction"}) {
    if (!json.contains(name) || !json[name].is_string()) return error;
  }
  Step step;
  step.number = json["number"].get<int>();
  step.operation = FindOperation(json["operation"].get_ref<const std::string&>());
  step.element = FindProofElement(json["datatype"].get_ref<const std::string&>());
  step.reduction = json["reduction"].get<std::string>();
  step.root = json["root"].get<int>();
  step.from = json["from"].get<int>();
  step.to = json["to"].get<int>();
  step.count = json["count"].get<std::uint64_t>();
  step.calls = json["calls"].get<int>();
  step.sized = json.contains("sized") && json["sized"].is_boolean() && json["sized"].get<bool>();
  const bool known = std::find(kReductions.begin(), kReductions.end(), step.reduction) != kReductions.end();
  if (step.operation == nullptr || step.element == nullptr || !known) return error;
  return step;
}

std::string LineOf(const StepAnswer& answer) {
  Json json = {{"times_ns", answer.times_ns}, {"checked", answer.checked}};
  if (answer.wrong) {
    json["wrong"] = {{"element", answer.wrong->element},
                     {"found", answer.wrong->found},
                     {"expected", answer.wrong->expected},
                     {"part_of", answer.wrong->source_rank}};
  }
  if (answer.cannot) json["cannot"] = *answer.cannot;
  if (answer.failed) json["failed"] = *answer.failed;
  return Dump(json);
}

base::Result<StepAnswer> ReadStepAnswer(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  const base::Error error{"what a rank said cannot be understood: " + base::Printable(line.substr(0, 80))};
  if (!json.is_object()) return error;
  StepAnswer answer;
  if (const auto times = json.find("times_ns"); times != json.end()) {
    if (!times->is_array()) return error;
    for (const Json& time : *times) {
      if (!time.is_number_unsigned()) return error;
      answer.times_ns.push_back(time.get<std::uint64_t>());
    }
  }
  if (const auto checked = json.find("checked"); checked != json.end() && checked->is_number_unsigned())
    answer.checked = checked->get<std::uint64_t>();
  if (const auto wrong = json.find("wrong"); wrong != json.end()) {
    if (!wrong->is_object()) return error;
    // NaN and infinity are transmitted as null.
    const auto number = [&](const char* name) {
      return wrong->contains(name) && (*wrong)[name].is_number() ? (*wrong)[name].get<double>()
                                                                 : std::numeric_limits<double>::quiet_NaN();
    };
    const auto whole = [&](const char* name) {
      return wrong->contains(name) && (*wrong)[name].is_number_integer() ? (*wrong)[name].get<std::int64_t>() : -1;
    };
    answer.wrong = {static_cast<std::uint64_t>(std::max<std::int64_t>(0, whole("element"))), number("found"),
                    number("expected"), static_cast<int>(whole("part_of"))};
  }
  for (auto [name, field] : {std::pair("cannot", &answer.cannot), std::pair("failed", &answer.failed)}) {
    const auto found = json.find(name);
    if (found == json.end()) continue;
    if (!found->is_string()) return error;
    *field = TextIn(*found);
  }
  return answer;
}

// ---- values ----

StepValues::StepValues(const Step& step, int ranks)
    : step_(step),
      ranks_(ranks),
      values_(step.element->datatype == FULLDECK_BOOL
                  ? 2
                  : std::min(kMaxValues - 1, step.element->exact_to / static_cast<std::uint64_t>(ranks)) + 1),
      tables_(static_cast<std::size_t>(ranks) + 1) {}

std::uint64_t StepValues::ValueOf(int rank, std::uint64_t index) const {
  const auto place = static_cast<std::uint64_t>(rank);
  const auto ranks = static_cast<std::uint64_t>(ranks_);
  if (step_.operation->reduces && step_.element->datatype != FULLDECK_BOOL) {
    if (step_.reduction == "prod") return (index + place) % ranks < 3 ? 2 : 1;
    if (step_.reduction == "avg") return index % 5 + 2 * ((index + place) % ranks);
  }
  const std::uint64_t mixed = index * 2654435761 + place * 40503 + 12345;
  return (mixed & 0xffffffff) / 128 % values_;
}

std::uint64_t StepValues::ReducedOf(std::uint64_t index) const {
  std::uint64_t result = ValueOf(0, index);
  const std::string& how = step_.reduction;
  const bool is_bool = step_.element->datatype == FULLDECK_BOOL;
  for (int rank = 1; rank < ranks_; ++rank) {
    const std::uint64_t value = ValueOf(rank, index);
    if (how == "or" || (is_bool && (how == "sum" || how == "max"))) {
      result |= value;
    } else if (how == "and" || (is_bool && (how == "prod" || how == "min"))) {
      result &= value;
    } else if (how == "xor") {
      result ^= value;
    } else if (how == "min") {
      result = std::min(result, value);
    } else if (how == "max") {
      result = std::max(result, value);
    } else if (how == "prod") {
      result *= value;
    } else {
      result += value;
    }
  }
  return how == "avg" ? result / static_cast<std::uint64_t>(ranks_) : result;
}

const std::byte* StepValues::From(int rank, std::uint64_t first, int call) {
  std::vector<std::byte>& table = tables_[static_cast<std::size_t>(rank) + 1];
  const std::uint64_t width = step_.element->bytes;
  if (table.empty()) {
    // Two periods, so that a complete one can be copied from any position in the first.
    table.resize(2 * kPeriod * width);
    for (std::uint64_t i = 0; i < 2 * kPeriod; ++i) {
      Encode(*step_.element, rank == kReduced ? ReducedOf(i % kPeriod) : ValueOf(rank, i % kPeriod),
             table.data() + i * width);
    }
  }
  return table.data() + (first + static_cast<std::uint64_t>(call) * kShift) % kPeriod * width;
}

void StepValues::Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, int call) {
  const std::byte* from = From(rank, first, call);
  const std::uint64_t width = step_.element->bytes;
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    std::memcpy(to + done * width, from, std::min(kPeriod, count - done) * width);
  }
}

std::optional<StepAnswer::Wrong> StepValues::Check(const std::byte* data, std::uint64_t count, int rank,
                                                   std::uint64_t first, int call) {
  const std::byte* expected = From(rank, first, call);
  const std::uint64_t width = step_.element->bytes;
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    const std::uint64_t here = std::min(kPeriod, count - done);
    const std::byte* found = data + done * width;
    if (std::memcmp(found, expected, here * width) == 0) continue;
    for (std::uint64_t i = 0; i < here; ++i) {
      if (std::memcmp(found + i * width, expected + i * width, width) == 0) continue;
      return StepAnswer::Wrong{done + i, Decode(*step_.element, found + i * width),
                               Decode(*step_.element, expected + i * width), rank};
    }
  }
  return std::nullopt;
}

}  // namespace fulldeck::doctor
