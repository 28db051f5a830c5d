#include "runtime/data_parallel/data_parallel_wrap.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <unordered_set>

#include "base/text.h"
#include "fulldeck/data_parallel.h"
#include "runtime/data_parallel/replica_difference.h"

namespace fulldeck::runtime {
namespace {

constexpr std::size_t kMaxGathered = 60 << 10;
constexpr std::size_t kBroadcastBytes = 250 << 20;  // as torch's DistributedDataParallel

bool MakesSparseGradients(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

// One line per parameter and buffer: all properties that must be equal on every rank.
std::vector<std::string> Declaration(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* kind, const std::string& name, const at::Tensor& tensor) {
    lines.push_back(std::string(kind) + " " + base::Printable(name) + " " + c10::toString(tensor.scalar_type()) + " " +
                    ShapeText(tensor.sizes()) + (tensor.requires_grad() ? "" : ", no gradient"));
  };
  for (const auto& item : module.named_parameters()) add("parameter", item.key(), item.value());
  for (const auto& item : module.named_buffers()) add("buffer", item.key(), item.value());
  return lines;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// How the ranks' declarations differ from those of the majority.
std::string DifferenceOf(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int>> classes;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) classes[texts[rank]].push_back(static_cast<int>(rank));
  const auto largest = std::max_element(classes.begin(), classes.end(), [](const auto& one, const auto& other) {
    return one.second.size() != other.second.size() ? one.second.size() < other.second.size()
                                                    : one.second.front() > other.second.front();
  });
  const std::vector<std::string> usual = LinesOf(largest->first);
  std::string text;
  for (const auto& [declaration, ranks] : classes) {
    if (declaration == largest->first) continue;
    const std::vector<std::string> lines = LinesOf(declaration);
    const std::size_t common = std::min(lines.size(), usual.size());
    std::string detail;
    int listed = 0;
    for (std::size_t i = 0; i < common && listed < 3; ++i) {
      if (lines[i] == usual[i]) continue;
      detail += "\n    " + lines[i] + "\n      and not " + usual[i];
      ++listed;
    }
    if (listed == 0) {
      const auto& longer = lines.size() > common ? lines : usual;
      detail = lines.size() == usual.size() ? "\n    beyond what was compared here"
                                            : "\n    " + longer[common] + (lines.size() > common ? "" : " is missing");
    }
    text += "\n  " + RankList(ranks) + " against " + RankList(largest->second) + ":" + detail;
  }
  return text;
}

}  // namespace

std::string DeviceName(const c10::Device& device) {
  std::string name = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (device.has_index()) {
    name += ":";
    name += std::to_string(device.index());
  }
  return name;
}

std::string ShapeText(c10::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(sizes[i]);
  }
  text += "]";
  return text;
}

Trained TrainedParameters(const torch::nn::Module& module) {
  Trained trained;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto collect = [&](const std::string& prefix, const torch::nn::Module& part) {
    const bool sparse = MakesSparseGradients(part);
    for (const auto& item : part.named_parameters(/*recurse=*/false)) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      trained.names.push_back(prefix.empty() ? item.key() : prefix + "." + item.key());
      trained.parameters.push_back(tensor);
      trained.sparse.push_back(sparse);
    }
  };
  collect("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) collect(item.key(), *item.value());
  return trained;
}

std::vector<NamedTensor> ContentsOf(const torch::nn::Module& module) {
  std::vector<NamedTensor> contents;
  for (const auto& item : module.named_parameters()) contents.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) contents.push_back({item.key(), item.value()});
  return contents;
}

std::vector<at::Tensor> BuffersOf(const torch::nn::Module& module) {
  return module.buffers();
}

void AgreeOnModule(const torch::nn::Module& module, const Team& team, const std::vector<std::string>& settings) {
  const std::string misplaced = MisplacedReason(module, team);
  std::string declared;
  for (const std::string& line : settings) declared += line + "\n";
  for (const std::string& line : Declaration(module)) declared += line + "\n";
  const std::string whole = std::to_string(HashOfBytes(declared.data(), declared.size()));
  // A rank that cannot continue reports it here, so that the others do not wait for it.
  const std::vector<std::string> answers =
      GatherTexts(team, "fulldeck/wrap", (misplaced.empty() ? "1 " : "0 ") + (misplaced.empty() ? whole : misplaced));
  if (!misplaced.empty()) throw Refusal(misplaced + "\n" + PlacementReport(module, team));
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].rfind("0 ", 0) == 0)
      throw Refusal("rank " + std::to_string(rank) +
                    " cannot wrap its module, so no rank can: " + base::Printable(answers[rank].substr(2)));
  }
  if (std::all_of(answers.begin(), answers.end(), [&](const auto& answer) { return answer == answers[0]; })) return;
  const std::vector<std::string> texts =
      GatherTexts(team, "fulldeck/wrap-declaration", declared.substr(0, kMaxGathered));
  throw Refusal(
      "the module is not the same on all ranks; names, types, shapes or options differ:" + DifferenceOf(texts) +
      "\nAll ranks must build the same module: look for sizes that depend on the rank or on its data.");
}

void BroadcastQuietly(const std::vector<at::Tensor>& tensors, const Team& team) {
  if (tensors.empty()) return;
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> data;
  data.reserve(tensors.size());
  // Shares the memory but has its own version counter.
  for (const at::Tensor& tensor : tensors) data.push_back(tensor.variable_data());
  c10d::broadcast_coalesced(team.group, data, kBroadcastBytes, 0);
}

void CopyFromFirstRank(const torch::nn::Module& module, const Team& team) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& named : ContentsOf(module)) tensors.push_back(named.tensor);
  BroadcastQuietly(tensors, team);
}

void CompareContents(const torch::nn::Module& module, const Team& team) {
  const std::string difference = CompareOverRanks(team, ContentsOf(module));
  if (difference.empty()) return;
  throw Refusal("after parameters and buffers were copied from rank 0 to all ranks, " + difference +
                ". Broadcast or memory cannot be trusted here: test the cards, and the backend.");
}

}  // namespace fulldeck::runtime
