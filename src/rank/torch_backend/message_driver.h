// Moves the sends and receives of one group that were not done at once. A thread that waits for one of them moves all;
// while nobody waits, the thread "fulldeck-msgs" does, which is started when it is needed for the first time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "torch_backend/operand.h"
#include "torch_backend/route.h"
#include "torch_backend/work.h"

namespace fulldeck::torch_backend {

class MessageDriver : public std::enable_shared_from_this<MessageDriver> {
 public:
  static std::shared_ptr<MessageDriver> Create(std::shared_ptr<collectives::Group> group,
                                               std::shared_ptr<const Failures> failures);
  ~MessageDriver();
  MessageDriver(const MessageDriver&) = delete;
  MessageDriver& operator=(const MessageDriver&) = delete;

  // Any thread. The operand is the message; `operands` is sealed. `tag` is the program's. `peer`: see Messages.
  void Send(const c10::intrusive_ptr<CollectiveWork>& work, std::shared_ptr<Operands> operands,
            const OperandRange& message, int to, std::uint64_t tag, std::chrono::milliseconds timeout);
  void Receive(const c10::intrusive_ptr<CollectiveWork>& work, std::shared_ptr<Operands> operands,
               const OperandRange& message, int from, std::uint64_t tag, std::chrono::milliseconds timeout);

  // Waits until nothing is under way; false: not by the deadline.
  bool Drain(std::chrono::steady_clock::time_point deadline);
  // What is under way fails with the reason, and nothing begins any more. Joins the thread. May be called again.
  void Stop(const std::string& reason);

 private:
  // One operation that is not done.
  struct Item {
    c10::intrusive_ptr<CollectiveWork> work;
    std::shared_ptr<Operands> operands;
    at::Tensor host;  // what is moved: memory of an operand, or of its copy on the host
    std::shared_ptr<collectives::MessageOperation> operation;
    std::chrono::steady_clock::time_point deadline;
    std::chrono::milliseconds timeout;
    const char* call;
  };

  MessageDriver(std::shared_ptr<collectives::Group> group, std::shared_ptr<const Failures> failures);
  void Begin(Item item);
  void End(Item& item);
  // Ends what is done. Whoever takes an item out of the list ends it.
  void Sweep();
  void Loop();
  // For CollectiveWork::SetDriver.
  void DriveUntilDone(const std::shared_ptr<collectives::MessageOperation>& operation,
                      std::chrono::steady_clock::time_point deadline, std::chrono::milliseconds timeout);

  // The engine may hold the memory of operations that were given up for as long as the group lives: before group_.
  std::list<Item> given_up_;
  const std::shared_ptr<collectives::Group> group_;
  const std::shared_ptr<const Failures> failures_;

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::list<Item> items_;
  int waiters_ = 0;
  bool stopped_ = false;
  std::string stop_reason_;
  std::thread thread_;
};

}  // namespace fulldeck::torch_backend
