#include <fmt/format.h>

#include "base/text.h"
#include "job/launch/cluster.h"

namespace fulldeck::job {
namespace {

constexpr std::size_t kMaxNames = 65536;
constexpr std::size_t kMaxText = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 255;

base::Error BadList(std::string_view text) {
  return {fmt::format("'{}' is not a list of hosts such as host[0-1,4],login", base::Printable(text.substr(0, 80)))};
}

// "0-1,4" between the brackets as the strings 0 1 4, with leading zeros kept.
std::optional<std::vector<std::string>> ExpandNumbers(std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto dash = part.find('-');
    const std::string_view first_text = part.substr(0, dash);
    const std::string_view last_text = dash == std::string_view::npos ? first_text : part.substr(dash + 1);
    const auto first = base::ParseInteger<unsigned>(first_text);
    const auto last = base::ParseInteger<unsigned>(last_text);
    if (!first || !last || *last < *first || *last - *first >= kMaxNames || first_text.size() > 9) return std::nullopt;
    for (unsigned number = *first; number <= *last; ++number) {
      if (numbers.size() >= kMaxNames) return std::nullopt;
      numbers.push_back(fmt::format("{:0{}}", number, first_text.size()));
    }
  }
  return numbers;
}

// One item of the list with any number of brackets: "rack[0-1]n[0-3]".
std::optional<std::vector<std::string>> ExpandItem(std::string_view item) {
  std::vector<std::string> names = {""};
  while (!item.empty()) {
    const auto open = item.find('[');
    const std::string_view plain = item.substr(0, open);
    if (plain.find(']') != std::string_view::npos) return std::nullopt;
    for (std::string& name : names) name += plain;
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const auto numbers = ExpandNumbers(item.substr(open + 1, close - open - 1));
    if (!numbers || names.size() * numbers->size() > kMaxNames) return std::nullopt;
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : *numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kLongestName) return std::nullopt;
  }
  return names;
}

}  // namespace

base::Result<std::vector<std::string>> ExpandHostList(std::string_view text) {
  if (text.size() > kMaxText) return BadList(text);
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  bool in_brackets = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') in_brackets = true;
    if (i < text.size() && text[i] == ']') in_brackets = false;
    if (i < text.size() && (text[i] != ',' || in_brackets)) continue;
    const auto names = ExpandItem(text.substr(begin, i - begin));
    if (!names || names->empty() || names->front().empty() || hosts.size() + names->size() > kMaxNames) {
      return BadList(text);
    }
    hosts.insert(hosts.end(), names->begin(), names->end());
    begin = i + 1;
  }
  return hosts;
}

std::optional<int> TasksOfNode(std::string_view text, int position) {
  if (position < 0) return std::nullopt;
  long long passed = 0;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto times = part.find("(x");
    const auto tasks = base::ParseInteger<int>(part.substr(0, times));
    std::optional<int> nodes = 1;
    if (times != std::string_view::npos) {
      if (!part.ends_with(')')) return std::nullopt;
      nodes = base::ParseInteger<int>(part.substr(times + 2, part.size() - times - 3));
    }
    if (!tasks || !nodes || *tasks < 1 || *nodes < 1) return std::nullopt;
    passed += *nodes;
    if (position < passed) return tasks;
  }
  return std::nullopt;
}

}  // namespace fulldeck::job
