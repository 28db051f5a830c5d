// Copies between a card's tensor and the engine's shared slots. Not for host tensors, which the engine accesses
// directly.
//
// CUDA (and HIP, which uses the same device type): two streams per group, one per direction, so that one chunk is
// copied down while another is copied up. Both wait for what was on the caller's stream when the call was made, and a
// completed call is complete on the card. The slots are pinned if the driver allows it. Every other device: plain
// copies on the caller's stream, through the same interface. No vendor's header is needed: streams and events come from
// torch's device registry, and the pinning function is looked up when needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"

namespace fulldeck::torch_backend {

// The work queued on the caller's current stream of one device when the call was made.
class CallerOrder {
 public:
  // In the caller's thread, after the last work that the call needs was queued.
  explicit CallerOrder(c10::Device device);
  c10::Device device() const { return device_; }
  c10::Stream stream() const { return stream_; }
  // Makes another stream of the same device wait for that work.
  void Block(const c10::Stream& other) const;

 private:
  c10::Device device_;
  c10::Stream stream_;
  std::optional<c10::Event> event_;
};

// Whether this torch has any card. If so, tensors are probably on it.
bool HasCards();

// Whether the group uses its own streams on this kind of device.
bool CopiesOverlap(c10::Device device);

// Host memory registered with the CUDA driver for the lifetime of this object. A silent no-op without a driver. A
// failure is reported once per process, and copies then use unpinned memory.
class PinnedMemory {
 public:
  explicit PinnedMemory(const std::vector<std::span<std::byte>>& memory);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  std::vector<void*> pinned_;
};

// The streams of one group, one pair per device. Any thread.
class CopyStreams {
 public:
  struct StreamPair {
    c10::Stream in;
    c10::Stream out;
  };
  // `memory`: what to pin when the first CUDA tensor is used.
  explicit CopyStreams(std::function<std::vector<std::span<std::byte>>()> memory) : memory_(std::move(memory)) {}
  StreamPair StreamsOf(c10::Device device);

 private:
  std::mutex mutex_;
  std::function<std::vector<std::span<std::byte>>()> memory_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::map<c10::DeviceIndex, StreamPair> copy_streams_;  // of CUDA
};

// A contiguous tensor as a one-dimensional tensor of engine elements (element.h).
at::Tensor FlatElements(const at::Tensor& contiguous);

// One contiguous tensor on a card during one call; used only by the thread that runs the call.
class TensorStaging final : public collectives::Staging {
 public:
  TensorStaging(const at::Tensor& tensor, const CallerOrder& order, CopyStreams& copy_streams);
  // Waits for copies in progress: a call that fails leaves some.
  ~TensorStaging() override;

  base::Result<void> StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, int ticket) override;
  base::Result<void> FinishIn(int ticket) override;
  base::Result<void> StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes, int ticket) override;
  base::Result<void> FinishOut(int ticket) override;
  // Waits until everything that was started is on the card.
  void FinishAll();
  void Measure() override { measured_ = streams_.has_value(); }
  std::optional<base::Duration> InTook(int ticket) const override { return in_[static_cast<std::size_t>(ticket)].took; }
  std::optional<base::Duration> OutTook(int ticket) const override {
    return out_[static_cast<std::size_t>(ticket)].took;
  }

 private:
  // The copies of one ticket in one direction.
  struct Copies {
    std::optional<c10::Event> begun;  // before the first copy; only if copies are measured
    std::optional<c10::Event> ended;  // after the last copy
    bool under_way = false;
    std::optional<base::Duration> took;
  };
  using Direction = std::array<Copies, collectives::kStagingTickets>;
  void Copy(std::byte* host, std::uint64_t offset, std::uint64_t bytes, bool to_host, Copies& copies);
  void Record(std::optional<c10::Event>& event, const c10::Stream& stream) const;
  void Finish(Copies& copies) const;

  at::Tensor flat_;
  const CallerOrder& order_;
  std::optional<CopyStreams::StreamPair> streams_;  // absent: plain copies
  bool measured_ = false;
  Direction in_;
  Direction out_;
};

}  // namespace fulldeck::torch_backend
