// What the user's Python says about itself and its packages: asked once, in children that may hang or crash
// (stack_questions.py, stack_records.py), and kept for all checks of the group "stack". Nothing of torch or of a vendor
// is loaded into this process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctor/check.h"

namespace fulldeck::doctor {

struct PythonAnswer {
  std::string version;
  int major = 0;
  int minor = 0;
  std::string executable, prefix, base_prefix;
  bool in_environment() const { return prefix != base_prefix; }
};

struct PackageAnswer {
  std::string name, version, folder;  // folder: the dist-info
  std::vector<std::string> requirements;
};

struct ModuleAnswer {
  std::string origin, folder;
  std::string version, cuda, hip;  // as version.py says
  bool compiled = false;           // it has a library of its own
  std::uint64_t bytes = 0;         // of a large one, only that it is large
  std::string error;
};

struct TorchAnswer {
  bool imports = false;
  std::string error, version, cuda, hip, file;
  bool nccl = false;
  bool gloo = false;
  double seconds = 0;
};

struct VendorAnswer {
  std::string module;
  bool imports = false;
  std::string error, version, query_error;
  std::optional<bool> available;
  std::optional<int> count;
};

struct LibraryAnswer {
  std::string library, path, error;
  bool already_loaded = false;  // torch had it before it was asked for
  std::optional<int> version;   // as the library counts: 22703 is 2.27.3
};

struct RecordAnswer {
  std::string package, folder;
  std::uint64_t compared = 0;
  std::uint64_t bytes = 0;
  bool no_record = false;
  bool editable = false;
  std::vector<std::string> changed, missing, patched, added;  // the first few
  std::uint64_t changed_count = 0, missing_count = 0, added_count = 0;
};

struct Shadow {
  std::string module, file;
};

struct StackAnswers {
  std::string failure;    // why there is no answer at all
  std::string stopped;    // where it ended before its end, in words: "importing torch_gcu: was killed by signal 11 …"
  bool too_slow = false;  // it was ended because nothing came, and not because it failed
  std::optional<PythonAnswer> python;
  bool modules_known = false;   // what is installed is known
  std::vector<Shadow> shadows;  // files of the working folder that hide a package
  std::vector<PackageAnswer> packages;
  std::map<std::string, ModuleAnswer> modules;
  std::optional<TorchAnswer> torch;
  std::vector<VendorAnswer> vendors;
  std::vector<LibraryAnswer> libraries;
  std::vector<RecordAnswer> records;
  bool records_done = false;
  std::string records_failure;

  const PackageAnswer* Package(std::string_view name) const;  // the first of that name; nullptr
  const ModuleAnswer* Module(const std::string& name) const;  // nullptr: not installed
};

// Waits for the children. For the same interpreter, environment and cards the first answer is kept. Any thread.
std::shared_ptr<const StackAnswers> AnswersOf(const MachineUnderTest& machine);

// One vendor's library for collectives.
struct CollectiveLibrary {
  const char* backend;
  const char* file;
  const char* version_function;
};
const CollectiveLibrary* LibraryOf(std::string_view backend);  // nullptr: none known

// Modules that the vendors bring, beside torch itself.
std::vector<std::string> VendorModules();
// Names that are libraries in C, and that no vendor brings as a module of Python.
std::vector<std::string> NamesThatAreNoModules();

}  // namespace fulldeck::doctor
