#include "trainer/failure.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"
#include "trainer/stop_signal.h"

namespace fulldeck::trainer {
namespace {

constexpr char kCount[] = "fulldeck-train failed";
constexpr std::chrono::milliseconds kRankZeroFirst(150);
constexpr std::chrono::milliseconds kPeerWait(500);
constexpr std::chrono::seconds kLauncherGrace(3);
constexpr std::size_t kLongest = 2000;  // bytes of the reason sent to the other ranks

enum class FailureOrder { kFirst, kLater, kStoreLost };

FailureOrder FailureOrderOf(Session& session) {
  // Rank 0 reports errors that all ranks detect at the same time.
  if (!session.is_main() && StopSignals::Received() == 0) std::this_thread::sleep_for(kRankZeroFirst);
  try {
    return session.team().store->add(kCount, 1) == 1 ? FailureOrder::kFirst : FailureOrder::kLater;
  } catch (const std::exception&) {
    return FailureOrder::kStoreLost;  // rank 0, which hosts the store, is gone
  }
}

std::string TextOf(const std::exception& error) {
  // Users do not need torch's C++ backtrace.
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

void LogError(const std::string& text) {
  for (const std::string_view line : base::Split(text, '\n')) base::Log(base::Severity::kError, base::Printable(line));
}

// The other ranks ask rank 0's store who was first.
void WaitForOtherRanks(Session& session) {
  const auto end = std::chrono::steady_clock::now() + kPeerWait;
  while (session.team().store->add(kCount, 0) < session.world_size() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void FailAndExit(Session& session, const std::exception& error) noexcept {
  try {
    const std::string text = TextOf(error);
    const FailureOrder order = FailureOrderOf(session);
    if (order == FailureOrder::kFirst) {
      LogError(text);
      if (session.world_size() > 1) session.AbortGroup(text.substr(0, kLongest));
    }
    if (order == FailureOrder::kStoreLost) {
      LogError("rank " + std::to_string(session.rank()) +
               " stops, and rank 0 is gone: " + text.substr(0, text.find('\n')));
    }
    if (session.is_main() && session.world_size() > 1) WaitForOtherRanks(session);
    // If a stop signal has already arrived, do not wait: no second one will come.
    if (order == FailureOrder::kLater && StopSignals::Received() == 0) std::this_thread::sleep_for(kLauncherGrace);
  } catch (const std::exception& second) {
    std::fprintf(stderr, "fulldeck: error: %s\n", second.what());
  }
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace fulldeck::trainer
