// fulldeck vendor-helper: the process that fulldeck starts to query a vendor's library. Internal, so not in the help.
#include <memory>

#include "base/log.h"
#include "cli/command.h"
#include "cli/options.h"
#include "device/libraries/vendor_helper.h"

namespace fulldeck::cli {

Action AddVendorHelper(CLI::App& app) {
  struct Options {
    std::string kind;
    std::vector<std::string> candidates;
  };
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "vendor-helper", "Reads one vendor library for another fulldeck");
  command.Hide();
  command.Option("KIND", options->kind).Required();
  command.Option("CANDIDATE", options->candidates).Required();
  return [options] {
    const auto kind = device::ParseLibraryKind(options->kind);
    if (!kind) {
      base::Log(base::Severity::kError, "vendor-helper: there is no kind of library '" + options->kind + "'");
      return wire::ExitCode::kUsage;
    }
    return device::RunVendorHelper(*kind, options->candidates) == 0 ? wire::ExitCode::kOk : wire::ExitCode::kFailed;
  };
}

}  // namespace fulldeck::cli
