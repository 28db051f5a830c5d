// How the data of a call reaches the members of a group: through shared memory (LocalRoute), or also between nodes
// (multi_node_route.h). Calls come one at a time (CallQueue), from any thread, and block until they are done. Failures
// are thrown as c10::DistBackendError.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "torch_backend/backend.h"
#include "torch_backend/operand.h"

namespace fulldeck::torch_backend {

// Ranks are those of the group. All ranges of a call have the same element type; those of a list have the same count,
// except for all_to_all. Lists have one entry per rank; on a rank that does not need a list (it is not the root) the
// list is empty.
class Route {
 public:
  virtual ~Route() = default;
  virtual void AllReduce(Operands& operands, const OperandRange& data, collectives::Reduction reduction) = 0;
  virtual void Reduce(Operands& operands, const OperandRange& data, collectives::Reduction reduction, int root) = 0;
  virtual void Broadcast(Operands& operands, const OperandRange& data, int root) = 0;
  virtual void AllGather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs) = 0;
  virtual void ReduceScatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                             collectives::Reduction reduction) = 0;
  virtual void Gather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs,
                      int root) = 0;
  virtual void Scatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                       int root) = 0;
  virtual void AllToAll(Operands& operands, const std::vector<OperandRange>& inputs,
                        const std::vector<OperandRange>& outputs) = 0;
  virtual void Barrier() = 0;

  // Applies to calls that begin after it.
  virtual void SetTimeout(std::chrono::milliseconds timeout) = 0;
  // Any thread: ends the running call, on this member and, as far as they can be reached, on the others.
  virtual void Abort(const std::string& reason) = 0;
  virtual PathCounts paths() const = 0;
  virtual std::string Describe() const = 0;
};

// Converts the engine's failures to torch's exceptions.
class Failures {
 public:
  // `global_ranks`: the ranks in the job of the engine's ranks 0, 1, …; empty: the same. `counted`: "in the group", or
  // "on this host" if the engine's group consists only of the members on this node.
  Failures(std::string group_name, std::vector<std::int64_t> global_ranks, std::string counted = "in the group")
      : group_name_(std::move(group_name)), global_ranks_(std::move(global_ranks)), counted_(std::move(counted)) {}
  // Throws if the status is an error. `timeout` is the one that was in effect.
  void ThrowIf(const collectives::Status& status, const char* call, std::chrono::milliseconds timeout) const;
  [[noreturn]] void Throw(const char* call, const std::string& text) const;

 private:
  std::string group_name_;
  std::vector<std::int64_t> global_ranks_;
  std::string counted_;
};

// All members are on this node.
class LocalRoute final : public Route {
 public:
  LocalRoute(std::shared_ptr<collectives::Group> group, std::shared_ptr<const Failures> failures);

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

 private:
  std::vector<collectives::Buffer> BuffersOf(Operands& operands, const std::vector<OperandRange>& ranges);
  void Check(const collectives::Status& status, const char* call);

  const std::shared_ptr<collectives::Group> group_;
  const std::shared_ptr<const Failures> failures_;
  CopyStreams copy_streams_;
  std::chrono::milliseconds timeout_{0};
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace fulldeck::torch_backend
