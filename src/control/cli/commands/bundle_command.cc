// fulldeck bundle: one archive about a run, for support.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/environment.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/confirm.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/support_bundle.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "job/redaction/redaction.h"
#include "job/runs/run_logs.h"
#include "launcher/run_directory.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

struct Options {
  std::string run;
  std::string output;
  bool yes = false;
};

// Created before anything is collected, and removed if nothing is written to it.
class OutputFile {
 public:
  static base::Result<OutputFile> Make(const std::string& path) {
    OutputFile made;
    made.file_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!made.file_.valid()) {
      const bool there = errno == EEXIST;
      const base::Error why = base::ErrnoError("cannot write " + base::Printable(path));
      return base::Error{(there ? base::Printable(path) + " is there already" : why.message) +
                         ". Name another file with --output"};
    }
    made.path_ = path;
    return made;
  }
  OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), file_(std::move(other.file_)) {
    other.path_.clear();
  }
  ~OutputFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;

  base::Result<void> Write(std::string_view bytes) {
    const auto written = base::WriteAllTo(file_.get(), bytes, path_);
    if (written) path_.clear();
    return written;
  }

 private:
  OutputFile() = default;
  std::string path_;  // to be removed; empty: it stays
  base::UniqueFd file_;
};

std::string ListText(const SupportBundle& bundle) {
  base::TextTable table;
  table.AddColumn("FILE", base::Align::kLeft);
  table.AddColumn("SIZE", base::Align::kRight);
  std::uint64_t total = 0;
  for (const ArchiveFile& file : bundle.files) {
    table.AddRow({{base::Printable(file.name)}, {base::FormatByteSize(file.text.size())}});
    total += file.text.size();
  }
  std::string text = table.Render(StdoutWantsColor());
  for (const std::string& each : bundle.left_out) text += "not in it: " + each + "\n";
  return text + fmt::format("{}, {} together. Secrets, homes and the user's name are taken out.\n",
                            base::Counted(bundle.files.size(), "file"), base::FormatByteSize(total));
}

// Named by the run's id if fulldeck generated it. An id that the user chose may be the token of a rendezvous; then
// the archive is named by the time.
std::string DefaultName(const std::string& run) {
  const std::string shape = launcher::NewRunId();
  const std::string id = run.substr(0, shape.size());
  return "fulldeck-bundle-" + (launcher::IsGeneratedRunId(id) ? id : shape.substr(0, shape.rfind('-'))) + ".tar";
}

ExitCode Bundle(const Options& options) {
  const base::Environment environment = base::Environment::OfThisProcess();
  const job::RunRegistry registry(environment);
  std::error_code ignored;
  const auto run = job::FindRunLogs(registry, options.run, std::filesystem::current_path(ignored).string());
  if (!run) return Refuse(ExitCode::kFailed, run.error().message);
  const bool can_confirm = isatty(STDIN_FILENO) == 1;
  if (!options.yes && !can_confirm) {
    return Refuse(ExitCode::kUsage,
                  "nothing was written: there is no terminal to ask on. Give --yes to write it without being asked");
  }
  const std::string path = options.output.empty() ? DefaultName(run->name) : options.output;
  auto file = OutputFile::Make(path);
  if (!file) return Refuse(ExitCode::kFailed, file.error().message);
  const SupportBundle bundle = CollectBundle(*run, job::Redaction::OfThisProcess(environment));
  if (Print(ListText(bundle)) != ExitCode::kOk) return ExitCode::kFailed;
  if (!options.yes && !Confirm(fmt::format("write this to {}?", base::Printable(path)))) {
    return Refuse(ExitCode::kFailed, "nothing was written");
  }
  const auto written = file->Write(TarArchive(bundle.files, UnixSecondsNow()));
  if (!written) return Refuse(ExitCode::kFailed, written.error().message + ". Nothing was kept of it");
  Log(Severity::kInfo, fmt::format("written to {}. Look into it with: tar -xOf {} | less", base::Printable(path),
                                   base::Printable(path)));
  return ExitCode::kOk;
}

}  // namespace

Action AddBundle(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "bundle", "Put what is known of a run into one archive for support, without secrets");
  command.Option("RUN", options->run, "Run id, beginning of one, or run directory; default: the running or newest run")
      .TypeName("");
  command
      .Option("--output", options->output,
              "Default: fulldeck-bundle-RUN.tar here, by the time for a run id of your own")
      .TypeName("FILE")
      .NotEmpty("names no file");
  command.Flag("--yes", options->yes, "Do not ask after the content was listed");
  command.Footer(
      "Examples:\n"
      "  fulldeck bundle\n"
      "  fulldeck bundle 20260401-1 --output case-17.tar\n"
      "  fulldeck bundle fulldeck_runs/20260401-101500-k3fq --yes\n"
      "In it: how the run was started, ends of logs, crash reports, stacks and the rank board of one that runs, "
      "settings,\n"
      "versions, devices, and what the doctor says. Nothing is sent anywhere.");
  return [options] { return Bundle(*options); };
}

}  // namespace fulldeck::cli
