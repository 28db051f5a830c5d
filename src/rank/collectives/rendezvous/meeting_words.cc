#include "collectives/rendezvous/meeting_words.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

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

std::string Seconds(base::Duration duration) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.1f s", std::chrono::duration<double>(duration).count());
  return {text.data(), static_cast<std::size_t>(length)};
}

// Lower rank first, so that both sides say the same.
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

std::string TwoVersions(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " has version " + std::to_string(first->version) +
         " of the collectives and " + Named(*second) + " has version " + std::to_string(second->version) +
         ": all members must run the same build of fulldeck";
}

std::string TwoUsers(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " runs as user " + std::to_string(first->uid) + " and " + Named(*second) +
         " as user " + std::to_string(second->uid) + ": all members must belong to one user";
}

std::string TwoSizes(const std::string& group, const MemberClaim& one, const MemberClaim& other) {
  const auto [first, second] = InOrder(one, other);
  return InGroup(group) + Named(*first) + " says that it has " + std::to_string(first->size) + " members and " +
         Named(*second) + " says " + std::to_string(second->size);
}

std::string TwoOfOneRank(const std::string& group, int rank, pid_t one, pid_t other) {
  if (one > other) std::swap(one, other);
  const std::string who = one == other ? "both are in " + Process(one) : Process(one) + " and " + Process(other);
  return InGroup(group) + "two members say that they are rank " + std::to_string(rank) + ": " + who;
}

std::string MemberDied(const std::string& group, int rank, pid_t pid) {
  return InGroup(group) + "rank " + std::to_string(rank) + " (" + Process(pid) +
         ") died while the group was being made";
}

std::string MeetingTimedOut(const MeetingAttendance& attendance) {
  std::string text = InGroup(attendance.group) + "rank " + std::to_string(attendance.rank) + " waited " +
                     Seconds(attendance.waited) + " for the others, and ";
  const char* separator = "";
  if (!attendance.absent.empty()) {
    text += ListOfRanks(attendance.absent) + " of " + std::to_string(attendance.size) + " did not come";
    separator = "; ";
  }
  const auto add = [&](const std::vector<MeetingAttendance::Silent>& members, const char* what) {
    for (const MeetingAttendance::Silent& member : members) {
      text += separator + ("rank " + std::to_string(member.rank)) + " (" + member.state + ") " + what;
      separator = "; ";
    }
  };
  add(attendance.unanswering, "does not answer");
  add(attendance.unready, "came but did not get ready");
  text += '.';
  if (attendance.place_taken_by >= 0) {
    text += " The place of rank " + std::to_string(attendance.rank) +
            " is taken: " + Process(attendance.place_taken_by) + " listens there.";
  } else if (static_cast<int>(attendance.absent.size()) == attendance.size - 1) {
    text +=
        " Nobody else came at all: the others may not have got this far, may run on another host or in another "
        "network namespace (a container of their own), or may use another name or key.";
  }
  if (attendance.strangers > 0) {
    text += " Connections that were refused because they did not prove that they know the key: " +
            std::to_string(attendance.strangers) + ", the last from " + Process(attendance.last_stranger) +
            " of user " + std::to_string(attendance.last_stranger_uid) + ".";
  }
  return text;
}

}  // namespace fulldeck::collectives
