#include "collectives/rendezvous/rendezvous_errors.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace fulldeck::collectives {
namespace {

std::string InGroup(const std::string& group) {
  return "group \"" + group + "\": ";
}

std::string Process(pid_t pid) {
  return pid > 0 ? "pid " + std::to_string(pid) : std::string("a process of another pid namespace");
}

std::string Named(const MemberClaim& member) {
  return "rank " + std::to_string(member.rank) + " (" + Process(member.pid) + ")";
}

// Lower rank first, so that both sides produce the same text.
std::pair<const MemberClaim*, const MemberClaim*> InOrder(const MemberClaim& one, const MemberClaim& other) {
  return one.rank <= other.rank ? std::pair(&one, &other) : std::pair(&other, &one);
}

}  // namespace

std::string ListOfRanks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - i < 2) last = i;
    parts.push_back(std::to_string(ranks[i]));
    if (last > i) parts.back() += "–" + std::to_string(ranks[last]);
    i = last + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string VersionMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " has version " + std::to_string(first->version) +
         " of the collectives and " + Named(*second) + " has version " + std::to_string(second->version) +
         ": all members must run the same build of fulldeck";
}

std::string UserMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " runs as user " + std::to_string(first->uid) + " and " + Named(*second) +
         " as user " + std::to_string(second->uid) + ": all members must belong to one user";
}

std::string SizeMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " says that it has " + std::to_string(first->size) + " members and " +
         Named(*second) + " says " + std::to_string(second->size);
}

std::string DuplicateRank(const std::string& group, int rank, pid_t one, pid_t other) {
  if (one > other) std::swap(one, other);
  const std::string who = one == other ? "both are in " + Process(one) : Process(one) + " and " + Process(other);
  return InGroup(group) + "two members say that they are rank " + std::to_string(rank) + ": " + who;
}

std::string MemberDied(const std::string& group, int rank, pid_t pid) {
  return InGroup(group) + "rank " + std::to_string(rank) + " (" + Process(pid) +
         ") died while the group was being made";
}

std::string RendezvousTimedOut(const RendezvousReport& report) {
  std::string text = InGroup(report.group) + "rank " + std::to_string(report.rank) + " waited " +
                     base::FormatSeconds(report.waited) + " for the others, and ";
  const char* separator = "";
  if (!report.absent.empty()) {
    text += ListOfRanks(report.absent) + " of " + std::to_string(report.size) + " did not come";
    separator = "; ";
  }
  const auto add = [&](const std::vector<RendezvousReport::PendingMember>& members, const char* what) {
    for (const RendezvousReport::PendingMember& member : members) {
      text += separator + ("rank " + std::to_string(member.rank)) + " (" + member.state + ") " + what;
      separator = "; ";
    }
  };
  add(report.unresponsive, "does not answer");
  add(report.not_ready, "came but did not get ready");
  text += '.';
  if (report.address_taken_by >= 0) {
    text += " The place of rank " + std::to_string(report.rank) + " is taken: " + Process(report.address_taken_by) +
            " listens there.";
  } else if (static_cast<int>(report.absent.size()) == report.size - 1) {
    text +=
        " Nobody else came at all: the others may not have got this far, may run on another host or in another "
        "network namespace (a container of their own), or may use another name or key.";
  }
  if (report.unauthenticated_peers > 0) {
    text += " Connections that were refused because they did not prove that they know the key: " +
            std::to_string(report.unauthenticated_peers) + ", the last from " + Process(report.last_unauthenticated) +
            " of user " + std::to_string(report.last_unauthenticated_uid) + ".";
  }
  return text;
}

}  // namespace fulldeck::collectives
