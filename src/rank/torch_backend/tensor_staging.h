// Copies between a card's tensor and the engine's shared slots.
//
// CUDA (and HIP, which calls itself so): two streams of the group's own, one a direction, so that a piece comes down
// while another goes up; both wait for what the caller's stream held when the call was made, and a call that is done is
// done on the card. The slots are pinned where the driver allows it. Every other device: plain copies on the caller's
// stream, through the same interface. No vendor's header is needed: streams and events come from torch's registry of
// devices, and the function that pins is looked up when it is needed.
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

// What was queued on the caller's current stream of one device when the call was made.
class CallerOrder {
 public:
  // In the caller's thread, after the last thing that the call needs was queued.
  explicit CallerOrder(c10::Device device);
  c10::Device device() const { return device_; }
  c10::Stream stream() const { return stream_; }
  // Makes the other stream of the same device wait for it.
  void Block(const c10::Stream& other) const;

 private:
  c10::Device device_;
  c10::Stream stream_;
  std::optional<c10::Event> event_;
};

// Is there any card that this torch knows? Then tensors are probably on it.
bool HasCards();

// Does this kind of device get streams of the group's own?
bool CopiesOverlap(c10::Device device);

// Memory of the host that the CUDA driver knows, for as long as this lives. Quietly nothing where there is no driver;
// a refusal is said once a process, and copies then go on unpinned.
class PinnedMemory {
 public:
  explicit PinnedMemory(const std::vector<std::span<std::byte>>& memory);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  std::vector<void*> pinned_;
};

// The streams of one group, one pair a device. Any thread.
class CopyStreams {
 public:
  struct StreamPair {
    c10::Stream in;
    c10::Stream out;
  };
  // `memory`: what to pin when the first CUDA tensor comes.
  explicit CopyStreams(std::function<std::vector<std::span<std::byte>>()> memory) : memory_(std::move(memory)) {}
  StreamPair StreamsOf(c10::Device device);

 private:
  std::mutex mutex_;
  std::function<std::vector<std::span<std::byte>>()> memory_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::map<c10::DeviceIndex, StreamPair> copy_streams_;  // of CUDA
};

// A contiguous tensor as one dimension of what the engine calls elements (element.h).
at::Tensor FlatElements(const at::Tensor& contiguous);

// One contiguous tensor on a card during one call; used by the thread of the call alone.
class TensorStaging final : public collectives::Staging {
 public:
  TensorStaging(const at::Tensor& tensor, const CallerOrder& order, CopyStreams& copy_streams);
  // Waits for copies that are under way: a call that fails leaves some.
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
    std::optional<c10::Event> begun;  // before the first; only where copies are measured
    std::optional<c10::Event> ended;  // behind the last
    bool under_way = false;
    std::optional<base::Duration> took;
  };
  using Direction = std::array<Copies, collectives::kStagingTickets>;
  void Copy(std::byte* host, std::uint64_t offset, std::uint64_t bytes, bool to_host, Copies& copies);
  void Record(std::optional<c10::Event>& event, const c10::Stream& stream) const;
  void Finish(Copies& copies) const;

  at::Tensor flat_;
  const CallerOrder& order_;
  std::optional<CopyStreams::StreamPair> streams_;  // none: plain copies
  bool measured_ = false;
  Direction in_;
  Direction out_;
};

}  // namespace fulldeck::torch_backend
