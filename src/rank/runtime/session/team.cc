#include "fulldeck/team.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/text.h"

namespace fulldeck {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMaxText = 64 << 10;
constexpr std::size_t kMaxName = 100;

std::vector<std::uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string Text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string WhereKey(int rank) {
  return "where/" + std::to_string(rank);
}

// A rendezvous through the store: the n-th of this kind and name. Keys, below one prefix per kind and name (`base`):
//   round/RANK   number of calls by the rank; kept, one key per rank and name
//   N/RANK       the rank's text
//   N/come       number of ranks that have arrived
//   N/all        exists once all have arrived; the others wait for it
//   N/left       number of ranks that have left; the last one deletes all keys of N
// and outside it:
//   where/RANK   where the rank waits, for the other ranks' messages
//
// Invariants:
//   - N is a rank's own count of its calls, and all ranks make the same calls, so the n-th calls share keys, and a fast
//     rank in call n + 1 does not touch the keys of call n.
//   - A rank sets its text before it increments `come`. So once `all` exists, every rank's text is readable.
//   - A rank increments `left` only after its last read of N. So the last one deletes keys that no rank will read.
//     A rank whose wait timed out never leaves, so the keys remain.
class StoreBarrier {
 public:
  StoreBarrier(const Team& team, const char* kind, const char* title, std::string_view name,
               std::optional<milliseconds> timeout)
      : team_(team), limit_(timeout.value_or(team.timeout)), deadline_(steady_clock::now() + limit_) {
    if (name.empty() || name.size() > kMaxName) {
      throw Error("a " + std::string(title) + " needs a name of 1 to " + std::to_string(kMaxName) +
                  " bytes; this one has " + std::to_string(name.size()) + ".");
    }
    const std::string base = "meet/" + std::string(kind) + "/" + std::string(name) + "/";
    const std::int64_t round = team_.store->add(base + "round/" + std::to_string(team_.rank), 1);
    key_ = base + std::to_string(round) + "/";
    title_ = std::string(title) + " \"" + base::Printable(name) + "\"";
    if (round > 1) title_ += " (time " + std::to_string(round) + ")";
  }

  std::string KeyOf(int rank) const { return key_ + std::to_string(rank); }

  void Arrive(std::string_view text) {
    team_.store->set(WhereKey(team_.rank), Bytes(title_));
    // Not every store can hold an empty value, so a '=' is prepended.
    std::vector<std::uint8_t> brought(1 + text.size(), '=');
    std::copy(text.begin(), text.end(), brought.begin() + 1);
    team_.store->set(KeyOf(team_.rank), brought);
    if (team_.store->add(key_ + "come", 1) == team_.world_size) team_.store->set(key_ + "all", Bytes("1"));
  }

  void WaitForAll() { WaitFor(key_ + "all"); }

  // For a key that only rank 0 sets.
  void WaitForMain() { WaitFor(KeyOf(0)); }

  std::string ValueOf(int rank) const { return Text(team_.store->get(KeyOf(rank))).substr(1); }

  void Leave() {
    team_.store->deleteKey(WhereKey(team_.rank));
    if (team_.store->add(key_ + "left", 1) != team_.world_size) return;
    for (int rank = 0; rank < team_.world_size; ++rank) team_.store->deleteKey(KeyOf(rank));
    for (const char* name : {"come", "all", "left"}) team_.store->deleteKey(key_ + name);
  }

 private:
  void WaitFor(const std::string& key) {
    const auto left =
        std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline_ - steady_clock::now()));
    std::string reason;
    try {
      team_.store->wait({key}, left);
      return;
    } catch (const std::exception& error) {
      reason = error.what();
    }
    std::string missing;
    try {
      missing = Missing();
    } catch (const std::exception&) {
      throw Error(title_ + ": the store at rank 0 does not answer any more: " +
                  base::Printable(reason.substr(0, reason.find('\n'))) + " See what became of rank 0.");
    }
    throw Error(title_ + ": rank " + std::to_string(team_.rank) + " waited " + base::FormatTimeout(limit_) +
                "; missing: " + missing + ".");
  }

  std::string Missing() const {
    std::string missing;
    for (int rank = 0; rank < team_.world_size; ++rank) {
      if (team_.store->check({KeyOf(rank)})) continue;
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
      if (team_.store->check({WhereKey(rank)})) {
        missing += " (waits in " + base::Printable(Text(team_.store->get(WhereKey(rank)))) + ")";
      }
    }
    return missing.empty() ? "nobody: the last one came just now" : missing;
  }

  const Team& team_;
  const milliseconds limit_;
  const steady_clock::time_point deadline_;
  std::string key_;
  std::string title_;
};

// Prefix of rank 0's text if its work failed; the text is empty if it succeeded.
constexpr char kFailed[] = "failed: ";

void DoOnMain(const Team& team, const char* title, std::string_view name, const std::function<void()>& work,
              const std::function<void()>& work_of_others, std::optional<milliseconds> timeout) {
  StoreBarrier barrier(team, "main", title, name, timeout);
  if (team.is_main()) {
    try {
      work();
    } catch (const std::exception& error) {
      barrier.Arrive(kFailed + std::string(error.what()).substr(0, kMaxText));
      barrier.Leave();
      throw;
    } catch (...) {
      barrier.Arrive(kFailed + std::string("something that is no std::exception"));
      barrier.Leave();
      throw;
    }
    barrier.Arrive("");
    barrier.Leave();
    return;
  }
  barrier.Arrive("");
  barrier.WaitForMain();
  const std::string outcome = barrier.ValueOf(0);
  barrier.Leave();
  if (!outcome.empty()) {
    throw Error("rank 0 could not do \"" + base::Printable(name) + "\", for which rank " + std::to_string(team.rank) +
                " waited: " + outcome.substr(sizeof kFailed - 1));
  }
  work_of_others();
}

}  // namespace

void Barrier(const Team& team, std::string_view name, std::optional<milliseconds> timeout) {
  StoreBarrier barrier(team, "barrier", "barrier", name, timeout);
  barrier.Arrive("");
  barrier.WaitForAll();
  barrier.Leave();
}

std::vector<std::string> GatherTexts(const Team& team, std::string_view name, const std::string& mine) {
  if (mine.size() > kMaxText) {
    throw Error("a text of " + std::to_string(mine.size()) + " bytes is too long to gather; the limit is " +
                std::to_string(kMaxText) + ".");
  }
  StoreBarrier barrier(team, "gather", "gathering", name, std::nullopt);
  barrier.Arrive(mine);
  barrier.WaitForAll();
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(team.world_size));
  for (int rank = 0; rank < team.world_size; ++rank) texts.push_back(barrier.ValueOf(rank));
  barrier.Leave();
  return texts;
}

void OnMain(const Team& team, std::string_view name, const std::function<void()>& work,
            std::optional<milliseconds> timeout) {
  DoOnMain(
      team, "work of rank 0", name, work, [] {}, timeout);
}

void MainFirst(const Team& team, std::string_view name, const std::function<void()>& work,
               std::optional<milliseconds> timeout) {
  DoOnMain(team, "work that rank 0 does first", name, work, work, timeout);
}

double MeanOverRanks(const Team& team, const at::Tensor& value) {
  if (value.numel() != 1)
    throw Error("the mean over the ranks is of one number, and this tensor has " + std::to_string(value.numel()) + ".");
  // On the team's device, for which the group has a backend; not every card supports double. A copy, because the
  // caller's tensor must not change.
  at::Tensor sum = value.detach().to(team.device, team.device.is_cpu() ? at::kDouble : at::kFloat).reshape({1}).clone();
  std::vector<at::Tensor> tensors = {sum};
  team.group->allreduce(tensors)->wait();
  return sum.item<double>() / team.world_size;
}

}  // namespace fulldeck
