// Facts about the user's Python and its packages, queried once in child processes that may hang or crash
// (stack_questions.py, stack_records.py), and cached for all checks of the group "stack". Neither torch nor a vendor
// library is loaded into this process.
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
  std::string version, cuda, hip;  // from version.py
  bool compiled = false;           // it has a compiled library
  std::uint64_t bytes = 0;         // of a large library, only that it is large
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
  bool already_loaded = false;  // torch had loaded it before the query
  std::optional<int> version;   // the library's own format: 22703 is 2.27.3
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
  std::string stopped;    // where the query stopped early: "importing torch_gcu: was killed by signal 11 …"
  bool too_slow = false;  // it was killed because of its timeout, not because it failed
  std::optional<PythonAnswer> python;
  bool modules_known = false;   // the installed modules are known
  std::vector<Shadow> shadows;  // files of the working folder that hide a package
  std::vector<PackageAnswer> packages;
  std::map<std::string, ModuleAnswer> modules;
  std::optional<TorchAnswer> torch;
  std::vector<VendorAnswer> vendors;
  std::vector<LibraryAnswer> libraries;
  std::vector<RecordAnswer> records;
  bool records_done = false;
  std::string records_failure;

  const PackageAnswer* Package(std::string_view name) const;  // the first of that name; nullptr if there is none
  const ModuleAnswer* Module(const std::string& name) const;  // nullptr: not installed
};

// Waits for the child processes. For the same interpreter, environment and cards the first result is cached. Thread
// safe.
std::shared_ptr<const StackAnswers> AnswersOf(const MachineUnderTest& machine);

// The version of another interpreter, asked in a child that may take two seconds; empty: it did not answer.
std::string PythonVersionOf(const std::string& program, const MachineUnderTest& machine);

// A vendor's collective library.
struct CollectiveLibrary {
  const char* backend;
  const char* file;
  const char* version_function;
};
const CollectiveLibrary* LibraryOf(std::string_view backend);  // nullptr: unknown

// Modules that vendors provide, excluding torch itself.
std::vector<std::string> VendorModules();
// Names of C libraries that no vendor provides as a Python module.
std::vector<std::string> NamesThatAreNoModules();

}  // namespace fulldeck::doctor
