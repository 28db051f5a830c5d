#include "diagnosis/script_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kMaxNamed = 8;
// Ranks may warm up separately before they form a group; at the end of a run the grace is over.
constexpr std::uint64_t kStepsWithoutGroup = 50;
constexpr std::uint64_t kStepsWithoutGroupAtTheEnd = 3;
// Fewer unused tensors (a pooler, a spare head) are common in correct scripts and only cause a note.
constexpr double kWithoutGradient = 0.1;
constexpr std::uint64_t kLabelBatches = 50;
constexpr std::uint64_t kLabelBatchesAtTheEnd = 10;

using Check = int;

const wire::Observation* Of(const RankObservations& rank, Check check) {
  const auto& observation = rank.checks[static_cast<std::size_t>(check)];
  return observation ? &*observation : nullptr;
}

// Ranks whose observation satisfies `predicate`.
template <typename Predicate>
std::vector<std::size_t> Where(const std::vector<RankObservations>& ranks, Check check, Predicate predicate) {
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const wire::Observation* observation = Of(ranks[i], check);
    if (observation != nullptr && predicate(*observation)) which.push_back(i);
  }
  return which;
}

const char* Plural(std::uint64_t count) {
  return count == 1 ? "" : "s";
}

}  // namespace

std::vector<RankObservations> ObservationsOn(const wire::RankBoard& board) {
  std::vector<RankObservations> ranks;
  for (int local_rank = 0; local_rank < board.run().local_ranks; ++local_rank) {
    RankObservations rank;
    rank.rank = board.run().first_rank + local_rank;
    if (const auto supervision = board.ReadSupervision(local_rank)) rank.card = supervision->card;
    if (const auto loop = board.ReadLoop(local_rank)) {
      rank.loss = loop->loss;
      rank.step = loop->step;
    }
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      if (board.ReadCollective(local_rank, slot)) rank.in_group = true;
    }
    for (int check = 0; check < FULLDECK_BOARD_CHECKS; ++check) {
      rank.checks[static_cast<std::size_t>(check)] = board.ReadObservation(local_rank, check);
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

base::Result<std::set<std::string>> ChecksOff(std::string_view text) {
  // Of all events "silent-error": of this file, of silent_faults.cc and of the admissions in logs.
  static const std::vector<std::string> codes = {"A7", "B6", "B8", "B9", "C1", "C6", "D9", "F2", "F6",
                                                 "F7", "G2", "G5", "J1", "J2", "J3", "J4", "J5", "J6"};
  std::set<std::string> off;
  for (const std::string_view part : base::Split(text, ',')) {
    const std::string code(base::Trim(part));
    if (code.empty()) continue;
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) {
      return base::Error{fmt::format("FULLDECK_CHECKS_OFF: no check has the code '{}'. There are: {}",
                                     base::Printable(code.substr(0, 32)), base::Join(codes, ", "))};
    }
    off.insert(code);
  }
  return off;
}

std::vector<events::Event> ScriptFaults::Update(const std::vector<RankObservations>& ranks, bool ended_well) {
  Events found;
  if (ranks.empty()) return found;
  NoGroup(ranks, ended_well, found);
  Weights(ranks, found);
  Gradients(ranks, found);
  Labels(ranks, ended_well, found);
  if (ended_well) {
    Validation(ranks, found);
    Children(ranks, found);
  }
  Devices(ranks, found);
  Finite(ranks, found);
  Modules(ranks, found);
  RandomState(ranks, found);
  Disabled(ranks, found);
  return found;
}

void ScriptFaults::Name(const char* code, const char* check, const Ranks& ranks, const std::vector<std::size_t>& which,
                        const std::string& evidence, const std::string& fix, Events& found, events::Severity severity) {
  // A note does not suppress a later warning of the same check.
  if (which.empty() || !named_.insert(fmt::format("{} {}", check, events::NameOf(severity))).second) return;
  std::vector<std::int64_t> numbers;
  for (const std::size_t index : which) numbers.push_back(ranks[index].rank);
  found.push_back(
      {"silent-error",
       severity,
       {{"code", std::string(code)}, {"check", std::string(check)}, {"ranks", numbers}, {"evidence", evidence}},
       fmt::format("{}: {}: {}. Fix: {}", code, Whom(ranks, which), evidence, fix)});
}

std::string ScriptFaults::Whom(const Ranks& ranks, const std::vector<std::size_t>& which) const {
  const std::string here = static_cast<int>(ranks.size()) < world_size_ ? " of this node" : "";
  if (which.size() == ranks.size() && ranks.size() > 1) return fmt::format("all {} ranks{}", ranks.size(), here);
  std::string text = which.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < which.size(); ++i) {
    if (i == kMaxNamed) return text + fmt::format(" and {} more", which.size() - i);
    text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[which[i]].rank);
  }
  return text;
}

void ScriptFaults::NoGroup(const Ranks& ranks, bool ended_well, Events& found) {
  if (world_size_ < 2) return;
  const std::uint64_t enough = ended_well ? kStepsWithoutGroupAtTheEnd : kStepsWithoutGroup;
  const auto which = Where(ranks, FULLDECK_BOARD_CHECK_GROUP,
                           [&](const wire::Observation& group) { return group.state == 1 && group.count >= enough; });
  // Every rank must have trained without a group; if this node has one rank, its peers are on other nodes.
  const bool any_group_formed = std::any_of(ranks.begin(), ranks.end(), [](const RankObservations& rank) {
    const wire::Observation* group = Of(rank, FULLDECK_BOARD_CHECK_GROUP);
    return rank.in_group || (group != nullptr && group->state == 2);
  });
  if (any_group_formed || which.size() < std::min<std::size_t>(2, ranks.size())) return;
  Name("A7", "group", ranks, which,
       fmt::format("{} optimizer steps without a process group: {} independent trainings, each on its own",
                   Of(ranks[which.front()], FULLDECK_BOARD_CHECK_GROUP)->count, world_size_),
       "call torch.distributed.init_process_group() and wrap the model with DistributedDataParallel (in a framework: "
       "choose its distributed launcher), or start one rank with --nproc-per-node 1",
       found);
}

void ScriptFaults::Weights(const Ranks& ranks, Events& found) {
  const auto which =
      Where(ranks, FULLDECK_BOARD_CHECK_WEIGHTS, [](const wire::Observation& loaded) { return loaded.count > 0; });
  if (which.empty()) return;
  const wire::Observation& loaded = *Of(ranks[which.front()], FULLDECK_BOARD_CHECK_WEIGHTS);
  Name(
      "G2", "weights", ranks, which,
      fmt::format("load_state_dict(strict=False) into {} used {} of {} tensors", loaded.text, loaded.value,
                  loaded.count),
      "print the missing and unexpected keys that it returns; strip or add the prefix (module., backbone.) or load the "
      "checkpoint's own sub-dict",
      found);
}

void ScriptFaults::Gradients(const Ranks& ranks, Events& found) {
  // State 1: zero gradients in a few steps, as before the first reward of a policy; 2: layers may join later.
  const auto is_certain = [](const wire::Observation& seen) {
    return seen.state == 0 && static_cast<double>(seen.value) >= kWithoutGradient * static_cast<double>(seen.count);
  };
  for (const bool warn : {true, false}) {
    const auto which = Where(ranks, FULLDECK_BOARD_CHECK_GRADIENTS,
                             [&](const wire::Observation& seen) { return seen.value > 0 && is_certain(seen) == warn; });
    if (which.empty()) continue;
    const wire::Observation& seen = *Of(ranks[which.front()], FULLDECK_BOARD_CHECK_GRADIENTS);
    Name("F7", "gradients", ranks, which,
         fmt::format("{} of {} trainable tensors had {} in {} sampled steps: {}", seen.value, seen.count,
                     seen.state == 1 ? "gradients of zeros only" : "no gradient", seen.step, seen.text),
         "let them take part in the loss (is an output unused, detached, or computed under no_grad?), or freeze them "
         "with requires_grad_(False)",
         found, warn ? events::Severity::kWarning : events::Severity::kInfo);
  }
}

void ScriptFaults::Labels(const Ranks& ranks, bool ended_well, Events& found) {
  const std::uint64_t enough = ended_well ? kLabelBatchesAtTheEnd : kLabelBatches;
  const auto which = Where(ranks, FULLDECK_BOARD_CHECK_LABELS, [&](const wire::Observation& labels) {
    return labels.state == 1 && labels.count >= enough;
  });
  // A single rank with one class may be how the data is sharded.
  if (which.size() < ranks.size()) return;
  const wire::Observation& first = *Of(ranks.front(), FULLDECK_BOARD_CHECK_LABELS);
  for (const RankObservations& rank : ranks) {
    if (Of(rank, FULLDECK_BOARD_CHECK_LABELS)->value != first.value) return;
  }
  Name("F7", "labels", ranks, which,
       fmt::format("every label of {} batches is {}", first.count, static_cast<std::int64_t>(first.value)),
       "look at the labels of a few samples: masks that are missing, replaced by zeros or read from the wrong folder, "
       "or a data set that is sorted by class and not shuffled",
       found);
}

void ScriptFaults::Validation(const Ranks& ranks, Events& found) {
  const auto in_state = [&](std::uint32_t state) {
    return Where(ranks, FULLDECK_BOARD_CHECK_VALIDATION,
                 [state](const wire::Observation& seen) { return seen.state == state; });
  };
  if (!in_state(2).empty()) return;
  const auto certain = in_state(1);
  const auto possible = in_state(3);
  const auto& which = certain.empty() ? possible : certain;
  if (which.empty()) return;
  const wire::Observation& seen = *Of(ranks[which.front()], FULLDECK_BOARD_CHECK_VALIDATION);
  Name("F6", "validation", ranks, which,
       certain.empty()
           ? fmt::format("the model ran without gradients on {} samples, {} of them training samples: its score there "
                         "says nothing about new data",
                         seen.count, seen.value)
           : fmt::format("{} of {} validation samples that were compared are training samples", seen.value, seen.count),
       "give the validation a data set of its own (another split, file list or folder); its score says nothing about "
       "new data",
       found, certain.empty() ? events::Severity::kInfo : events::Severity::kWarning);
}

void ScriptFaults::Children(const Ranks& ranks, Events& found) {
  const auto which =
      Where(ranks, FULLDECK_BOARD_CHECK_CHILDREN, [](const wire::Observation& children) { return children.count > 0; });
  if (which.empty()) return;
  const wire::Observation& first = *Of(ranks[which.front()], FULLDECK_BOARD_CHECK_CHILDREN);
  Name("C6", "children", ranks, which,
       fmt::format("{} child process{} failed and the rank ended well; the first: {} (exit status {})", first.count,
                   first.count == 1 ? "" : "es", first.text, static_cast<std::int64_t>(first.value)),
       "check the exit code of each child (subprocess.run(..., check=True), process.exitcode) and fail with it; let "
       "fulldeck run start the ranks itself",
       found);
}

void ScriptFaults::Devices(const Ranks& ranks, Events& found) {
  std::vector<std::size_t> on_cpu;
  std::map<std::string, std::vector<std::size_t>> by_card;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const wire::Observation* device = Of(ranks[i], FULLDECK_BOARD_CHECK_DEVICE);
    if (device == nullptr) continue;
    if (device->state == 1 && !ranks[i].card.empty()) on_cpu.push_back(i);
    if (device->state == 2 && !device->text.empty()) by_card[device->text].push_back(i);
  }
  if (!on_cpu.empty()) {
    Name("B6", "device", ranks, on_cpu,
         fmt::format("the optimizer's parameters are on the CPU, and the rank has the card {}",
                     ranks[on_cpu.front()].card),
         "move the model to the card before the optimizer is made (model.to(device)), and check what chooses the "
         "device; with --devices cpu the CPU is what you want",
         found);
  }
  for (const auto& [card, which] : by_card) {
    if (which.size() < 2 || cards_are_shared_) continue;
    Name(
        "B8", "shared-card", ranks, which, fmt::format("their parameters are on one card, {}", card),
        "choose the card by LOCAL_RANK (torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))); --share-cards if that "
        "is what you want",
        found);
  }
  const auto changed =
      Where(ranks, FULLDECK_BOARD_CHECK_VISIBILITY, [](const wire::Observation& seen) { return seen.state == 1; });
  if (changed.empty()) return;
  Name("B9", "visibility", ranks, changed, Of(ranks[changed.front()], FULLDECK_BOARD_CHECK_VISIBILITY)->text,
       "leave the variable alone, and choose the card by LOCAL_RANK only: the launcher has given each rank its card",
       found);
}

void ScriptFaults::Finite(const Ranks& ranks, Events& found) {
  // The first affected rank comes first: with reduced gradients the others only follow.
  std::vector<std::size_t> which;
  std::uint64_t first_step = 0;
  std::string what;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const wire::Observation* seen = Of(ranks[i], FULLDECK_BOARD_CHECK_FINITE);
    const bool loss = ranks[i].loss && !std::isfinite(*ranks[i].loss);
    if (seen == nullptr && !loss) continue;
    which.push_back(i);
    const std::uint64_t step = seen != nullptr ? seen->step : ranks[i].step;
    if (!what.empty() && step >= first_step) continue;
    first_step = step;
    what = seen == nullptr || seen->state == 2 ? "loss" : seen->state == 1 ? "gradients" : "parameters";
  }
  Name("J6", "finite", ranks, which, fmt::format("NaN or Inf in the {} at step {}", what, first_step),
       "lower the learning rate or warm it up, clip gradients, use bfloat16 or a GradScaler in place of plain float16, "
       "and look for NaN in the inputs; torch.autograd.set_detect_anomaly(True) names the operation",
       found);
}

void ScriptFaults::Modules(const Ranks& ranks, Events& found) {
  const auto which =
      Where(ranks, FULLDECK_BOARD_CHECK_MODULES, [](const wire::Observation& modules) { return modules.count > 0; });
  if (which.empty()) return;
  Name("D9", "modules", ranks, which,
       fmt::format("{} has a vendor's name, and no package installed it: what it answers (is_available, device_count) "
                   "does not come from a card",
                   Of(ranks[which.front()], FULLDECK_BOARD_CHECK_MODULES)->text),
       "delete the file, install the vendor's wheel, and let fulldeck doctor check it", found);
}

void ScriptFaults::RandomState(const Ranks& ranks, Events& found) {
  if (ranks.size() < 2) return;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const wire::Observation* random = Of(ranks[i], FULLDECK_BOARD_CHECK_RANDOM);
    const wire::Observation* first = Of(ranks.front(), FULLDECK_BOARD_CHECK_RANDOM);
    if (random == nullptr || random->state != 1 || random->value != first->value) return;
    all.push_back(i);
  }
  Name("G5", "random-state", ranks, all,
       "the random state is the same on every rank: dropout and augmentation are, too",
       "make the model with one seed, then call torch.manual_seed(seed + rank) before the loop", found,
       events::Severity::kInfo);
}

void ScriptFaults::Disabled(const Ranks& ranks, Events& found) {
  const auto which =
      Where(ranks, FULLDECK_BOARD_CHECK_DISABLED, [](const wire::Observation& seen) { return seen.count > 0; });
  if (which.empty() || !named_.insert("disabled").second) return;
  const wire::Observation& seen = *Of(ranks[which.front()], FULLDECK_BOARD_CHECK_DISABLED);
  std::vector<std::int64_t> numbers;
  for (const std::size_t index : which) numbers.push_back(ranks[index].rank);
  found.push_back({"check-disabled",
                   events::Severity::kInfo,
                   {{"ranks", numbers}, {"reason", seen.text}},
                   fmt::format("{}: a check for silent errors failed itself and is off: {}. The training is not "
                               "affected{}",
                               Whom(ranks, which), seen.text,
                               seen.count > 1 ? fmt::format(" ({} check{})", seen.count, Plural(seen.count)) : "")});
}

}  // namespace fulldeck::diagnosis
