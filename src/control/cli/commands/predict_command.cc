// fulldeck predict: passes its arguments to fulldeck-predict, which has torch and the image formats.
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
#include "config/command_line.h"

namespace fulldeck::cli {
namespace {

using config::PredictArguments;
using wire::ExitCode;

// Accepts a checkpoint, or the folder of a job or of its checkpoints, in which fulldeck-predict finds the best one.
std::optional<std::string> ProblemOf(const PredictArguments& arguments) {
  std::error_code error;
  if (!std::filesystem::exists(arguments.checkpoint, error)) {
    return fmt::format("there is no checkpoint {}; name a folder such as work_dirs/demo/checkpoints/step-000000300",
                       base::Printable(arguments.checkpoint));
  }
  if (!std::filesystem::is_directory(arguments.checkpoint, error)) {
    return fmt::format("{} is a file; a checkpoint is a folder such as work_dirs/demo/checkpoints/step-000000300",
                       base::Printable(arguments.checkpoint));
  }
  for (const std::string& image : arguments.images) {
    if (!std::filesystem::exists(image, error)) return fmt::format("there is no image {}", base::Printable(image));
    if (std::filesystem::is_directory(image, error)) {
      return fmt::format("{0} is a folder: name the images in it, such as {0}/*.png", base::Printable(image));
    }
  }
  if (arguments.stride && arguments.window) return config::StrideProblem(*arguments.stride, *arguments.window);
  return std::nullopt;
}

ExitCode Predict(const PredictArguments& arguments) {
  if (const auto wrong = ProblemOf(arguments)) return Refuse(ExitCode::kUsage, *wrong);
  const auto program = ProgramBeside("fulldeck-predict");
  if (!program) return Refuse(ExitCode::kCannotStart, program.error().message);
  std::vector<std::string> words = config::PredictCommandLine(arguments);
  words.insert(words.begin(), *program);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(program->c_str(), pointers.data());
  return Refuse(ExitCode::kCannotStart,
                fmt::format("cannot start {}: {}", base::Printable(*program), std::strerror(errno)));
}

}  // namespace

Action AddPredict(CLI::App& app) {
  auto arguments = std::make_shared<PredictArguments>();
  CommandOptions command(app, "predict", "Classify images, or their pixels, with a checkpoint of fulldeck train");
  command.Option("CHECKPOINT", arguments->checkpoint, "Folder of a checkpoint, or of a job").Required().TypeName("");
  config::DeclarePredictOptions(command.app(), *arguments);
  command.Footer(
      "Examples:\n"
      "  fulldeck predict work_dirs/demo tile.png\n"
      "  fulldeck predict work_dirs/loveda_8card/checkpoints/step-000040000 scene.tif -o masks --flips");
  return [arguments] { return Predict(*arguments); };
}

}  // namespace fulldeck::cli
