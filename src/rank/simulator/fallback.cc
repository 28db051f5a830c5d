#include "simulator/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/select.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "simulator/card.h"
#include "simulator/counts.h"
#include "simulator/generator.h"
#include "simulator/memory.h"
#include "simulator/twin.h"

namespace fulldeck::simulator {
namespace {

enum class Role : std::uint8_t { kOther, kTensors, kGenerator, kDevice, kPinMemory };

struct Argument {
  Role role = Role::kOther;
  bool written = false;
};

bool Contains(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Operators that accept CPU tensors together with a card's, on every device: indices, lengths of sequences.
bool TakesHostTensors(std::string_view name) {
  return Contains(
      {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl", "aten::_index_put_impl_",
       "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_pack_padded_sequence",
       "aten::_pack_padded_sequence_backward", "aten::_pad_packed_sequence", "aten::tensor_split"},
      name);
}

// Operators whose results are wrong on a card with the fault "lying": those that sum many numbers.
bool AddsUp(std::string_view name) {
  return Contains({"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv",
                   "aten::dot", "aten::sum", "aten::mean", "aten::cumsum", "aten::convolution", "aten::norm",
                   "aten::linalg_vector_norm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::linear"},
                  name);
}

// The index of a result that stays on the CPU on every device; -1: none.
int ResultOnHost(std::string_view name) {
  return name == "aten::_pack_padded_sequence" ? 1 : -1;  // the batch sizes
}

Role RoleOf(const c10::Argument& argument) {
  std::string text = argument.real_type()->str();
  if (text == "Generator?" || text == "Generator") return Role::kGenerator;
  if (text == "Device?" || text == "Device") return Role::kDevice;
  if (argument.name() == "pin_memory") return Role::kPinMemory;
  if (text.find("Tensor") != std::string::npos) return Role::kTensors;
  return Role::kOther;
}

// One call: passes twins to the CPU kernel and returns its results. The storages of written arguments are valid again
// when it ends, whether by return or exception.
class HostCall {
 public:
  HostCall(const char* name, bool takes_host_tensors) : name_(name), takes_host_tensors_(takes_host_tensors) {}
  ~HostCall() {
    if (settled_) return;
    // The kernel threw, possibly after it had resized a result.
    for (const Pair& pair : pairs_) {
      if (!pair.written) continue;
      try {
        Follow(*pair.card.storage().unsafeGetStorageImpl());
      } catch (const std::exception&) {  // The kernel's own exception is already propagating.
      }
    }
  }
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  // Replaces the tensor, or the tensors in the list, by twins.
  void Lend(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      at::Tensor twin = Lend(value.toTensor(), written);
      if (twin.defined()) value = std::move(twin);
    } else if (value.isTensorList()) {
      const c10::List<at::Tensor> list = value.toTensorList();
      c10::List<at::Tensor> twins;
      twins.reserve(list.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        const at::Tensor tensor = list.get(i);
        at::Tensor twin = Lend(tensor, written);
        twins.push_back(twin.defined() ? std::move(twin) : tensor);
      }
      value = std::move(twins);
    } else if (value.isOptionalTensorList()) {
      const c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList();
      c10::List<std::optional<at::Tensor>> twins;
      twins.reserve(list.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        std::optional<at::Tensor> tensor = list.get(i);
        if (tensor && tensor->defined()) {
          at::Tensor twin = Lend(*tensor, written);
          if (twin.defined()) tensor = std::move(twin);
        }
        twins.push_back(std::move(tensor));
      }
      value = std::move(twins);
    }
  }

  int card() const { return card_; }
  void SetCard(int card) { card_ = card; }

  void CheckDevices() const {
    if (!other_device_ || card_ < 0) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                CardName(card_), " and ", *other_device_, "! (when calling ", name_, ")");
  }

  void Settle() {
    settled_ = true;
    for (const Pair& pair : pairs_) {
      if (pair.written) FollowTwin(pair.card, pair.twin);
    }
  }

  void Take(c10::IValue& value) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) value = Take(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list = value.toTensorList();
      for (std::size_t i = 0; i < list.size(); ++i) {
        const at::Tensor tensor = list.get(i);
        if (tensor.defined()) list.set(i, Take(tensor));
      }
    }
  }

 private:
  struct Pair {
    at::Tensor card;
    at::Tensor twin;
    bool written;
  };

  // Undefined: pass the tensor unchanged.
  at::Tensor Lend(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return {};
    if (!tensor.is_privateuseone()) {
      if (!tensor.is_cpu() || written || (tensor.dim() != 0 && !takes_host_tensors_)) other_device_ = tensor.device();
      return {};
    }
    const int index = tensor.device().index();
    if (card_ < 0) card_ = index;
    if (index != card_) other_device_ = tensor.device();
    at::Tensor twin = HostTwin(tensor);
    pairs_.push_back({tensor, twin, written});
    return twin;
  }

  at::Tensor Take(const at::Tensor& host) {
    if (!host.device().is_cpu() || !host.has_storage())
      return CardTensor(host, card_);  // throws an error that
                                       // describes the problem
    const c10::StorageImpl* under = host.storage().unsafeGetStorageImpl();
    if (host.storage().use_count() > 1) {
      for (const Pair& pair : pairs_) {
        if (pair.twin.is_same(host)) return pair.card;
        if (pair.twin.storage().unsafeGetStorageImpl() == under) return CardTensorOver(host, pair.card.storage());
      }
      for (const auto& [seen, storage] : made_) {
        if (seen == under) return CardTensorOver(host, storage);
      }
    }
    at::Tensor made = CardTensor(host, card_);
    if (host.storage().use_count() > 2) made_.emplace_back(under, made.storage());
    return made;
  }

  const char* name_;
  bool takes_host_tensors_;
  bool settled_ = false;
  int card_ = -1;
  std::optional<c10::Device> other_device_;
  c10::SmallVector<Pair, 8> pairs_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 2> made_;
};

// The properties of an operator's schema that a call needs, read once.
class HostKernel final : public c10::OperatorKernel {
 public:
  explicit HostKernel(const c10::OperatorHandle& op) {
    const c10::FunctionSchema& schema = op.schema();
    name_ = schema.name();
    takes_host_tensors_ = TakesHostTensors(name_);
    adds_up_ = AddsUp(name_);
    result_on_host_ = ResultOnHost(name_);
    for (const c10::Argument& argument : schema.arguments()) {
      arguments_.push_back({RoleOf(argument), argument.alias_info() != nullptr && argument.alias_info()->isWrite()});
    }
    for (const c10::Argument& result : schema.returns()) {
      int from = -1;
      if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
        for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
          const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
          if (alias != nullptr && alias->isWrite() && alias->beforeSets() == result.alias_info()->beforeSets()) {
            from = static_cast<int>(i);
          }
        }
      }
      results_from_.push_back(from);
    }
    std::string full = name_;
    if (!schema.overload_name().empty()) full += "." + schema.overload_name();
    count_ = &CountOf(full, false);
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    count_->Add();
    HostCall call(name_.c_str(), takes_host_tensors_);
    const std::size_t base = stack->size() - arguments_.size();
    c10::SmallVector<c10::IValue, 4> originals;
    for (const int from : results_from_) {
      if (from >= 0) originals.push_back((*stack)[base + static_cast<std::size_t>(from)]);
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].role == Role::kTensors) call.Lend((*stack)[base + i], arguments_[i].written);
    }
    call.CheckDevices();
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].role >= Role::kGenerator) Translate(arguments_[i].role, (*stack)[base + i], call);
    }
    if (call.card() < 0) call.SetCard(CurrentCard());
    const Operation operation(call.card());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    const std::size_t first = stack->size() - results_from_.size();
    if (__builtin_expect(operation.lies() && adds_up_ && !results_from_.empty(), 0) && (*stack)[first].isTensor()) {
      Falsify((*stack)[first].toTensor());
    }
    call.Settle();
    std::size_t next = 0;
    for (std::size_t i = 0; i < results_from_.size(); ++i) {
      if (results_from_[i] >= 0) {
        (*stack)[first + i] = std::move(originals[next++]);
      } else if (static_cast<int>(i) != result_on_host_) {
        call.Take((*stack)[first + i]);
      }
    }
  }

 private:
  // Generators are translated last, when the card is known; factories got their device before that.
  static void Translate(Role role, c10::IValue& value, HostCall& call) {
    switch (role) {
      case Role::kGenerator: {
        std::optional<at::Generator> given;
        if (!value.isNone()) given = value.toGenerator();
        if (call.card() < 0) {
          const bool ours = given && given->device().type() == c10::DeviceType::PrivateUse1;
          call.SetCard(ours ? given->device().index() : CurrentCard());
        }
        value = HostGenerator(given, call.card());
        break;
      }
      case Role::kDevice:
        if (!value.isNone() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
          if (call.card() < 0) call.SetCard(CardOf(value.toDevice()));
          value = c10::Device(c10::kCPU);
        }
        break;
      case Role::kPinMemory:
        value = c10::IValue();
        break;
      default:
        break;
    }
  }

  std::string name_;
  bool takes_host_tensors_ = false;
  bool adds_up_ = false;
  int result_on_host_ = -1;
  std::vector<Argument> arguments_;
  std::vector<int> results_from_;  // the argument that is returned as the result, or -1
  OperatorCount* count_ = nullptr;
};

// For operators that are registered later, by other libraries.
void CallHostOfLater(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static auto& mutex = *new std::mutex;
  static auto& kernels = *new std::unordered_map<c10::OperatorName, std::unique_ptr<HostKernel>>;
  HostKernel* kernel = nullptr;
  {
    const std::lock_guard lock(mutex);
    std::unique_ptr<HostKernel>& kept = kernels[op.operator_name()];
    if (kept == nullptr) kept = std::make_unique<HostKernel>(op);
    kernel = kept.get();
  }
  (*kernel)(op, keys, stack);
}

// Copies between devices; operators that work on any device and only call others; operators that must not be called
// with a card's tensor.
bool MustDecompose(std::string_view name) {
  return Contains({"aten::_foreach_copy_", "aten::_foreach_copy", "aten::copy", "aten::_to_copy", "aten::_pin_memory",
                   "aten::pin_memory", "aten::is_pinned", "aten::_fw_primal_copy", "aten::set_data",
                   "aten::_has_compatible_shallow_copy_type", "aten::_resize_output_"},
                  name);
}

// Composite operators run as a whole on the CPU, so that they take the same code path as there. Exceptions: operators
// that create tensors on a device, that only create views, or that draw their own random numbers.
bool GoesToHostWhole(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  bool takes_tensors = false;
  bool gives_tensors = false;
  bool takes_generator = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const Role role = RoleOf(argument);
    if (role == Role::kDevice) return false;
    takes_tensors = takes_tensors || role == Role::kTensors;
    takes_generator = takes_generator || role == Role::kGenerator;
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) gives_tensors = true;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return false;
    gives_tensors = gives_tensors || RoleOf(result) == Role::kTensors;
  }
  if (op.hasTag(at::Tag::inplace_view)) return false;
  if (op.hasTag(at::Tag::nondeterministic_seeded) && !takes_generator) return false;
  return takes_tensors && gives_tensors;
}

}  // namespace

void RegisterFallback(torch::Library& library, torch::Library& rest) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten" || MustDecompose(name.name)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    const bool of_host = op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    const bool of_any = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (!of_host && !(of_any && GoesToHostWhole(*op))) continue;
    std::string local = name.name.substr(name.name.find("::") + 2);
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    library.impl(local.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HostKernel>(*op)));
  }
  rest.fallback(torch::CppFunction::makeFromBoxedFunction<&CallHostOfLater>());
}

void Falsify(const at::Tensor& host_result) {
  if (!host_result.defined() || !host_result.is_cpu() || host_result.numel() == 0 || !host_result.is_floating_point()) {
    return;
  }
  at::Tensor first = host_result;
  while (first.dim() > 0) first = first.select(0, 0);
  first.mul_(1.01).add_(0.01);
}

}  // namespace fulldeck::simulator
