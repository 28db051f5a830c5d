#include "cli/run_stacks.h"

#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/event_loop.h"
#include "base/log.h"
#include "wire/rank_board.h"

namespace fulldeck::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

bool IsSame(const wire::ProcessIdentity& one, const wire::ProcessIdentity& other) {
  return one.pid == other.pid && one.start_ticks == other.start_ticks;
}

Json ThreadJson(const diagnosis::ThreadStack& thread) {
  Json object = {{"thread", thread.thread == 0 ? Json(nullptr) : Json(thread.thread)},
                 {"name", thread.name},
                 {"answered", thread.answered},
                 {"unanswered", thread.unanswered},
                 {"python", Json::array()},
                 {"native", Json::array()},
                 {"native_note", thread.native_note}};
  for (const auto& frame : thread.python) {
    object["python"].push_back({{"file", frame.file}, {"line", frame.line}, {"function", frame.function}});
  }
  for (const auto& frame : thread.native) {
    object["native"].push_back({{"address", fmt::format("{:#x}", frame.address)},
                                {"file", frame.file},
                                {"offset", fmt::format("{:#x}", frame.offset)},
                                {"function", frame.function}});
  }
  return object;
}

Json RankJson(const diagnosis::RankStacks& rank) {
  Json object = {{"rank", rank.rank},
                 {"pid", rank.process.pid},
                 {"complete", rank.complete()},
                 {"why_none", rank.why_none},
                 {"was_stopped", rank.was_stopped},
                 {"state", std::string(1, rank.state)},
                 {"milliseconds",
                  rank.complete() ? Json(std::chrono::duration<double, std::milli>(rank.took).count()) : Json(nullptr)},
                 {"threads", Json::array()},
                 {"kernel", Json::array()},
                 {"children", Json::array()}};
  if (rank.dump) {
    for (const auto& thread : rank.dump->threads) object["threads"].push_back(ThreadJson(thread));
  }
  for (const auto& thread : rank.threads) {
    object["kernel"].push_back({{"thread", thread.thread},
                                {"name", thread.name},
                                {"state", std::string(1, thread.state)},
                                {"wait_channel", thread.wait_channel},
                                {"system_call", thread.system_call},
                                {"stack", thread.kernel_stack}});
  }
  for (const auto& child : rank.children) {
    object["children"].push_back({{"pid", child.pid},
                                  {"parent", child.parent},
                                  {"state", std::string(1, child.state)},
                                  {"command", child.command}});
  }
  return object;
}

}  // namespace

base::Result<std::vector<diagnosis::StackTarget>> StackTargets(const job::RunRegistry::Entry& entry,
                                                               std::optional<int> rank) {
  const job::RunRecord& record = entry.record;
  std::optional<wire::RankBoard> board;
  if (record.board_fd >= 0) {
    auto opened = wire::RankBoard::Open(fmt::format("/proc/{}/fd/{}", record.supervisor.pid, record.board_fd));
    if (opened) {
      board.emplace(std::move(*opened));
    } else {
      base::Log(base::Severity::kWarning, "the rank board cannot be read: " + opened.error().message);
    }
  }
  std::vector<diagnosis::StackTarget> targets;
  for (const job::RegisteredRank& each : record.ranks) {
    const int number = record.first_rank + each.local_rank;
    if (rank && *rank != number) continue;
    diagnosis::StackTarget target;
    target.rank = number;
    target.process = each.process;
    target.file = fmt::format("{}/attempt_{}/{}/stacks.txt", record.directory, record.attempt, each.local_rank);
    const bool on_board = board && each.local_rank < board->run().local_ranks;
    const auto reported = on_board ? board->ReadProcess(each.local_rank) : std::nullopt;
    if (reported && IsSame(reported->process, each.process)) target.signal = reported->stack_signal;
    targets.push_back(std::move(target));
  }
  if (targets.empty() && rank) {
    return base::Error{record.ranks.empty()
                           ? fmt::format("run {} has no rank on this host yet", record.run_id)
                           : fmt::format("rank {} of run {} is not on this host: ranks {} to {} are", *rank,
                                         record.run_id, record.first_rank,
                                         record.first_rank + static_cast<int>(record.ranks.size()) - 1)};
  }
  return targets;
}

std::optional<std::vector<diagnosis::RankStacks>> CollectStacks(std::vector<diagnosis::StackTarget> targets) {
  base::EventLoop loop;
  std::optional<std::vector<diagnosis::RankStacks>> result;
  const auto watching = loop.OnSignals({SIGINT, SIGTERM, SIGHUP}, [&](int) { loop.Stop(); });
  if (!watching) base::Log(base::Severity::kWarning, watching.error().message);
  const diagnosis::StackCollection collection(loop, std::move(targets), {},
                                              [&](std::vector<diagnosis::RankStacks> ranks) {
                                                result = std::move(ranks);
                                                loop.Stop();
                                              });
  loop.Run();
  return result;
}

std::string StacksJson(const std::string& run_id, const std::optional<std::string>& saved,
                       const std::vector<diagnosis::RankStacks>& ranks) {
  Json object = {{"version", kJsonVersion},
                 {"run_id", run_id},
                 {"saved", saved ? Json(*saved) : Json(nullptr)},
                 {"ranks", Json::array()}};
  for (const auto& rank : ranks) object["ranks"].push_back(RankJson(rank));
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fulldeck::cli
