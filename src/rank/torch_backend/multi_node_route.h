// Calls of a group whose members are on several nodes. Hierarchical if every node has the same number of members: each
// node reduces in shared memory, the members with the same local rank exchange their slices over Gloo, and each node
// distributes the result in shared memory. Everything else is flat, over Gloo between all ranks: gather, scatter,
// all_to_all, and all calls if the numbers differ.
//
// Card tensors are copied to the host as a whole. A failure anywhere is permanent for the route: the local group is
// aborted and the connections are closed, so that members on other nodes that wait for this one fail too.
#pragma once

#include <mutex>

#include "torch_backend/node_topology.h"
#include "torch_backend/route.h"

namespace fulldeck::torch_backend {

class MultiNodeRoute final : public Route {
 public:
  struct Groups {
    NodeTopology nodes;
    int rank = 0;
    std::shared_ptr<collectives::Group> local;  // the members on this node, in order
    c10::intrusive_ptr<c10d::Backend> between;  // the members with the same local rank on each node; null: uneven
    c10::intrusive_ptr<c10d::Backend> flat;     // all members
    std::shared_ptr<const Failures> failures;
  };
  explicit MultiNodeRoute(Groups parts);

  void AllReduce(Operands& operands, const OperandRange& data, collectives::Reduction reduction) override;
  void Reduce(Operands& operands, const OperandRange& data, collectives::Reduction reduction, int root) override;
  void Broadcast(Operands& operands, const OperandRange& data, int root) override;
  void AllGather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs) override;
  void ReduceScatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                     collectives::Reduction reduction) override;
  void Gather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs,
              int root) override;
  void Scatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
               int root) override;
  void AllToAll(Operands& operands, const std::vector<OperandRange>& inputs,
                const std::vector<OperandRange>& outputs) override;
  void Barrier() override;

  void SetTimeout(std::chrono::milliseconds timeout) override;
  void Abort(const std::string& reason) override;
  PathCounts paths() const override;
  std::string Describe() const override;

  // For send and receive, which always use the group of all ranks. Null after a failure. The caller counts the call.
  c10::intrusive_ptr<c10d::Backend> flat() const;
  void CountFlat() { flat_.fetch_add(1, std::memory_order_relaxed); }

 private:
  template <typename Body>
  void Guarded(const char* call, std::atomic<std::uint64_t>& count, Body body);
  void Check(const collectives::Status& status, const char* call);
  int local_size() const { return groups_.local->size(); }

  void ReduceEverywhere(const at::Tensor& data, collectives::Reduction reduction, const char* call);
  void HierarchicalAllReduce(const at::Tensor& data, collectives::Reduction reduction, const char* call);
  // Gloo's all_reduce for every type and reduction of the engine; `divisor` is for avg.
  void GlooAllReduce(c10d::Backend& group, const at::Tensor& data, collectives::Reduction reduction, int divisor);

  Groups groups_;
  std::chrono::milliseconds timeout_{0};
  mutable std::mutex mutex_;  // guards the two below, and the release of groups_.between and groups_.flat
  bool broken_ = false;
  std::string why_broken_;
  std::atomic<std::uint64_t> hierarchical_{0};
  std::atomic<std::uint64_t> flat_{0};
};

}  // namespace fulldeck::torch_backend
