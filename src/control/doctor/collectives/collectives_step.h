// One step of `fulldeck doctor --collectives`: one or two calls that all ranks make together, with values that can all
// be checked. The program sends it to the ranks as a line of JSON (over bench's rank sockets); the C++ and Python
// (collectives_rank.py) ranks use the same format.
//
// Values are integers that every type represents exactly, whatever the order of the reduction. They differ between
// ranks and calls, and repeat after kPeriod elements, a prime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/element.h"
#include "bench/operation.h"

namespace fulldeck::doctor {

struct Step {
  int number = 0;
  const bench::Operation* operation = nullptr;
  const bench::Element* element = nullptr;
  std::string reduction = "sum";  // of operations that reduce: sum avg min max prod and or xor
  int root = 0;                   // of operations that have one
  int from = -1;                  // send_receive: the two ranks; -1: all ranks take part
  int to = -1;
  std::uint64_t count = 0;  // elements: of the buffer, or of each rank's chunk if the operation works in chunks
  int calls = 1;
  bool sized = false;  // measures the time at a size in addition to the values
};

// The types: bench's, and those that only the engine supports.
const bench::Element* FindProofElement(std::string_view name);

// All steps, in order. `sizes`: bytes of the whole. With `all_types`: every type with every reduction; otherwise every
// type and every reduction once.
struct ProofShape {
  int ranks = 1;
  std::vector<std::uint64_t> sizes;
  bool all_types = true;
};
std::vector<Step> StepsOf(const ProofShape& shape);
// A round trip between one pair.
Step PairStep(int number, int from, int to, std::uint64_t bytes, int calls);

// "all_reduce(max, int8 × 4099)", "broadcast(float32 × 4099, root 3)", "send and receive between ranks 1 and 5".
std::string Describe(const Step& step);

std::string LineOf(const Step& step);
base::Result<Step> ReadStep(const std::string& line);

// A rank's answer.
struct StepAnswer {
  std::vector<std::uint64_t> times_ns;
  std::uint64_t checked = 0;
  struct Wrong {
    std::uint64_t element = 0;  // in the rank's result
    double found = 0;
    double expected = 0;
    int source_rank = -1;  // the rank that this element's data comes from; -1: a reduction over all
  };
  std::optional<Wrong> wrong;         // the first wrong value
  std::optional<std::string> cannot;  // the library does not support the call; the same on all ranks
  std::optional<std::string> failed;
};
std::string LineOf(const StepAnswer& answer);
base::Result<StepAnswer> ReadStepAnswer(const std::string& line);

// The values of one step, as bytes. For one rank; not thread safe.
class StepValues {
 public:
  static constexpr std::uint64_t kPeriod = 4093;
  static constexpr int kReduced = -1;

  StepValues(const Step& step, int ranks);
  // Writes `count` values of `rank`, or of the reduction over all ranks, from element `first` on.
  void Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, int call);
  std::optional<StepAnswer::Wrong> Check(const std::byte* data, std::uint64_t count, int rank, std::uint64_t first,
                                         int call);
  // The value itself. collectives_rank.py has the same formulas.
  std::uint64_t ValueOf(int rank, std::uint64_t index) const;
  std::uint64_t ReducedOf(std::uint64_t index) const;

 private:
  const std::byte* From(int rank, std::uint64_t first, int call);

  const Step step_;
  const int ranks_;
  const std::uint64_t values_;
  std::vector<std::vector<std::byte>> tables_;  // of the reduction, then of each rank; empty: not computed yet
};

}  // namespace fulldeck::doctor
