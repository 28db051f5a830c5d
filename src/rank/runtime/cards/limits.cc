#include "runtime/cards/limits.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/log.h"
#include "base/usable_cpus.h"

namespace fulldeck::runtime {
namespace {

void RaiseOpenFiles(rlim_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
    rlimit raised = limit;
    // Root may also raise the hard limit.
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted) {
      raised.rlim_cur = raised.rlim_max = wanted;
      if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
      raised = limit;
    }
    raised.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &raised);
  }
}

}  // namespace

std::string Limits::ToText() const {
  return "open files " + std::to_string(open_files) + ", threads " + std::to_string(threads) + ", cudnn_benchmark " +
         (cudnn_benchmark ? "on" : "off");
}

Limits SetLimits(const LimitsRequest& request) {
  const auto wanted_files = static_cast<rlim_t>(std::max(0, request.open_files));
  RaiseOpenFiles(wanted_files);
  const int wanted_threads =
      request.threads.value_or(std::max(1, base::UsableCpus() / std::max(1, request.ranks_here)));
  at::set_num_threads(wanted_threads);
  if (request.cudnn_benchmark) at::globalContext().setBenchmarkCuDNN(*request.cudnn_benchmark);

  Limits limits;
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  limits.open_files = files.rlim_cur;
  limits.most_open_files = files.rlim_max;
  limits.threads = at::get_num_threads();
  limits.cudnn_benchmark = at::globalContext().benchmarkCuDNN();
  using base::Log;
  using base::Severity;
  if (files.rlim_cur != RLIM_INFINITY && files.rlim_cur < wanted_files) {
    Log(Severity::kWarning, "this process may open " + std::to_string(limits.open_files) + " files, and not " +
                                std::to_string(wanted_files) +
                                ": the hard limit is in the way. Raise it (ulimit -Hn) before the start.");
  }
  if (limits.threads != wanted_threads) {
    Log(Severity::kWarning, "torch computes with " + std::to_string(limits.threads) + " threads, and not with " +
                                std::to_string(wanted_threads) + " as it was told.");
  }
  if (request.cudnn_benchmark && limits.cudnn_benchmark != *request.cudnn_benchmark) {
    Log(Severity::kWarning, "torch did not take the setting of cudnn_benchmark.");
  }
  return limits;
}

}  // namespace fulldeck::runtime
