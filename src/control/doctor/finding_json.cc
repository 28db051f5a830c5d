#include "doctor/finding_json.h"

#include <nlohmann/json.hpp>

namespace fulldeck::doctor {
namespace {

using Json = nlohmann::json;

Json ToJson(const base::BilingualText& text) {
  return {text.english, text.chinese};
}

bool Read(const Json& json, base::BilingualText& text) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_string() || !json[1].is_string()) return false;
  text = {json[0].get<std::string>(), json[1].get<std::string>()};
  return true;
}

bool Read(const Json& json, Finding& finding) {
  if (!json.is_object()) return false;
  for (const char* key : {"verdict", "evidence", "cure", "row", "figures"}) {
    if (!json.contains(key)) return false;
  }
  const Json& verdict = json["verdict"];
  if (!verdict.is_number_integer() || verdict.get<int>() < 0 || verdict.get<int>() > int(Verdict::kCannotTell)) {
    return false;
  }
  finding.verdict = static_cast<Verdict>(verdict.get<int>());
  if (!Read(json["evidence"], finding.evidence) || !Read(json["cure"], finding.fix)) return false;
  if (!json["row"].is_string() || !json["figures"].is_array()) return false;
  finding.row = json["row"].get<std::string>();
  for (const Json& figure : json["figures"]) {
    base::BilingualText pair;
    if (!Read(figure, pair)) return false;
    finding.figures.emplace_back(std::move(pair.english), std::move(pair.chinese));
  }
  return true;
}

}  // namespace

std::string FormatFindings(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json figures = Json::array();
    for (const auto& [name, value] : finding.figures) figures.push_back({name, value});
    list.push_back({{"verdict", static_cast<int>(finding.verdict)},
                    {"evidence", ToJson(finding.evidence)},
                    {"cure", ToJson(finding.fix)},
                    {"row", finding.row},
                    {"figures", std::move(figures)}});
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

base::Result<std::vector<Finding>> ParseFindings(std::string_view text) {
  const base::Error broken{"what the check answered is cut short"};
  const Json list = Json::parse(text, nullptr, false);
  if (!list.is_array()) return broken;
  std::vector<Finding> findings(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!Read(list[i], findings[i])) return broken;
  }
  return findings;
}

}  // namespace fulldeck::doctor
