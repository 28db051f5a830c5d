// The c10d::Backend itself: validates arguments, converts them to calls of a Route, and returns Works. call_queue.h
// explains which thread runs a call, and message_driver.h how sends and receives progress.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "torch_backend/backend.h"
#include "torch_backend/call_queue.h"
#include "torch_backend/message_driver.h"
#include "torch_backend/multi_node_route.h"
#include "torch_backend/node_topology.h"
#include "torch_backend/route.h"
#include "torch_backend/torch_minor.h"

namespace fulldeck::torch_backend {

class SharedMemoryBackend final : public c10d::Backend {
 public:
  // Blocks for the rendezvous.
  explicit SharedMemoryBackend(BackendRequest request);
  ~SharedMemoryBackend() override;

  const std::string getBackendName() const override { return "fulldeck"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_splits,
                                               std::vector<std::int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  // Uses the store, so it also works while members of the group are missing, and does not affect the group.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  void enableCollectivesTiming() override {}  // a Work measures its duration anyway

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  // Everything started in between becomes one Work. Calls in between never block.
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  bool supportsCoalescing() const FULLDECK_OVERRIDE_SINCE_2_7 { return true; }

  // Collectives are counted from 1, equally on all ranks.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(std::memory_order_relaxed); }

  // Only host memory (a device without an index). DDP's buckets and FSDP's buffers then need no staging copy.
  bool supportsTensorAlloc(c10::DeviceIndex device) FULLDECK_OVERRIDE_SINCE_2_7 { return device < 0; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) FULLDECK_OVERRIDE_SINCE_2_7;

  minor::ErrorType getError() FULLDECK_OVERRIDE_SINCE_2_7;
  // Ends all calls on this and the other members; the backend is unusable afterwards.
  void abort() FULLDECK_OVERRIDE_SINCE_2_7;
  // Leaves the group: calls in progress have a few seconds to end. Then as abort.
  void shutdown() FULLDECK_OVERRIDE_SINCE_2_7;

  void setTimeout(std::chrono::milliseconds timeout) FULLDECK_OVERRIDE_SINCE_2_8;
  bool supportsSplitting() const override { return FULLDECK_TORCH_AT_LEAST(2, 8); }
  c10::intrusive_ptr<Options> getBackendOptions() FULLDECK_OVERRIDE_SINCE_2_8;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) FULLDECK_OVERRIDE_SINCE_2_8;

  PathCounts paths() const;
  std::string Describe() const;
  NonfiniteRecord Nonfinite() const;
  // `grace`: for calls in progress. Any thread, any number of times.
  void Leave(const std::string& reason, std::chrono::milliseconds grace);
  // Whether a request for this group can be served by this backend.
  bool Matches(const BackendRequest& request) const;
  // The last owner has released it; the list of all backends still holds the object itself.
  void release_resources() override;

 private:
  // What running calls need. Each call holds a reference to it, so that it outlives them.
  struct Impl {
    std::shared_ptr<const Failures> failures;
    std::shared_ptr<collectives::Group> group;
    std::shared_ptr<Route> route;
    std::shared_ptr<MultiNodeRoute> multi_node;  // the same object as route, or null
    std::shared_ptr<CallQueue> queue;
    std::shared_ptr<MessageDriver> messages;
  };
  using Body = std::function<void(Route&, Operands&)>;

  std::shared_ptr<Impl> RunRendezvous();
  // The rank in the job of a rank of the group.
  std::int64_t GlobalRank(int rank) const;
  // Throws after Leave.
  std::shared_ptr<Impl> core() const;
  static NonfiniteRecord LastNonfinite(const Impl& core);
  const char* Title(const char* name) const;

  template <typename CallOptions>
  c10::intrusive_ptr<c10d::Work> Start(c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
                                       std::vector<at::Tensor> outputs, const CallOptions& options,
                                       std::shared_ptr<Operands> operands, Body body);
  bool IsCoalescing() const;
  c10::intrusive_ptr<c10d::Work> Collect(c10::intrusive_ptr<c10d::Work> work);
  template <typename CallOptions>
  c10::intrusive_ptr<c10d::Work> AllReduceSparse(const at::Tensor& tensor, const CallOptions& options);
  c10::intrusive_ptr<c10d::Work> Message(c10d::OpType type, const char* name, std::vector<at::Tensor>& tensors,
                                         int peer, int tag);
  c10::intrusive_ptr<c10d::Work> MessageOverGloo(Impl& core, const WorkTitle& title, std::shared_ptr<Operands> operands,
                                                 const OperandRange& message, const at::Tensor& tensor, int peer,
                                                 int tag);
  void CheckRoot(const char* call, std::int64_t root) const;

  const BackendRequest request_;
  const c10d::Store* base_store_ = nullptr;  // without all prefixes; only compared
  const pid_t pid_;
  std::string prefix_;  // of this group's keys in the store
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> monitored_{0};

  std::mutex leaving_;        // held while leaving: a second caller waits until that is done
  mutable std::mutex mutex_;  // guards everything below
  std::shared_ptr<Impl> impl_;
  std::string why_left_;
  std::optional<std::vector<c10::intrusive_ptr<c10d::Work>>> coalesced_;
};

}  // namespace fulldeck::torch_backend
