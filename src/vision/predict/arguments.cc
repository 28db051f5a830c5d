#include "predict/arguments.h"

#include "base/text.h"
#include "predict/sliding_window.h"

namespace fulldeck::predict {
namespace {

constexpr int kMaxWindow = 16384;

const std::vector<std::string>& Known() {
  static const std::vector<std::string> names = {"--checkpoint", "--output", "--window", "--stride", "--flips",
                                                 "--newest",     "--device", "--json",   "--help"};
  return names;
}

base::Error Unknown(const std::string& arg) {
  const std::optional<std::string> meant = base::ClosestMatch(arg, Known());
  return {"what is " + base::Printable(arg) + "? " +
          (meant ? "Did you mean " + *meant + "?" : "Known: " + base::Join(Known(), ", ") + ".")};
}

base::Result<int> Pixels(const std::string& name, const std::string& value, bool patches) {
  const std::optional<int> pixels = base::ParseInteger<int>(value);
  if (!pixels || *pixels < 1 || *pixels > kMaxWindow || (patches && *pixels % kPatch != 0)) {
    return base::Error{name + " is " + base::Printable(value) + ", and must be " +
                       (patches ? "a multiple of 16 pixels, at most " : "a whole number of pixels, at most ") +
                       std::to_string(kMaxWindow) + "."};
  }
  return *pixels;
}

}  // namespace

const char kHelp[] =
    "Usage: fulldeck-predict --checkpoint DIR [options] IMAGE...\n"
    "\n"
    "Shows images to a model that `fulldeck train` has trained.\n"
    "\n"
    "  --checkpoint DIR  a checkpoint (…/checkpoints/step-000001000), or the job's folder: its best one\n"
    "  --newest          of a job's checkpoints the newest and not the best\n"
    "  --output DIR      where the results go (default: .)\n"
    "  --window N        side of the sliding window in pixels, a multiple of 16 (default: as trained)\n"
    "  --stride N        from window to window (default: two thirds of the window)\n"
    "  --flips           the mean over the four flips of each window\n"
    "  --device D        cpu, cuda, gcu:3 … (default: cuda where torch has it, else cpu)\n"
    "  --json            the results as JSON on stdout\n"
    "\n"
    "Segmentation writes NAME_mask.png, NAME_overlay.png and, for a TIFF file, NAME_mask.tif with the tags that say\n"
    "where it lies. Exit code: 0, 1 when something failed (the other images are still done), 2 for a wrong command "
    "line.\n";

base::Result<Arguments> ParseArguments(const std::vector<std::string>& args) {
  Arguments arguments;
  bool only_images = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string arg = args[i];
    if (only_images || (arg.empty() || arg[0] != '-')) {
      arguments.images.push_back(arg);
      continue;
    }
    if (arg == "--") {
      only_images = true;
      continue;
    }
    if (arg == "--flips" || arg == "--newest" || arg == "--json" || arg == "--help" || arg == "-h") {
      arguments.flips = arguments.flips || arg == "--flips";
      arguments.newest = arguments.newest || arg == "--newest";
      arguments.json = arguments.json || arg == "--json";
      arguments.help = arguments.help || arg == "--help" || arg == "-h";
      continue;
    }
    std::optional<std::string> value;
    if (const std::size_t equals = arg.find('='); equals != std::string::npos) {
      value = arg.substr(equals + 1);
      arg.resize(equals);
    }
    const bool takes_value =
        arg == "--checkpoint" || arg == "--output" || arg == "--window" || arg == "--stride" || arg == "--device";
    if (!takes_value) return Unknown(args[i]);
    if (!value && i + 1 < args.size()) value = args[++i];
    if (!value || value->empty()) return base::Error{arg + " needs a value."};
    if (arg == "--checkpoint") arguments.checkpoint = *value;
    if (arg == "--output") arguments.output = *value;
    if (arg == "--device") arguments.device = *value;
    if (arg == "--window" || arg == "--stride") {
      const base::Result<int> pixels = Pixels(arg, *value, arg == "--window");
      if (!pixels) return pixels.error();
      (arg == "--window" ? arguments.window : arguments.stride) = *pixels;
    }
  }
  if (arguments.help) return arguments;
  if (arguments.checkpoint.empty())
    return base::Error{"--checkpoint DIR is missing: the folder of a job or of one of its checkpoints."};
  if (arguments.images.empty()) return base::Error{"there is no image to look at: name one or more files."};
  return arguments;
}

}  // namespace fulldeck::predict
