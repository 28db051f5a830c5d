// fulldeck explain: which known failures a log shows, why they happen and what to do.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/files/unique_fd.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/language.h"
#include "cli/options.h"
#include "diagnosis/known_failures/explain.h"

namespace fulldeck::cli {
namespace {

using diagnosis::Confidence;
using diagnosis::Explanation;
using diagnosis::Finding;
using diagnosis::Weight;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

struct Options {
  std::vector<std::string> logs;
  bool json = false;
  std::string language;
};

struct ExplainedLog {
  std::string name;
  std::uint64_t lines = 0;
  std::vector<Finding> findings;
};

const char* ConfidenceLabel(Confidence confidence, bool chinese) {
  switch (confidence) {
    case Confidence::kCertain:
      return chinese ? "确定" : "certain";
    case Confidence::kLikely:
      return chinese ? "很可能" : "likely";
    case Confidence::kPossible:
      return chinese ? "可能" : "possible";
  }
  return "";
}

const char* WeightLabel(Weight weight) {
  switch (weight) {
    case Weight::kCause:
      return "cause";
    case Weight::kSymptom:
      return "symptom";
    case Weight::kSummary:
      return "summary";
  }
  return "";
}

base::Result<ExplainedLog> ReadLog(const std::string& name) {
  base::UniqueFd file;
  int fd = STDIN_FILENO;
  if (name != "-") {
    file.Reset(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return base::ErrnoError("cannot read " + base::Printable(name));
    fd = file.get();
  }
  diagnosis::LogExplainer explainer;
  std::array<char, 65536> chunk;
  for (;;) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError("cannot read " + base::Printable(name));
    if (got == 0) break;
    explainer.Feed({chunk.data(), static_cast<std::size_t>(got)});
  }
  ExplainedLog log{name == "-" ? "standard input" : base::Printable(name), 0, explainer.Finish()};
  log.lines = explainer.lines();
  return log;
}

const Explanation& InLanguage(const Finding& finding, bool chinese) {
  return chinese ? finding.entry->chinese : finding.entry->english;
}

std::string Text(const ExplainedLog& log, bool chinese) {
  if (log.findings.empty()) {
    return chinese ? fmt::format("{}：{} 行中没有已知的故障。\n", log.name, log.lines)
                   : fmt::format("{}: none of the known failures in {} lines.\n", log.name, log.lines);
  }
  std::string text = chinese ? fmt::format("{}：{} 行中有 {} 个已知的故障\n", log.name, log.lines, log.findings.size())
                             : fmt::format("{}: {} known {} in {} lines\n", log.name, log.findings.size(),
                                           log.findings.size() == 1 ? "failure" : "failures", log.lines);
  for (const Finding& finding : log.findings) {
    const Explanation& explanation = InLanguage(finding, chinese);
    const std::string place = chinese ? fmt::format("第 {} 行，共 {} 次", finding.first_line, finding.times)
                                      : fmt::format("line {}, {} in all", finding.first_line, finding.times);
    text += fmt::format("\n{} {} ({}; {})\n  > {}\n", finding.entry->id, finding.entry->title,
                        ConfidenceLabel(finding.entry->confidence, chinese), place, finding.excerpt);
    text += chinese ? fmt::format("  原因：{}\n  处理：{}\n", explanation.cause, explanation.fix)
                    : fmt::format("  Cause: {}\n  Cure:  {}\n", explanation.cause, explanation.fix);
  }
  return text;
}

Json ToJson(const ExplainedLog& log, bool chinese) {
  Json object = {{"log", log.name}, {"lines", log.lines}, {"findings", Json::array()}};
  for (const Finding& finding : log.findings) {
    const Explanation& explanation = InLanguage(finding, chinese);
    object["findings"].push_back({{"id", finding.entry->id},
                                  {"title", finding.entry->title},
                                  {"weight", WeightLabel(finding.entry->weight)},
                                  {"confidence", ConfidenceLabel(finding.entry->confidence, false)},
                                  {"line", finding.first_line},
                                  {"times", finding.times},
                                  {"excerpt", finding.excerpt},
                                  {"cause", explanation.cause},
                                  {"cure", explanation.fix}});
  }
  return object;
}

wire::ExitCode Explain(const Options& options) {
  const bool chinese = WantsChinese(options.language);
  wire::ExitCode code = wire::ExitCode::kOk;
  Json logs = Json::array();
  std::string text;
  for (const std::string& name : options.logs) {
    const auto log = ReadLog(name);
    if (!log) {
      base::Log(base::Severity::kError, log.error().message);
      code = wire::ExitCode::kFailed;
      continue;
    }
    if (!text.empty()) text += "\n";
    text += Text(*log, chinese);
    logs.push_back(ToJson(*log, chinese));
  }
  const Json object = {{"version", kJsonVersion}, {"logs", logs}};
  const std::string output = options.json ? object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text;
  std::fputs(output.c_str(), stdout);
  return code;
}

}  // namespace

Action AddExplain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "explain", "Say which known failures a log shows, why, and what to do");
  command.Option("LOG", options->logs, "Log files, or - for standard input").Required().TypeName("");
  command.Flag("--json", options->json, "One JSON object for programs (docs/explain.md)");
  command.Option("--lang", options->language, "Language of causes and cures: en or zh; default: the locale's")
      .TypeName("en|zh")
      .OneOf({"en", "zh"});
  command.Footer(
      "Examples:\n"
      "  fulldeck explain train.log\n"
      "  python3 train.py 2>&1 | tee train.log | fulldeck explain - --lang zh");
  return [options] { return Explain(*options); };
}

}  // namespace fulldeck::cli
