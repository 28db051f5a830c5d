// The command lines of the vision job's programs, fulldeck-train and fulldeck-predict, and what `fulldeck predict`
// shares with the latter: each flag is declared and checked here, once. Pure: reads no file, prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

// NOLINTNEXTLINE(readability-identifier-naming): CLI11's own
namespace CLI {
class App;
}  // namespace CLI

namespace fulldeck::config {

struct PredictArguments {
  std::string help;  // its text, if --help was given; nothing else is set then
  std::string checkpoint;
  std::vector<std::string> images;
  std::string output = ".";
  std::optional<int> window;  // absent: the config's data.size
  std::optional<int> stride;  // absent: two thirds of the window
  bool flips = false;
  bool newest = false;  // of several checkpoints not the best but the last
  bool json = false;
  std::string device;  // empty: what the machine has
};

// Declares all of them but the checkpoint and the help, with their checks, as options of `command`. `arguments` must
// live as long as `command`.
void DeclarePredictOptions(CLI::App& command, PredictArguments& arguments);

// What is wrong with this stride, if anything.
std::optional<std::string> StrideProblem(int stride, int window);

// The command line of fulldeck-predict, without the program's name, and the words that make it from `arguments`. File
// names may begin with '-'.
base::Result<PredictArguments> ParsePredictArguments(std::vector<std::string> words);
std::vector<std::string> PredictCommandLine(const PredictArguments& arguments);

struct TrainArguments {
  std::string help;  // as above
  std::string resolved_config;
  bool resume = false;
};

// The command line of fulldeck-train.
base::Result<TrainArguments> ParseTrainArguments(std::vector<std::string> words);

}  // namespace fulldeck::config
