// fulldeck config: generates a file that starts a training on machines like this one with another program.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/usable_cpus.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/watch.h"
#include "device/inventory.h"
#include "job/cards/card_selection.h"
#include "job/launch/launch_file.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

struct Options {
  std::string what;
  std::string output;
  std::string devices = "auto";
  int ranks = 0;  // 0: one per card
  job::LaunchFileRequest request;
};

base::Result<void> WriteNew(const std::string& path, const std::string& text) {
  base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid() && errno == EEXIST) {
    return base::Error{base::Printable(path) +
                       " is there already, and was left as it is: give another name, or remove it"};
  }
  if (!file.valid()) return base::ErrnoError("cannot write " + base::Printable(path));
  auto written = base::WriteAllTo(file.get(), text, path);
  if (!written) unlink(path.c_str());
  return written;
}

ExitCode Config(const Options& options) {
  const auto kind = job::FindLaunchFile(options.what);
  if (!kind) return Refuse(ExitCode::kUsage, "there is no file '" + base::Printable(options.what) + "'");
  device::InventoryReader reader((device::InventoryOptions()));
  const auto inventory = reader.Read();
  if (!inventory) return Refuse(ExitCode::kBadEnvironment, inventory.error().message);
  job::LaunchFlags flags;
  flags.devices = options.devices;
  if (options.ranks > 0) flags.nproc = options.ranks;
  auto selection = job::SelectCards(flags, *inventory, base::UsableCpus());
  if (!selection) return Refuse(ExitCode::kRefusedCards, selection.error().message);
  const int cards = static_cast<int>(selection->cards.size());
  if (cards > 0 && selection->ranks > cards) {
    return Refuse(ExitCode::kRefusedCards,
                  fmt::format("--nproc-per-node {} would put several ranks on a card: {} {} here", selection->ranks,
                              cards, cards == 1 ? "is" : "are"));
  }
  job::LaunchFileRequest request = options.request;
  request.selection = std::move(*selection);
  const auto text = job::LaunchFile(*kind, request);
  if (!text) return Refuse(ExitCode::kUsage, text.error().message);
  if (options.output.empty()) return Print(*text);
  const auto written = WriteNew(options.output, *text);
  if (!written) return Refuse(ExitCode::kFailed, written.error().message);
  Log(Severity::kInfo, "wrote " + base::Printable(options.output));
  return ExitCode::kOk;
}

}  // namespace

Action AddConfig(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "config", "Write a file that starts a training on machines like this one");
  command.Option("FILE", options->what, "accelerate, torchrun, slurm, pytorchjob or jobset")
      .TypeName("")
      .Required()
      .OneOf(job::LaunchFileNames());
  command.Option("--nnodes", options->request.nodes, "How many machines like this one").TypeName("N").InRange(1, 65536);
  command.Option("--nproc-per-node", options->ranks, "Ranks on each; default: one a card, one where there is none")
      .TypeName("N")
      .InRange(1, 4096);
  command.Option("--devices", options->devices, "Which cards, as fulldeck run takes it: auto, cpu, gcu, 4, 0-3")
      .TypeName("CARDS")
      .NotEmpty("names no card");
  command.Option("--script", options->request.script, "The training script").TypeName("PATH").ShowDefault();
  command.Option("--name", options->request.name, "The job's name (slurm, pytorchjob, jobset)")
      .TypeName("NAME")
      .ShowDefault();
  command.Option("--image", options->request.image, "The container's image (pytorchjob, jobset)").TypeName("IMAGE");
  command.Option("--master-addr", options->request.master_addr, "The first machine (accelerate with --nnodes)")
      .TypeName("HOST");
  command.Option("-o,--output", options->output, "Write it there instead of printing it; an older file is left alone")
      .TypeName("PATH");
  command.Footer(
      "Examples:\n"
      "  fulldeck config accelerate -o accelerate.yaml\n"
      "  fulldeck config slurm --nnodes 4 | sbatch\n"
      "  FULLDECK_SIMULATE=gcu:8 fulldeck config pytorchjob --nnodes 2 --image registry/train:1\n"
      "Comments in the file say why a value is what it is. docs/config-files.md");
  return [options] { return Config(*options); };
}

}  // namespace fulldeck::cli
