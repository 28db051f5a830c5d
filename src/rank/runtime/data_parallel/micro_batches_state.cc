#include "runtime/data_parallel/micro_batches_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <functional>
#include <string>

#include "runtime/checkpoint/optimizer_kinds.h"

namespace fulldeck::runtime {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

// An optimizer's state of one parameter.
struct StateFields {
  char kind = '?';               // 'a' for the first kind of AnyKind, 'b' for the second …
  std::int64_t* step = nullptr;  // null: this kind has no step count
  std::vector<at::Tensor*> tensors;
};

struct CollectFields {
  StateFields& fields;
  void operator()(const char*, std::int64_t& step) const { fields.step = &step; }
  void operator()(const char*, at::Tensor& tensor) const { fields.tensors.push_back(&tensor); }
};

StateFields FieldsOf(OptimizerParamState& state) {
  StateFields fields;
  char kind = 'a';
  const bool known = AnyKind([&](auto of_kind) {
    using Kind = decltype(of_kind);
    auto* const its_state = dynamic_cast<typename Kind::State*>(&state);
    if (its_state == nullptr) return ++kind, false;
    Kind::VisitState(*its_state, CollectFields{fields});
    fields.kind = kind;
    return true;
  });
  if (!known) throw Refusal("the state of this optimizer is not known, so that it cannot be repaired after a failure.");
  return fields;
}

std::unique_ptr<OptimizerParamState> MakeState(char wanted) {
  std::unique_ptr<OptimizerParamState> made;
  char kind = 'a';
  AnyKind([&](auto of_kind) {
    if (kind++ != wanted) return false;
    made = std::make_unique<typename decltype(of_kind)::State>();
    return true;
  });
  if (!made) throw Error("another rank sent an optimizer state of a kind that is not known here.");
  return made;
}

void ForEachParameter(Optimizer& optimizer, const std::function<void(at::Tensor&)>& visit) {
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) visit(parameter);
  }
}

OptimizerParamState* StateOf(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

std::unique_ptr<OptimizerParamState> CopyTo(const OptimizerParamState& state, c10::Device device) {
  auto copy = state.clone();
  for (at::Tensor* tensor : FieldsOf(*copy).tensors) {
    if (tensor->defined()) *tensor = tensor->detach().to(device, tensor->scalar_type(), false, /*copy=*/true);
  }
  return copy;
}

void Broadcast(const Team& team, const at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors = {tensor.is_contiguous() ? tensor : tensor.contiguous()};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  team.group->broadcast(tensors, options)->wait();
  if (!tensors[0].is_same(tensor)) tensor.copy_(tensors[0]);
}

// The root's state of each parameter, as bytes: kind ('-': none), step count, which tensors exist.
struct Row {
  char kind = '-';
  std::uint8_t present = 0;
  std::int64_t step = 0;
};
constexpr std::size_t kRowBytes = 10;

std::vector<std::uint8_t> Rows(Optimizer& optimizer) {
  std::vector<std::uint8_t> bytes;
  ForEachParameter(optimizer, [&](at::Tensor& parameter) {
    Row row;
    if (OptimizerParamState* state = StateOf(optimizer, parameter)) {
      const StateFields fields = FieldsOf(*state);
      row.kind = fields.kind;
      row.step = fields.step == nullptr ? 0 : *fields.step;
      for (std::size_t i = 0; i < fields.tensors.size(); ++i) {
        if (!fields.tensors[i]->defined()) continue;
        if (fields.tensors[i]->sizes() != parameter.sizes()) {
          throw Error("an optimizer state has another shape than its parameter, and cannot be sent to other ranks.");
        }
        row.present = static_cast<std::uint8_t>(row.present | 1u << i);
      }
    }
    std::uint8_t packed[kRowBytes];
    packed[0] = static_cast<std::uint8_t>(row.kind);
    packed[1] = row.present;
    std::memcpy(packed + 2, &row.step, sizeof row.step);
    bytes.insert(bytes.end(), packed, packed + kRowBytes);
  });
  return bytes;
}

Row RowAt(const std::uint8_t* packed) {
  Row row;
  row.kind = static_cast<char>(packed[0]);
  row.present = packed[1];
  std::memcpy(&row.step, packed + 2, sizeof row.step);
  return row;
}

}  // namespace

void CheckOptimizerIsKnown(const Optimizer& optimizer) {
  const bool known = AnyKind(
      [&](auto of_kind) { return dynamic_cast<const typename decltype(of_kind)::Type*>(&optimizer) != nullptr; });
  if (!known) {
    throw Refusal(
        "oom = \"halve\" must be able to repair an optimizer that ran out of memory half-way, and can do so "
        "for SGD, Adam, AdamW, RMSprop and Adagrad only. Use one of these, or oom = \"fail\".");
  }
}

OptimizerSnapshot::OptimizerSnapshot(Optimizer& optimizer) {
  const c10::NoGradGuard no_grad;
  ForEachParameter(optimizer, [&](at::Tensor& parameter) {
    Entry entry;
    entry.parameter = parameter.detach().to(c10::kCPU, parameter.scalar_type(), false, /*copy=*/true);
    if (const OptimizerParamState* state = StateOf(optimizer, parameter)) entry.state = CopyTo(*state, c10::kCPU);
    entries_.push_back(std::move(entry));
  });
}

void OptimizerSnapshot::Restore(Optimizer& optimizer) const {
  const c10::NoGradGuard no_grad;
  // Free the state of the failed attempt first: its memory is needed.
  optimizer.state().clear();
  std::size_t at = 0;
  ForEachParameter(optimizer, [&](at::Tensor& parameter) {
    const Entry& entry = entries_.at(at++);
    parameter.copy_(entry.parameter);
    if (entry.state) {
      optimizer.state()[parameter.unsafeGetTensorImpl()] = CopyTo(*entry.state, parameter.device());
    }
  });
}

void BroadcastOptimizer(const Team& team, Optimizer& optimizer, int root) {
  const c10::NoGradGuard no_grad;
  std::size_t parameters = 0;
  ForEachParameter(optimizer, [&](at::Tensor&) { ++parameters; });
  at::Tensor rows = at::empty({static_cast<std::int64_t>(parameters * kRowBytes)}, at::kByte);
  if (team.rank == root) {
    const std::vector<std::uint8_t> mine = Rows(optimizer);
    std::memcpy(rows.mutable_data_ptr(), mine.data(), mine.size());
  }
  Broadcast(team, rows, root);
  const std::uint8_t* packed = rows.const_data_ptr<std::uint8_t>();
  ForEachParameter(optimizer, [&](at::Tensor& parameter) {
    const Row row = RowAt(packed);
    packed += kRowBytes;
    Broadcast(team, parameter.detach(), root);
    if (row.kind == '-') {
      optimizer.state().erase(parameter.unsafeGetTensorImpl());
      return;
    }
    OptimizerParamState* state = StateOf(optimizer, parameter);
    if (state == nullptr) {
      auto& place = optimizer.state()[parameter.unsafeGetTensorImpl()];
      place = MakeState(row.kind);
      state = place.get();
    }
    const StateFields fields = FieldsOf(*state);
    if (fields.step != nullptr) *fields.step = row.step;
    for (std::size_t i = 0; i < fields.tensors.size(); ++i) {
      at::Tensor& tensor = *fields.tensors[i];
      if ((row.present >> i & 1u) == 0) {
        tensor = at::Tensor();
        continue;
      }
      if (!tensor.defined()) tensor = at::zeros_like(parameter, parameter.suggest_memory_format()).detach();
      Broadcast(team, tensor, root);
    }
  });
}

}  // namespace fulldeck::runtime
