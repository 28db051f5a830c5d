#include "runtime/cards/device_proof.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "base/text.h"
#include "fulldeck/error.h"
#include "torch_backend/named_thread.h"

namespace fulldeck::runtime {
namespace {

constexpr std::int64_t kSide = 64;
constexpr std::int64_t kWords = 1 << 18;  // 1 MiB of int32, written and read back

// Returns an empty string if the device computes the same as the CPU.
std::string WhatIsWrong(c10::Device device) {
  const c10::NoGradGuard no_grad;
  // Integers of absolute value at most 8: every product and partial sum is exact, in any order.
  const at::Tensor a = at::arange(kSide * kSide, at::kFloat).remainder(17).sub(8).reshape({kSide, kSide});
  const at::Tensor b = at::arange(kSide * kSide, at::kFloat).remainder(13).sub(6).reshape({kSide, kSide});
  const at::Tensor words = at::arange(kWords, at::kInt);
  // Computed without torch's operators, which are under test themselves when the device is the CPU.
  at::Tensor product = at::empty({kSide, kSide}, at::kFloat);
  float sum = 0;
  for (std::int64_t row = 0; row < kSide; ++row) {
    for (std::int64_t column = 0; column < kSide; ++column) {
      float value = 0;
      for (std::int64_t i = 0; i < kSide; ++i) {
        value += a.const_data_ptr<float>()[row * kSide + i] * b.const_data_ptr<float>()[i * kSide + column];
      }
      product.mutable_data_ptr<float>()[row * kSide + column] = value;
      sum += value;
    }
  }

  const at::Tensor there = words.to(device);
  if (!at::equal(there.to(at::kCPU), words)) return "memory does not give back what was written into it";
  const at::Tensor product_there = at::matmul(a.to(device), b.to(device));
  if (!at::equal(product_there.to(at::kCPU), product)) return "a product of two matrices is wrong";
  const float sum_there = product_there.sum().to(at::kCPU).item<float>();
  if (sum_there != sum) {
    return "a sum of " + std::to_string(kSide * kSide) + " numbers is " + std::to_string(sum_there) + " and not " +
           std::to_string(sum);
  }
  return {};
}

struct Verdict {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_there = false;
  std::string failure;  // the device threw an error
  std::string wrong;    // it returned wrong results
};

// At exit, a vendor's library or torch's thread pools might wait for the unresponsive card.
void EndAtOnce(int status, void*) {
  std::fflush(nullptr);
  _exit(status == 0 ? 1 : status);
}

}  // namespace

void ProveDevice(c10::Device device, std::chrono::milliseconds timeout) {
  const auto verdict = std::make_shared<Verdict>();
  std::thread prover = torch_backend::StartNamedThread("fulldeck-proof", [verdict, device] {
    std::string failure;
    std::string wrong;
    try {
      if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
      wrong = WhatIsWrong(device);
    } catch (const std::exception& error) {
      failure = error.what();
      if (failure.empty()) failure = "it says no reason";
    } catch (...) {
      failure = "it says no reason";
    }
    const std::lock_guard lock(verdict->mutex);
    verdict->failure = failure;
    verdict->wrong = wrong;
    verdict->is_there = true;
    verdict->changed.notify_all();
  });
  std::unique_lock lock(verdict->mutex);
  if (!verdict->changed.wait_for(lock, timeout, [&] { return verdict->is_there; })) {
    prover.detach();
    on_exit(EndAtOnce, nullptr);
    throw Error("the card " + device.str() + " did not compute a small test within " + std::to_string(timeout.count()) +
                " ms: it hangs. Reset it, or take it out of the run (fulldeck run --devices).");
  }
  lock.unlock();
  prover.join();
  if (!verdict->failure.empty()) {
    throw Error("the card " + device.str() + " cannot compute a small test: " +
                base::Printable(verdict->failure.substr(0, verdict->failure.find('\n'))) +
                " Take it out of the run (fulldeck run --devices), or see fulldeck devices.");
  }
  if (!verdict->wrong.empty()) {
    throw Error("the card " + device.str() + " computes wrongly: " + verdict->wrong +
                ". Nothing that it trains can be trusted: take it out of the run (fulldeck run --devices).");
  }
}

}  // namespace fulldeck::runtime
