#include "cli/child_output.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/event_loop.h"
#include "base/subprocess.h"

namespace fulldeck::cli {
namespace {

constexpr std::size_t kMaxErrors = 4096;

// Reads what is available; false: the other end is closed.
bool Read(int fd, std::string& into, std::size_t most) {
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    into.append(buffer.data(), std::min(static_cast<std::size_t>(got), most - std::min(most, into.size())));
  }
}

}  // namespace

base::Result<ChildOutput> RunForOutput(const std::vector<std::string>& arguments, base::Duration timeout,
                                       std::size_t most, std::optional<std::vector<std::string>> environment) {
  auto out = base::MakePipe();
  if (!out) return out.error();
  auto err = base::MakePipe();
  if (!err) return err.error();
  for (const int fd : {out->read_end.get(), err->read_end.get()}) {
    const auto set = base::SetNonBlocking(fd);
    if (!set) return set.error();
  }
  base::SpawnOptions options;
  options.arguments = arguments;
  options.environment = std::move(environment);
  options.descriptors = {{STDOUT_FILENO, out->write_end.get()}, {STDERR_FILENO, err->write_end.get()}};
  options.parent_death_signal = SIGKILL;
  const auto pid = base::Spawn(options);
  if (!pid) return pid.error();
  out->write_end.Reset();
  err->write_end.Reset();

  ChildOutput output;
  base::EventLoop loop;
  int open = 3;  // both pipes and the process
  const auto one_less = [&] {
    if (--open == 0) loop.Stop();
  };
  const auto follow = [&](int fd, std::string& into, std::size_t limit) {
    const auto id = std::make_shared<base::EventLoop::Id>(0);
    const auto watch = loop.WhenReadable(fd, [&loop, &into, one_less, fd, limit, id] {
      if (Read(fd, into, limit)) return;
      loop.Remove(*id);
      one_less();
    });
    if (watch) {
      *id = *watch;
    } else {
      one_less();
    }
  };
  follow(out->read_end.get(), output.text, most);
  follow(err->read_end.get(), output.errors, kMaxErrors);
  bool ended = false;
  const auto child = loop.WhenExited(*pid, [&](std::optional<int> status) {
    ended = true;
    if (status) output.exit_code = WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
    one_less();
  });
  if (!child) one_less();
  loop.After(timeout, [&] {
    output.timed_out = true;
    loop.Stop();
  });
  loop.Run();
  if (output.timed_out) {
    kill(-*pid, SIGKILL);
    if (!ended) waitpid(*pid, nullptr, 0);
    output.exit_code = -1;
  }
  return output;
}

}  // namespace fulldeck::cli
