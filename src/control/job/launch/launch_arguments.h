// Splits the command line of `fulldeck run` by the rules of Python's argparse, which torchrun's users know: which
// flag was given with which text, and where the program begins. launch_flags.cc interprets the texts. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

struct GivenFlag {
  std::string value;  // empty for a switch that is on
  std::string name;   // for messages: "--nnodes", "PET_NNODES"
  bool from_environment = false;

  // "--nnodes 'x': why"; the value is made printable and shortened.
  base::Error Refuse(std::string_view why) const;
};

struct LaunchArguments {
  std::map<FlagId, GivenFlag> given;  // the last of each; a flag overrides its PET_ variable
  std::vector<std::string> program;   // empty: none
  bool help = false;

  const GivenFlag* Find(FlagId id) const;
  bool Has(FlagId id) const { return Find(id) != nullptr; }
};

base::Result<LaunchArguments> ReadLaunchArguments(const std::vector<std::string>& arguments,
                                                  const base::Environment& environment);

}  // namespace fulldeck::job
