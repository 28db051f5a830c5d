#include "launcher/launch_info.h"

#include <fcntl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/open_without_links.h"
#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"
#include "job/redaction/redaction.h"
#include "job/redaction/shallow_json.h"
#include "launcher/run_directory.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestValue = 4096;
constexpr std::size_t kMaxMarks = 1000;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

std::string Cut(std::string text) {
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "…";
  return text;
}

}  // namespace

job::SecretMarks MarksOfLaunchInfo(std::string_view text) {
  job::SecretMarks marks;
  const Json document = job::ParseShallow(text);
  const auto secrets = document.is_object() ? document.find("secrets") : document.end();
  if (secrets == document.end() || !secrets->is_object()) return marks;
  marks.salt = secrets->value("salt", Json("")).is_string() ? secrets->value("salt", std::string()) : "";
  const Json list = secrets->value("marks", Json::array());
  for (const Json& mark : list) {
    if (mark.is_string() && marks.marks.size() < kMaxMarks) marks.marks.push_back(mark.get<std::string>());
  }
  return marks;
}

std::string RendezvousTokenOf(std::string_view text) {
  const Json document = job::ParseShallow(text);
  const auto field = [&document](const char* name) -> std::string {
    if (!document.is_object() || !document.contains("run") || !document["run"].is_object()) return "";
    const auto found = document["run"].find(name);
    return found != document["run"].end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string id = field("run_id");
  const std::string directory = field("directory");
  // The folder of a multi-node run is named RUN.NODE (run_plan.cc).
  const bool one_node = directory.find("." + field("host"), directory.rfind('/') + 1) == std::string::npos;
  const bool has_token = document.is_object() && document.contains("environment") &&
                         document["environment"].is_object() && document["environment"].contains(wire::kTokenVariable);
  return one_node || has_token || IsGeneratedRunId(id) ? "" : id;
}

std::string WithoutMarks(std::string_view text) {
  Json document = job::ParseShallow(text);
  if (!document.is_object()) return std::string(text);
  document.erase("secrets");
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> LauncherArguments() {
  std::vector<std::string> arguments;
  const auto text = base::SystemRoot().ReadFile("/proc/self/cmdline", kMaxBytes);
  if (!text) return arguments;
  for (const std::string_view argument : base::Split(*text, '\0')) arguments.emplace_back(argument);
  // The last argument also ends with a zero byte.
  if (!arguments.empty() && arguments.back().empty()) arguments.pop_back();
  return arguments;
}

std::string FormatLaunchInfo(const std::vector<std::string>& arguments, const base::Environment& environment,
                             const job::RunRecord& record) {
  const job::Redaction redaction = job::Redaction::OfThisProcess(environment);
  Json document = {{"version", 1}, {"arguments", Json::array()}, {"environment", Json::object()}};
  for (const std::string& argument : redaction.Arguments(arguments)) document["arguments"].push_back(Cut(argument));
  for (const auto& variable : environment.all()) {
    document["environment"][variable.first] = Cut(redaction.Variable(variable.first, variable.second));
  }
  job::RunRecord shown = record;
  shown.command = redaction.Arguments(record.command);
  document["run"] = Json::parse(redaction.JsonText(job::FormatRunRecord(shown)), nullptr, false);
  const job::SecretMarks marks = job::MarksOfSecrets(environment);
  document["secrets"] = {{"salt", marks.salt}, {"marks", marks.marks}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

base::Result<void> WriteLaunchInfo(const base::Environment& environment, const job::RunRecord& record) {
  const std::string path = record.directory + "/" + kLaunchInfo;
  const base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return base::ErrnoError("cannot write " + base::Printable(path));
  return base::WriteAllTo(file.get(), FormatLaunchInfo(LauncherArguments(), environment, record), path);
}

}  // namespace fulldeck::launcher
