#include "config/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"

namespace fulldeck::config {
namespace {

constexpr int kPatch = 16;  // the side of the model's patches
constexpr int kMaxPixels = 16384;

// A check on the text, so that what is no number at all is refused in the same words.
CLI::Validator Pixels(int step, const std::string& what) {
  return {[step, what](std::string& value) {
            const auto pixels = base::ParseInteger<int>(value);
            const bool good = pixels && *pixels >= step && *pixels <= kMaxPixels && *pixels % step == 0;
            return good ? std::string()
                        : fmt::format("{} is not a {} from {} to {}", base::Printable(value), what, step, kMaxPixels);
          },
          ""};
}

std::string UnknownOption(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const auto near = word.starts_with("-") ? base::ClosestMatch(word.substr(0, word.find('=')), names) : std::nullopt;
  return fmt::format("{} '{}'{}", word.starts_with("-") ? "unknown option" : "unexpected argument",
                     base::Printable(word), near ? fmt::format("; did you mean {}?", *near) : ".");
}

// The help if it was asked for, else an empty text.
base::Result<std::string> Parse(CLI::App& app, std::vector<std::string> words) {
  app.set_help_flag("-h,--help", "Print this help and end");
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
  try {
    app.parse(words);
    return std::string();
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extras = app.remaining();
    return base::Error{(extras.empty() ? base::Printable(error.what()) + "." : UnknownOption(app, extras.front())) +
                       fmt::format(" See: {} --help", app.get_name())};
  }
}

}  // namespace

void DeclarePredictOptions(CLI::App& command, PredictArguments& arguments) {
  command.add_option("IMAGE", arguments.images, "PNG, JPEG or TIFF files")->required()->type_name("");
  command.add_option("-o,--output", arguments.output, "Folder for the masks")->type_name("DIR")->capture_default_str();
  command.add_flag("--flips", arguments.flips, "Average over the flipped images as well: slower and a little better");
  command.add_flag("--newest", arguments.newest, "Of a job's checkpoints take the newest, not the best");
  command.add_flag("--json", arguments.json, "What was found, as JSON for programs");
  command
      .add_option("--window", arguments.window,
                  "Side of the windows that slide over a large image; default: as trained")
      ->type_name("PIXELS")
      ->check(Pixels(kPatch, "multiple of 16"));
  command.add_option("--stride", arguments.stride, "From window to window; default: two thirds of one")
      ->type_name("PIXELS")
      ->check(Pixels(1, "whole number"));
  command
      .add_option("--device", arguments.device,
                  "Such as cpu, cuda:0 or gcu:3; default: cuda where torch has it, else cpu")
      ->type_name("DEVICE");
}

std::optional<std::string> StrideProblem(int stride, int window) {
  if (stride <= window) return std::nullopt;
  return fmt::format("--stride {} is more than the window of {} pixels, and would leave gaps", stride, window);
}

base::Result<PredictArguments> ParsePredictArguments(std::vector<std::string> words) {
  PredictArguments arguments;
  CLI::App app("Shows images to a model that fulldeck train has trained. People run fulldeck predict.",
               "fulldeck-predict");
  app.add_option("--checkpoint", arguments.checkpoint, "Folder of a checkpoint, or of a job: its best one")
      ->required()
      ->type_name("DIR");
  DeclarePredictOptions(app, arguments);
  app.footer(
      "Segmentation writes NAME_mask.png, NAME_overlay.png and, for a TIFF file, NAME_mask.tif with the tags that say\n"
      "where it lies. Exit code: 0; 1 if something failed (the other images are still done); 2 for a wrong command "
      "line.");
  const auto help = Parse(app, std::move(words));
  if (!help) return help.error();
  arguments.help = *help;
  return arguments;
}

std::vector<std::string> PredictCommandLine(const PredictArguments& arguments) {
  // With "=", a value may begin with '-'.
  std::vector<std::string> words = {"--checkpoint=" + arguments.checkpoint, "--output=" + arguments.output};
  if (arguments.flips) words.emplace_back("--flips");
  if (arguments.newest) words.emplace_back("--newest");
  if (arguments.json) words.emplace_back("--json");
  if (arguments.window) words.push_back("--window=" + std::to_string(*arguments.window));
  if (arguments.stride) words.push_back("--stride=" + std::to_string(*arguments.stride));
  if (!arguments.device.empty()) words.push_back("--device=" + arguments.device);
  words.emplace_back("--");
  words.insert(words.end(), arguments.images.begin(), arguments.images.end());
  return words;
}

base::Result<TrainArguments> ParseTrainArguments(std::vector<std::string> words) {
  TrainArguments arguments;
  CLI::App app("One rank of a training job. People run fulldeck train.", "fulldeck-train");
  app.add_option("--recipe", arguments.resolved_config,
                 "work_dirs/NAME/recipe.resolved, which fulldeck train CONFIG.toml writes")
      ->required()
      ->type_name("FILE");
  app.add_flag("--resume", arguments.resume, "Go on from the newest checkpoint of the job's folder");
  const auto help = Parse(app, std::move(words));
  if (!help) return help.error();
  arguments.help = *help;
  return arguments;
}

}  // namespace fulldeck::config
