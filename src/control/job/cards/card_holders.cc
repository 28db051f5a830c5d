#include "job/cards/card_holders.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files/system_root.h"
#include "base/text.h"
#include "job/runs/process_signal.h"

namespace fulldeck::job {

bool HasNodeOpen(int pid, const device::Card& card) {
  const base::SystemRoot root;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const std::string& name : root.List(folder)) {
    const auto target = root.ReadLink(folder + "/" + name);
    if (target && std::find(card.nodes.begin(), card.nodes.end(), *target) != card.nodes.end()) return true;
  }
  return false;
}

bool HasPidsOfTheHost() {
  // The inode of the first pid namespace is fixed in the kernel.
  return base::SystemRoot().ReadLink("/proc/self/ns/pid") == "pid:[4026531836]";
}

base::Result<const device::Card*> FindCard(const device::Inventory& inventory, std::string_view text) {
  const std::vector<const device::Card*> cards = inventory.Cards();
  const std::string_view name = base::Trim(text);
  const std::size_t digits = std::min(name.find_first_of("0123456789"), name.size());
  std::string_view kind = base::Trim(name.substr(0, digits));
  if (kind.ends_with(":")) kind.remove_suffix(1);
  const auto index = base::ParseInteger<int>(name.substr(digits));
  std::vector<const device::Card*> found;
  std::vector<std::string> names;
  for (const device::Card* card : cards) {
    names.push_back(device::NameOf(*card));
    if (index && card->index == *index && (kind.empty() || kind == card->kind)) found.push_back(card);
  }
  if (found.size() == 1) return found.front();
  const std::string there = names.empty() ? "No accelerator was found." : "Cards: " + base::Join(names, ", ") + ".";
  if (found.size() > 1)
    return base::Error{fmt::format("several cards have the number {}; name the kind too. {}", *index, there)};
  return base::Error{fmt::format("there is no card '{}'. {}", base::Printable(text), there)};
}

base::Result<std::vector<CardHolder>> HoldersOf(const device::Card& card, const std::vector<RunRegistry::Entry>& runs,
                                                bool has_pids_of_the_host) {
  if (!card.telemetry.holders) {
    return base::Error{
        fmt::format("who holds {} cannot be told: its driver does not say, and the processes of other users "
                    "cannot be looked into. Ask again as root",
                    device::NameOf(card))};
  }
  std::vector<CardHolder> holders;
  for (const device::Holder& holder : *card.telemetry.holders) {
    const auto identity = wire::IdentityOf(holder.pid);
    if (!identity || !wire::IsAlive(*identity)) continue;
    CardHolder found;
    found.holder = holder;
    found.process = *identity;
    found.certain = card.simulated || has_pids_of_the_host || HasNodeOpen(holder.pid, card);
    found.is_caller = IsThisProcessOrAncestor(holder.pid);
    for (const RunRegistry::Entry& run : runs) {
      for (const RegisteredRank& rank : run.record.ranks) {
        const bool same = rank.process.pid == identity->pid && rank.process.start_ticks == identity->start_ticks;
        if (same) found.run_id = run.record.run_id;
      }
    }
    holders.push_back(std::move(found));
  }
  return holders;
}

}  // namespace fulldeck::job
