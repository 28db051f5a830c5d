// fulldeck-train: the program that `fulldeck train` runs on every card.
#include <cstdio>
#include <exception>
#include <string>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "config/command_line.h"
#include "config/read.h"
#include "trainer/job.h"

namespace {

int Refuse(const std::string& what) {
  fulldeck::base::Log(fulldeck::base::Severity::kError, what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto arguments = fulldeck::config::ParseTrainArguments({argv + 1, argv + argc});
  if (!arguments.ok()) return Refuse(arguments.error().message);
  if (!arguments->help.empty()) {
    std::fputs(arguments->help.c_str(), stdout);
    return 0;
  }
  const std::string& path = arguments->resolved_config;
  fulldeck::trainer::JobOptions options;
  options.resume = arguments->resume;
  const auto text = fulldeck::base::ReadWholeFile(path, fulldeck::config::kMaxConfigBytes);
  if (!text.ok()) return Refuse(text.error().message + ".");
  const auto config = fulldeck::config::FromResolvedText(*text, path);
  if (!config.ok()) return Refuse(config.error().message);
  return fulldeck::trainer::RunJob(*config, options);
} catch (const std::exception& error) {
  fulldeck::base::Log(fulldeck::base::Severity::kError, error.what());
  return 1;
}
