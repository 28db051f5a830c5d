// A collective call that is generated from a seed: what each rank contributes, what each must get, and the code to make
// and check the call on one rank, with its buffers at any place. Tests go through all kinds; the soak test draws them
// at random.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/group.h"
#include "collectives/testing/fake_card.h"
#include "collectives/testing/reference.h"

namespace fulldeck::testing {

using collectives::Buffer;
using collectives::Datatype;
using collectives::Group;
using collectives::Operation;
using collectives::Reduction;
using collectives::Status;

inline constexpr Datatype kDatatypes[] = {
    Datatype::kBool,     Datatype::kInt8,    Datatype::kUint8,  Datatype::kInt16,  Datatype::kUint16,
    Datatype::kInt32,    Datatype::kUint32,  Datatype::kInt64,  Datatype::kUint64, Datatype::kFloat16,
    Datatype::kBfloat16, Datatype::kFloat32, Datatype::kFloat64};
inline constexpr Reduction kReductions[] = {Reduction::kSum,  Reduction::kAvg, Reduction::kMin, Reduction::kMax,
                                            Reduction::kProd, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};

inline std::uint64_t Mix(std::uint64_t value) {  // the finalizer of splitmix64
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// A sequence of numbers from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(Mix(seed)) {}
  std::uint64_t Next() { return Mix(state_++); }
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }
  bool OneIn(std::uint64_t bound) { return Below(bound) == 0; }

 private:
  std::uint64_t state_;
};

// Elements of all magnitudes, of both signs, with zeros; floats are finite and small enough that sums are too.
inline Bytes RandomElements(Datatype datatype, std::uint64_t count, std::uint64_t seed) {
  Bytes bytes(count * BytesOf(datatype));
  seed = Mix(seed);
  if (!IsFloat(datatype)) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const std::uint64_t random = Mix(seed + at);
      std::memcpy(bytes.data() + at, &random, std::min<std::size_t>(8, bytes.size() - at));
    }
    if (datatype == Datatype::kBool) {
      for (std::byte& byte : bytes) byte = (byte & std::byte{1}) != std::byte{0} ? byte & std::byte{0xe} : byte;
    }
    return bytes;
  }
  WithType(datatype, [&](auto stored) {
    using Type = decltype(stored);
    if constexpr (std::is_floating_point_v<typename Type::Accumulator>) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t random = Mix(seed + i);
        double value = static_cast<double>(static_cast<std::int64_t>(random << 4)) * 0x1p-61;  // −4 … 4
        switch (random >> 60) {
          case 0:
            value = 0;
            break;
          case 1:
            value = -0.0;
            break;
          case 2:
            value *= 0x1p-18;
            break;
          case 3:
            value *= 1000;
            break;
          default:
            break;
        }
        Type::Store(bytes.data() + i * Type::kBytes, static_cast<typename Type::Accumulator>(value));
      }
    }
  });
  return bytes;
}

struct Problem {
  collectives::Call call;
  int size = 1;
  std::vector<Bytes> inputs;   // by rank; if it sends to several, their parts one after another
  std::vector<Bytes> outputs;  // by rank: the expected output; empty if it gets nothing
  // all_to_all: elements from rank f to rank t, [f * size + t]
  std::vector<std::uint64_t> counts;

  std::uint64_t CountOf(int from, int to) const {
    return counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
  }
};

inline Problem MakeProblem(Operation operation, Datatype datatype, Reduction reduction, int root, std::uint64_t count,
                           int size, std::uint64_t seed) {
  Problem problem;
  problem.size = size;
  const bool reduces =
      operation == Operation::kAllReduce || operation == Operation::kReduce || operation == Operation::kReduceScatter;
  const bool has_root = operation == Operation::kReduce || operation == Operation::kBroadcast ||
                        operation == Operation::kGather || operation == Operation::kScatter;
  problem.call = {operation, datatype, reduces ? reduction : Reduction::kNone, has_root ? root : -1, count};
  const auto ranks = static_cast<std::size_t>(size);
  const std::uint64_t bytes = count * BytesOf(datatype);
  const auto whole = [&](int rank) { return RandomElements(datatype, count, seed + static_cast<std::uint64_t>(rank)); };
  const auto parts = [&](int rank) {
    return RandomElements(datatype, count * ranks, seed + static_cast<std::uint64_t>(rank));
  };
  const auto part_of = [&](const Bytes& all, int rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::uint64_t>(rank) * bytes);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
  };
  problem.inputs.resize(ranks);
  problem.outputs.resize(ranks);
  for (int rank = 0; rank < size; ++rank) {
    Bytes& input = problem.inputs[static_cast<std::size_t>(rank)];
    switch (operation) {
      case Operation::kBarrier:
        break;
      case Operation::kAllReduce:
      case Operation::kReduce:
      case Operation::kAllGather:
      case Operation::kGather:
        input = whole(rank);
        break;
      case Operation::kBroadcast:
        if (rank == root) input = whole(rank);
        break;
      case Operation::kScatter:
        if (rank == root) input = parts(rank);
        break;
      case Operation::kReduceScatter:
        input = parts(rank);
        break;
      case Operation::kAllToAll:
        break;
    }
  }
  if (operation == Operation::kAllToAll) {
    Draws draws(seed);
    for (std::size_t i = 0; i < ranks * ranks; ++i) {
      // A third of the parts is empty, some have the maximum length.
      const std::uint64_t kind = draws.Below(6);
      problem.counts.push_back(kind < 2 ? 0 : kind == 2 ? count : draws.Below(count + 1));
    }
    for (int from = 0; from < size; ++from) {
      std::uint64_t sent = 0;
      for (int to = 0; to < size; ++to) sent += problem.CountOf(from, to);
      problem.inputs[static_cast<std::size_t>(from)] =
          RandomElements(datatype, sent, seed + static_cast<std::uint64_t>(from));
    }
    problem.call.count = 0;
  }
  Bytes all;
  for (int rank = 0; rank < size; ++rank) {
    Bytes& output = problem.outputs[static_cast<std::size_t>(rank)];
    switch (operation) {
      case Operation::kBarrier:
        break;
      case Operation::kAllReduce:
        if (rank == 0) all = Reduced(problem.inputs, 0, count, datatype, reduction);
        output = all;
        break;
      case Operation::kReduce:
        if (rank == root) output = Reduced(problem.inputs, 0, count, datatype, reduction);
        break;
      case Operation::kBroadcast:
        output = problem.inputs[static_cast<std::size_t>(root)];
        break;
      case Operation::kAllGather:
      case Operation::kGather:
        if (operation == Operation::kGather && rank != root) break;
        for (const Bytes& input : problem.inputs) output.insert(output.end(), input.begin(), input.end());
        break;
      case Operation::kReduceScatter:
        output = Reduced(problem.inputs, static_cast<std::uint64_t>(rank) * count, count, datatype, reduction);
        break;
      case Operation::kScatter:
        output = part_of(problem.inputs[static_cast<std::size_t>(root)], rank);
        break;
      case Operation::kAllToAll:
        for (int from = 0; from < size; ++from) {
          std::uint64_t before = 0;
          for (int to = 0; to < rank; ++to) before += problem.CountOf(from, to);
          const Bytes& input = problem.inputs[static_cast<std::size_t>(from)];
          const auto begin = input.begin() + static_cast<std::ptrdiff_t>(before * BytesOf(datatype));
          output.insert(output.end(), begin,
                        begin + static_cast<std::ptrdiff_t>(problem.CountOf(from, rank) * BytesOf(datatype)));
        }
        break;
    }
  }
  return problem;
}

// Where a rank has its data in one call.
struct Placement {
  enum class Kind { kHost, kShared, kCard };
  Kind input = Kind::kHost;
  Kind output = Kind::kHost;
  bool in_place = false;    // if the operation supports it; the kind is then that of the input
  unsigned misaligned = 0;  // bytes past a 64-byte boundary
};

// One range of memory of a call, with guard bytes around it. Belongs to one thread; destroyed before its group.
class Space {
 public:
  Space(Group& group, Placement::Kind kind, const Bytes& contents, unsigned misaligned)
      : group_(group), kind_(kind), contents_(contents) {
    const std::size_t room = contents.size() + misaligned + 2 * kGuard;
    if (kind == Placement::Kind::kShared) {
      Group::Allocation allocation = group.Allocate(room);
      if (allocation.memory == nullptr) {
        complaint_ = allocation.status.text();
        kind_ = Placement::Kind::kHost;
      } else {
        shared_ = static_cast<std::byte*>(allocation.memory);
      }
    }
    if (kind_ == Placement::Kind::kCard) return;
    if (shared_ == nullptr) {
      private_.resize(room + 64);
      const auto address = reinterpret_cast<std::uintptr_t>(private_.data());
      begin_ = private_.data() + (64 - address % 64) % 64;
    } else {
      begin_ = shared_;
    }
    std::fill(begin_, begin_ + room, kGuardByte);
    behind_ = room - kGuard - misaligned - contents.size();
    data_ = begin_ + kGuard + misaligned;
    std::copy(contents.begin(), contents.end(), data_);
  }
  ~Space() {
    if (shared_ != nullptr) group_.Free(shared_);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // A range of it as a buffer of a call. Ranges on a card are separate tensors.
  Buffer Stretch(std::uint64_t offset, std::uint64_t bytes) {
    if (kind_ != Placement::Kind::kCard) return Buffer::Host(data_ + offset);
    const auto begin = contents_.begin() + static_cast<std::ptrdiff_t>(offset);
    cards_.push_back({offset, std::make_unique<FakeCard>(Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes)))});
    return Buffer::Staged(*cards_.back().card);
  }
  Bytes Contents() const {
    if (kind_ != Placement::Kind::kCard) return Bytes(data_, data_ + contents_.size());
    Bytes contents = contents_;
    for (const OnCard& part : cards_) {
      std::copy(part.card->memory().begin(), part.card->memory().end(),
                contents.begin() + static_cast<std::ptrdiff_t>(part.offset));
    }
    return contents;
  }
  std::string Complaint() const {
    for (const OnCard& part : cards_) {
      if (std::string text = part.card->Complaint(); !text.empty()) return text;
    }
    if (data_ != nullptr && (!std::all_of(begin_, data_, [](std::byte byte) { return byte == kGuardByte; }) ||
                             !std::all_of(data_ + contents_.size(), data_ + contents_.size() + behind_,
                                          [](std::byte byte) { return byte == kGuardByte; }))) {
      return "something was written beside the buffer";
    }
    return complaint_;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kGuardByte{0xc7};
  struct OnCard {
    std::uint64_t offset;
    std::unique_ptr<FakeCard> card;
  };

  Group& group_;
  Placement::Kind kind_;
  Bytes contents_;
  Bytes private_;
  std::byte* shared_ = nullptr;
  std::byte* begin_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t behind_ = 0;
  std::vector<OnCard> cards_;
  std::string complaint_;
};

// "" if equal, otherwise where they differ.
inline std::string Difference(const Bytes& got, const Bytes& expected, Datatype datatype, const char* what) {
  if (got == expected) return "";
  const auto at = static_cast<std::size_t>(
      std::mismatch(got.begin(), got.end(), expected.begin(), expected.end()).first - got.begin());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) wrong += got[i] != expected[i] ? 1 : 0;
  return std::string(what) + " differs from element " + std::to_string(at / BytesOf(datatype)) + " on, in " +
         std::to_string(wrong) + " of " + std::to_string(got.size()) + " bytes";
}

// Makes the call on one rank and checks all results: "" if everything is correct.
inline std::string Solve(Group& group, const Problem& problem, const Placement& placement) {
  const collectives::Call& call = problem.call;
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::uint64_t element = BytesOf(call.datatype);
  const std::uint64_t bytes = call.count * element;
  const Bytes& input = problem.inputs[rank];
  const Bytes& output = problem.outputs[rank];
  const bool gathers = call.operation == Operation::kAllGather || call.operation == Operation::kGather;
  const bool scatters = call.operation == Operation::kReduceScatter || call.operation == Operation::kScatter;
  // In place: the smaller buffer is a part of the larger. On a card, ranges are separate tensors, so only whole ones.
  bool in_place = placement.in_place && call.operation != Operation::kAllToAll && !input.empty() && !output.empty();
  if (placement.input == Placement::Kind::kCard && (gathers || scatters)) in_place = false;
  if (call.operation == Operation::kBroadcast) in_place = true;
  const std::uint64_t own_part = rank * bytes;

  Bytes before = input;
  if (in_place && gathers) {
    before.assign(output.size(), std::byte{0xee});
    std::copy(input.begin(), input.end(), before.begin() + static_cast<std::ptrdiff_t>(own_part));
  }
  if (call.operation == Operation::kBroadcast && input.empty()) before.assign(output.size(), std::byte{0xee});
  Space first(group, placement.input, before, placement.misaligned);
  Space second(group, placement.output, in_place ? Bytes() : Bytes(output.size(), std::byte{0xee}),
               placement.misaligned / 2 * 3 % 64);

  Space& to = in_place ? first : second;
  const std::uint64_t first_part = in_place && gathers ? own_part : 0;
  const auto list_of = [&](Space& space) {
    std::vector<Buffer> list;
    for (int other = 0; other < problem.size; ++other) {
      list.push_back(space.Stretch(static_cast<std::uint64_t>(other) * bytes, bytes));
    }
    return list;
  };
  Status status;
  switch (call.operation) {
    case Operation::kBarrier:
      status = group.Barrier();
      break;
    case Operation::kAllReduce: {
      const Buffer in = first.Stretch(0, bytes);
      status = group.AllReduce(in, in_place ? in : to.Stretch(0, bytes), call.count, call.datatype, call.reduction);
      break;
    }
    case Operation::kReduce: {
      const Buffer in = first.Stretch(0, bytes);
      const Buffer out = output.empty() ? Buffer{} : in_place ? in : to.Stretch(0, bytes);
      status = group.Reduce(in, out, call.count, call.datatype, call.reduction, call.root);
      break;
    }
    case Operation::kBroadcast:
      status = group.Broadcast(first.Stretch(0, bytes), call.count, call.datatype, call.root);
      break;
    case Operation::kAllGather:
      status = group.AllGather(first.Stretch(first_part, bytes), list_of(to), call.count, call.datatype);
      break;
    case Operation::kGather:
      status = group.Gather(first.Stretch(first_part, bytes),
                            group.rank() == call.root ? list_of(to) : std::vector<Buffer>(), call.count, call.datatype,
                            call.root);
      break;
    case Operation::kReduceScatter: {
      const std::vector<Buffer> list = list_of(first);
      status = group.ReduceScatter(list, in_place ? list[rank] : to.Stretch(0, bytes), call.count, call.datatype,
                                   call.reduction);
      break;
    }
    case Operation::kScatter: {
      const bool gives = group.rank() == call.root;
      const std::vector<Buffer> list = gives ? list_of(first) : std::vector<Buffer>();
      status = group.Scatter(list, in_place ? list[rank] : to.Stretch(0, bytes), call.count, call.datatype, call.root);
      break;
    }
    case Operation::kAllToAll: {
      std::vector<collectives::RankBuffer> gives;
      std::vector<collectives::RankBuffer> takes;
      std::uint64_t given = 0;
      std::uint64_t taken = 0;
      for (int other = 0; other < problem.size; ++other) {
        const std::uint64_t out_count = problem.CountOf(group.rank(), other);
        const std::uint64_t in_count = problem.CountOf(other, group.rank());
        gives.push_back({first.Stretch(given, out_count * element), out_count});
        takes.push_back({second.Stretch(taken, in_count * element), in_count});
        given += out_count * element;
        taken += in_count * element;
      }
      status = group.AllToAll(gives, takes, call.datatype);
      break;
    }
  }
  const std::string what = Describe(call) + (in_place ? " in place: " : ": ");
  if (!status.ok()) return what + status.text();
  std::string wrong = first.Complaint();
  if (wrong.empty()) wrong = second.Complaint();
  if (wrong.empty() && !output.empty()) {
    Bytes got = to.Contents();
    if (in_place && scatters) {
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(own_part);
      got = Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    }
    wrong = Difference(got, output, call.datatype, "the result");
  }
  if (wrong.empty() && !in_place) wrong = Difference(first.Contents(), before, call.datatype, "the input");
  return wrong.empty() ? "" : what + wrong;
}

}  // namespace fulldeck::testing
