// fulldeck probe-card: what `fulldeck doctor --deep` starts to use one card. Not for people, so not in the help.
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
    // Past every destructor: a driver that hangs or crashes while it is unloaded has nothing left to spoil.
    _exit(doctor::RunCardProbe(*request));
  };
}

}  // namespace fulldeck::cli
