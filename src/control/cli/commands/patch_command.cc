// fulldeck patch: inserts fulldeck's lines into an installed package, if there is no other way to configure it, and
// removes them.
#include <fmt/format.h>

#include <memory>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/watch.h"
#include "patch/patched_file.h"
#include "patch/python_install.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

// A Python on a slow network file system takes long to start.
constexpr std::chrono::seconds kTimeout{60};

struct Options {
  std::string package;
  std::string python;
  bool always = false;
  bool restore = false;
  bool status = false;
};

std::string DescribeStatus(const patch::PatchStatus& status) {
  switch (status.state) {
    case patch::PatchState::kNotPatched:
      return status.leftovers ? "not patched; files of an interrupted call lie beside it (--restore removes them)"
                              : "not patched";
    case patch::PatchState::kPatched:
      return status.when == patch::TraceWhen::kAlways
                 ? "patched: the report is written in every run"
                 : "patched: the report is written in runs with FULLDECK_TRACE_DDP=1";
    case patch::PatchState::kChangedMeanwhile:
      return "changed by somebody else since it was patched";
    case patch::PatchState::kLinesWithoutNote:
      return "lines of fulldeck are in it, and the note that belongs to them is gone";
  }
  return "";
}

ExitCode Status(const patch::PatchedFile& file, const patch::PythonInstall& install) {
  const auto status = file.Status();
  if (!status) return Refuse(ExitCode::kFailed, status.error().message);
  std::string text =
      fmt::format("python    {}\nversion   {}\nfile      {}\nstate     {}\n", base::Printable(install.python),
                  install.version.empty() ? "unknown" : base::Printable(install.version), base::Printable(file.path()),
                  DescribeStatus(*status));
  if (const auto why = file.WhyNotWritable()) text += fmt::format("rights    {}\n", *why);
  if (!install.has_fulldeck)
    text += "fulldeck  this Python cannot import it: the lines would do nothing outside of fulldeck run\n";
  const ExitCode printed = Print(text);
  const bool sound = status->state == patch::PatchState::kNotPatched || status->state == patch::PatchState::kPatched;
  return sound ? printed : ExitCode::kFailed;
}

ExitCode Patch(const Options& options) {
  if (options.restore + options.status + options.always > 1) {
    return Refuse(ExitCode::kUsage, "--trace-ddp, --restore and --status do not go together");
  }
  const auto python = patch::FindPython(options.python, base::Environment::OfThisProcess());
  if (!python) return Refuse(ExitCode::kFailed, python.error().message);
  const auto install = patch::QueryPython(*python, "mmengine", kTimeout);
  if (!install) return Refuse(ExitCode::kFailed, install.error().message);
  patch::PatchedFile file(install->folder + "/runner/runner.py");
  if (options.status) return Status(file, *install);

  const std::string name =
      fmt::format("{} (MMEngine {})", base::Printable(file.path()),
                  install->version.empty() ? "of unknown version" : base::Printable(install->version));
  if (options.restore) {
    const auto restored = file.Restore();
    if (!restored) return Refuse(ExitCode::kFailed, restored.error().message);
    Log(Severity::kInfo,
        name + (*restored ? " is as it was before the patch" : " was not patched; nothing was changed"));
    return ExitCode::kOk;
  }
  const auto patched = file.Patch(options.always ? patch::TraceWhen::kAlways : patch::TraceWhen::kOnRequest);
  if (!patched) return Refuse(ExitCode::kFailed, patched.error().message);
  const char* const when = options.always ? "in every run" : "in runs with FULLDECK_TRACE_DDP=1";
  Log(Severity::kInfo, *patched
                           ? fmt::format("{} reports the model's devices before the wrap, {}. Back: fulldeck patch "
                                         "mmengine --restore",
                                         name, when)
                           : name + " has the lines already; nothing was changed");
  if (!install->has_fulldeck) {
    Log(Severity::kWarning,
        fmt::format("{} cannot import fulldeck: outside of fulldeck run the lines do nothing until the "
                    "package is installed there (docs/python-package.md)",
                    base::Printable(install->python)));
  }
  return ExitCode::kOk;
}

}  // namespace

Action AddPatch(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "patch",
                         "Put the report before the DDP wrap into an installed MMEngine, and take it out");
  command.Option("PACKAGE", options->package, "mmengine").TypeName("").Required().OneOf({"mmengine"});
  command.Flag("--trace-ddp", options->always,
               "Write the report in every run; else in those with FULLDECK_TRACE_DDP=1");
  command.Flag("--restore", options->restore, "Give the file back as it was, byte by byte");
  command.Flag("--status", options->status, "Say what is there, and change nothing");
  command.Option("--python", options->python, "The Python whose install is meant; default: VIRTUAL_ENV's, else python3")
      .TypeName("PATH")
      .NotEmpty("names no Python");
  command.Footer(
      "Examples:\n"
      "  fulldeck patch mmengine --trace-ddp\n"
      "  fulldeck patch mmengine --restore --python /opt/venv/bin/python\n"
      "`fulldeck run --trace-ddp` gives the same report and changes no file. docs/patch.md");
  return [options] { return Patch(*options); };
}

}  // namespace fulldeck::cli
