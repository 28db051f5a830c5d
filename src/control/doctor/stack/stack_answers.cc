#include "doctor/stack/stack_answers.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/python_start.h"
#include "base/text.h"
#include "device/vendor_traits.h"
#include "doctor/probe_process.h"
#include "doctor/python_scripts.h"

namespace fulldeck::doctor {
namespace {

using Json = nlohmann::json;

constexpr CollectiveLibrary kLibraries[] = {
    {"nccl", "libnccl.so.2", "ncclGetVersion"},
    {"eccl", "libeccl.so", "ecclGetVersion"},
    {"hccl", "libhccl.so", ""},
    {"cncl", "libcncl.so", ""},
    {"mccl", "libmccl.so.2", "mcclGetVersion"},
};

constexpr base::Duration kShortTimeout = std::chrono::seconds(10);

// Packages whose files are compared with their wheels.
const char* const kWatchedPackages[] = {"torch",      "torchvision", "mmengine",  "mmcv",      "mmsegmentation",
                                        "mmdet",      "accelerate",  "torch-gcu", "torch-npu", "torch-mlu",
                                        "torch-musa", "torch-xla",   "ptex"};

std::string Text(const Json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_string()) return "";
  return base::Printable(object[key].get<std::string>().substr(0, 4096));
}

bool Flag(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_boolean() && object[key].get<bool>();
}

std::uint64_t Count(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number_unsigned() ? object[key].get<std::uint64_t>() : 0;
}

std::optional<int> Whole(const Json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_number_integer()) return std::nullopt;
  return object[key].get<int>();
}

std::vector<std::string> Texts(const Json& object, const char* key) {
  std::vector<std::string> texts;
  if (!object.contains(key) || !object[key].is_array()) return texts;
  for (const Json& text : object[key]) {
    if (text.is_string()) texts.push_back(base::Printable(text.get<std::string>()));
  }
  return texts;
}

std::vector<Json> Objects(const Json& object, const char* key) {
  std::vector<Json> objects;
  if (!object.contains(key) || !object[key].is_array()) return objects;
  for (const Json& entry : object[key]) {
    if (entry.is_object()) objects.push_back(entry);
  }
  return objects;
}

// Parses one line into the answers. Returns the step that starts with this line, if it names one.
std::string ReadQuestionLine(const Json& line, StackAnswers& answers) {
  const std::string about = Text(line, "about");
  if (about == "python") {
    answers.python = PythonAnswer{Text(line, "version"),
                                  Whole(line, "major").value_or(0),
                                  Whole(line, "minor").value_or(0),
                                  Text(line, "executable"),
                                  Text(line, "prefix"),
                                  Text(line, "base_prefix")};
    return "looking for packages";
  }
  if (about == "path") {
    for (const Json& shadow : Objects(line, "shadows"))
      answers.shadows.push_back({Text(shadow, "module"), Text(shadow, "file")});
  } else if (about == "packages") {
    for (const Json& package : Objects(line, "found")) {
      answers.packages.push_back(
          {Text(package, "name"), Text(package, "version"), Text(package, "folder"), Texts(package, "requires")});
    }
  } else if (about == "modules") {
    answers.modules_known = true;
    if (line.contains("found") && line["found"].is_object()) {
      for (const auto& [name, module] : line["found"].items()) {
        if (!module.is_object()) continue;
        answers.modules[base::Printable(name)] = {
            Text(module, "origin"), Text(module, "folder"),   Text(module, "version"), Text(module, "cuda"),
            Text(module, "hip"),    Flag(module, "compiled"), Count(module, "bytes"),  Text(module, "error")};
      }
    }
    return "importing torch";
  } else if (about == "torch") {
    answers.torch =
        TorchAnswer{Flag(line, "imports"),
                    Text(line, "error"),
                    Text(line, "version"),
                    Text(line, "cuda"),
                    Text(line, "hip"),
                    Text(line, "file"),
                    Flag(line, "nccl"),
                    Flag(line, "gloo"),
                    line.contains("seconds") && line["seconds"].is_number() ? line["seconds"].get<double>() : 0};
    return "asking torch";
  } else if (about == "importing") {
    return "importing " + Text(line, "module");
  } else if (about == "vendor") {
    VendorAnswer vendor{Text(line, "module"),       Flag(line, "imports"), Text(line, "error"), Text(line, "version"),
                        Text(line, "asking_error"), std::nullopt,          Whole(line, "count")};
    if (line.contains("available")) vendor.available = Flag(line, "available");
    answers.vendors.push_back(std::move(vendor));
  } else if (about == "loading") {
    return "loading " + Text(line, "library");
  } else if (about == "library") {
    answers.libraries.push_back({Text(line, "library"), Text(line, "path"), Text(line, "error"),
                                 Flag(line, "already_loaded"), Whole(line, "version")});
  }
  return "";
}

void ReadRecordLine(const Json& line, StackAnswers& answers) {
  if (Flag(line, "done")) {
    answers.records_done = true;
    return;
  }
  if (Text(line, "package").empty()) return;
  RecordAnswer record;
  record.package = Text(line, "package");
  record.folder = Text(line, "folder");
  record.compared = Count(line, "compared");
  record.bytes = Count(line, "bytes");
  record.no_record = Flag(line, "no_record");
  record.editable = Flag(line, "editable");
  record.changed = Texts(line, "changed");
  record.missing = Texts(line, "missing");
  record.patched = Texts(line, "patched");
  record.added = Texts(line, "added");
  record.changed_count = Count(line, "changed_count");
  record.missing_count = Count(line, "missing_count");
  record.added_count = Count(line, "added_count");
  answers.records.push_back(std::move(record));
}

ProbeProcess Child(const MachineUnderTest& machine, const std::string& python, const char* script,
                   const Json& request) {
  base::PythonStart start = base::StartPythonScript(python, script, {request.dump()}, machine.environment);
  ProbeProcess process{std::move(start.arguments), std::move(start.environment)};
  // The working folder must provide no modules, and no bytecode may be left behind.
  process.environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  return process;
}

// Vendors of the real cards here: only their modules are imported; others cannot work.
std::set<std::string> ModulesOfCards(const MachineUnderTest& machine) {
  std::set<std::string> modules;
  for (const device::Card* card : machine.inventory.Cards()) {
    if (!card->simulated && !card->torch_module.empty()) modules.insert(card->torch_module);
  }
  return modules;
}

StackAnswers CollectAnswers(const MachineUnderTest& machine) {
  StackAnswers answers;
  if (machine.python.empty()) {
    answers.failure = "no Python was found";
    return answers;
  }
  Json modules = Json::array({"torch", "torchvision", "mmengine", "mmcv", "mmseg", "mmdet", "accelerate", "fulldeck"});
  for (const std::string& name : VendorModules()) modules.push_back(name);
  for (const std::string& name : NamesThatAreNoModules()) modules.push_back(name);
  Json libraries = Json::array();
  std::set<std::string> backends;
  for (const device::Card* card : machine.inventory.Cards()) {
    const CollectiveLibrary* const library = card->simulated ? nullptr : LibraryOf(card->collective_backend);
    if (library != nullptr && backends.insert(library->backend).second) {
      libraries.push_back(Json::array({library->file, library->version_function}));
    }
  }
  const Json questions = Json::object(
      {{"modules", modules}, {"vendors", ModulesOfCards(machine)}, {"libraries", libraries}, {"python_only", false}});
  const Json records = Json::object({{"packages", kWatchedPackages}, {"everything", machine.deep}});
  // --deep allows for a slow disk.
  const base::Duration timeout = machine.deep ? machine.timeout : std::min(machine.timeout, kShortTimeout);
  const auto results = RunProbes({Child(machine, machine.python, kStackQuestionsScript, questions),
                                  Child(machine, machine.python, kStackRecordsScript, records)},
                                 {timeout, timeout});

  std::string doing = "starting";
  for (const std::string& text : results[0].lines) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    if (std::string next = ReadQuestionLine(line, answers); !next.empty()) doing = std::move(next);
  }
  if (!answers.python) {
    answers.failure = results[0].DescribeEnd(timeout);
    if (const std::string message = results[0].LastLine(); !message.empty()) answers.failure += ": " + message;
    return answers;
  }
  if (results[0].silent || results[0].wait_status != 0) {
    answers.too_slow = results[0].silent;
    answers.stopped = doing + ": the interpreter " + results[0].DescribeEnd(timeout);
    if (const std::string message = results[0].LastLine(); !message.empty()) answers.stopped += ": " + message;
  }
  for (const std::string& text : results[1].lines) {
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_object()) ReadRecordLine(line, answers);
  }
  if (!answers.records_done) answers.records_failure = results[1].DescribeEnd(timeout);
  return answers;
}

}  // namespace

const PackageAnswer* StackAnswers::Package(std::string_view name) const {
  const auto found = std::find_if(packages.begin(), packages.end(),
                                  [&](const PackageAnswer& package) { return package.name == name; });
  return found == packages.end() ? nullptr : &*found;
}

const ModuleAnswer* StackAnswers::Module(const std::string& name) const {
  const auto found = modules.find(name);
  return found == modules.end() ? nullptr : &found->second;
}

std::shared_ptr<const StackAnswers> AnswersOf(const MachineUnderTest& machine) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const StackAnswers>> kept;
  std::string key =
      machine.python + '\n' + (machine.deep ? "deep" : "") + '\n' + std::to_string(machine.timeout.count());
  for (const auto& [name, value] : machine.environment.all()) key += '\n' + name + '=' + value;
  for (const device::Card* card : machine.inventory.Cards()) {
    key += '\n' + card->vendor + card->torch_module + (card->simulated ? "s" : "r");
  }
  const std::lock_guard lock(mutex);
  auto& answers = kept[key];
  if (!answers) answers = std::make_shared<const StackAnswers>(CollectAnswers(machine));
  return answers;
}

std::string PythonVersionOf(const std::string& program, const MachineUnderTest& machine) {
  const Json questions = {
      {"modules", Json::array()}, {"vendors", Json::array()}, {"libraries", Json::array()}, {"python_only", true}};
  const base::Duration timeout = std::chrono::seconds(2);
  const auto results = RunProbes({Child(machine, program, kStackQuestionsScript, questions)}, {timeout, timeout});
  StackAnswers answers;
  for (const std::string& text : results[0].lines) {
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_object()) ReadQuestionLine(line, answers);
  }
  return answers.python ? answers.python->version : "";
}

const CollectiveLibrary* LibraryOf(std::string_view backend) {
  for (const CollectiveLibrary& library : kLibraries) {
    if (backend == library.backend) return &library;
  }
  return nullptr;
}

std::vector<std::string> VendorModules() {
  std::vector<std::string> names;
  for (const device::VendorTraits& traits : device::AllVendorTraits()) {
    if (*traits.torch_module != '\0') names.emplace_back(traits.torch_module);
  }
  names.emplace_back("ptex");
  return names;
}

std::vector<std::string> NamesThatAreNoModules() {
  return {"eccl"};
}

}  // namespace fulldeck::doctor
