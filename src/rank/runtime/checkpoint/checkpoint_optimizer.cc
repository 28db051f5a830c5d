#include "runtime/checkpoint/checkpoint_optimizer.h"

#include <ATen/ops/empty.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"
#include "runtime/checkpoint/optimizer_kinds.h"

namespace fulldeck::runtime {
namespace {

using checkpoint::TensorEntry;
using torch::optim::Optimizer;

// Calls `body` with the kind of the optimizer; throws an Error for an unknown kind.
template <typename Body>
auto WithKind(Optimizer& optimizer, const Body& body) {
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) return body(AdamWKind());
  if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) return body(AdamKind());
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) return body(SgdKind());
  if (dynamic_cast<torch::optim::RMSprop*>(&optimizer) != nullptr) return body(RmspropKind());
  if (dynamic_cast<torch::optim::Adagrad*>(&optimizer) != nullptr) return body(AdagradKind());
  throw Error(
      "this kind of optimizer is not known: Adam, AdamW, SGD, RMSprop and Adagrad are. Save what it keeps with "
      "State::Tensors and State::Text.");
}

struct Parameter {
  std::string name;
  at::Tensor tensor;
};

std::vector<std::vector<Parameter>> GroupsOf(Optimizer& optimizer, const ParameterNames& names) {
  std::vector<std::vector<Parameter>> groups;
  std::set<std::string> seen;
  for (auto& group : optimizer.param_groups()) {
    groups.emplace_back();
    for (const at::Tensor& tensor : group.params()) {
      const auto found = names.find(tensor.unsafeGetTensorImpl());
      std::string name = found != names.end() ? found->second
                                              : "group." + std::to_string(groups.size() - 1) + ".parameter." +
                                                    std::to_string(groups.back().size());
      if (!seen.insert(name).second) throw Error("the optimizer has the parameter \"" + name + "\" twice.");
      groups.back().push_back({std::move(name), tensor});
    }
  }
  return groups;
}

std::string NamesIn(const std::vector<Parameter>& group) {
  std::vector<std::string> names;
  for (const Parameter& parameter : group) names.push_back(parameter.name);
  return base::Join(names, "\n");
}

std::string GroupKey(const std::string& name, std::size_t group) {
  return name + "/group/" + std::to_string(group) + "/";
}

std::string ParameterKey(const std::string& name, const std::string& parameter) {
  return name + "/parameter/" + parameter + "/";
}

// Every parameter that the optimizer has stepped has this state; its other fields are optional.
template <typename Kind>
bool HasState(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found != optimizer.state().end() && found->second != nullptr;
}

struct SaveScalar {
  checkpoint::ScalarState& scalars;
  std::string key;
  void operator()(const char* field, double value) const { scalars[key + field] = value; }
  void operator()(const char* field, bool value) const { scalars[key + field] = value; }
  void operator()(const char* field, std::int64_t value) const { scalars[key + field] = value; }
  void operator()(const char* field, const std::tuple<double, double>& value) const {
    scalars[key + field + "/0"] = std::get<0>(value);
    scalars[key + field + "/1"] = std::get<1>(value);
  }
};

// Sets the fields if `set`, otherwise only checks that they exist.
struct LoadScalar {
  Loading& loading;
  std::string key;
  bool set = false;
  template <typename T>
  void One(const std::string& name, T& value) const {
    const T* found = loading.Scalar<T>(name);
    if (found != nullptr && set) value = *found;
  }
  void operator()(const char* field, double& value) const { One(key + field, value); }
  void operator()(const char* field, bool& value) const { One(key + field, value); }
  void operator()(const char* field, std::int64_t& value) const { One(key + field, value); }
  void operator()(const char* field, std::tuple<double, double>& value) const {
    One(key + field + "/0", std::get<0>(value));
    One(key + field + "/1", std::get<1>(value));
  }
};

// The names that only one of two groups has, for a message.
std::string Difference(const std::string& saved, const std::string& mine) {
  const auto set_of = [](const std::string& names) {
    std::set<std::string> set;
    for (const std::string_view name : base::Split(names, '\n')) set.emplace(name);
    return set;
  };
  const std::set<std::string> was = set_of(saved), is = set_of(mine);
  std::string text;
  for (const std::string& name : was) {
    if (is.count(name) == 0) text += "\n  only in the checkpoint: " + base::Printable(name);
  }
  for (const std::string& name : is) {
    if (was.count(name) == 0) text += "\n  only in the program: " + base::Printable(name);
  }
  return text;
}

}  // namespace

std::string KindOf(Optimizer& optimizer) {
  return WithKind(optimizer, [](auto kind) { return std::string(decltype(kind)::kName); });
}

void SaveOptimizer(const std::string& name, Optimizer& optimizer, const ParameterNames& names,
                   StateSnapshot& snapshot) {
  WithKind(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    const auto groups = GroupsOf(optimizer, names);
    snapshot.parts.push_back({name, {}});
    auto& tensors = snapshot.parts.back().tensors;
    auto& scalars = snapshot.scalars;
    scalars[name + "/kind"] = std::string(Kind::kName);
    scalars[name + "/groups"] = static_cast<std::int64_t>(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      scalars[GroupKey(name, g) + "parameters"] = NamesIn(groups[g]);
      auto& options = static_cast<typename Kind::Options&>(optimizer.param_groups()[g].options());
      Kind::VisitOptions(options, SaveScalar{scalars, GroupKey(name, g)});
      for (const Parameter& parameter : groups[g]) {
        if (!HasState<Kind>(optimizer, parameter.tensor)) continue;
        auto& state = static_cast<typename Kind::State&>(*optimizer.state()[parameter.tensor.unsafeGetTensorImpl()]);
        scalars[ParameterKey(name, parameter.name) + "kept"] = true;
        Kind::VisitState(state, [&](const char* field, const auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
            if (value.defined()) tensors.push_back({parameter.name + "." + field, value.detach()});
          } else {
            SaveScalar{scalars, ParameterKey(name, parameter.name)}(field, value);
          }
        });
      }
    }
  });
}

void CheckOptimizer(const std::string& name, Optimizer& optimizer, const ParameterNames& names, Loading& loading) {
  WithKind(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    const auto groups = GroupsOf(optimizer, names);
    const std::string* saved_kind = loading.Scalar<std::string>(name + "/kind");
    const std::int64_t* saved_groups = loading.Scalar<std::int64_t>(name + "/groups");
    if (saved_kind == nullptr || saved_groups == nullptr) return;
    if (*saved_kind != Kind::kName) {
      loading.problems().push_back("\"" + name + "\" was saved from " + base::Printable(*saved_kind) + " and is now " +
                                   Kind::kName + ".");
      return;
    }
    if (*saved_groups != static_cast<std::int64_t>(groups.size())) {
      loading.problems().push_back("\"" + name + "\" was saved with " + std::to_string(*saved_groups) +
                                   " groups of parameters and has " + std::to_string(groups.size()) + " now.");
      return;
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::string* saved = loading.Scalar<std::string>(GroupKey(name, g) + "parameters");
      if (saved == nullptr) continue;
      const std::string difference = Difference(*saved, NamesIn(groups[g]));
      if (!difference.empty())
        loading.problems().push_back("group " + std::to_string(g) + " of \"" + name +
                                     "\" has other parameters than were saved:" + difference);
      typename Kind::Options ignored = static_cast<typename Kind::Options&>(optimizer.param_groups()[g].options());
      Kind::VisitOptions(ignored, LoadScalar{loading, GroupKey(name, g), false});
      for (const Parameter& parameter : groups[g]) {
        if (loading.reader().scalars().count(ParameterKey(name, parameter.name) + "kept") == 0) continue;
        typename Kind::State state;
        Kind::VisitState(state, [&](const char* field, auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
            const std::string tensor = parameter.name + "." + field;
            const auto place = loading.Find(name, tensor);
            if (!place) return;
            const TensorEntry& entry = loading.reader().Find(name)->header.tensors[*place];
            if (entry.shape != ShapeOf(parameter.tensor))
              loading.problems().push_back("\"" + tensor + "\" of \"" + name + "\" is " + Describe(entry) +
                                           " in the checkpoint; the parameter is " + Describe(parameter.tensor) + ".");
          } else {
            LoadScalar{loading, ParameterKey(name, parameter.name), false}(field, value);
          }
        });
      }
    }
  });
}

void LoadOptimizer(const std::string& name, Optimizer& optimizer, const ParameterNames& names, Loading& loading) {
  WithKind(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    const auto groups = GroupsOf(optimizer, names);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      auto& options = static_cast<typename Kind::Options&>(optimizer.param_groups()[g].options());
      Kind::VisitOptions(options, LoadScalar{loading, GroupKey(name, g), true});
      for (const Parameter& parameter : groups[g]) {
        void* const key = parameter.tensor.unsafeGetTensorImpl();
        if (loading.reader().scalars().count(ParameterKey(name, parameter.name) + "kept") == 0) {
          optimizer.state().erase(key);
          continue;
        }
        auto state = std::make_unique<typename Kind::State>();
        Kind::VisitState(*state, [&](const char* field, auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
            const auto place = loading.Find(name, parameter.name + "." + field);
            if (!place) return;
            const TensorEntry& entry = loading.reader().Find(name)->header.tensors[*place];
            value = at::empty(SizesOf(entry),
                              parameter.tensor.options().dtype(ScalarTypeOf(entry.dtype)).requires_grad(false));
            loading.Read(name, *place, value);
          } else {
            LoadScalar{loading, ParameterKey(name, parameter.name), true}(field, value);
          }
        });
        optimizer.state()[key] = std::move(state);
      }
    }
  });
}

std::uint64_t BytesToCome(Optimizer& optimizer) {
  return WithKind(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    std::uint64_t bytes = 0;
    for (auto& group : optimizer.param_groups()) {
      const auto& options = static_cast<const typename Kind::Options&>(group.options());
      for (const at::Tensor& parameter : group.params()) {
        if (!HasState<Kind>(optimizer, parameter))
          bytes += static_cast<std::uint64_t>(Kind::TensorsToCome(options)) * (parameter.nbytes() + 64);
      }
    }
    return bytes;
  });
}

unsigned& StepsOf(torch::optim::LRScheduler& scheduler) {
  // The member is protected; a derived class may access it in any scheduler.
  struct Opened : torch::optim::LRScheduler {
    static unsigned torch::optim::LRScheduler::*Member() { return &Opened::step_count_; }
  };
  return scheduler.*Opened::Member();
}

}  // namespace fulldeck::runtime
