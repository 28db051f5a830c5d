// fulldeck predict: hands its arguments to fulldeck-predict, which has torch and the image formats.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program_beside.h"

namespace fulldeck::cli {
namespace {

using wire::ExitCode;

struct Options {
  std::string checkpoint;
  std::vector<std::string> images;
  std::string output = ".";
  int window = 0;
  int stride = 0;
  bool flips = false;
  bool newest = false;
  bool json = false;
  std::string device;
};

// A checkpoint, or the folder of a job or of its checkpoints: fulldeck-predict finds the best one in it.
std::optional<std::string> WhatIsWrongWith(const Options& options) {
  std::error_code error;
  if (!std::filesystem::exists(options.checkpoint, error)) {
    return fmt::format("there is no checkpoint {}; name a folder such as work_dirs/demo/checkpoints/step-000000300",
                       base::Printable(options.checkpoint));
  }
  if (!std::filesystem::is_directory(options.checkpoint, error)) {
    return fmt::format("{} is a file; a checkpoint is a folder such as work_dirs/demo/checkpoints/step-000000300",
                       base::Printable(options.checkpoint));
  }
  for (const std::string& image : options.images) {
    if (!std::filesystem::exists(image, error)) return fmt::format("there is no image {}", base::Printable(image));
    if (std::filesystem::is_directory(image, error)) {
      return fmt::format("{0} is a folder: name the images in it, such as {0}/*.png", base::Printable(image));
    }
  }
  if (options.stride > 0 && options.window > 0 && options.stride > options.window) {
    return fmt::format("--stride {} is larger than --window {}: pixels between the windows would be left out",
                       options.stride, options.window);
  }
  return std::nullopt;
}

ExitCode Predict(const Options& options) {
  if (const auto wrong = WhatIsWrongWith(options)) return Refuse(ExitCode::kUsage, *wrong);
  const auto program = ProgramBeside("fulldeck-predict");
  if (!program) return Refuse(ExitCode::kCannotStart, program.error().message);
  std::vector<std::string> line = {*program, "--checkpoint", options.checkpoint, "--output", options.output};
  const auto add = [&](const char* name, const std::string& value) { line.insert(line.end(), {name, value}); };
  if (options.window > 0) add("--window", std::to_string(options.window));
  if (options.stride > 0) add("--stride", std::to_string(options.stride));
  if (options.flips) line.emplace_back("--flips");
  if (options.newest) line.emplace_back("--newest");
  if (options.json) line.emplace_back("--json");
  if (!options.device.empty()) add("--device", options.device);
  line.insert(line.end(), options.images.begin(), options.images.end());
  std::vector<char*> arguments;
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program->c_str(), arguments.data());
  return Refuse(ExitCode::kCannotStart,
                fmt::format("cannot start {}: {}", base::Printable(*program), std::strerror(errno)));
}

}  // namespace

Action AddPredict(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "predict", "Classify images, or their pixels, with a checkpoint of fulldeck train");
  command.Option("CHECKPOINT", options->checkpoint, "Folder of a checkpoint, or of a job").Required().TypeName("");
  command.Option("IMAGE", options->images, "PNG, JPEG or TIFF files").Required().TypeName("");
  command.Option("-o,--output", options->output, "Folder for the masks").TypeName("DIR").ShowDefault();
  command.Flag("--flips", options->flips, "Average over the flipped images as well: slower and a little better");
  command.Flag("--newest", options->newest, "Of a job's checkpoints take the newest, not the best");
  command.Flag("--json", options->json, "What was found, as JSON for programs");
  command.Option("--window", options->window, "Side of the windows that slide over a large image; default: as trained")
      .TypeName("PIXELS")
      .InRange(16, 16384);
  command.Option("--stride", options->stride, "From window to window; default: two thirds of one")
      .TypeName("PIXELS")
      .InRange(1, 16384);
  command
      .Option("--device", options->device, "Such as cpu, cuda:0 or gcu:3; default: cuda where torch has it, else cpu")
      .TypeName("DEVICE");
  command.Footer(
      "Examples:\n"
      "  fulldeck predict work_dirs/demo tile.png\n"
      "  fulldeck predict work_dirs/loveda_8card/checkpoints/step-000040000 scene.tif -o masks --flips");
  return [options] { return Predict(*options); };
}

}  // namespace fulldeck::cli
