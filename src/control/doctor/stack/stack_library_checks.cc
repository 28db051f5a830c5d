#include "doctor/stack/stack_library_checks.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"
#include "doctor/stack/stack_answers.h"

namespace fulldeck::doctor {
namespace {

using Findings = std::vector<Finding>;

constexpr std::size_t kLargestRecord = std::size_t{16} << 20;
constexpr std::size_t kMaxNamed = 8;

// Prefixes of the vendors' library names.
constexpr std::string_view kVendorLibraries[] = {
    "libeccl",     "libefml", "libefrt", "libtops",  "libdtu",  "libgcu",       "libhccl",
    "libascendcl", "libdcmi", "libcncl", "libcndev", "libcnrt", "libmccl",      "libmusa",
    "libmtml",     "libixml", "librccl", "libmxsml", "libnccl", "libnvidia-ml", "libcuda.so"};

constexpr std::string_view kLoaderFolders[] = {"/usr/lib",
                                               "/usr/lib64",
                                               "/usr/local/lib",
                                               "/usr/lib/x86_64-linux-gnu",
                                               "/usr/lib/aarch64-linux-gnu",
                                               "/opt/tops/lib",
                                               "/usr/local/tops/lib",
                                               "/usr/local/neuware/lib64",
                                               "/usr/local/musa/lib",
                                               "/opt/maca/lib",
                                               "/usr/local/Ascend/driver/lib64"};

Finding MakeFinding(Verdict verdict, base::BilingualText evidence, base::BilingualText fix = {}, std::string row = {},
                    std::vector<std::pair<std::string, std::string>> figures = {}) {
  return {verdict, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}

std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

base::BilingualText Describe(LibraryFile file) {
  switch (file) {
    case LibraryFile::kSound:
      return {"a whole library", "完整的库"};
    case LibraryFile::kLinkerScript:
      return {"a text for the linker", "链接脚本"};
    case LibraryFile::kNotElf:
      return {"not a library at all", "根本不是库文件"};
    case LibraryFile::kCutShort:
      return {"a library that was cut short", "不完整的库文件"};
    case LibraryFile::kEmpty:
      return {"empty", "空文件"};
    case LibraryFile::kForeign:
      return {"a library for another processor", "其他处理器架构的库"};
    case LibraryFile::kAbsent:
      return {"a link that leads nowhere", "失效的链接"};
  }
  return {};
}

bool IsBad(LibraryFile file) {
  return file != LibraryFile::kSound && file != LibraryFile::kLinkerScript;
}

// The Debian package that contains the file; empty: none.
std::string DebianOwner(const base::SystemRoot& root, const std::string& path) {
  constexpr char kFolder[] = "/var/lib/dpkg/info";
  std::set<std::string> spellings = {path, RealPath(path)};
  for (const std::string& spelling : std::set<std::string>(spellings)) {
    // If /lib is merged into /usr/lib, the lists contain either path.
    if (spelling.starts_with("/usr/")) spellings.insert(spelling.substr(4));
  }
  for (const std::string& name : root.List(kFolder)) {
    if (!name.ends_with(".list")) continue;
    const auto text = root.ReadFile(std::string(kFolder) + "/" + name, kLargestRecord);
    if (!text) continue;
    for (const std::string& spelling : spellings) {
      const auto at = text->find("\n" + spelling + "\n");
      if (at != std::string::npos) return name.substr(0, name.size() - 5);
    }
  }
  return "";
}

// The wheel that contains the file; empty: none.
std::string WheelOwner(const StackAnswers& answers, const std::string& path) {
  for (const PackageAnswer& package : answers.packages) {
    const std::string folder = package.folder.substr(0, package.folder.rfind('/') + 1);
    if (folder.empty() || !path.starts_with(folder)) continue;
    const auto record = base::ReadWholeFile(package.folder + "/RECORD", kLargestRecord);
    if (!record) continue;
    const std::string relative = path.substr(folder.size());
    if (record->starts_with(relative + ",") || record->find("\n" + relative + ",") != std::string::npos) {
      return package.name + " " + package.version;
    }
  }
  return "";
}

std::string LibraryVersion(int number) {
  if (number >= 10000) return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  return number >= 1000 ? fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100)
                        : std::to_string(number);
}

}  // namespace

LibraryFile ClassifyLibrary(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return LibraryFile::kAbsent;
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return LibraryFile::kNotElf;
  if (facts.st_size == 0) return LibraryFile::kEmpty;
  Elf64_Ehdr header{};
  const ssize_t got = pread(fd.get(), &header, sizeof header, 0);
  const std::string_view start(reinterpret_cast<const char*>(&header), got > 0 ? static_cast<std::size_t>(got) : 0);
  for (const std::string_view word : {"/* GNU ld", "INPUT", "GROUP"}) {
    if (start.starts_with(word)) return LibraryFile::kLinkerScript;
  }
  if (!start.starts_with("\x7f"
                         "ELF"))
    return LibraryFile::kNotElf;
  if (start.size() < sizeof header) return LibraryFile::kCutShort;
#if defined(__x86_64__)
  constexpr Elf64_Half kOwn = EM_X86_64;
#elif defined(__aarch64__)
  constexpr Elf64_Half kOwn = EM_AARCH64;
#else
  const Elf64_Half kOwn = header.e_machine;
#endif
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kOwn) return LibraryFile::kForeign;
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (header.e_phnum == 0 || header.e_phentsize != sizeof(Elf64_Phdr)) return LibraryFile::kCutShort;
  for (Elf64_Half i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const auto at = header.e_phoff + std::uint64_t{i} * sizeof part;
    if (at > size || pread(fd.get(), &part, sizeof part, static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof part)) {
      return LibraryFile::kCutShort;
    }
    if (part.p_type == PT_LOAD && (part.p_offset > size || part.p_filesz > size - part.p_offset))
      return LibraryFile::kCutShort;
  }
  return LibraryFile::kSound;
}

Findings CheckCollectiveLibrary(const MachineUnderTest& machine) {
  std::set<std::string> backends;
  for (const device::Card* card : machine.inventory.Cards()) {
    if (!card->simulated && !card->collective_backend.empty()) backends.insert(card->collective_backend);
  }
  if (backends.empty()) return {};  // ranks communicate through fulldeck's own collectives or Gloo
  const auto answers = AnswersOf(machine);
  Findings findings;
  for (const std::string& backend : backends) {
    const CollectiveLibrary* const known = LibraryOf(backend);
    const auto library =
        std::find_if(answers->libraries.begin(), answers->libraries.end(),
                     [&](const LibraryAnswer& l) { return known != nullptr && l.library == known->file; });
    if (known == nullptr || library == answers->libraries.end()) {
      const bool crashed = known != nullptr && answers->stopped.find(known->file) != std::string::npos;
      const std::string why = known == nullptr            ? "its library is not known to fulldeck"
                              : !answers->failure.empty() ? answers->failure
                              : !answers->stopped.empty() ? answers->stopped
                                                          : "the interpreter was not asked";
      findings.push_back(MakeFinding(crashed ? Verdict::kFail : Verdict::kCannotTell,
                                     {backend + ": " + why + ".", backend + "：" + why + "。"},
                                     {"Try by hand: LD_DEBUG=libs python -c 'import ctypes; ctypes.CDLL(\"" +
                                          std::string(known == nullptr ? "lib.so" : known->file) + "\")'.",
                                      "手动试：用 LD_DEBUG=libs 查看加载过程。"},
                                     crashed ? "D8" : ""));
      continue;
    }
    if (library->path.empty()) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {fmt::format("{} is not found by the loader: {}", library->library, library->error),
           fmt::format("加载器找不到 {}：{}", library->library, library->error)},
          {"Install the vendor's collective library or add its folder to LD_LIBRARY_PATH. Until then the script can "
           "use fulldeck's own backend, through host memory: init_process_group(\"fulldeck\"); on torch 1.x start it "
           "with FULLDECK_HOST_COLLECTIVES=1.",
           "安装厂商的集合通信库或把其目录加入 LD_LIBRARY_PATH。在此之前脚本可用 fulldeck 自带后端（经主机内存）："
           "init_process_group(\"fulldeck\")；torch 1.x 用 FULLDECK_HOST_COLLECTIVES=1 启动。"},
          library->error.find("invalid ELF") != std::string::npos ||
                  library->error.find("too short") != std::string::npos
              ? "D9"
              : "D8"));
      continue;
    }
    const LibraryFile file = ClassifyLibrary(library->path);
    std::string owner = WheelOwner(*answers, library->path);
    if (owner.empty()) owner = DebianOwner(machine.root, library->path);
    const std::string version = library->version ? LibraryVersion(*library->version) : "unknown";
    const std::vector<std::pair<std::string, std::string>> figures = {
        {"path", library->path}, {"version", version}, {"package", owner}};
    if (IsBad(file)) {
      findings.push_back(MakeFinding(Verdict::kFail,
                                     {fmt::format("{} is {}.", library->path, Describe(file).english),
                                      fmt::format("{} 是{}。", library->path, Describe(file).chinese)},
                                     {"Delete it and install the vendor's package again.", "删除它并重装厂商的包。"},
                                     "D9", figures));
    } else if (owner.empty() && machine.root.Exists("/var/lib/dpkg/info")) {
      findings.push_back(MakeFinding(
          Verdict::kWarn,
          {fmt::format("{} (version {}) is what ranks load, and no package owns it.", library->path, version),
           fmt::format("训练进程加载的是 {}（版本 {}），但不属于任何软件包。", library->path, version)},
          {"Find out who put it there (ls -l); a copy of another release is loaded without a word.",
           "查明是谁放的（ls -l）；其他版本的副本会被悄悄加载。"},
          "D9", figures));
    } else {
      findings.push_back(MakeFinding(
          Verdict::kOk,
          {fmt::format("{}: version {}, {}{}.", library->path, version,
                       owner.empty() ? "owner not known" : "from " + owner,
                       library->already_loaded ? ", loaded by torch" : ""),
           fmt::format("{}：版本 {}，{}{}。", library->path, version, owner.empty() ? "来源未知" : "来自 " + owner,
                       library->already_loaded ? "，由 torch 加载" : "")},
          {}, "", figures));
    }
  }
  return findings;
}

Findings CheckStubLibraries(const MachineUnderTest& machine) {
  std::vector<std::string> folders;
  for (const std::string_view folder : kLoaderFolders) folders.push_back(machine.root.Path(folder));
  if (const auto path = machine.environment.Get("LD_LIBRARY_PATH")) {
    for (const std::string_view folder : base::Split(*path, ':')) {
      if (folder.starts_with("/")) folders.emplace_back(folder);
    }
  }
  if (!machine.python.empty()) {
    const auto answers = AnswersOf(machine);
    for (const std::string& module : VendorModules()) {
      if (const ModuleAnswer* const found = answers->Module(module); found != nullptr && !found->folder.empty()) {
        folders.push_back(found->folder);
        folders.push_back(found->folder + "/lib");
      }
    }
  }
  Findings findings;
  std::set<std::string> seen;
  int checked_files = 0;
  for (const std::string& folder : folders) {
    for (const std::string& name : base::SystemRoot().List(folder)) {
      const bool vendors = std::any_of(std::begin(kVendorLibraries), std::end(kVendorLibraries),
                                       [&](std::string_view prefix) { return name.starts_with(prefix); });
      if (!vendors || name.find(".so") == std::string::npos) continue;
      const std::string path = folder + "/" + name;
      const LibraryFile file = ClassifyLibrary(path);
      if (!seen.insert(RealPath(path)).second) continue;
      ++checked_files;
      if (!IsBad(file)) continue;
      struct stat facts {};
      const auto bytes = stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {fmt::format("{} ({}) is {}.", base::Printable(path), base::FormatByteSize(bytes), Describe(file).english),
           fmt::format("{}（{}）是{}。", base::Printable(path), base::FormatByteSize(bytes), Describe(file).chinese)},
          {"A leftover of an earlier fix, or a copy cut short: delete it and install the vendor's package again.",
           "先前“修复”的残留或复制不完整：删除它并重装厂商的包。"},
          "D9", {{"path", path}, {"bytes", std::to_string(bytes)}}));
      if (findings.size() >= kMaxNamed) return findings;
    }
  }
  if (findings.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kOk,
        {checked_files == 0 ? "No vendor's library is in the loader's folders."
                            : base::Counted(static_cast<std::uint64_t>(checked_files), "vendor library file") +
                                  " looked at: all whole.",
         checked_files == 0 ? "加载目录中没有厂商库。"
                            : fmt::format("检查了 {} 个厂商库文件，全部完整。", checked_files)},
        {}, "", {{"looked_at", std::to_string(checked_files)}}));
  }
  return findings;
}

Findings CheckHandMadeModules(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  if (!answers->modules_known) {
    return {MakeFinding(Verdict::kCannotTell, {"The interpreter could not be asked.", "未能询问解释器。"},
                        {"See the check python-interpreter.", "见 python-interpreter 检查。"})};
  }
  Findings findings;
  for (const std::string& name : NamesThatAreNoModules()) {
    const ModuleAnswer* const module = answers->Module(name);
    if (module == nullptr) continue;
    findings.push_back(MakeFinding(
        Verdict::kFail,
        {fmt::format(
             "{} is a module named {} that somebody wrote: the vendor has a library in C of that name, and no module.",
             module->origin, name),
         fmt::format("{} 是手写的 {} 模块：厂商只有同名的 C 库，没有 Python 模块。", module->origin, name)},
        {"Delete it, and remove the import from the script (row D4).", "删除它，并从脚本中去掉该导入（D4）。"}, "D9",
        {{"path", module->origin}}));
  }
  for (const std::string& name : VendorModules()) {
    const ModuleAnswer* const module = answers->Module(name);
    if (module == nullptr) continue;
    std::string package = name;
    std::replace(package.begin(), package.end(), '_', '-');
    if (answers->Package(package) == nullptr && !module->compiled) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {fmt::format("{} was not installed by pip and has no library of its own: whatever it answers "
                       "(is_available, device_count) was made up.",
                       module->origin.empty() ? module->folder : module->origin),
           fmt::format("{} 不是 pip 安装的，也没有自带的库：它的回答（is_available、device_count）都是编造的。",
                       module->origin.empty() ? module->folder : module->origin)},
          {"Delete it and install the vendor's wheel.", "删除它并安装厂商的 wheel。"}, "D9",
          {{"path", module->origin}}));
    }
  }
  for (const Shadow& shadow : answers->shadows) {
    findings.push_back(MakeFinding(
        Verdict::kFail,
        {fmt::format("{} in the working folder hides the package {}.", shadow.file, shadow.module),
         fmt::format("工作目录中的 {} 遮蔽了包 {}。", shadow.file, shadow.module)},
        {"Rename it, or start from another folder.", "改名，或换一个目录启动。"}, "D9", {{"path", shadow.file}}));
  }
  if (findings.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kOk, {"None: modules of the vendors' names come from packages, and no file here hides one.",
                       "没有：厂商模块都来自安装包，当前目录也没有遮蔽它们的文件。"}));
  }
  return findings;
}

Findings CheckEditedPackages(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  Findings findings;
  std::uint64_t compared = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> names;
  std::vector<std::string> patched;
  const auto first = [](const std::vector<std::string>& files) {
    return base::Join(
        std::vector<std::string>(files.begin(),
                                 files.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(files.size(), 4))),
        ", ");
  };
  for (const RecordAnswer& record : answers->records) {
    compared += record.compared;
    bytes += record.bytes;
    const std::string version = record.folder.substr(record.folder.rfind('/') + 1);
    for (const std::string& file : record.patched) patched.push_back(file);
    if (record.editable) {
      findings.push_back(
          MakeFinding(Verdict::kCannotTell,
                      {record.package + " is installed for editing: there is nothing to compare it with.",
                       record.package + " 以可编辑方式安装，无从比较。"},
                      {"Look at the state of its working copy (git status).", "查看其工作副本的状态（git status）。"}));
      continue;
    }
    if (record.no_record) {
      findings.push_back(
          MakeFinding(Verdict::kCannotTell,
                      {record.package + " has no list of its files (RECORD): it did not come as a wheel.",
                       record.package + " 没有文件清单（RECORD）：不是以 wheel 安装。"},
                      {"Install it with pip to be able to compare.", "用 pip 安装后才能比较。"}));
      continue;
    }
    names.push_back(record.package);
    if (record.changed_count > 0) {
      findings.push_back(MakeFinding(
          Verdict::kWarn,
          {fmt::format("{}: {} changed since the install: {}.", version, base::Counted(record.changed_count, "file"),
                       first(record.changed)),
           fmt::format("{}：有 {} 个文件在安装后被改动：{}。", version, record.changed_count, first(record.changed))},
          {fmt::format("Keep the change somewhere if it is meant, then: pip install --force-reinstall --no-deps {}.",
                       record.package),
           fmt::format("若改动有用请先保存，然后：pip install --force-reinstall --no-deps {}。", record.package)},
          "D9",
          {{"package", record.package},
           {"changed", std::to_string(record.changed_count)},
           {"first", record.changed.empty() ? "" : record.changed.front()}}));
    }
    if (record.missing_count > 0) {
      findings.push_back(
          MakeFinding(Verdict::kWarn,
                      {fmt::format("{}: {} missing: {}.", version, base::Counted(record.missing_count, "file"),
                                   first(record.missing)),
                       fmt::format("{}：缺少 {} 个文件：{}。", version, record.missing_count, first(record.missing))},
                      {fmt::format("pip install --force-reinstall --no-deps {}.", record.package),
                       fmt::format("pip install --force-reinstall --no-deps {}。", record.package)},
                      "D7", {{"package", record.package}, {"missing", std::to_string(record.missing_count)}}));
    }
    const bool known = record.package == "torch" || record.package == "mmengine" || record.package == "accelerate";
    if (known && record.added_count > 0) {
      findings.push_back(MakeFinding(
          Verdict::kWarn,
          {fmt::format("{}: {} that no package brought: {}.", version, base::Counted(record.added_count, "file"),
                       first(record.added)),
           fmt::format("{}：有 {} 个不属于任何包的文件：{}。", version, record.added_count, first(record.added))},
          {"Somebody put it there; move it out of the package.", "有人放在那里；请移出该包。"}, "D9",
          {{"package", record.package}}));
    }
  }
  if (!patched.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kOk, {"Changed by fulldeck patch, the original beside it: " + base::Join(patched, ", ") + ".",
                       "由 fulldeck patch 修改，原文件在旁边：" + base::Join(patched, "，") + "。"}));
  }
  if (!answers->records_done) {
    findings.push_back(MakeFinding(
        Verdict::kCannotTell,
        {"The files were not all compared: " +
             (answers->records_failure.empty() ? answers->failure : answers->records_failure) + ".",
         "文件未全部比较：" + (answers->records_failure.empty() ? answers->failure : answers->records_failure) + "。"},
        {"A slow file system: try again with more time.", "文件系统慢：请延长时间再试。"}));
  } else if (names.empty() && findings.empty()) {
    return {};  // none of them is installed
  } else if (std::all_of(findings.begin(), findings.end(),
                         [](const Finding& f) { return f.verdict == Verdict::kOk; })) {
    findings.push_back(
        MakeFinding(Verdict::kOk,
                    {fmt::format("{}: {} ({}) as their wheels brought them{}.", base::Join(names, ", "),
                                 base::Counted(compared, "file"), base::FormatByteSize(bytes),
                                 machine.deep ? "" : "; large libraries with --deep"),
                     fmt::format("{}：{} 个文件（{}）与 wheel 一致{}。", base::Join(names, "，"), compared,
                                 base::FormatByteSize(bytes), machine.deep ? "" : "；大型库请用 --deep")},
                    {}, "", {{"compared", std::to_string(compared)}, {"bytes", std::to_string(bytes)}}));
  }
  return findings;
}

Findings CheckLibraryPath(const MachineUnderTest& machine) {
  const auto path = machine.environment.Get("LD_LIBRARY_PATH");
  if (!path || path->empty())
    return {MakeFinding(Verdict::kOk, {"LD_LIBRARY_PATH is not set.", "未设置 LD_LIBRARY_PATH。"})};
  std::vector<std::string> absent;
  Findings findings;
  for (const std::string_view entry : base::Split(*path, ':')) {
    if (entry.empty()) continue;
    const std::string folder(entry);
    struct stat facts {};
    if (stat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
      absent.push_back(base::Printable(folder));
    } else if (folder.ends_with("/stubs") || folder.ends_with("/stubs/")) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {base::Printable(folder) +
               " in LD_LIBRARY_PATH has libraries for linking only: a program that loads them finds no driver.",
           "LD_LIBRARY_PATH 中的 " + base::Printable(folder) + " 只有供链接用的库：加载它们的程序找不到驱动。"},
          {"Take it out of LD_LIBRARY_PATH.", "从 LD_LIBRARY_PATH 中去掉它。"}, "D9"));
    }
  }
  if (!absent.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kWarn,
        {"LD_LIBRARY_PATH names what is not there: " + base::Join(absent, ", ") + ".",
         "LD_LIBRARY_PATH 中有不存在的目录：" + base::Join(absent, "，") + "。"},
        {"A profile guesses where the stack is. Find it (ldconfig -p; ls -d /opt/tops /usr/local/tops) and correct "
         "the profile.",
         "profile 猜错了软件栈的位置。找到它（ldconfig -p；ls -d /opt/tops /usr/local/tops）并改正。"},
        "D5"));
  }
  if (findings.empty())
    findings.push_back(
        MakeFinding(Verdict::kOk, {"Every folder of LD_LIBRARY_PATH is there.", "LD_LIBRARY_PATH 中的目录都存在。"}));
  return findings;
}

}  // namespace fulldeck::doctor
