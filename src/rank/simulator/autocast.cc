// Which operators torch.autocast runs in the lower precision on a card, and which in float32: torch's own lists for
// GPUs.
#include <ATen/autocast_mode.h>

#include "simulator/fallback.h"

namespace fulldeck::simulator {
namespace {

at::Tensor RefuseBinaryCrossEntropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                    std::int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
              "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, or leave autocast for this call.");
}

}  // namespace

void RegisterAutocast(torch::Library& library, torch::Library& rest) {
  // torch's macros register with a variable named `m`, and use the names of functions and types in namespace at, which
  // differ between torch versions.
  torch::Library& m = library;
  using namespace at;  // NOLINT(google-build-using-namespace)
#define FULLDECK_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULLDECK_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FULLDECK_FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FULLDECK_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  using at::autocast::CastPolicy;
  AT_FORALL_LOWER_PRECISION_FP(FULLDECK_LOWER)
  AT_FORALL_FP32(FULLDECK_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FULLDECK_FP32_SET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(FULLDECK_PROMOTE)
#undef FULLDECK_LOWER
#undef FULLDECK_FP32
#undef FULLDECK_FP32_SET
#undef FULLDECK_PROMOTE
  m.impl("binary_cross_entropy", &RefuseBinaryCrossEntropy);
  rest.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace fulldeck::simulator
