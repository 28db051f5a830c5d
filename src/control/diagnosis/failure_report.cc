#include "diagnosis/failure_report.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/files/open_without_links.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"
#include "diagnosis/known_failures/explain.h"

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kTailBytes = std::size_t{1} << 20;
constexpr std::size_t kShownLines = 20;
constexpr std::size_t kShownStack = 60;
constexpr std::size_t kShownFrames = 20;
constexpr std::size_t kUserFrames = 4;

void Quote(std::vector<std::string>& report, const std::string& title, const std::vector<std::string>& lines) {
  report.push_back("  " + title);
  for (const std::string& line : lines) report.push_back("  | " + line);
}

// Demangles the C++ function names in a line of a stack.
std::string Demangled(const std::string& line) {
  const auto begin = line.find("_Z");
  if (begin == std::string::npos) return line;
  const auto end = std::min(line.find_first_of(" +)", begin), line.size());
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(line.substr(begin, end - begin).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? line.substr(0, begin) + name.get() + line.substr(end) : line;
}

// The launcher starts a rank's stderr with a line about the rank's placement, which is not output of the rank.
std::string WithoutOurFirstLine(std::string text) {
  if (text.starts_with("fulldeck: rank ")) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

// The lines of a rank's adapters about its group ("fulldeck: rank 3/8, backend …") quote a failure that they worked
// around.
std::string WithoutGroupLines(const std::string& text) {
  std::string kept;
  for (const std::string_view line : base::Split(text, '\n')) {
    if (line.starts_with("fulldeck: rank ") && line.find(", backend ") != std::string_view::npos) continue;
    kept.append(line).append("\n");
  }
  return kept;
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  for (const std::string_view line : base::Split(text, '\n')) {
    constexpr std::size_t kWidest = 400;
    std::string shown(line.substr(0, kWidest));
    for (std::size_t tab = shown.find('\t'); tab != std::string::npos; tab = shown.find('\t'))
      shown.replace(tab, 1, "    ");
    lines.push_back(base::Printable(shown));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// torch prefixes every line of a traceback with "[rank3]: ".
std::string WithoutRankPrefix(const std::string& line) {
  if (!line.starts_with("[rank")) return line;
  const auto end = line.find("]:");
  return end == std::string::npos ? line : line.substr(std::min(line.size(), end + 3));
}

// "train.py:12 in main" of '  File "train.py", line 12, in main'; empty for a frame that is not the user's code.
std::string UserFrame(const std::string& line) {
  constexpr std::string_view kBegin = "  File \"";
  const auto path_end = line.find("\", line ", kBegin.size());
  if (!line.starts_with(kBegin) || path_end == std::string::npos) return "";
  const std::string path = line.substr(kBegin.size(), path_end - kBegin.size());
  // fulldeck's own adapters are in lib/python/fulldeck of a build or of an installation without a wheel.
  for (const char* foreign : {"/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen",
                              "/lib/python/fulldeck/", "/fulldeck_hook/"}) {
    if (path.find(foreign) != std::string::npos) return "";
  }
  std::string place = line.substr(path_end + 8);  // after ", line "
  if (const auto comma = place.find(", in "); comma != std::string::npos) place.replace(comma, 2, " ");
  return path + ":" + place;
}

// The relevant parts of a crash report (docs/rank-agent.md): what happened, the innermost frames, then Python's output.
std::vector<std::string> CrashLines(std::string_view crash) {
  std::vector<std::string> shown;
  bool in_file_list = false;
  std::size_t frames = 0;
  for (const std::string& line : Lines(crash)) {
    const bool frame = line.starts_with("#");
    frames = frame ? frames + 1 : frames;
    in_file_list = (in_file_list || line == "files:") && line != "end of report";
    const bool header = line.starts_with("fulldeck crash report") || line == "end of report";
    if (in_file_list || header || (frame && frames > kShownFrames)) continue;
    if (shown.size() == kShownStack) break;
    shown.push_back(frame ? Demangled(line) : line);
  }
  return shown;
}

}  // namespace

std::string ReadTail(const std::string& path, std::size_t limit) {
  const base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  const off_t size = facts.st_size;
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(limit));
  return base::ReadRange(file.get(), static_cast<std::uint64_t>(begin), static_cast<std::size_t>(size - begin));
}

std::vector<std::string> Tail(std::string_view text, std::size_t wanted) {
  std::vector<std::string> lines = Lines(text);
  constexpr std::size_t kSearched = 200;
  std::size_t begin = lines.size() > wanted ? lines.size() - wanted : 0;
  for (std::size_t i = lines.size(); i > 0 && lines.size() - i < kSearched; --i) {
    if (!lines[i - 1].starts_with("Traceback (most recent call last)")) continue;
    begin = std::min(begin, i - 1);
    break;
  }
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(begin));
  if (lines.size() > kShownStack + kShownLines) {
    const std::size_t left_out = lines.size() - kShownStack;
    lines.erase(lines.begin() + kShownLines / 2,
                lines.begin() + static_cast<std::ptrdiff_t>(kShownLines / 2 + left_out));
    lines.insert(lines.begin() + kShownLines / 2, fmt::format("… {} lines left out …", left_out));
  }
  return lines;
}

namespace {

// A script that does not compile has a location and an error, but no traceback.
std::optional<TracebackSummary> SummarizeSyntaxError(const std::vector<std::string>& lines) {
  TracebackSummary summary;
  for (const std::string& line : lines) {
    if (const std::string frame = UserFrame(line); !frame.empty()) summary.user_frames = {frame};
    for (const char* kind : {"SyntaxError: ", "IndentationError: ", "TabError: "}) {
      if (line.starts_with(kind)) summary.error = line;
    }
  }
  if (summary.error.empty()) return std::nullopt;
  return summary;
}

}  // namespace

std::optional<TracebackSummary> SummarizeTraceback(std::string_view text) {
  std::vector<std::string> lines;
  for (const std::string& line : Lines(text)) lines.push_back(WithoutRankPrefix(line));
  std::size_t begin = lines.size();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // "Original": the traceback of a DataLoader worker, which follows that of the process that waited for it.
    for (const char* first : {"Traceback (most recent call last)", "Original Traceback (most recent call last)"}) {
      if (lines[i].starts_with(first)) begin = i;
    }
  }
  if (begin == lines.size()) return SummarizeSyntaxError(lines);
  TracebackSummary summary;
  std::size_t i = begin + 1;
  for (; i < lines.size() && lines[i].starts_with("  "); ++i) {
    const std::string frame = UserFrame(lines[i]);
    if (frame.empty()) continue;
    const bool code_follows = i + 1 < lines.size() && lines[i + 1].starts_with("    ");
    summary.user_frames.push_back(frame + (code_follows ? ": " + std::string(base::Trim(lines[i + 1])) : ""));
  }
  if (i < lines.size()) summary.error = lines[i];
  // "Error(s) in loading state_dict for Net:" continues on the next line.
  if (summary.error.ends_with(":") && i + 1 < lines.size())
    summary.error += " " + std::string(base::Trim(lines[i + 1]));
  if (summary.user_frames.size() > kUserFrames) {
    summary.user_frames.erase(summary.user_frames.begin(),
                              summary.user_frames.end() - static_cast<std::ptrdiff_t>(kUserFrames));
  }
  return summary;
}

namespace {

void Summarize(std::vector<std::string>& report, const std::string& text) {
  const auto summary = SummarizeTraceback(text);
  if (!summary) return;
  if (!summary->error.empty()) report.push_back("  " + summary->error);
  for (auto frame = summary->user_frames.rbegin(); frame != summary->user_frames.rend(); ++frame) {
    report.push_back("    at " + *frame);
  }
}

void AddKnown(FailureLines& report, const std::string& log) {
  std::size_t listed = 0;
  for (const diagnosis::Finding& finding : diagnosis::ExplainLog(log)) {
    if (finding.entry->weight == diagnosis::Weight::kSummary || ++listed > 2) break;
    report.known.emplace_back(finding.entry->id);
    report.lines.push_back(fmt::format("  known failure {}: {} ({})", finding.entry->id, finding.entry->title,
                                       WithoutRankPrefix(finding.excerpt)));
    report.lines.push_back(fmt::format("    cause: {}", finding.entry->english.cause));
    report.lines.push_back(fmt::format("    to do: {}", finding.entry->english.fix));
  }
}

}  // namespace

FailureLines FailureReport(const FailureFacts& facts) {
  FailureLines whole;
  std::vector<std::string>& report = whole.lines;
  report.push_back(fmt::format("root cause: {} {}{}", facts.what, facts.after,
                               facts.stopped_others > 0
                                   ? fmt::format("; it was the first, {} other{} then stopped", facts.stopped_others,
                                                 facts.stopped_others == 1 ? " was" : "s were")
                                   : ""));

  const std::string wrote = WithoutOurFirstLine(ReadTail(facts.stderr_path, kTailBytes));
  const std::string printed = ReadTail(facts.stdout_path, kTailBytes);
  const std::string crash = ReadTail(facts.crash_path, kTailBytes);
  const auto error = ParseErrorFile(ReadTail(facts.error_path, kTailBytes));

  Summarize(report, wrote);
  if (!facts.noticed_by.empty()) {
    report.push_back(fmt::format("  noticed by {}{}", facts.noticed_by,
                                 facts.noticed_error.empty() ? "" : ": " + base::Printable(facts.noticed_error)));
    Summarize(report, WithoutOurFirstLine(ReadTail(facts.noticed_path, kTailBytes)));
  }
  std::string all = WithoutGroupLines(wrote) + printed + "\n" + crash;
  if (error) all += "\n" + error->message + "\n" + error->call_stack;
  AddKnown(whole, all);
  if (!facts.python.empty()) report.push_back("  Python of the ranks: " + base::Printable(facts.python));
  if (error && !error->message.empty()) {
    Quote(report, "its error file:", Tail(error->call_stack.empty() ? error->message : error->call_stack, kShownLines));
  }
  const std::vector<std::string> stack = CrashLines(crash);
  if (!stack.empty()) Quote(report, "where it crashed (" + facts.crash_path + "):", stack);
  const std::vector<std::string> end = Tail(wrote, kShownLines);
  if (!end.empty()) {
    Quote(report, "the end of its stderr (" + facts.stderr_path + "):", end);
  } else if (const std::vector<std::string> shown = Tail(printed, kShownLines); !shown.empty()) {
    Quote(report, "it said nothing on stderr; the end of its stdout (" + facts.stdout_path + "):", shown);
  } else {
    report.push_back("  it said nothing.");
  }
  return whole;
}

}  // namespace fulldeck::diagnosis
