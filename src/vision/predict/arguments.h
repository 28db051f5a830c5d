// The command line of fulldeck-predict. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::predict {

struct Arguments {
  std::string checkpoint;
  std::string output = ".";
  std::optional<int> window;  // absent: the config's data.size
  std::optional<int> stride;  // absent: two thirds of the window
  bool flips = false;
  bool newest = false;  // of several checkpoints not the best but the last
  std::string device;   // empty: what the machine has
  bool json = false;
  bool help = false;
  std::vector<std::string> images;
};

base::Result<Arguments> ParseArguments(const std::vector<std::string>& args);

extern const char kHelp[];

}  // namespace fulldeck::predict
