#include "diagnosis/hangs/stack_dump.h"

#include <cxxabi.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kMaxDumps = 64;
constexpr std::size_t kMaxThreads = 1024;
constexpr std::size_t kMaxFrames = 128;
constexpr std::size_t kMaxFiles = 512;
constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kMaxName = 160;

// Removes `prefix` from the text. Returns false and changes nothing if the text does not start with it.
bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Removes a number with prefix 0x.
std::optional<std::uint64_t> TakeHex(std::string_view& text) {
  std::string_view rest = text;
  if (!Take(rest, "0x")) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, 16);
  if (error != std::errc()) return std::nullopt;
  text = rest.substr(static_cast<std::size_t>(end - rest.data()));
  return value;
}

std::string Shown(std::string_view text) {
  return base::Printable(text.substr(0, kMaxLine));
}

// "#1 0x7f12 libtorch_cpu.so+0x5c3 _ZN…+0x17". A file name may contain spaces and plus signs; a function name does not.
std::optional<NativeFrame> ParseFrame(std::string_view line) {
  const auto space = line.find(' ');
  if (!line.starts_with('#') || space == std::string_view::npos) return std::nullopt;
  line.remove_prefix(space + 1);
  const auto address = TakeHex(line);
  if (!address) return std::nullopt;
  NativeFrame frame;
  frame.address = *address;
  if (!Take(line, " ")) return frame;
  for (auto plus = line.find("+0x"); plus != std::string_view::npos; plus = line.find("+0x", plus + 1)) {
    std::string_view rest = line.substr(plus + 1);
    const auto offset = TakeHex(rest);
    if (!offset || (!rest.empty() && rest.front() != ' ')) continue;
    frame.file = Shown(line.substr(0, plus));
    frame.offset = *offset;
    if (Take(rest, " ")) frame.function = Shown(Demangled(std::string(rest.substr(0, rest.rfind("+0x"))), false));
    break;
  }
  return frame;
}

// '  File "train.py", line 9 in backward'
std::optional<PythonFrame> ParsePythonFrame(std::string_view line) {
  if (!Take(line, "  File \"")) return std::nullopt;
  const auto end = line.rfind("\", line ");
  if (end == std::string_view::npos) return std::nullopt;
  PythonFrame frame;
  frame.file = Shown(line.substr(0, end));
  line.remove_prefix(end + 8);
  const auto in = line.find(" in ");
  frame.line = base::ParseInteger<int>(line.substr(0, in)).value_or(0);
  if (in != std::string_view::npos) frame.function = Shown(line.substr(in + 4));
  return frame;
}

// "…, system call 202, …" with the name of the system call added.
std::string WithCallNamed(std::string_view text) {
  constexpr std::string_view kCall = "system call ";
  const auto at = text.find(kCall);
  if (at == std::string_view::npos) return Shown(text);
  const auto end = std::min(text.find(',', at), text.size());
  const std::string_view word = text.substr(at + kCall.size(), end - at - kCall.size());
  const auto number = base::ParseInteger<long>(word);
  return Shown(text.substr(0, at)) +
         (number && *number >= 0 ? "in " + SystemCallName(*number)
          : word == "running"    ? "running"
                                 : "in no call") +
         Shown(text.substr(end));
}

// Reads line by line; a line either belongs to the open dump or starts the next one.
class Parser {
 public:
  void See(std::string_view line) {
    line = line.substr(0, kMaxLine);
    if (line == "fulldeck stacks 1") return Begin();
    if (!open_) return;
    if (line == "end of stacks") {
      dumps_.back().whole = true;
      End();
    } else if (line == "native stacks:") {
      section_ = Section::kNative;
      current_ = nullptr;
    } else if (section_ == Section::kPython) {
      SeePython(line);
    } else if (line == "Python stacks:") {
      section_ = Section::kPython;
    } else if (Take(line, "no Python stacks: ")) {
      dumps_.back().python_note = Shown(line);
    } else if (line == "files:") {
      section_ = Section::kFiles;
    } else if (section_ == Section::kFiles) {
      if (dumps_.back().files.size() < kMaxFiles) dumps_.back().files.push_back(Shown(line));
    } else {
      SeeNative(line);
    }
  }

  std::vector<StackDump> Finish() && {
    End();
    return std::move(dumps_);
  }

 private:
  enum class Section { kNative, kFiles, kPython };

  void Begin() {
    End();
    if (dumps_.size() == kMaxDumps) dumps_.erase(dumps_.begin());
    dumps_.emplace_back();
    section_ = Section::kNative;
    open_ = true;
  }

  // Merges Python's threads with the native ones.
  void End() {
    if (!open_) return;
    open_ = false;
    current_ = nullptr;
    std::vector<ThreadStack>& threads = dumps_.back().threads;
    for (PythonThread& python : python_) {
      const auto found = std::find(pthreads_.begin(), pthreads_.end(), python.pthread);
      const bool known = python.pthread != 0 && found != pthreads_.end();
      if (!known && threads.size() == kMaxThreads) continue;
      ThreadStack& thread =
          known ? threads[static_cast<std::size_t>(found - pthreads_.begin())] : threads.emplace_back();
      thread.python = std::move(python.frames);
      thread.is_current = python.is_current;
    }
    pthreads_.clear();
    python_.clear();
  }

  ThreadStack* AddThread() {
    auto& threads = dumps_.back().threads;
    if (threads.size() == kMaxThreads) return nullptr;
    pthreads_.push_back(0);
    threads.emplace_back();
    // The vector may have been reallocated.
    return &threads.back();
  }

  void SeeNative(std::string_view line) {
    StackDump& dump = dumps_.back();
    if (Take(line, "requests:")) {
      for (const std::string_view word : base::Split(base::Trim(line), ' ')) {
        const auto number = base::ParseInteger<std::uint32_t>(word);
        if (number && dump.requests.size() < 64) dump.requests.push_back(*number);
      }
    } else if (Take(line, "process: ")) {
      dump.process = base::ParseInteger<int>(line).value_or(0);
    } else if (Take(line, "time: ")) {
      dump.unix_seconds = base::ParseDecimal(line).value_or(0);
    } else if (Take(line, "no stacks: ")) {
      dump.note = Shown(line);
    } else if (line == "and more threads") {
      dump.note = "there are more threads than are shown";
    } else if (Take(line, "thread: ")) {
      current_ = AddThread();
      if (current_ == nullptr) return;
      const auto space = std::min(line.find(' '), line.size());
      current_->thread = base::ParseInteger<int>(line.substr(0, space)).value_or(0);
      current_->name = Shown(line.substr(std::min(space + 1, line.size())));
    } else if (current_ == nullptr) {
      return;
    } else if (Take(line, "pthread: ")) {
      pthreads_.back() = TakeHex(line).value_or(0);
      current_->answered = true;
    } else if (Take(line, "no stack: ")) {
      current_->unanswered = WithCallNamed(line);
    } else if (line.starts_with('#')) {
      auto frame = ParseFrame(line);
      if (frame && current_->native.size() < kMaxFrames) current_->native.push_back(std::move(*frame));
    } else {
      current_->native_note = Shown(line);
    }
  }

  void SeePython(std::string_view line) {
    const bool is_current = line.starts_with("Current thread 0x");
    if (is_current || line.starts_with("Thread 0x")) {
      line.remove_prefix(line.find("0x"));
      if (python_.size() < kMaxThreads) python_.push_back({TakeHex(line).value_or(0), is_current, {}});
    } else if (line == "the Python stacks cannot be read further") {
      dumps_.back().python_note = Shown(line);
    } else if (!python_.empty()) {
      auto frame = ParsePythonFrame(line);
      if (frame && python_.back().frames.size() < kMaxFrames) python_.back().frames.push_back(std::move(*frame));
    }
  }

  struct PythonThread {
    std::uint64_t pthread;
    bool is_current;
    std::vector<PythonFrame> frames;
  };

  std::vector<StackDump> dumps_;
  std::vector<std::uint64_t> pthreads_;  // of the native threads of the open dump
  std::vector<PythonThread> python_;     // of the open dump
  ThreadStack* current_ = nullptr;
  Section section_ = Section::kNative;
  bool open_ = false;
};

// The position after the bracket that matches "<" or "(" at `at`; the end if it is not closed.
std::size_t BehindBracket(std::string_view text, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(' || text[i] == '{') ++depth;
    if (text[i] == '>' && i > 0 && text[i - 1] == '-') continue;
    if (text[i] == '>' || text[i] == ')' || text[i] == '}') --depth;
    if (depth == 0) return i + 1;
  }
  return text.size();
}

// "void c10::f<int>(long) const" becomes "c10::f".
std::string WithoutArguments(std::string_view name) {
  constexpr std::string_view kNowhere = "(anonymous namespace)";
  std::string kept;
  for (std::size_t i = 0; i < name.size();) {
    if (name.substr(i).starts_with("operator")) {
      // An operator's symbol belongs to the name, up to the parameters.
      std::size_t end = i + 8;
      if (name.substr(end).starts_with("()")) end += 2;
      while (end < name.size() && name[end] != '(') ++end;
      kept += name.substr(i, end - i);
      break;
    }
    if (name.substr(i).starts_with(kNowhere)) {
      kept += kNowhere;
      i += kNowhere.size();
    } else if (name[i] == '{') {
      const std::size_t end = BehindBracket(name, i);
      kept += name.substr(i).starts_with("{lambda") ? "lambda" : name.substr(i, end - i);
      i = end;
    } else if (name[i] == '<') {
      i = BehindBracket(name, i);
    } else if (name[i] == '(') {
      // Parameters, unless the function is nested in another one: "f(int)::g()".
      const std::size_t end = BehindBracket(name, i);
      if (!name.substr(end).starts_with("::")) break;
      i = end;
    } else if (name[i] == ' ') {
      // The preceding text was the return type.
      kept.clear();
      ++i;
    } else {
      kept += name[i++];
    }
  }
  return kept;
}

}  // namespace

std::string Demangled(const std::string& name, bool shortly) {
  std::string readable = name;
  if (name.starts_with("_Z")) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> found(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                       std::free);
    if (status == 0 && found != nullptr) readable = found.get();
  }
  if (!shortly) return readable;
  std::string text = readable.find('(') == std::string::npos ? readable : WithoutArguments(readable);
  if (text.empty()) text = readable;
  if (text.size() > kMaxName) text = text.substr(0, kMaxName) + "…";
  return text;
}

std::string NativeFrame::Short() const {
  if (!function.empty()) return Demangled(function, true) + (file.empty() ? "" : " (" + file + ")");
  char digits[20];
  const auto hex = [&digits](std::uint64_t number) {
    return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, number, 16).ptr);
  };
  return file.empty() ? hex(address) : file + "+" + hex(offset);
}

std::string PythonFrame::Short() const {
  const auto slash = file.rfind('/');
  const auto before = slash == std::string::npos || slash == 0 ? std::string::npos : file.rfind('/', slash - 1);
  return (before == std::string::npos ? file : file.substr(before + 1)) + ":" + std::to_string(line) + " in " +
         function;
}

std::string ThreadStack::Key() const {
  std::string key;
  for (const PythonFrame& frame : python) key += frame.file + ":" + std::to_string(frame.line) + "\n";
  for (std::size_t i = native.size() > 1 ? 1 : 0; i < native.size(); ++i) {
    key += native[i].file + "+" + std::to_string(native[i].file.empty() ? native[i].address : native[i].offset) + "\n";
  }
  return key + unanswered;
}

std::string ThreadStack::FunctionKey() const {
  std::string key;
  for (const PythonFrame& frame : python) key += frame.file + " " + frame.function + "\n";
  if (!python.empty()) return key;
  for (std::size_t i = native.size() > 1 ? 1 : 0; i < native.size(); ++i) {
    key += native[i].file + " " + native[i].function + "\n";
  }
  return key + unanswered;
}

bool StackDump::Answers(std::uint32_t request) const {
  return std::find(requests.begin(), requests.end(), request) != requests.end();
}

std::vector<StackDump> ParseStackDumps(std::string_view text) {
  Parser parser;
  while (!text.empty()) {
    const auto end = text.find('\n');
    // A last line without a newline may be truncated; ignore it.
    if (end == std::string_view::npos) break;
    parser.See(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return std::move(parser).Finish();
}

std::string SystemCallName(long number) {
  struct Row {
    long number;
    const char* name;
  };
#define ROW(name) \
  { SYS_##name, #name }
  static constexpr Row kRows[] = {
      ROW(read),
      ROW(write),
      ROW(readv),
      ROW(writev),
      ROW(pread64),
      ROW(pwrite64),
      ROW(close),
      ROW(openat),
      ROW(fsync),
      ROW(fdatasync),
      ROW(flock),
      ROW(fcntl),
      ROW(ioctl),
      ROW(futex),
      ROW(nanosleep),
      ROW(connect),
      ROW(clock_nanosleep),
      ROW(accept),
      ROW(accept4),
      ROW(recvfrom),
      ROW(recvmsg),
      ROW(sendto),
      ROW(sendmsg),
      ROW(epoll_pwait),
      ROW(ppoll),
      ROW(pselect6),
      ROW(wait4),
      ROW(waitid),
      ROW(rt_sigsuspend),
      ROW(rt_sigtimedwait),
      ROW(io_getevents),
      ROW(sched_yield),
      ROW(mmap),
      ROW(munmap),
      ROW(madvise),
      ROW(clone),
      ROW(execve),
      ROW(exit_group),
      ROW(msgrcv),
      ROW(semtimedop),
      ROW(getrandom),
      ROW(renameat),
      ROW(unlinkat),
      ROW(sendfile),
      ROW(splice),
      ROW(mremap),
      ROW(preadv),
      ROW(pwritev),
      ROW(syncfs),
      ROW(sync),
      ROW(msync),
      ROW(recvmmsg),
      ROW(getdents64),
      ROW(ftruncate),
      ROW(fallocate),
      ROW(mkdirat),
      ROW(newfstatat),
      ROW(readlinkat),
      ROW(renameat2),
#ifdef SYS_statx
      ROW(statx),
#endif
#ifdef SYS_copy_file_range
      ROW(copy_file_range),
#endif
#ifdef SYS_io_uring_enter
      ROW(io_uring_enter),
#endif
#ifdef SYS_poll
      ROW(poll),
      ROW(select),
      ROW(epoll_wait),
      ROW(vfork),
      ROW(fork),
      ROW(pause),
      ROW(rename),
      ROW(open),
      ROW(unlink),
#endif
  };
#undef ROW
  for (const Row& row : kRows) {
    if (row.number == number) return row.name;
  }
  return "system call " + std::to_string(number);
}

}  // namespace fulldeck::diagnosis
