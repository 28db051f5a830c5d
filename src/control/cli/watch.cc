#include "cli/watch.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/event_loop.h"
#include "base/log.h"

namespace fulldeck::cli {

base::Duration Seconds(double seconds) {
  return std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(seconds));
}

wire::ExitCode Watch(base::Duration interval,
                     const std::function<wire::ExitCode(const std::function<void()>& end)>& show) {
  base::EventLoop loop;
  wire::ExitCode code = wire::ExitCode::kOk;
  const auto watching_signals = loop.OnSignals({SIGINT, SIGTERM}, [&](int) { loop.Stop(); });
  if (!watching_signals) {
    base::Log(base::Severity::kError, watching_signals.error().message);
    return wire::ExitCode::kFailed;
  }
  const std::function<void()> end = [&] { loop.Stop(); };
  std::function<void()> tick = [&] {
    code = show(end);
    const bool over =
        code == wire::ExitCode::kFailed || code == wire::ExitCode::kUsage || code == wire::ExitCode::kBadEnvironment;
    if (over) return loop.Stop();
    loop.After(interval, tick);
  };
  loop.After(base::Duration(0), tick);
  loop.Run();
  return code;
}

wire::ExitCode Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return std::ferror(stdout) != 0 ? wire::ExitCode::kFailed : wire::ExitCode::kOk;
}

wire::ExitCode PrintFrame(const std::string& text) {
  return Print(isatty(STDOUT_FILENO) == 1 ? "\x1b[H\x1b[2J" + text : text);
}

}  // namespace fulldeck::cli
