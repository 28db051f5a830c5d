// fulldeck probe-card: the process that `fulldeck doctor --deep` starts to use one card. Internal, so not in the
// help.
#include <unistd.h>

#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "doctor/cards/card_proof.h"

namespace fulldeck::cli {

Action AddProbeCard(CLI::App& app) {
  auto request = std::make_shared<std::string>();
  CommandOptions command(app, "probe-card", "Uses one card for another fulldeck");
  command.Hide();
  command.Option("REQUEST", *request).Required();
  return [request]() -> wire::ExitCode {
    // Skip all destructors: a driver that hangs or crashes while it is unloaded can no longer do harm.
    _exit(doctor::RunCardProbe(*request));
  };
}

}  // namespace fulldeck::cli
