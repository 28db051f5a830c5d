// DDP's Reducer over the backend, from C++ without Python, with its buckets in shared memory.
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <fstream>
#include <sstream>

#include "torch_backend/ranks_for_test.h"

namespace fulldeck::torch_backend {
namespace {

// Whether this address is in anonymous shared memory, which other processes may have mapped too.
bool IsSharedMemory(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (begin <= wanted && wanted < end) return Has(line, "/memfd:");
  }
  return false;
}

class SeeingHook final : public c10d::CommHookInterface {
 public:
  explicit SeeingHook(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    shared = IsSharedMemory(bucket.getBufferRef().data_ptr());
    ++calls;
    std::vector<at::Tensor> tensors = {bucket.getBufferRef().div_(group_->getSize())};
    return group_->allreduce(tensors)->getFuture();
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensorVector()[0]; }

  static bool shared;
  static int calls;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};
bool SeeingHook::shared = false;
int SeeingHook::calls = 0;

TEST(Reducer, AveragesGradientsInSharedMemory) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    auto group = c10::make_intrusive<c10d::ProcessGroup>(self.store, self.rank, self.size);
    group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    at::Tensor weight = at::ones({300, 200}).requires_grad_();
    at::Tensor bias = at::zeros({200}).requires_grad_();
    for (const bool seeing : {false, true}) {
      c10d::Reducer reducer({weight, bias}, {{0}, {1}}, group, {false, false}, 25 << 20, false, true,
                            {{0, "weight"}, {1, "bias"}}, 1 << 20, false, false, {});
      if (seeing) reducer.register_comm_hook(std::make_unique<SeeingHook>(group));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor input = at::full({4, 300}, self.rank + 1.0 + step);
        reducer.prepare_for_forward();
        const at::Tensor loss = at::add(at::mm(input, weight), bias).sum();
        reducer.prepare_for_backward({loss});
        loss.backward();
        // The mean of 4 × (rank + 1 + step) over three ranks.
        MUST(at::allclose(weight.grad(), at::full({300, 200}, 4.0 * (2 + step))));
        MUST(at::allclose(bias.grad(), at::full({200}, 4.0)));
        weight.mutable_grad().zero_();
        bias.mutable_grad().zero_();
      }
      weight.mutable_grad() = at::Tensor();
      bias.mutable_grad() = at::Tensor();
    }
    MUST(SeeingHook::calls > 0);
    MUST(SeeingHook::shared);
    group->shutdown();
  });
}

}  // namespace
}  // namespace fulldeck::torch_backend
