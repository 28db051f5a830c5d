// The interface of a library of collectives in one rank: the library under test. One implementation for fulldeck's
// engine, one for Open MPI. torch's backends are measured by bench/collectives_rank.py with the same protocol.
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
  std::byte* input = nullptr;   // the same as output if the operation is in place
  std::byte* output = nullptr;  // nullptr if this rank has none
};

// Not thread safe. Every member of a group makes the same calls in the same order.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // "Open MPI v4.1.4", human-readable.
  virtual std::string About() const = 0;
  // Why the library does not support this call; nullopt if it does.
  virtual std::optional<std::string> WhyNot(const Operation& operation, const Element& element,
                                            std::uint64_t count) const = 0;

  virtual base::Result<void> Barrier() = 0;
  // Returns rank 0's `value` on all ranks.
  virtual base::Result<std::int64_t> BroadcastFromRankZero(std::int64_t value) = 0;
  virtual base::Result<void> Do(const Call& call) = 0;

  // Memory that the other members can access, if the library supports that.
  virtual base::Result<std::byte*> AllocateShared(std::uint64_t bytes) = 0;
  virtual void FreeShared(std::byte* memory) = 0;
};

struct FulldeckMember {
  int rank = 0;
  int ranks = 1;
  std::string key;
  double timeout_seconds = 0;
};

// Waits until the other members have joined.
base::Result<std::unique_ptr<Library>> JoinFulldeck(const FulldeckMember& member);
// For a process that mpirun started. Loads libmpi, which stays loaded until the process exits; an error if it is not
// installed.
base::Result<std::unique_ptr<Library>> JoinOpenMpi();

}  // namespace fulldeck::bench
