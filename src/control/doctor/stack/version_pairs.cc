#include "doctor/stack/version_pairs.h"

#include <algorithm>

#include "base/text.h"

namespace fulldeck::doctor {
namespace {

// From the packages' own checks at import (OpenMMLab), the releases of torch and torchvision, NVIDIA's table of minor
// version compatibility, and the two generations of Enflame's stack.
constexpr VersionPair kPairs[] = {
    {"mmsegmentation", ">=1.0.0,<1.2.0", "mmcv", ">=2.0.0rc4,<2.1.0", "E1"},
    {"mmsegmentation", ">=1.2.0,<2", "mmcv", ">=2.0.0rc4,<2.2.0", "E1"},
    {"mmsegmentation", ">=1.0.0,<2", "mmengine", ">=0.5.0,<1.0.0", "E1"},
    {"mmsegmentation", "<1.0.0rc0", "mmcv-full", ">=1.3.13,<1.8.0", "E1"},
    {"mmsegmentation", "<1.0.0rc0", "mmcv", "<2.0.0rc0", "E1"},
    {"mmdet", ">=3.0.0,<3.2.0", "mmcv", ">=2.0.0rc4,<2.1.0", "E1"},
    {"mmdet", ">=3.2.0,<4", "mmcv", ">=2.0.0rc4,<2.2.0", "E1"},
    {"mmdet", ">=3.0.0,<4", "mmengine", ">=0.7.1,<1.0.0", "E1"},
    {"mmdet", "<3.0.0rc0", "mmcv", "<2.0.0rc0", "E1"},
    {"mmcv-full", ">=1.0", "mmcv", "<1.0", "E1"},  // both in one environment hide each other
    {"torch", "==1.10.*", "torchvision", "==0.11.*", "I18"},
    {"torch", "==1.11.*", "torchvision", "==0.12.*", "I18"},
    {"torch", "==1.12.*", "torchvision", "==0.13.*", "I18"},
    {"torch", "==1.13.*", "torchvision", "==0.14.*", "I18"},
    {"torch", "==2.0.*", "torchvision", "==0.15.*", "I18"},
    {"torch", "==2.1.*", "torchvision", "==0.16.*", "I18"},
    {"torch", "==2.2.*", "torchvision", "==0.17.*", "I18"},
    {"torch", "==2.3.*", "torchvision", "==0.18.*", "I18"},
    {"torch", "==2.4.*", "torchvision", "==0.19.*", "I18"},
    {"torch", "==2.5.*", "torchvision", "==0.20.*", "I18"},
    {"torch", "==2.6.*", "torchvision", "==0.21.*", "I18"},
    {"torch", "==2.7.*", "torchvision", "==0.22.*", "I18"},
    {"torch", "==2.8.*", "torchvision", "==0.23.*", "I18"},
    {"torch", "==2.9.*", "torchvision", "==0.24.*", "I18"},
    {"torch", "==2.10.*", "torchvision", "==0.25.*", "I18"},
    {"torch", "==2.11.*", "torchvision", "==0.26.*", "I18"},
    {"torch", ">=2.0,<2.9", "torchaudio", "=", "E2"},
    {"torch-cuda", "==10.*", "nvidia-driver", ">=440.33", "I6"},
    {"torch-cuda", "==11.*", "nvidia-driver", ">=450.80.02", "I6"},
    {"torch-cuda", "==12.*", "nvidia-driver", ">=525.60.13", "I6"},
    {"torch-cuda", "==13.*", "nvidia-driver", ">=580.65.06", "I6"},
    {"torch-gcu", "<2", "torch", "==1.10.*", "D7"},
    {"torch-gcu", "<2", "python", ">=3.8,<3.9", "D7"},
    {"torch-gcu", ">=2", "torch", "=", "D7"},
    {"torch-gcu", ">=2", "python", ">=3.8,<3.13", "D7"},
    {"card-gcu-1", "", "torch-gcu", "<2", "D7"},
    {"card-gcu-2", "", "torch-gcu", ">=2", "D7"},
    {"torch-npu", ">=2", "torch", "=", "D7"},
    {"torch-xla", ">=2", "torch", "=", "D7"},
};

constexpr std::string_view kWordsBefore[] = {"dev", "a", "alpha", "b", "beta", "c", "rc", "pre", "preview"};

struct Version {
  std::vector<int> numbers;
  int stage = 4;  // dev 0, alpha 1, beta 2, candidate 3, release 4, post 5
  int stage_number = 0;
};

int StageOf(std::string_view word) {
  if (word == "dev") return 0;
  if (word == "a" || word == "alpha") return 1;
  if (word == "b" || word == "beta") return 2;
  if (word == "post" || word == "rev" || word == "r") return 5;
  return std::find(std::begin(kWordsBefore), std::end(kWordsBefore), word) != std::end(kWordsBefore) ? 3 : -1;
}

bool IsDigit(char byte) {
  return byte >= '0' && byte <= '9';
}

std::optional<Version> Parse(std::string_view text) {
  text = base::Trim(text);
  text = text.substr(0, text.find('+'));
  if (text.starts_with("v")) text.remove_prefix(1);
  if (text.size() > 64) return std::nullopt;
  Version version;
  std::size_t at = 0;
  const auto number = [&]() -> std::optional<int> {
    const std::size_t begin = at;
    while (at < text.size() && IsDigit(text[at])) ++at;
    return base::ParseInteger<int>(text.substr(begin, at - begin));
  };
  const auto first = number();
  if (!first) return std::nullopt;
  version.numbers.push_back(*first);
  while (at + 1 < text.size() && text[at] == '.' && IsDigit(text[at + 1])) {
    ++at;
    const auto next = number();
    if (!next) return std::nullopt;
    version.numbers.push_back(*next);
  }
  if (at < text.size() && (text[at] == '.' || text[at] == '-' || text[at] == '_')) ++at;
  const std::size_t word_at = at;
  while (at < text.size() && text[at] >= 'a' && text[at] <= 'z') ++at;
  const std::string_view word = text.substr(word_at, at - word_at);
  if (word.empty()) return at == text.size() ? std::optional(version) : std::nullopt;
  version.stage = StageOf(word);
  if (version.stage < 0) return std::nullopt;
  if (at < text.size() && IsDigit(text[at])) version.stage_number = number().value_or(0);
  return version;  // a suffix after a stage (rc1.dev2) is not compared
}

int Compare(const Version& left, const Version& right) {
  for (std::size_t i = 0; i < std::max(left.numbers.size(), right.numbers.size()); ++i) {
    const int a = i < left.numbers.size() ? left.numbers[i] : 0;
    const int b = i < right.numbers.size() ? right.numbers[i] : 0;
    if (a != b) return a < b ? -1 : 1;
  }
  if (left.stage != right.stage) return left.stage < right.stage ? -1 : 1;
  return left.stage_number == right.stage_number ? 0 : left.stage_number < right.stage_number ? -1 : 1;
}

// Whether the first numbers of `version` equal those of `wanted`.
bool StartsWith(const Version& version, const Version& wanted, std::size_t count) {
  for (std::size_t i = 0; i < count && i < wanted.numbers.size(); ++i) {
    if ((i < version.numbers.size() ? version.numbers[i] : 0) != wanted.numbers[i]) return false;
  }
  return true;
}

std::optional<bool> FitsOne(const Version& version, std::string_view condition) {
  condition = base::Trim(condition);
  if (condition.empty()) return true;
  std::string_view sign;
  for (const std::string_view candidate : {"===", "==", "!=", ">=", "<=", "~=", "<", ">"}) {
    if (condition.starts_with(candidate)) {
      sign = candidate;
      break;
    }
  }
  if (sign.empty()) return std::nullopt;
  std::string_view text = base::Trim(condition.substr(sign.size()));
  const bool any = text.ends_with(".*");
  if (any) text.remove_suffix(2);
  const auto wanted = Parse(text);
  if (!wanted) return std::nullopt;
  const int order = Compare(version, *wanted);
  if (sign == "==" || sign == "===") return any ? StartsWith(version, *wanted, wanted->numbers.size()) : order == 0;
  if (sign == "!=") return any ? !StartsWith(version, *wanted, wanted->numbers.size()) : order != 0;
  if (sign == ">=") return order >= 0;
  if (sign == "<=") return order <= 0;
  if (sign == ">") return order > 0;
  // A release candidate of 2.2.0 does not satisfy <2.2.0: pip excludes it, too.
  if (sign == "<")
    return order < 0 && !(version.stage < 4 && wanted->stage == 4 && Compare({version.numbers}, *wanted) == 0);
  return order >= 0 && wanted->numbers.size() > 1 && StartsWith(version, *wanted, wanted->numbers.size() - 1);
}

}  // namespace

std::optional<int> CompareVersions(std::string_view left, std::string_view right) {
  const auto a = Parse(left);
  const auto b = Parse(right);
  if (!a || !b) return std::nullopt;
  return Compare(*a, *b);
}

std::optional<bool> VersionFits(std::string_view version, std::string_view wanted) {
  const auto parsed = Parse(version);
  if (!parsed) return std::nullopt;
  for (const std::string_view condition : base::Split(wanted, ',')) {
    const auto fits = FitsOne(*parsed, condition);
    if (!fits) return std::nullopt;
    if (!*fits) return false;
  }
  return true;
}

std::span<const VersionPair> VersionPairs() {
  return kPairs;
}

Comparison ComparePairs(const Installed& installed) {
  Comparison result;
  for (const VersionPair& pair : kPairs) {
    const auto package = installed.find(pair.package);
    const auto other = installed.find(pair.other);
    if (package == installed.end() || other == installed.end()) continue;
    if (!VersionFits(package->second, pair.when).value_or(false)) continue;
    std::string wanted = pair.wanted;
    if (wanted == "=") {
      const auto version = Parse(package->second);
      if (!version || version->numbers.size() < 2) continue;
      wanted = "==" + std::to_string(version->numbers[0]) + "." + std::to_string(version->numbers[1]) + ".*";
    }
    const auto fits = VersionFits(other->second, wanted);
    if (!fits) continue;
    ++result.compared;
    if (!*fits) {
      result.mismatches.push_back({package->first, package->second, other->first, other->second, wanted, pair.row});
    }
  }
  return result;
}

Comparison CompareRequirements(const std::string& package, const std::vector<std::string>& requirements,
                               const Installed& installed) {
  Comparison result;
  const auto own = installed.find(package);
  for (const std::string& requirement : requirements) {
    if (requirement.find(';') != std::string::npos || requirement.find('[') != std::string::npos) continue;
    const std::size_t end = requirement.find_first_of(" (<>=!~");
    std::string name = requirement.substr(0, end);
    for (char& byte : name)
      byte = byte == '_' || byte == '.' ? '-' : byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
    std::string wanted = end == std::string::npos ? "" : requirement.substr(end);
    std::erase_if(wanted, [](char byte) { return byte == '(' || byte == ')' || byte == ' '; });
    const auto other = installed.find(name);
    if (own == installed.end() || other == installed.end() || wanted.empty()) continue;
    const auto fits = VersionFits(other->second, wanted);
    if (!fits) continue;
    ++result.compared;
    if (*fits) continue;
    const bool of_torch = name == "torch" && package.starts_with("torch-");
    result.mismatches.push_back({package, own->second, name, other->second, wanted,
                                 of_torch          ? "D7"
                                 : name == "torch" ? "E2"
                                                   : "E1"});
  }
  return result;
}

}  // namespace fulldeck::doctor
