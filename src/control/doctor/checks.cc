#include "doctor/check.h"

#include <algorithm>
#include <iterator>

namespace fulldeck::doctor {

std::span<const Check> Checks() {
  static const std::vector<Check> checks = [] {
    std::vector<Check> all;
    for (const auto group : {MachineChecks, CardChecks, StackChecks, ContainerChecks, NetworkChecks, StorageChecks}) {
      std::vector<Check> its = group();
      std::move(its.begin(), its.end(), std::back_inserter(all));
    }
    return all;
  }();
  return checks;
}

std::string_view NameOf(Group group) {
  switch (group) {
    case Group::kMachine:
      return "machine";
    case Group::kCards:
      return "cards";
    case Group::kStack:
      return "stack";
    case Group::kContainer:
      return "container";
    case Group::kNetwork:
      return "network";
    case Group::kStorage:
      return "storage";
  }
  return "";
}

std::string_view NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
    case Verdict::kCannotTell:
      return "cannot tell";
  }
  return "";
}

Verdict Worst(std::span<const Finding> findings) {
  const auto badness = [](Verdict verdict) {
    switch (verdict) {
      case Verdict::kOk:
        return 0;
      case Verdict::kCannotTell:
        return 1;
      case Verdict::kWarn:
        return 2;
      case Verdict::kFail:
        return 3;
    }
    return 3;
  };
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) {
    if (badness(finding.verdict) > badness(worst)) worst = finding.verdict;
  }
  return worst;
}

}  // namespace fulldeck::doctor
