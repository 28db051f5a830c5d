// How the data of a call reaches the members of a group: through shared memory (LocalRoute), or between nodes as well
// (multi_node_route.h). Calls come one at a time (CallQueue), from any thread, and block until they are done; what
// goes wrong is thrown as c10::DistBackendError.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "torch_backend/backend.h"
#include "torch_backend/operand.h"

namespace fulldeck::torch_backend {

// Ranks are those of the group. All ranges of a call have the same type of elements; those of a list the same count,
// but for all_to_all. Lists have one entry a rank; where a rank needs none (it is not the root) they are empty.
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

  // Of the calls that begin after it.
  virtual void SetTimeout(std::chrono::milliseconds timeout) = 0;
  // Any thread: ends the call under way, here and, as far as they can be reached, on the others.
  virtual void Abort(const std::string& reason) = 0;
  virtual PathCounts paths() const = 0;
  virtual std::string Describe() const = 0;
};

// Turns the engine's failures into torch's.
class Failures {
 public:
  // `global_ranks`: what the engine's ranks 0, 1, … are in the job; empty: the same. `counted`: "in the group", or "on
  // this host" where the engine's group is only the part of it that is here.
  Failures(std::string group_name, std::vector<std::int64_t> global_ranks, std::string counted = "in the group")
      : group_name_(std::move(group_name)), global_ranks_(std::move(global_ranks)), counted_(std::move(counted)) {}
  // Throws if it is one. `timeout` is the one that was in force.
  void ThrowIf(const collectives::Status& status, const char* call, std::chrono::milliseconds timeout) const;
  [[noreturn]] void Throw(const char* call, const std::string& text) const;

 private:
  std::string group_name_;
  std::vector<std::int64_t> global_ranks_;
  std::string counted_;
};

// All members on this host.
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
