#include "bench/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/text.h"
#include "bench/pattern.h"

namespace fulldeck::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCallsBefore = 2;
constexpr std::size_t kAlignment = 64;

// A private buffer, or one of the library that all members can access.
class Memory {
 public:
  explicit Memory(Library& library) : library_(library) {}
  ~Memory() {
    if (data_ == nullptr) return;
    if (shared_) {
      library_.FreeShared(data_);
    } else {
      std::free(data_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  base::Result<void> Allocate(std::uint64_t bytes, bool shared) {
    if (bytes == 0) return {};
    shared_ = shared;
    if (shared) {
      auto made = library_.AllocateShared(bytes);
      if (!made) return made.error();
      data_ = *made;
      return {};
    }
    void* made = nullptr;
    if (posix_memalign(&made, kAlignment, bytes) != 0) {
      return base::Error{fmt::format("{} of memory cannot be had", base::FormatByteSize(bytes))};
    }
    data_ = static_cast<std::byte*>(made);
    return {};
  }
  std::byte* data() const { return data_; }

 private:
  Library& library_;
  std::byte* data_ = nullptr;
  bool shared_ = false;
};

double SecondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

class CellRun {
 public:
  CellRun(Library& library, const Cell& cell)
      : library_(library),
        cell_(cell),
        shape_(ShapeOf(*cell.operation, *cell.element, cell.bytes, library.rank(), library.ranks())),
        pattern_(*cell.element, library.ranks()),
        input_(library),
        output_(library) {}

  Measurement Run() {
    if (auto why = library_.WhyNot(*cell_.operation, *cell_.element, shape_.count)) {
      result_.cannot = std::move(why);
      return std::move(result_);
    }
    const base::Result<void> done = Allocate();
    if (!done) {
      result_.failed = done.error().message;
      return std::move(result_);
    }
    for (int i = 0; i < kCallsBefore; ++i) {
      if (!OneCall()) return std::move(result_);
    }
    result_.times_ns.clear();
    Repeat();
    return std::move(result_);
  }

 private:
  base::Result<void> Allocate() {
    const std::uint64_t width = cell_.element->bytes;
    if (auto made = input_.Allocate(shape_.input_count * width, cell_.shared); !made) return made.error();
    return output_.Allocate(shape_.output_count * width, cell_.shared);
  }

  void Repeat() {
    const Clock::time_point began = Clock::now();
    int made = 0;
    for (;;) {
      const auto batch = library_.BroadcastFromRankZero(NextBatch(cell_, made, SecondsSince(began)));
      if (!batch) return Fail(batch.error().message);
      if (*batch <= 0) return;
      for (std::int64_t i = 0; i < *batch; ++i, ++made) {
        if (!OneCall()) return;
      }
    }
  }

  bool OneCall() {
    const std::uint64_t call_number = calls_++;
    pattern_.Write(input_.data(), shape_.input_count, library_.rank(), 0, call_number);
    std::byte* const output = cell_.operation->in_place ? input_.data() : output_.data();
    const Call call{cell_.operation, cell_.element, shape_.count, input_.data(), output};
    if (const auto barrier = library_.Barrier(); !barrier) return FailedCall(call_number, barrier.error());
    const Clock::time_point began = Clock::now();
    const auto done = library_.Do(call);
    const Clock::time_point ended = Clock::now();
    if (!done) return FailedCall(call_number, done.error());
    // Checking the result earlier would take CPU time from ranks that are still in the call.
    if (const auto barrier = library_.Barrier(); !barrier) return FailedCall(call_number, barrier.error());
    result_.times_ns.push_back(
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(ended - began).count()));
    if (cell_.spoil && call_number == 0 && library_.rank() == library_.ranks() - 1 && output != nullptr) {
      output[0] ^= std::byte{0x40};
    }
    return CheckResult(output, call_number);
  }

  bool FailedCall(std::uint64_t call_number, const base::Error& error) {
    Fail(fmt::format("{} number {} failed: {}", cell_.operation->name, call_number, error.message));
    return false;
  }
  void Fail(std::string text) { result_.failed = std::move(text); }

  bool CheckResult(const std::byte* output, std::uint64_t call_number) {
    const auto rank = static_cast<std::uint64_t>(library_.rank());
    const std::uint64_t chunk = shape_.count;
    switch (cell_.operation->kind) {
      case OperationKind::kAllReduce:
        return CheckChunk(output, 0, chunk, Pattern::kSumOfAll, 0, call_number);
      case OperationKind::kReduce:
        return rank != 0 || CheckChunk(output, 0, chunk, Pattern::kSumOfAll, 0, call_number);
      case OperationKind::kBroadcast:
        return CheckChunk(output, 0, chunk, 0, 0, call_number);
      case OperationKind::kReduceScatter:
        return CheckChunk(output, 0, chunk, Pattern::kSumOfAll, rank * chunk, call_number);
      case OperationKind::kScatter:
        return CheckChunk(output, 0, chunk, 0, rank * chunk, call_number);
      case OperationKind::kGather:
        return rank != 0 || CheckChunks(output, 0, call_number);
      case OperationKind::kAllGather:
        return CheckChunks(output, 0, call_number);
      case OperationKind::kAllToAll:
        return CheckChunks(output, rank * chunk, call_number);
      case OperationKind::kSendReceive: {
        const int partner = PartnerOf(library_.rank(), library_.ranks());
        return partner < 0 || CheckChunk(output, 0, chunk, partner, 0, call_number);
      }
      case OperationKind::kBarrier:
        return true;
    }
    return true;
  }

  bool CheckChunks(const std::byte* output, std::uint64_t first, std::uint64_t call_number) {
    for (int from = 0; from < library_.ranks(); ++from) {
      const std::uint64_t offset = static_cast<std::uint64_t>(from) * shape_.count;
      if (!CheckChunk(output, offset, shape_.count, from, first, call_number)) return false;
    }
    return true;
  }

  bool CheckChunk(const std::byte* output, std::uint64_t offset, std::uint64_t count, int from, std::uint64_t first,
                  std::uint64_t call_number) {
    const auto wrong = pattern_.Check(output + offset * cell_.element->bytes, count, from, first, call_number);
    result_.checked += count;
    if (!wrong) return true;
    result_.wrong =
        fmt::format("rank {}: element {} of the result is {} and must be {}, in call {} of {}", library_.rank(),
                    offset + wrong->element, wrong->found, wrong->expected, call_number, cell_.operation->name);
    return false;
  }

  Library& library_;
  const Cell& cell_;
  const Shape shape_;
  Pattern pattern_;
  Memory input_;
  Memory output_;
  std::uint64_t calls_ = 0;
  Measurement result_;
};

}  // namespace

int NextBatch(const Cell& cell, int made, double seconds_passed) {
  if (made < cell.min_calls) return cell.min_calls - made;
  const double left = cell.seconds - seconds_passed;
  if (left <= 0 || made >= cell.max_calls) return 0;
  const double one = seconds_passed / made;
  // Half of what would fit: the first calls may not be representative of later ones.
  const double fitting = one > 0 ? left / one / 2 : cell.max_calls;
  if (fitting < 0.5) return 0;
  return std::clamp(static_cast<int>(std::min<double>(fitting, cell.max_calls)), 1, cell.max_calls - made);
}

Measurement Measure(Library& library, const Cell& cell) {
  return CellRun(library, cell).Run();
}

}  // namespace fulldeck::bench
