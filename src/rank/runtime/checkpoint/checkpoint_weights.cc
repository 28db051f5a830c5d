#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
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
#include "fulldeck/checkpoint.h"
#include "runtime/checkpoint/checkpoint_tensor.h"

namespace fulldeck {
namespace {

using checkpoint::TensorEntry;

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// "head.*" matches "head.bias"; without the star only the whole name matches.
bool Fits(const std::string& pattern, const std::string& name) {
  if (!pattern.empty() && pattern.back() == '*') return BeginsWith(name, pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

bool FitsAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return Fits(pattern, name); });
}

std::string NameInModule(std::string name, const WeightRules& rules) {
  for (const std::string& prefix : rules.remove_prefixes) {
    if (!BeginsWith(name, prefix)) continue;
    name.erase(0, prefix.size());
    break;
  }
  for (const auto& [from, to] : rules.renames) {
    const bool beginning = !from.empty() && from.back() == '*';
    if (beginning != (!to.empty() && to.back() == '*'))
      throw Error("the rename of \"" + from + "\" to \"" + to + "\": either both end with '*' or none.");
    if (!Fits(from, name)) continue;
    return beginning ? to.substr(0, to.size() - 1) + name.substr(from.size() - 1) : to;
  }
  return name;
}

void Section(std::string& text, const char* title, const std::vector<std::string>& lines) {
  text += std::string(title) + " (" + std::to_string(lines.size()) + ")" + (lines.empty() ? "\n" : ":\n");
  for (const std::string& line : lines) text += "  " + base::Printable(line) + "\n";
}

std::vector<std::string> Lines(const std::vector<WeightReport::Wrong>& wrong) {
  std::vector<std::string> lines;
  for (const WeightReport::Wrong& one : wrong)
    lines.push_back(one.name + ": " + one.in_file + " in the file, " + one.in_module + " in the module");
  return lines;
}

struct Copy {
  std::size_t entry = 0;
  at::Tensor target;
};

}  // namespace

std::string WeightReport::Text() const {
  std::string text;
  Section(text, "matched", matched);
  Section(text, "missing: in the module, not in the file", missing);
  Section(text, "unexpected: in the file, not in the module", unexpected);
  Section(text, "wrong shape", Lines(wrong_shape));
  Section(text, "wrong type", Lines(wrong_type));
  return text;
}

WeightReport LoadWeights(torch::nn::Module& module, const std::string& path, const WeightRules& rules) {
  checkpoint::RealFiles files;
  auto file = checkpoint::SafetensorsFile::Open(files, path);
  if (!file) throw Error("no weights were loaded: " + file.error().message);

  std::map<std::string, std::size_t> in_file;
  for (std::size_t i = 0; i < file->header.tensors.size(); ++i) {
    const std::string& original = file->header.tensors[i].name;
    if (!in_file.emplace(NameInModule(original, rules), i).second)
      throw Error("no weights were loaded: with the renames, \"" + base::Printable(original) +
                  "\" and another tensor of the file get the same name \"" +
                  base::Printable(NameInModule(original, rules)) + "\".");
  }

  WeightReport report;
  std::vector<Copy> copies;
  const auto match = [&](const std::string& name, const at::Tensor& mine) {
    if (!mine.defined()) return;
    const auto found = in_file.find(name);
    if (found == in_file.end()) {
      report.missing.push_back(name);
      return;
    }
    const TensorEntry& entry = file->header.tensors[found->second];
    copies.push_back({found->second, mine});
    in_file.erase(found);
    if (entry.shape != runtime::ShapeOf(mine)) {
      report.wrong_shape.push_back({name, runtime::Describe(entry), runtime::Describe(mine)});
    } else if (entry.dtype != runtime::DtypeOf(mine) && !rules.convert_types) {
      report.wrong_type.push_back({name, runtime::Describe(entry), runtime::Describe(mine)});
    } else {
      report.matched.push_back(name);
    }
  };
  for (const auto& item : module.named_parameters(/*recurse=*/true)) match(item.key(), item.value());
  for (const auto& item : module.named_buffers(/*recurse=*/true)) match(item.key(), item.value());
  for (const auto& left : in_file) report.unexpected.push_back(left.first);

  const auto forbidden = [](const std::vector<std::string>& names, const std::vector<std::string>& allowed) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return !FitsAny(allowed, name); });
  };
  if (!report.wrong_shape.empty() || !report.wrong_type.empty() || forbidden(report.missing, rules.may_be_missing) ||
      forbidden(report.unexpected, rules.may_be_unexpected))
    throw Error("no weights were loaded from \"" + base::Printable(path) +
                "\": they do not match the module. What may be missing or unexpected must be allowed by name.\n" +
                report.Text());

  const at::NoGradGuard no_grad;
  for (const Copy& copy : copies) {
    const TensorEntry& entry = file->header.tensors[copy.entry];
    const bool direct = runtime::IsPlain(copy.target) && entry.dtype == runtime::DtypeOf(copy.target);
    const at::Tensor into = direct ? copy.target : runtime::EmptyLike(entry);
    if (auto read = file->Read(copy.entry, into.mutable_data_ptr()); !read)
      throw Error("the weights are only partly loaded: " + read.error().message);
    if (!direct) copy.target.detach().copy_(into);
  }
  return report;
}

}  // namespace fulldeck
