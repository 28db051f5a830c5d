// fulldeck-train: what `fulldeck train` runs on every card.
#include <cstdio>
#include <exception>
#include <string>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/read.h"
#include "trainer/job.h"

namespace {

constexpr char kUsage[] =
    "usage: fulldeck-train --recipe FILE [--resume]\n"
    "One rank of a training job; FILE is work_dirs/NAME/recipe.resolved, which `fulldeck train CONFIG.toml` writes.\n"
    "A person runs `fulldeck train`.\n";

int Usage(const std::string& what) {
  fulldeck::base::Log(fulldeck::base::Severity::kError, what);
  std::fputs(kUsage, stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string path;
  fulldeck::trainer::JobOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "--resume") {
      options.resume = true;
    } else if (argument == "--recipe" && i + 1 < argc) {
      path = argv[++i];
    } else {
      return Usage("what is " + fulldeck::base::Printable(argument) + "?");
    }
  }
  if (path.empty()) return Usage("--recipe FILE is missing.");
  const auto text = fulldeck::base::ReadWholeFile(path, fulldeck::config::kMaxConfigBytes);
  if (!text.ok()) return Usage(text.error().message + ".");
  const auto config = fulldeck::config::FromResolvedText(*text, path);
  if (!config.ok()) return Usage(config.error().message);
  return fulldeck::trainer::RunJob(*config, options);
} catch (const std::exception& error) {
  fulldeck::base::Log(fulldeck::base::Severity::kError, error.what());
  return 1;
}
