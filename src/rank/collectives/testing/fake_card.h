// A card that is as unfriendly as the contract of Staging allows: a copy does nothing until it is waited for, and its
// destination contains garbage until then. Code that reads before the wait, or releases a slot before it, gets wrong
// values every time instead of once a month.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/memory/staging.h"
#include "collectives/testing/reference.h"

namespace fulldeck::testing {

// One tensor on the card. Belongs to one thread.
class FakeCard final : public collectives::Staging {
 public:
  enum class Step { kStartIn, kFinishIn, kStartOut, kFinishOut };

  explicit FakeCard(Bytes memory) : memory_(std::move(memory)) {}

  const Bytes& memory() const { return memory_; }
  // Called before each step, with the number of earlier steps of this kind. A returned error is the card's; the
  // function may also never return.
  void OnStep(std::function<base::Result<void>(Step step, int number)> interceptor) {
    interceptor_ = std::move(interceptor);
  }
  // What the engine did wrong; "" if nothing. Copies that were never waited for count.
  std::string Complaint() const {
    if (!complaint_.empty()) return complaint_;
    if (!ins_.empty() || !outs_.empty()) return "a copy was never waited for";
    return "";
  }

  base::Result<void> StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, int ticket) override {
    if (auto intercepted = Intercept(Step::kStartIn); !intercepted) return intercepted;
    if (!Check(offset, bytes, ticket)) return {};
    std::memset(to, 0xa5, bytes);
    ins_.push_back({to, nullptr, offset, bytes, ticket});
    return {};
  }
  base::Result<void> FinishIn(int ticket) override {
    if (auto intercepted = Intercept(Step::kFinishIn); !intercepted) return intercepted;
    if (ins_.empty() || ins_.front().ticket != ticket) return Complain("copies in were not waited for in their order");
    for (; !ins_.empty() && ins_.front().ticket == ticket; ins_.pop_front()) {
      std::memcpy(ins_.front().to, memory_.data() + ins_.front().offset, ins_.front().bytes);
    }
    return {};
  }
  base::Result<void> StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes, int ticket) override {
    if (auto intercepted = Intercept(Step::kStartOut); !intercepted) return intercepted;
    if (!Check(offset, bytes, ticket)) return {};
    std::memset(memory_.data() + offset, 0x5a, bytes);
    outs_.push_back({nullptr, from, offset, bytes, ticket});
    return {};
  }
  base::Result<void> FinishOut(int ticket) override {
    if (auto intercepted = Intercept(Step::kFinishOut); !intercepted) return intercepted;
    if (outs_.empty() || outs_.front().ticket != ticket)
      return Complain("copies out were not waited for in their order");
    for (; !outs_.empty() && outs_.front().ticket == ticket; outs_.pop_front()) {
      std::memcpy(memory_.data() + outs_.front().offset, outs_.front().from, outs_.front().bytes);
    }
    return {};
  }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::uint64_t offset;
    std::uint64_t bytes;
    int ticket;
  };

  base::Result<void> Intercept(Step step) {
    const int number = numbers_[static_cast<std::size_t>(step)]++;
    return interceptor_ ? interceptor_(step, number) : base::Result<void>();
  }
  bool Check(std::uint64_t offset, std::uint64_t bytes, int ticket) {
    if (offset > memory_.size() || bytes > memory_.size() - offset)
      (void)Complain("a copy beyond the end of the tensor");
    if (ticket < 0 || ticket >= collectives::kStagingTickets) (void)Complain("an impossible ticket");
    return complaint_.empty();
  }
  base::Result<void> Complain(const char* what) {
    if (complaint_.empty()) complaint_ = what;
    return {};
  }

  Bytes memory_;
  std::deque<Copy> ins_;
  std::deque<Copy> outs_;
  std::function<base::Result<void>(Step, int)> interceptor_;
  int numbers_[4] = {};
  std::string complaint_;
};

}  // namespace fulldeck::testing
