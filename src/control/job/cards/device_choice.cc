#include "job/cards/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "device/vendor_traits.h"

namespace fulldeck::job {
namespace {

// No machine has more, and a range such as 0-999999999 must not exhaust the memory.
constexpr int kMaxIndex = 1023;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  return lower;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

base::Result<void> AddIndices(std::string_view part, std::vector<int>& indices) {
  const auto dash = part.find('-');
  const auto first = base::ParseInteger<int>(base::Trim(part.substr(0, dash)));
  const auto last = dash == std::string_view::npos ? first : base::ParseInteger<int>(base::Trim(part.substr(dash + 1)));
  if (!first || !last || *first < 0 || *last < *first || *last > kMaxIndex) {
    return base::Error{fmt::format("'{}' is not the number of a card, or a range of them such as 0-3",
                                   base::Printable(part.substr(0, 40)))};
  }
  for (int index = *first; index <= *last; ++index) {
    if (std::find(indices.begin(), indices.end(), index) != indices.end()) {
      return base::Error{
          fmt::format("card {} comes twice: list it once, and let ranks share it with --share-cards", index)};
    }
    indices.push_back(index);
  }
  return {};
}

base::Result<void> ReadNumbers(std::string_view text, DeviceChoice& choice) {
  if (IsNumber(text)) {
    const auto count = base::ParseInteger<int>(text);
    if (!count || *count > kMaxIndex + 1)
      return base::Error{fmt::format("no host has more than {} cards", kMaxIndex + 1)};
    if (*count == 0) {
      return base::Error{"a single number is how many cards to use; card 0 alone is `0,`, and no card at all is `cpu`"};
    }
    choice.count = count;
    return {};
  }
  std::vector<std::string_view> parts = base::Split(text, ',');
  // `3,` is a list of one.
  if (parts.size() > 1 && base::Trim(parts.back()).empty()) parts.pop_back();
  for (const std::string_view part : parts) {
    const auto added = AddIndices(base::Trim(part), choice.indices);
    if (!added) return added.error();
  }
  return {};
}

}  // namespace

const std::vector<std::string>& DeviceKinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names = {"gpu", "xla", "hip"};
    for (const device::VendorTraits& traits : device::AllVendorTraits()) {
      for (const char* name : {traits.kind, traits.name}) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
      }
    }
    return names;
  }();
  return kinds;
}

std::optional<std::string> WhatIsWrongWithKind(std::string_view kind) {
  const std::vector<std::string>& kinds = DeviceKinds();
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return std::nullopt;
  std::vector<std::string> words = kinds;
  words.insert(words.begin(), {"auto", "cpu"});
  const auto near = base::ClosestMatch(kind, words);
  return fmt::format("there is no kind '{}'{}. Kinds: {}", base::Printable(kind.substr(0, 40)),
                     near ? "; did you mean " + *near + "?" : "", base::Join(words, ", "));
}

base::Result<DeviceChoice> ParseDeviceChoice(std::string_view text) {
  const std::string lower = Lower(base::Trim(text));
  DeviceChoice choice;
  if (lower.empty())
    return base::Error{"it must be auto, cpu, a kind such as gcu, a number of cards, or a list such as 0,2,3"};
  if (lower == "auto") return choice;
  if (lower == "cpu") {
    choice.cpu = true;
    return choice;
  }
  std::string_view rest = lower;
  if (const auto colon = lower.find(':'); colon != std::string::npos || (lower[0] >= 'a' && lower[0] <= 'z')) {
    choice.kind = lower.substr(0, colon);
    if (const auto wrong = WhatIsWrongWithKind(*choice.kind)) return base::Error{*wrong};
    if (colon == std::string::npos) return choice;
    rest.remove_prefix(colon + 1);
  }
  const auto numbers = ReadNumbers(rest, choice);
  if (!numbers) return numbers.error();
  return choice;
}

}  // namespace fulldeck::job
