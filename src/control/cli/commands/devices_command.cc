// fulldeck devices: the cards of this machine, once or repeatedly.
#include <memory>

#include "base/log.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/device_report.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "device/inventory.h"

namespace fulldeck::cli {
namespace {

struct Options {
  bool json = false;
  bool all = false;
  double watch_seconds = 0;
  double timeout_seconds = std::chrono::duration<double>(device::kDefaultTimeout).count();
  std::string root = "/";
};

// Logs the failures to stderr; the worst of them becomes the exit code.
wire::ExitCode ReportTrouble(const device::Inventory& inventory) {
  wire::ExitCode code = wire::ExitCode::kOk;
  for (const device::VendorReport& report : inventory.vendors) {
    for (const std::string& failure : report.failures) {
      base::Log(base::Severity::kError, report.title + ": " + failure);
      code = wire::ExitCode::kSourceFailed;
    }
  }
  for (const device::VendorReport& report : inventory.vendors) {
    if (!report.bad_visibility) continue;
    base::Log(base::Severity::kError, *report.bad_visibility);
    code = wire::ExitCode::kBadEnvironment;
  }
  return code;
}

class DevicesCommand {
 public:
  explicit DevicesCommand(const Options& options) : options_(options), reader_(MakeReader(options)) {}

  wire::ExitCode ShowOnce() {
    const auto inventory = reader_.Read();
    if (!inventory) {
      base::Log(base::Severity::kError, inventory.error().message);
      return wire::ExitCode::kBadEnvironment;
    }
    const bool colors = StdoutWantsColor();
    const std::string text = options_.json ? DevicesJson(*inventory) : DevicesText(*inventory, {colors, options_.all});
    const wire::ExitCode printed = watching() ? PrintFrame(options_.json ? text : text + "\n") : Print(text);
    const wire::ExitCode code = ReportTrouble(*inventory);
    return printed == wire::ExitCode::kOk ? code : printed;
  }

  // Until Ctrl-C, or until the output has no reader any more.
  wire::ExitCode ShowAgainAndAgain() {
    return Watch(Seconds(options_.watch_seconds), [this](const auto&) { return ShowOnce(); });
  }

  bool watching() const { return options_.watch_seconds > 0; }

 private:
  static device::InventoryReader MakeReader(const Options& options) {
    device::InventoryOptions inventory;
    inventory.root = base::SystemRoot(options.root);
    inventory.timeout = Seconds(options.timeout_seconds);
    return device::InventoryReader(std::move(inventory));
  }

  const Options options_;
  device::InventoryReader reader_;
};

}  // namespace

Action AddDevices(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "devices", "Show the cards of this machine: what they are and what they do now");
  command.Flag("--json", options->json, "One JSON object for programs (docs/devices.md)");
  command.Flag("--all", options->all, "Also say of every vendor that is not here why");
  command.Option("--watch", options->watch_seconds, "Show it again every SECONDS (default 1) until Ctrl-C")
      .TypeName("[SECONDS]")
      .ValueMayBeLeftOut("1")
      .InRange(0.1, 86400.0);
  command.Option("--timeout", options->timeout_seconds, "How long a vendor's library or tool may take")
      .TypeName("SECONDS")
      .ShowDefault()
      .InRange(0.1, 600.0);
  command.Option("--root", options->root, "Read /proc, /sys and /dev below DIR: a recorded machine")
      .TypeName("DIR")
      .ExistingFolder();
  command.Footer(
      "Examples:\n"
      "  fulldeck devices --watch\n"
      "  fulldeck devices --json | jq '.cards[].serial'\n"
      "  FULLDECK_SIMULATE=gcu:8,memory=32GiB,idle=3 fulldeck devices\n"
      "Simulated cards: FULLDECK_SIMULATE=KIND:COUNT[,OPTION=VALUE...] with KIND gcu, xla, npu, mlu, musa, sdaa, hpu, "
      "cuda,\n"
      "hip or xpu, and options memory=SIZE, slow=CARDS:FACTOR, and idle, broken, lying, hung, dropped=CARDS (3, 1+3 or "
      "0-3).\n"
      "Visible-device variables (CUDA_VISIBLE_DEVICES, TOPS_VISIBLE_DEVICES, ...) are honoured and shown, never "
      "changed.");
  return [options] {
    DevicesCommand devices(*options);
    return devices.watching() ? devices.ShowAgainAndAgain() : devices.ShowOnce();
  };
}

}  // namespace fulldeck::cli
