// One argument per line. Lines before an empty one are variables: NAME=value.
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "fuzz_target.h"
#include "job/cards/device_choice.h"
#include "job/launch/cluster.h"
#include "job/launch/launch_flags.h"

namespace {

using namespace fulldeck;

void CheckMessage(const base::Error& error) {
  FULLDECK_CHECK(!error.message.empty() && error.message.size() < 4096);
  FULLDECK_CHECK(error.message.find('\x1b') == std::string::npos);
}

void CheckFlags(const job::LaunchFlags& flags, const std::vector<std::string>& arguments) {
  if (flags.help) return;
  FULLDECK_CHECK(!flags.program.empty() && !flags.program[0].empty() && flags.program.size() <= arguments.size());
  FULLDECK_CHECK(std::equal(flags.program.rbegin(), flags.program.rend(), arguments.rbegin()));
  FULLDECK_CHECK(flags.min_nodes >= 1 && flags.min_nodes <= flags.max_nodes);
  FULLDECK_CHECK(!flags.nproc || (*flags.nproc >= 1 && !flags.nproc_kind));
  FULLDECK_CHECK((flags.rendezvous == job::Rendezvous::kNone) == (flags.max_nodes == 1));
  FULLDECK_CHECK(flags.endpoint_port.has_value() == (flags.max_nodes > 1));
  FULLDECK_CHECK(!flags.master_port || (*flags.master_port >= 1 && *flags.master_port <= 65535));
  FULLDECK_CHECK(!(flags.module && (flags.no_python || flags.run_path)));
  FULLDECK_CHECK(flags.grace.count() >= 0 && flags.join_timeout.count() > 0);
  FULLDECK_CHECK(job::ParseDeviceChoice(flags.devices).ok());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> arguments;
  base::Environment environment;
  for (const std::string_view line : base::Split(fuzz::AsText(data, size), '\n')) {
    arguments.emplace_back(line);
    if (!line.empty()) continue;
    for (const std::string& variable : arguments) {
      const auto equals = variable.find('=');
      if (equals != std::string::npos) environment.Set(variable.substr(0, equals), variable.substr(equals + 1));
    }
    arguments.clear();
  }
  const auto place = job::ReadCluster(environment);
  if (!place) CheckMessage(place.error());
  for (const auto style : {job::LaunchStyle::kFulldeck, job::LaunchStyle::kTorchrun, job::LaunchStyle::kLaunch}) {
    auto flags = job::ParseLaunchFlags(style, arguments, environment);
    if (!flags) {
      CheckMessage(flags.error());
      continue;
    }
    CheckFlags(*flags, arguments);
    if (flags->help || !place || !*place) continue;
    const auto applied = job::ApplyCluster(**place, *flags);
    if (!applied) {
      CheckMessage(applied.error());
      continue;
    }
    CheckFlags(*flags, arguments);
    const auto complete = job::CheckComplete(*flags);
    if (!complete) CheckMessage(complete.error());
    if (complete && flags->rendezvous == job::Rendezvous::kStatic)
      FULLDECK_CHECK(flags->node_rank && !flags->endpoint_host.empty());
  }
  return 0;
}
