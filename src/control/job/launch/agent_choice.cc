#include "job/launch/agent_choice.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "base/text.h"

namespace fulldeck::job {
namespace {

#if defined(__x86_64__)
constexpr int kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kThisMachine = EM_AARCH64;
#else
constexpr int kThisMachine = EM_NONE;
#endif

// The kernel's own limit is 4 to 5.
constexpr int kMaxInterpreters = 4;
constexpr std::size_t kMaxSegments = 256;
constexpr std::uint64_t kMaxDynamicBytes = 64 * 1024;
constexpr std::uint64_t kMaxNameBytes = 256;
// Names of exported functions; Python's take a tenth of this. The rest of a longer list is ignored.
constexpr std::uint64_t kMaxNamesBytes = 4 << 20;

constexpr std::string_view kSanitizerLibraries[] = {"libasan.",         "libhwasan.",         "libtsan.",
                                                    "libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.tsan"};
constexpr std::string_view kSanitizerFunctions[] = {"__asan_init", "__hwasan_init", "__tsan_init", "__msan_init"};

AgentVerdict Yes() {
  return {true, ""};
}

AgentVerdict No(const std::string& path, const std::string& why) {
  return {false, base::Printable(path) + " " + why};
}

std::string UpToZero(const std::string& bytes) {
  return bytes.substr(0, bytes.find('\0'));
}

// An open program file; every read is checked against the file's size.
class ElfFile {
 public:
  explicit ElfFile(int fd) : fd_(fd) {}

  // Reads all of `size` bytes, or fails.
  bool ReadAt(std::uint64_t offset, void* into, std::size_t size) const {
    if (offset > INT64_MAX - size) return false;
    for (std::size_t done = 0; done < size;) {
      const ssize_t got = pread(fd_, static_cast<char*>(into) + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<std::size_t>(got);
    }
    return true;
  }

  // Reads as much as there is, up to `limit`.
  std::string ReadSome(std::uint64_t offset, std::size_t limit) const {
    std::string text(limit, '\0');
    std::size_t done = 0;
    while (offset <= INT64_MAX - limit && done < limit) {
      const ssize_t got = pread(fd_, text.data() + done, limit - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    text.resize(done);
    return text;
  }

 private:
  int fd_;
};

// The file offset of the byte at a virtual address.
std::optional<std::uint64_t> OffsetOf(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz)
      continue;
    return segment.p_offset + (address - segment.p_vaddr);
  }
  return std::nullopt;
}

// The name of a sanitizer in the dynamic section as a reason not to preload; nullopt if there is none. Sets
// `malformed` if the section cannot be parsed.
std::optional<std::string> SanitizerOf(const ElfFile& file, const std::vector<Elf64_Phdr>& segments,
                                       const Elf64_Phdr& dynamic, bool& malformed) {
  malformed = true;
  if (dynamic.p_filesz > kMaxDynamicBytes || dynamic.p_filesz % sizeof(Elf64_Dyn) != 0) return std::nullopt;
  std::vector<Elf64_Dyn> entries(dynamic.p_filesz / sizeof(Elf64_Dyn));
  if (!file.ReadAt(dynamic.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) return std::nullopt;
  std::optional<std::uint64_t> names_address;
  std::uint64_t names_bytes = 0;
  std::vector<std::uint64_t> needed;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) names_address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) names_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
  }
  const auto names = names_address ? OffsetOf(segments, *names_address) : std::nullopt;
  if (!names) return std::nullopt;
  for (const std::uint64_t at : needed) {
    if (at >= names_bytes) return std::nullopt;
    const std::string name = UpToZero(file.ReadSome(*names + at, std::min(kMaxNameBytes, names_bytes - at)));
    for (const std::string_view library : kSanitizerLibraries) {
      if (std::string_view(name).substr(0, library.size()) == library) {
        malformed = false;
        return "is built with a sanitizer (it needs " + base::Printable(name) + ")";
      }
    }
  }
  const std::string functions = file.ReadSome(*names, std::min(kMaxNamesBytes, names_bytes));
  malformed = false;
  for (const std::string_view function : kSanitizerFunctions) {
    // Match whole names only: with a zero before and after.
    const std::string whole = std::string(1, '\0') + std::string(function) + std::string(1, '\0');
    if (functions.find(whole) != std::string::npos) return "is built with a sanitizer (" + std::string(function) + ")";
  }
  return std::nullopt;
}

AgentVerdict JudgeElf(const ElfFile& file, const std::string& path) {
  constexpr char kMalformed[] = "is not a well-formed program file";
  unsigned char ident[EI_NIDENT];
  if (!file.ReadAt(0, ident, sizeof ident)) return No(path, kMalformed);
  if (ident[EI_CLASS] != ELFCLASS64) return No(path, "is not a 64-bit program");
  Elf64_Ehdr header;
  if (!file.ReadAt(0, &header, sizeof header)) return No(path, kMalformed);
  if (ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kThisMachine) {
    return No(path, "is built for another machine than this");
  }
  if ((header.e_type != ET_EXEC && header.e_type != ET_DYN) || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum == 0 || header.e_phnum > kMaxSegments) {
    return No(path, kMalformed);
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!file.ReadAt(header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return No(path, kMalformed);

  const auto find = [&segments](std::uint32_t type) {
    return std::find_if(segments.begin(), segments.end(),
                        [type](const Elf64_Phdr& segment) { return segment.p_type == type; });
  };
  const auto interpreter = find(PT_INTERP);
  const auto dynamic = find(PT_DYNAMIC);
  if (interpreter == segments.end() || dynamic == segments.end()) return No(path, "is linked statically");
  const std::string loader =
      UpToZero(file.ReadSome(interpreter->p_offset, std::min<std::uint64_t>(interpreter->p_filesz, 4096)));
  const std::string loader_name = loader.substr(loader.rfind('/') + 1);
  // Compare the file name only, because the folder differs (Nix, conda); musl's is ld-musl-…
  if (loader_name.substr(0, 8) != "ld-linux") {
    return No(path, "uses the loader '" + base::Printable(loader) + "', and the agent is built for the GNU C library");
  }
  bool malformed = false;
  const auto sanitizer = SanitizerOf(file, segments, *dynamic, malformed);
  if (malformed) return No(path, kMalformed);
  return sanitizer ? No(path, *sanitizer) : Yes();
}

// "#!/usr/bin/env -S python3 -u" gives "/usr/bin/env" and "python3": the program and, for env, the program that it
// starts.
struct Shebang {
  std::string interpreter;
  std::string through_env;
};

std::optional<Shebang> ParseShebang(std::string_view head) {
  if (head.substr(0, 2) != "#!") return std::nullopt;
  const std::string_view line = base::Trim(base::Split(head.substr(2), '\n').front());
  std::vector<std::string> words;
  std::string word;
  for (const char character : std::string(line) + ' ') {
    if (character != ' ' && character != '\t') {
      word += character;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  Shebang shebang;
  if (words.empty()) return shebang;
  shebang.interpreter = words[0];
  if (words[0].substr(words[0].rfind('/') + 1) != "env") return shebang;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].front() == '-' || words[i].find('=') != std::string::npos) continue;
    shebang.through_env = words[i];
    break;
  }
  return shebang;
}

AgentVerdict Judge(const std::string& path, const base::SystemRoot& root, const base::Environment& environment,
                   int interpreters_left) {
  const base::UniqueFd fd(open(root.Path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0) {
    return {false, base::ErrnoError(base::Printable(path) + " cannot be read").message};
  }
  if (!S_ISREG(status.st_mode)) return No(path, "is not a file");
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) return No(path, "changes user or group when it starts (setuid)");
  if (fgetxattr(fd.get(), "security.capability", nullptr, 0) > 0) {
    return No(path, "gains capabilities when it starts (file capabilities)");
  }
  const ElfFile file(fd.get());
  const std::string head = file.ReadSome(0, 256);
  if (head.substr(0, SELFMAG) == ELFMAG) return JudgeElf(file, path);

  const auto shebang = ParseShebang(head);
  if (!shebang) return No(path, "is neither a program nor a script with #! in its first line");
  if (shebang->interpreter.empty() || shebang->interpreter.front() != '/') {
    return No(path, "names no interpreter with a full path in its first line");
  }
  if (interpreters_left == 0) return No(path, "is a script of a script of a script, too deep to follow");
  AgentVerdict verdict = Judge(shebang->interpreter, root, environment, interpreters_left - 1);
  if (!verdict.may_preload || shebang->through_env.empty()) return verdict;
  if (shebang->through_env.front() == '/') {
    return Judge(shebang->through_env, root, environment, interpreters_left - 1);
  }
  const auto found = root.FindProgram(shebang->through_env, environment);
  // If env does not find the program, the rank ends with env's own message.
  if (!found) return verdict;
  return Judge(found->substr(root.Path("").size()), root, environment, interpreters_left - 1);
}

}  // namespace

AgentVerdict MayPreload(const std::string& program_path, const base::SystemRoot& root,
                        const base::Environment& environment) {
  return Judge(program_path, root, environment, kMaxInterpreters);
}

}  // namespace fulldeck::job
