// RankStacks and their text form.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/files/open_without_links.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"
#include "diagnosis/hangs/stack_collection.h"

namespace fulldeck::diagnosis {
namespace {

constexpr int kMaxSaved = 10'000;

// Frames of the interpreter add nothing to Python's own stack.
bool IsInterpreter(const NativeFrame& frame) {
  return frame.file.starts_with("libpython") || frame.file.starts_with("python");
}

// Whether the frame belongs to Python itself, an installed package, or fulldeck.
bool IsOfALibrary(const PythonFrame& frame) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/lib/python", "/fulldeck/", "/fulldeck_hook/"}) {
    if (frame.file.find(part) != std::string::npos) return true;
  }
  return frame.file.starts_with("<");
}

struct Style {
  std::size_t max_frames = 0;
  bool whole = false;
};

std::string MoreFrames(std::size_t count) {
  return "      … " + base::Counted(count, "more frame");
}

void AddPython(const ThreadStack& thread, const Style& style, std::vector<std::string>& lines) {
  if (thread.python.empty()) return;
  lines.push_back("    Python:");
  const std::size_t shown = std::min(thread.python.size(), style.max_frames);
  for (std::size_t i = 0; i < shown; ++i) {
    const PythonFrame& frame = thread.python[i];
    lines.push_back("      " + (style.whole ? frame.file + ":" + std::to_string(frame.line) + " in " + frame.function
                                            : frame.Short()));
  }
  if (shown < thread.python.size()) lines.push_back(MoreFrames(thread.python.size() - shown));
}

void AddNative(const ThreadStack& thread, const Style& style, std::vector<std::string>& lines) {
  if (!thread.answered) {
    if (!thread.unanswered.empty()) lines.push_back("    no native stack: " + thread.unanswered);
    return;
  }
  lines.push_back("    native:");
  const bool fold = !style.whole && !thread.python.empty();
  std::size_t shown = 0;
  for (std::size_t i = 0; i < thread.native.size();) {
    std::size_t end = i;
    while (fold && end < thread.native.size() && IsInterpreter(thread.native[end])) ++end;
    if (shown == style.max_frames) {
      lines.push_back(MoreFrames(thread.native.size() - i));
      break;
    }
    ++shown;
    if (end > i + 1) {
      lines.push_back("      … " + base::Counted(end - i, "frame") + " of the interpreter");
      i = end;
      continue;
    }
    lines.push_back("      #" + std::to_string(i) + " " + thread.native[i].Short());
    ++i;
  }
  if (!thread.native_note.empty()) lines.push_back("      " + thread.native_note);
}

// "thread 4058 python", "threads 4061 pt_autograd_0, 4062 pt_autograd_1 … (8 in the same place)".
std::string Heading(const std::vector<const ThreadStack*>& threads, int main_thread) {
  constexpr std::size_t kNamed = 4;
  std::string text = threads.size() == 1 ? "  thread " : "  threads ";
  for (std::size_t i = 0; i < std::min(threads.size(), kNamed); ++i) {
    const ThreadStack& thread = *threads[i];
    if (i > 0) text += ", ";
    text += thread.thread == 0 ? "that only Python knows" : std::to_string(thread.thread) + " " + thread.name;
    if (thread.thread != 0 && thread.thread == main_thread) text += " (main)";
  }
  if (threads.size() > kNamed) text += " …";
  if (threads.size() > 1) text += " (" + std::to_string(threads.size()) + " in the same place)";
  return text + ":";
}

void AddThreads(const StackDump& dump, int main_thread, const Style& style, std::vector<std::string>& lines) {
  std::vector<std::vector<const ThreadStack*>> places;
  std::map<std::string, std::size_t> by_key;
  const auto add = [&](const ThreadStack& thread) {
    // Threads that did not answer may be at different places.
    const std::string key = thread.answered || !thread.python.empty() ? thread.Key() : std::to_string(thread.thread);
    const auto [at, is_new] = by_key.emplace(key, places.size());
    if (is_new) places.emplace_back();
    places[at->second].push_back(&thread);
  };
  // The main thread first, then threads with Python, then the others.
  for (int turn = 0; turn < 3; ++turn) {
    for (const ThreadStack& thread : dump.threads) {
      const bool is_main = thread.thread != 0 && thread.thread == main_thread;
      if (turn == (is_main ? 0 : thread.python.empty() ? 2 : 1)) add(thread);
    }
  }
  for (const auto& threads : places) {
    lines.push_back(Heading(threads, main_thread));
    AddPython(*threads.front(), style, lines);
    AddNative(*threads.front(), style, lines);
  }
}

std::vector<std::string> LinesOf(const RankStacks& rank, const Style& style) {
  std::vector<std::string> lines;
  std::string heading = "rank " + std::to_string(rank.rank) + " (pid " + std::to_string(rank.process.pid) + ")";
  if (rank.dump) {
    heading += ": " + base::Counted(rank.dump->threads.size(), "thread");
    if (rank.complete()) {
      char took[32];
      std::snprintf(took, sizeof took, ", told in %.0f ms",
                    std::chrono::duration<double, std::milli>(rank.took).count());
      heading += took;
    }
  } else if (rank.state != '?') {
    heading += ": " + DescribeState(rank.state);
  }
  lines.push_back(heading);
  if (rank.was_stopped) {
    lines.push_back("  it was stopped; it was continued for this for a moment, and is stopped again");
  }
  if (!rank.why_none.empty())
    lines.push_back("  " + std::string(rank.dump ? "not whole: " : "no stack: ") + rank.why_none);
  if (rank.dump) {
    if (!rank.dump->note.empty()) lines.push_back("  note: " + rank.dump->note);
    if (!rank.dump->python_note.empty()) lines.push_back("  no Python stacks: " + rank.dump->python_note);
    AddThreads(*rank.dump, rank.process.pid, style, lines);
  }
  for (const ThreadFacts& thread : rank.threads) {
    lines.push_back("  " + thread.ToString());
    for (const std::string& frame : thread.kernel_stack) lines.push_back("    kernel: " + frame);
  }
  constexpr std::size_t kShownChildren = 8;
  for (std::size_t i = 0; i < rank.children.size(); ++i) {
    if (!style.whole && i == kShownChildren) {
      lines.push_back("  … and " + std::to_string(rank.children.size() - i) + " more processes that it started");
      break;
    }
    const ChildFacts& child = rank.children[i];
    lines.push_back("  started process " + std::to_string(child.pid) + ", " + DescribeState(child.state) + ": " +
                    child.command);
  }
  return lines;
}

}  // namespace

const ThreadStack* RankStacks::main_thread() const {
  if (!dump || dump->threads.empty()) return nullptr;
  const auto found = std::find_if(dump->threads.begin(), dump->threads.end(),
                                  [this](const ThreadStack& thread) { return thread.thread == process.pid; });
  return found != dump->threads.end() ? &*found : &dump->threads.front();
}

namespace {

std::string JoinedKeys(const RankStacks& rank, std::string (ThreadStack::*key_of)() const) {
  if (!rank.complete()) return "";
  std::map<int, std::string> keys;
  for (const ThreadStack& thread : rank.dump->threads) keys[thread.thread] += (thread.*key_of)();
  std::string joined;
  for (const auto& [thread, key] : keys) joined += std::to_string(thread) + "\n" + key + "\n";
  return joined;
}

}  // namespace

std::string RankStacks::MainPlace() const {
  const ThreadStack* thread = main_thread();
  if (thread == nullptr) return "";
  for (const PythonFrame& frame : thread->python) {
    if (!IsOfALibrary(frame)) return frame.Short();
  }
  if (!thread->python.empty()) return thread->python.front().Short();
  for (const NativeFrame& frame : thread->native) {
    if (!frame.file.starts_with("libc.so") && !frame.file.starts_with("libpthread")) return frame.Short();
  }
  return thread->native.empty() ? "" : thread->native.front().Short();
}

std::string RankStacks::Key() const {
  return JoinedKeys(*this, &ThreadStack::Key);
}

std::string RankStacks::FunctionKey() const {
  return JoinedKeys(*this, &ThreadStack::FunctionKey);
}

std::vector<std::string> RankStacks::Lines(std::size_t max_frames) const {
  return LinesOf(*this, {max_frames, false});
}

std::vector<std::string> RankStacks::AllLines() const {
  return LinesOf(*this, {static_cast<std::size_t>(-1), true});
}

base::Result<std::string> SaveStacks(const std::string& folder, const std::vector<RankStacks>& ranks) {
  std::string text;
  for (const RankStacks& rank : ranks) text += base::Join(rank.AllLines(), "\n") + "\n\n";
  for (int number = 0; number < kMaxSaved; ++number) {
    const std::string path = folder + "/stacks-" + std::to_string(number) + ".txt";
    const base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.valid() && errno == EEXIST) continue;
    if (!file.valid()) return base::ErrnoError("cannot write " + base::Printable(path));
    const auto written = base::WriteAllTo(file.get(), text, path);
    if (!written) return written.error();
    return path;
  }
  return base::Error{base::Printable(folder) + " has " + std::to_string(kMaxSaved) +
                     " saved stacks already: remove some"};
}

}  // namespace fulldeck::diagnosis
