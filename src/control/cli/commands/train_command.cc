// fulldeck train: runs the job that a config describes, from its file to the launcher that starts fulldeck-train on
// every card. Every error that can be detected without a rank is reported before one starts.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/usable_cpus.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program_beside.h"
#include "cli/train_folder.h"
#include "config/paths.h"
#include "config/plan.h"
#include "config/read.h"
#include "device/inventory.h"
#include "job/cards/card_selection.h"
#include "job/cards/device_choice.h"
#include "job/launch/launch_flags.h"
#include "launcher/run_directory.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

struct Options {
  std::string config;
  std::string devices = "auto";
  std::vector<std::string> assignments;
  int max_restarts = 0;
  std::string idle_card = "warn";
  bool dry_run = false;
  bool json = false;
  bool resume = false;
  bool fresh = false;
  bool share_cards = false;
  bool detach = false;
};

// "; did you mean configs/demo.toml?"
std::string NearFile(const std::string& given) {
  const std::filesystem::path path(given);
  std::error_code error;
  std::vector<std::string> there;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".toml")) there.push_back(name);
  }
  std::sort(there.begin(), there.end());
  const auto near = base::ClosestMatch(path.filename().string(), there);
  if (!near) return "";
  return fmt::format("; did you mean {}?", base::Printable(path.has_parent_path() ? (folder / *near).string() : *near));
}

class TrainCommand {
 public:
  explicit TrainCommand(const Options& options) : options_(options), environment_(base::Environment::OfThisProcess()) {}

  ExitCode Run() {
    if (options_.resume && options_.fresh) {
      return Refuse(ExitCode::kUsage,
                    "--resume goes on with the earlier run and --fresh sets it aside: give one of the two");
    }
    if (options_.json && !options_.dry_run)
      return Refuse(ExitCode::kUsage, "--json shows the plan: give --dry-run with it");
    for (const auto step : {&TrainCommand::ReadConfig, &TrainCommand::ChooseCards, &TrainCommand::MakePlan,
                            &TrainCommand::InspectFolder, &TrainCommand::FindTrainer}) {
      const ExitCode code = (this->*step)();
      if (code != ExitCode::kOk) return code;
    }
    if (options_.dry_run) return ShowPlan();
    return Start();
  }

 private:
  ExitCode ReadConfig() {
    auto text = base::ReadWholeFile(options_.config, config::kMaxConfigBytes);
    if (!text) {
      return Refuse(ExitCode::kUsage,
                    text.error().message + (text.error().system_error == ENOENT ? NearFile(options_.config) : ""));
    }
    config_text_ = std::move(*text);
    auto read = config::ReadToml(config_text_, options_.config, options_.assignments, &notes_);
    if (!read) return Refuse(ExitCode::kUsage, read.error().message);
    config_ = std::move(*read);
    const std::vector<std::string> problems = config::PathProblems(config_);
    if (!problems.empty()) return Refuse(ExitCode::kUsage, base::Join(problems, "\n"));
    return ExitCode::kOk;
  }

  // The equivalent command line of `fulldeck run`.
  std::vector<std::string> LaunchLine(const std::string& run_id) const {
    const config::JobFolder folder(config_);
    std::vector<std::string> line = {
        "--standalone", "--no-python", "--log-dir",      folder.logs(),
        "--rdzv-id",    run_id,        "--max-restarts", std::to_string(options_.max_restarts)};
    const auto add = [&](std::initializer_list<std::string> words) { line.insert(line.end(), words); };
    if (options_.share_cards) add({"--share-cards"});
    add({"--nproc-per-node", ranks_requested_ ? std::to_string(*ranks_requested_) : "auto"});
    add({"--devices", devices_});
    if (options_.idle_card != "warn") add({"--idle-card", options_.idle_card});
    if (options_.detach) add({"--detach"});
    add({"--", trainer_.empty() ? "fulldeck-train" : trainer_, "--recipe", folder.resolved()});
    if (options_.resume) add({"--resume"});
    return line;
  }

  ExitCode ChooseCards() {
    device::InventoryReader reader({.root = base::SystemRoot(), .environment = environment_});
    const auto inventory = reader.Read();
    if (!inventory) return Refuse(ExitCode::kBadEnvironment, inventory.error().message);
    machine_.cores = base::UsableCpus();

    devices_ = options_.devices;
    const auto choice = job::ParseDeviceChoice(devices_);
    if (!choice) {
      return Refuse(ExitCode::kUsage,
                    fmt::format("--devices '{}': {}", base::Printable(devices_), choice.error().message));
    }
    // More ranks than cards, if that is intended: use all cards of the kind; the number is the number of ranks.
    if (options_.share_cards && choice->count) {
      devices_ = choice->kind.value_or("auto");
      ranks_requested_ = choice->count;
    }
    const auto flags = job::ParseLaunchFlags(job::LaunchStyle::kFulldeck, LaunchLine("plan"), environment_);
    if (!flags) return Refuse(ExitCode::kUsage, flags.error().message);
    const auto selection = job::SelectCards(*flags, *inventory, machine_.cores);
    if (!selection) {
      return Refuse(ExitCode::kRefusedCards, selection.error().message + HowToGetMore(*choice, *inventory));
    }
    // In a real run the launcher logs these notes when it starts.
    if (options_.dry_run) notes_.insert(notes_.end(), selection->notes.begin(), selection->notes.end());
    machine_.ranks = selection->ranks;
    // From here on the number is fixed: a card that another run takes meanwhile must not reduce the global batch.
    ranks_requested_ = selection->ranks;
    machine_.cards =
        static_cast<int>(std::min<std::size_t>(selection->cards.size(), static_cast<std::size_t>(machine_.ranks)));
    if (selection->cards.empty() && !choice->cpu) {
      notes_.push_back("there is no card: one rank trains on the processors. Simulated cards: FULLDECK_SIMULATE=gcu:8");
    }
    for (const device::Card& card : selection->cards) {
      machine_.card_kind = card.kind;
      machine_.card_model = card.model.value_or("");
      machine_.simulated = card.simulated;
      if (!card.memory_total_bytes) continue;
      machine_.card_memory =
          std::min(machine_.card_memory.value_or(*card.memory_total_bytes), *card.memory_total_bytes);
    }
    const device::Card& host = inventory->host;
    if (host.memory_total_bytes && host.telemetry.memory_used_bytes) {
      machine_.host_memory =
          *host.memory_total_bytes - std::min(*host.memory_total_bytes, *host.telemetry.memory_used_bytes);
    }
    return ExitCode::kOk;
  }

  std::string HowToGetMore(const job::DeviceChoice& choice, const device::Inventory& inventory) const {
    if (!choice.count || options_.share_cards) return "";
    return inventory.Cards().empty()
               ? fmt::format(". Simulated cards: FULLDECK_SIMULATE=gcu:{}", *choice.count)
               : fmt::format(". To run {} ranks on the cards that there are: --devices {} --share-cards", *choice.count,
                             *choice.count);
  }

  ExitCode MakePlan() {
    std::filesystem::path nearest = config::JobFolder(config_).path;
    std::error_code error;
    nearest = std::filesystem::absolute(nearest, error);
    while (!std::filesystem::exists(nearest, error) && nearest.has_relative_path()) nearest = nearest.parent_path();
    struct statvfs disk {};
    if (statvfs(nearest.c_str(), &disk) == 0) {
      machine_.disk_free = static_cast<std::uint64_t>(disk.f_bavail) * static_cast<std::uint64_t>(disk.f_frsize);
    }
    machine_.training_samples = config::CountTrainingSamples(config_);
    auto plan = config::MakePlan(config_, machine_);
    if (!plan) return Refuse(ExitCode::kUsage, plan.error().message);
    plan_ = std::move(*plan);
    // A dry run shows the whole plan first.
    if (!plan_.errors.empty() && !options_.dry_run)
      return Refuse(ExitCode::kCannotStart, base::Join(plan_.errors, "\n"));
    return ExitCode::kOk;
  }

  Earlier WhatOfEarlier() const {
    return options_.resume ? Earlier::kResume : options_.fresh ? Earlier::kSetAside : Earlier::kRefuse;
  }

  ExitCode InspectFolder() {
    const auto fits = CheckFolder(config_, WhatOfEarlier(), &notes_);
    if (fits) return ExitCode::kOk;
    if (!options_.dry_run) return Refuse(ExitCode::kUsage, fits.error().message);
    notes_.push_back("it would not start: " + fits.error().message);
    return ExitCode::kOk;
  }

  ExitCode FindTrainer() {
    auto program = ProgramBeside("fulldeck-train");
    if (!program && !options_.dry_run) return Refuse(ExitCode::kCannotStart, program.error().message);
    if (program) trainer_ = std::move(*program);
    if (!program) notes_.push_back(program.error().message);
    return ExitCode::kOk;
  }

  void PrintNotes() const {
    for (const std::string& note : notes_) Log(Severity::kInfo, note);
    for (const std::string& warning : plan_.warnings) Log(Severity::kWarning, warning);
  }

  ExitCode ShowPlan() const {
    std::fputs((options_.json ? PlanJson() : plan_.ToText(config_, machine_)).c_str(), stdout);
    PrintNotes();
    if (plan_.errors.empty()) return ExitCode::kOk;
    return Refuse(ExitCode::kCannotStart, base::Join(plan_.errors, "\n"));
  }

  std::string PlanJson() const {
    const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
    const config::MemoryEstimate& memory = plan_.memory;
    const Json plan = {
        {"version", kJsonVersion},
        {"name", config_.name},
        {"folder", config::JobFolder(config_).path},
        {"ranks", machine_.ranks},
        {"cards", machine_.cards},
        {"card_kind", machine_.cards > 0 ? Json(machine_.card_kind) : Json(nullptr)},
        {"simulated", machine_.simulated},
        {"global_batch", plan_.shape.global_batch},
        {"rank_batch", plan_.shape.rank_batch},
        {"micro_batch", plan_.shape.micro_batch},
        {"accumulation", plan_.shape.accumulation},
        {"lr", plan_.shape.lr},
        {"steps", known(plan_.steps)},
        {"steps_of_epoch", known(plan_.steps_per_epoch)},
        {"epochs", known(plan_.epochs)},
        {"training_samples", known(machine_.training_samples)},
        {"parameters", memory.parameters},
        {"learning_parameters", memory.trainable},
        {"card_memory_estimate",
         {{"total", memory.total()},
          {"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"averaged", memory.ema},
          {"activations", memory.activations},
          {"rest", memory.rest}}},
        {"card_memory", known(machine_.card_memory)},
        {"host_memory_estimate", plan_.host_memory},
        {"host_memory_free", known(machine_.host_memory)},
        {"checkpoint_bytes", memory.checkpoint()},
        {"disk_needed", plan_.disk},
        {"disk_free", known(machine_.disk_free)},
        {"loader_threads", plan_.threads},
        {"cores", machine_.cores},
        {"errors", plan_.errors},
        {"warnings", plan_.warnings},
        {"notes", notes_},
    };
    return plan.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  ExitCode Start() {
    const std::string run_id = launcher::NewRunId();
    // Held until this process and the launcher have ended.
    auto lock = PrepareFolder(config_, config_text_, WhatOfEarlier(), run_id, &notes_);
    if (!lock) return Refuse(ExitCode::kCannotStart, lock.error().message);
    PrintNotes();
    const config::JobFolder folder(config_);
    Log(Severity::kInfo,
        base::Printable(fmt::format(
            "{}: {} rank{} on {}, global batch {}, {}; log: {}", config_.name, machine_.ranks,
            machine_.ranks == 1 ? "" : "s",
            machine_.cards == 0 ? std::string("the processors")
                                : fmt::format("{} {} card{}{}", machine_.cards, machine_.card_kind,
                                              machine_.cards == 1 ? "" : "s", machine_.simulated ? " (simulated)" : ""),
            plan_.shape.global_batch,
            plan_.steps ? fmt::format("{} steps", *plan_.steps) : fmt::format("{} epochs", config_.epochs),
            folder.merged_log())));
    return static_cast<ExitCode>(RunLaunch(job::LaunchStyle::kFulldeck, LaunchLine(run_id)));
  }

  const Options options_;
  const base::Environment environment_;
  std::string config_text_;
  config::Config config_;
  std::string trainer_;
  std::string devices_;  // for the launcher
  std::optional<int> ranks_requested_;
  config::MachineFacts machine_;
  config::Plan plan_;
  std::vector<std::string> notes_;
};

}  // namespace

Action AddTrain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "train", "Train the vision job that a recipe describes, one rank a card");
  command.Option("CONFIG", options->config, "The recipe: a TOML file (docs/recipes.md)").Required().TypeName("");
  command.Option("--devices", options->devices, "The cards to use: auto for all, a number, or as in fulldeck run")
      .TypeName("auto|N|…")
      .NotEmpty("--devices needs a value: auto, a number, cpu …");
  command.Option("--set", options->assignments, "Another value for a key of the recipe; may be given often")
      .TypeName("KEY=VALUE")
      .OneEachTime();
  command.Flag("--dry-run", options->dry_run, "Show the plan (ranks, batch, memory, disk …), and start nothing");
  command.Flag("--json", options->json, "With --dry-run: the plan as one JSON object for programs");
  command.Flag("--resume", options->resume, "Go on from the newest checkpoint in the job's folder");
  command.Flag("--fresh", options->fresh, "Set the folder of an earlier run aside (it is renamed) and start anew");
  command.Option("--max-restarts", options->max_restarts, "Start all ranks again so often when one fails; they resume")
      .TypeName("N")
      .InRange(0, 1000);
  command
      .Option(
          "--idle-card", options->idle_card,
          "When a card does no work for its rank: warn; fail: exit code 86; require: also when that cannot be known")
      .TypeName("warn|fail|require|off")
      .OneOf({"warn", "fail", "require", "off"});
  command.Flag("--share-cards", options->share_cards, "--devices N may be more than there are cards: ranks share them");
  command.Flag("--detach", options->detach, "Go on in the background; then fulldeck logs -f, ps and stop");
  command.Footer(
      "Examples:\n"
      "  FULLDECK_SIMULATE=gcu:8 fulldeck train configs/demo.toml\n"
      "  fulldeck train configs/loveda_8card.toml --set data.root=/data/LoveDA --dry-run\n"
      "  fulldeck train configs/loveda_8card.toml --devices 4 --set epochs=50 --set name=loveda-50\n"
      "  fulldeck train configs/loveda_8card.toml --resume\n"
      "Output goes to work_dirs/NAME: logs/train.log, checkpoints, events and the report.");
  return [options] { return TrainCommand(*options).Run(); };
}

}  // namespace fulldeck::cli
