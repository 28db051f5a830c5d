// Drives the sends and receives of one group that did not complete immediately. A thread that waits for one of them
// drives all of them. While no thread waits, the thread "fulldeck-msgs" does; it is started when first needed.
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

  // Waits until no operation is in progress. Returns false if the deadline passes first.
  bool Drain(std::chrono::steady_clock::time_point deadline);
  // Operations in progress fail with the reason, and no new ones begin. Joins the thread. May be called again.
  void Stop(const std::string& reason);

 private:
  // One pending operation.
  struct Item {
    c10::intrusive_ptr<CollectiveWork> work;
    std::shared_ptr<Operands> operands;
    at::Tensor host;  // the data transferred: memory of an operand, or of its host copy
    std::shared_ptr<collectives::MessageOperation> operation;
    std::chrono::steady_clock::time_point deadline;
    std::chrono::milliseconds timeout;
    const char* call;
  };

  MessageDriver(std::shared_ptr<collectives::Group> group, std::shared_ptr<const Failures> failures);
  void Begin(Item item);
  void End(Item& item);
  // Finishes the completed operations. The thread that removes an item from the list finishes it.
  void Sweep();
  void Loop();
  // For CollectiveWork::SetDriver.
  void DriveUntilDone(const std::shared_ptr<collectives::MessageOperation>& operation,
                      std::chrono::steady_clock::time_point deadline, std::chrono::milliseconds timeout);

  // The engine may access the memory of abandoned operations as long as the group lives, so this is declared before
  // group_ (destroyed after it).
  std::list<Item> given_up_;
  const std::shared_ptr<collectives::Group> group_;
  const std::shared_ptr<const Failures> failures_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::list<Item> items_;
  int waiters_ = 0;
  bool stopped_ = false;
  std::string stop_reason_;
  std::thread thread_;
};

}  // namespace fulldeck::torch_backend
