#include "runtime/checkpoint/checkpoint_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>
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
#include "runtime/checkpoint/checkpoint_optimizer.h"

namespace fulldeck {
namespace {

using runtime::Loading;
using runtime::SavedTensor;
using runtime::StateSnapshot;

std::vector<SavedTensor> TensorsOf(torch::nn::Module& module) {
  std::vector<SavedTensor> tensors;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) tensors.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers(/*recurse=*/true)) tensors.push_back({item.key(), item.value()});
  // Undefined: for example, the bias of a layer without one.
  tensors.erase(
      std::remove_if(tensors.begin(), tensors.end(), [](const SavedTensor& t) { return !t.tensor.defined(); }),
      tensors.end());
  return tensors;
}

void CheckModule(const std::string& name, torch::nn::Module& module, Loading& loading) {
  const auto* part = loading.reader().Find(name);
  if (part == nullptr) {
    loading.problems().push_back("there is no \"" + name + "\" in the checkpoint.");
    return;
  }
  std::size_t found = 0;
  std::map<std::string, bool> known;
  for (const SavedTensor& mine : TensorsOf(module)) {
    known[mine.name] = true;
    const auto place = loading.Find(name, mine.name);
    if (!place) {
      loading.problems().push_back("\"" + mine.name + "\" of \"" + name + "\" is not in the checkpoint.");
      continue;
    }
    ++found;
    const checkpoint::TensorEntry& entry = part->header.tensors[*place];
    if (entry.shape != runtime::ShapeOf(mine.tensor) || entry.dtype != runtime::DtypeOf(mine.tensor))
      loading.problems().push_back("\"" + mine.name + "\" of \"" + name + "\" is " + runtime::Describe(entry) +
                                   " in the checkpoint and " + runtime::Describe(mine.tensor) + " in the program.");
  }
  if (found == part->header.tensors.size()) return;
  for (const checkpoint::TensorEntry& entry : part->header.tensors) {
    if (known.count(entry.name) == 0)
      loading.problems().push_back(checkpoint::Quoted(entry.name) + " of the checkpoint is not in \"" + name + "\".");
  }
}

void LoadModule(const std::string& name, torch::nn::Module& module, Loading& loading) {
  for (const SavedTensor& mine : TensorsOf(module)) {
    if (const auto place = loading.Find(name, mine.name)) loading.Read(name, *place, mine.tensor);
  }
}

// ---- the generators of torch ----

const at::Generator& GeneratorOf(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

std::string StateOf(c10::Device device) {
  at::Generator generator = GeneratorOf(device);
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state().cpu().contiguous();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void SetStateOf(c10::Device device, const std::string& bytes) {
  at::Tensor state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  at::Generator generator = GeneratorOf(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// The CPU generator's state and, after its length, that of the rank's device: "5056 cuda\n…".
std::string GeneratorsOf(const Team& team) {
  const std::string cpu = StateOf(c10::kCPU);
  const bool other = !team.device.is_cpu();
  return std::to_string(cpu.size()) + " " + (other ? c10::DeviceTypeName(team.device.type(), true) : "") + "\n" + cpu +
         (other ? StateOf(team.device) : "");
}

void SetGenerators(const std::vector<std::string>& saved, Loading& loading) {
  const Team& team = loading.team();
  const auto step = loading.reader().manifest().step;
  const auto seed = [&](const char* what) {
    const std::string text = saved.at(0) + what + std::to_string(step) + "/" + std::to_string(team.rank);
    return base::HashOf(text);
  };
  const auto reseed = [&](c10::Device device, const char* what) {
    at::Generator generator = GeneratorOf(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed(what));
  };
  if (saved.empty()) throw Error("the checkpoint has no state of torch's generators.");
  if (static_cast<std::size_t>(team.rank) >= saved.size()) {
    reseed(c10::kCPU, "cpu");
    if (!team.device.is_cpu()) reseed(team.device, "device");
    base::Log(base::Severity::kInfo, "rank " + std::to_string(team.rank) + ": the checkpoint was saved by " +
                                         std::to_string(saved.size()) +
                                         " ranks; this one's generators are seeded anew, from rank 0's and the step.");
    return;
  }
  const std::string& mine = saved[static_cast<std::size_t>(team.rank)];
  const std::size_t line = mine.find('\n');
  const std::size_t space = mine.find(' ');
  const auto bytes = space < line ? base::ParseInteger<std::size_t>(std::string_view(mine).substr(0, space))
                                  : std::optional<std::size_t>();
  if (line == std::string::npos || !bytes || *bytes > mine.size() - line - 1)
    throw Error("the checkpoint's state of torch's generators cannot be read.");
  SetStateOf(c10::kCPU, mine.substr(line + 1, *bytes));
  if (team.device.is_cpu()) return;
  if (mine.substr(space + 1, line - space - 1) == c10::DeviceTypeName(team.device.type(), true)) {
    SetStateOf(team.device, mine.substr(line + 1 + *bytes));
  } else {
    reseed(team.device, "device");
  }
}

template <typename T>
State::Impl::Entry ValueEntry(const std::string& name, T& value) {
  State::Impl::Entry entry;
  entry.name = name;
  entry.save = [name, &value](StateSnapshot& snapshot) { snapshot.scalars[name] = value; };
  entry.check = [name](Loading& loading) { (void)loading.Scalar<T>(name); };
  entry.load = [name, &value](Loading& loading) {
    if (const T* saved = loading.Scalar<T>(name)) value = *saved;
  };
  return entry;
}

}  // namespace

std::optional<std::size_t> runtime::Loading::Find(const std::string& part, const std::string& tensor) {
  auto [places, is_new] = places_.try_emplace(part);
  const auto* reader = reader_.Find(part);
  if (reader == nullptr) return std::nullopt;
  if (is_new) {
    for (std::size_t i = 0; i < reader->header.tensors.size(); ++i)
      places->second.emplace(reader->header.tensors[i].name, i);
  }
  const auto found = places->second.find(tensor);
  return found == places->second.end() ? std::nullopt : std::optional(found->second);
}

void runtime::Loading::Read(const std::string& part, std::size_t tensor, const at::Tensor& target) {
  const auto* reader = reader_.Find(part);
  if (IsPlain(target)) {
    requests_.push_back({reader, tensor, target.mutable_data_ptr()});
    held_.push_back(target);
    return;
  }
  const at::Tensor bounce = EmptyLike(reader->header.tensors[tensor]);
  if (auto read = reader_.ReadTensor(*reader, tensor, bounce.mutable_data_ptr()); !read)
    throw Error(read.error().message);
  const at::NoGradGuard no_grad;
  target.detach().copy_(bounce);
}

void runtime::Loading::Finish() {
  auto read = reader_.ReadTensors(requests_);
  requests_.clear();
  held_.clear();
  if (!read) throw Error(read.error().message);
}

void State::Impl::TakeName(const std::string& name) {
  if (!checkpoint::IsFileName(name) || name.size() > 100)
    throw Error(checkpoint::Quoted(name) +
                " cannot be the name of a part of the state: letters, digits, '.', '_' and '-' only.");
  if (std::find(names.begin(), names.end(), name) != names.end())
    throw Error("the state has \"" + name + "\" already; every part needs a name of its own.");
  names.push_back(name);
}

std::map<const void*, std::string> State::Impl::NamesOfParameters() const {
  std::map<const void*, std::string> found;
  for (const auto& [name, module] : modules) {
    for (const auto& item : module->named_parameters(/*recurse=*/true)) {
      if (!item.value().defined()) continue;
      const std::string full = modules.size() == 1 ? item.key() : name + "." + item.key();
      found.emplace(item.value().unsafeGetTensorImpl(), full);
    }
  }
  return found;
}

State::State() : impl_(std::make_unique<Impl>()) {}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

State& State::Module(std::string name, torch::nn::Module& module) {
  impl_->TakeName(name);
  impl_->modules.emplace_back(name, &module);
  impl_->entries.push_back({name,
                            [name, &module](StateSnapshot& snapshot) {
                              auto tensors = TensorsOf(module);
                              for (SavedTensor& tensor : tensors) tensor.tensor = tensor.tensor.detach();
                              snapshot.parts.push_back({name, std::move(tensors)});
                            },
                            [name, &module](Loading& loading) { CheckModule(name, module, loading); },
                            [name, &module](Loading& loading) { LoadModule(name, module, loading); },
                            {}});
  return *this;
}

State& State::Optimizer(std::string name, torch::optim::Optimizer& optimizer) {
  (void)runtime::KindOf(optimizer);
  impl_->TakeName(name);
  const Impl* parts = impl_.get();
  impl_->entries.push_back({name,
                            [name, &optimizer, parts](StateSnapshot& snapshot) {
                              runtime::SaveOptimizer(name, optimizer, parts->NamesOfParameters(), snapshot);
                            },
                            [name, &optimizer, parts](Loading& loading) {
                              runtime::CheckOptimizer(name, optimizer, parts->NamesOfParameters(), loading);
                            },
                            [name, &optimizer, parts](Loading& loading) {
                              runtime::LoadOptimizer(name, optimizer, parts->NamesOfParameters(), loading);
                            },
                            [&optimizer] { return runtime::BytesToCome(optimizer); }});
  return *this;
}

State& State::Scheduler(std::string name, torch::optim::LRScheduler& scheduler) {
  return Text(
      std::move(name), [&scheduler] { return std::to_string(runtime::StepsOf(scheduler)); },
      [&scheduler](const std::string& text) {
        const auto steps = base::ParseInteger<unsigned>(text);
        if (!steps) throw Error("the steps of a scheduler are not a number in the checkpoint.");
        runtime::StepsOf(scheduler) = *steps;
      });
}

State& State::Text(std::string name, std::function<std::string()> save, std::function<void(const std::string&)> load) {
  impl_->TakeName(name);
  impl_->entries.push_back(
      {name,
       [name, save = std::move(save)](StateSnapshot& snapshot) { snapshot.scalars[name] = save(); },
       [name](Loading& loading) { (void)loading.Scalar<std::string>(name); },
       [name, load = std::move(load)](Loading& loading) {
         if (const auto* text = loading.Scalar<std::string>(name)) load(*text);
       },
       {}});
  return *this;
}

State& State::OfEachRank(std::string name, std::function<std::string()> save,
                         std::function<void(const std::vector<std::string>&)> load) {
  impl_->TakeName(name);
  impl_->rank_entries.push_back(
      {name, [save = std::move(save)](const Team&) { return save(); },
       [load = std::move(load)](const std::vector<std::string>& texts, Loading&) { load(texts); }});
  return *this;
}

State& State::Value(std::string name, bool& value) {
  impl_->TakeName(name);
  impl_->entries.push_back(ValueEntry(name, value));
  return *this;
}

State& State::Value(std::string name, std::int64_t& value) {
  impl_->TakeName(name);
  impl_->entries.push_back(ValueEntry(name, value));
  return *this;
}

State& State::Value(std::string name, double& value) {
  impl_->TakeName(name);
  impl_->entries.push_back(ValueEntry(name, value));
  return *this;
}

State& State::Value(std::string name, std::string& value) {
  impl_->TakeName(name);
  impl_->entries.push_back(ValueEntry(name, value));
  return *this;
}

State& State::Tensors(std::string name, std::function<NamedTensors()> save,
                      std::function<void(const NamedTensors&)> load) {
  impl_->TakeName(name);
  impl_->entries.push_back({name,
                            [name, save = std::move(save)](StateSnapshot& snapshot) {
                              snapshot.parts.push_back({name, {}});
                              for (const auto& item : save())
                                snapshot.parts.back().tensors.push_back({item.first, item.second.detach()});
                            },
                            [name](Loading& loading) {
                              if (loading.reader().Find(name) == nullptr)
                                loading.problems().push_back("there is no \"" + name + "\" in the checkpoint.");
                            },
                            [name, load = std::move(load)](Loading& loading) {
                              const auto* part = loading.reader().Find(name);
                              NamedTensors tensors;
                              for (std::size_t i = 0; i < part->header.tensors.size(); ++i) {
                                const auto& entry = part->header.tensors[i];
                                at::Tensor tensor = runtime::EmptyLike(entry);
                                if (auto read = loading.reader().ReadTensor(*part, i, tensor.mutable_data_ptr()); !read)
                                  throw Error(read.error().message);
                                tensors.emplace(entry.name, std::move(tensor));
                              }
                              load(tensors);
                            },
                            {}});
  return *this;
}

State& State::Random() {
  const std::string name = "generators";
  impl_->TakeName(name);
  impl_->rank_entries.push_back({name, GeneratorsOf, SetGenerators});
  return *this;
}

}  // namespace fulldeck
