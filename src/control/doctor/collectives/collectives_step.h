// One step of the proof of the collectives: a call that all ranks make together, or two of them, with values of which
// every one can be checked. The program tells it to its ranks as a line of JSON (over bench's rank sockets), in C++
// and in Python (collectives_rank.py) alike.
//
// Values are whole numbers that every type holds exactly, whatever order a library reduces in; different for every rank
// and call. They repeat after kPeriod elements, a prime.
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
  std::string reduction = "sum";  // of those that reduce: sum avg min max prod and or xor
  int root = 0;                   // of those that have one
  int from = -1;                  // send_receive: the two ranks; -1: all take part
  int to = -1;
  std::uint64_t count = 0;  // elements: of the buffer, or of each rank's part where the operation works in parts
  int calls = 1;
  bool sized = false;  // for its time at a size, and not only for its values
};

// The types: bench's, and those that only the engine knows.
const bench::Element* FindProofElement(std::string_view name);

// Everything that is tried, in order. `sizes` are bytes of the whole. With `all_types` every type with every
// reduction, otherwise every type and every reduction once.
struct ProofShape {
  int ranks = 1;
  std::vector<std::uint64_t> sizes;
  bool all_types = true;
};
std::vector<Step> StepsOf(const ProofShape& shape);
// Of one pair: there and back again.
Step PairStep(int number, int from, int to, std::uint64_t bytes, int calls);

// "all_reduce(max, int8 × 4099)", "broadcast(float32 × 4099, root 3)", "send and receive between ranks 1 and 5".
std::string Describe(const Step& step);

std::string LineOf(const Step& step);
base::Result<Step> ReadStep(const std::string& line);

// What a rank answers.
struct StepAnswer {
  std::vector<std::uint64_t> times_ns;
  std::uint64_t checked = 0;
  struct Wrong {
    std::uint64_t element = 0;  // in the rank's result
    double found = 0;
    double expected = 0;
    int source_rank = -1;  // the rank whose data this element is; -1: it is a reduction of all
  };
  std::optional<Wrong> wrong;         // the first
  std::optional<std::string> cannot;  // the library has no such call; on all ranks alike
  std::optional<std::string> failed;
};
std::string LineOf(const StepAnswer& answer);
base::Result<StepAnswer> ReadStepAnswer(const std::string& line);

// The values of one step, as bytes. One rank's; not thread safe.
class StepValues {
 public:
  static constexpr std::uint64_t kPeriod = 4093;
  static constexpr int kReduced = -1;

  StepValues(const Step& step, int ranks);
  // `count` values of `rank`, or the reduction of all ranks', from element `first` on.
  void Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, int call);
  std::optional<StepAnswer::Wrong> Check(const std::byte* data, std::uint64_t count, int rank, std::uint64_t first,
                                         int call);
  // The number itself. collectives_rank.py has the same formulas.
  std::uint64_t ValueOf(int rank, std::uint64_t index) const;
  std::uint64_t ReducedOf(std::uint64_t index) const;

 private:
  const std::byte* From(int rank, std::uint64_t first, int call);

  const Step step_;
  const int ranks_;
  const std::uint64_t values_;
  std::vector<std::vector<std::byte>> tables_;  // of the reduction, then of each rank; empty: not yet made
};

}  // namespace fulldeck::doctor
