// A group's slot on the rank board: the fingerprint of every collective, and when it began and ended. Without a board
// (the program was not started by fulldeck) it does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "collectives/call.h"
#include "collectives/status.h"

struct fulldeck_board;

namespace fulldeck::collectives {

// One thread at a time.
class BoardSlot {
 public:
  BoardSlot(std::uint64_t group, const std::string& name, int size, int rank);
  ~BoardSlot();
  BoardSlot(const BoardSlot&) = delete;
  BoardSlot& operator=(const BoardSlot&) = delete;

  void Begin(const Call& call, std::uint64_t sequence, std::uint64_t bytes);
  // Shows that the group is being created, until this slot is left.
  void BeginRendezvous();
  // Records a send or receive; returns the number for End, 0 if nothing was recorded.
  std::uint64_t BeginMessage(bool is_send, int peer, std::uint64_t bytes);
  void End(std::uint64_t sequence);
  // `culprit`: RANK in the whole run; -1: unknown.
  void ReportError(const Status& status, int culprit);

 private:
  std::shared_ptr<fulldeck_board> board_;  // of this process; nullptr: none
  int slot_ = -1;
};

// The slot for a group's sends and receives, taken with the first of them. They may end in any order; the board shows
// an end only when all earlier ones have ended too. One thread at a time.
class MessageBoard {
 public:
  MessageBoard(std::uint64_t group, std::string name, int size, int rank)
      : group_(group), name_(std::move(name)), size_(size), rank_(rank) {}

  std::uint64_t Begin(bool is_send, int peer, std::uint64_t bytes);
  void End(std::uint64_t number);

 private:
  std::uint64_t group_;
  std::string name_;
  int size_;
  int rank_;
  std::optional<BoardSlot> slot_;
  std::set<std::uint64_t> open_;
  std::uint64_t newest_ = 0;
};

}  // namespace fulldeck::collectives
