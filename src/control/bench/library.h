// A library of collectives as one rank sees it: what is under test. One implementation for fulldeck's own engine, one
// for OpenMPI; torch's backends are measured by bench/collectives_rank.py, which speaks the same protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/element.h"
#include "bench/operation.h"

namespace fulldeck::bench {

struct Call {
  const Operation* operation = nullptr;
  const Element* element = nullptr;
  std::uint64_t count = 0;      // see Shape
  std::byte* input = nullptr;   // the same as output where the operation is in place
  std::byte* output = nullptr;  // nullptr where this rank has none
};

// Used by one thread. Every member of a group makes the same calls in the same order.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // "Open MPI v4.1.4", for people.
  virtual std::string About() const = 0;
  // Why it has no such call; nothing when it has.
  virtual std::optional<std::string> WhyNot(const Operation& operation, const Element& element,
                                            std::uint64_t count) const = 0;

  virtual base::Result<void> Barrier() = 0;
  // The value that rank 0 gave.
  virtual base::Result<std::int64_t> BroadcastFromRankZero(std::int64_t value) = 0;
  virtual base::Result<void> Do(const Call& call) = 0;

  // Memory that the other members can reach, where the library has such a thing.
  virtual base::Result<std::byte*> AllocateShared(std::uint64_t bytes) = 0;
  virtual void FreeShared(std::byte* memory) = 0;
};

struct FulldeckMember {
  int rank = 0;
  int ranks = 1;
  std::string key;
  double timeout_seconds = 0;
};

// Meets the other members.
base::Result<std::unique_ptr<Library>> JoinFulldeck(const FulldeckMember& member);
// In a process that mpirun started. libmpi is loaded here and stays until the process ends; an error where there is
// none.
base::Result<std::unique_ptr<Library>> JoinOpenMpi();

}  // namespace fulldeck::bench
