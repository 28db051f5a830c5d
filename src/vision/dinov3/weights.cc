#include <sys/stat.h>

#include <algorithm>

#include "base/text.h"
#include "dinov3/vision_model.h"

namespace fulldeck::dinov3 {
namespace {

bool IsFolder(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}
bool Exists(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0;
}

std::string FileIn(const std::string& path) {
  if (!IsFolder(path)) return path;
  const std::string file = path + "/model.safetensors";
  if (Exists(file)) return file;
  std::string text = "no weights were loaded: the folder \"" + base::Printable(path) + "\" has no model.safetensors";
  if (Exists(file + ".index.json"))
    text += ", only its parts. Write them as one file (save_pretrained with a larger max_shard_size)";
  throw Error(text + ". Set model.weights to a safetensors file or to a folder that has it.");
}

bool IsDecayed(const std::string& name, const at::Tensor& parameter) {
  const auto ends_with = [&](const std::string& end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return parameter.dim() > 1 && !ends_with("_token") && !ends_with("_tokens");
}

}  // namespace

model_spec::BackboneOptions BackboneConfigFor(const model_spec::ModelOptions& model, std::int64_t channels) {
  const model_spec::BackboneOptions* const known = model_spec::FindBackbone(model.backbone);
  if (known == nullptr)
    throw Error("there is no backbone \"" + base::Printable(model.backbone) +
                "\". Set model.backbone to one of: " + base::Join(model_spec::BackboneNames(), ", ") + ".");
  model_spec::BackboneOptions config = *known;
  config.channels = channels;
  config.drop_path = model.drop_path;
  return config;
}

WeightReport LoadBackbone(Backbone& backbone, const model_spec::ModelOptions& model) {
  const std::string file = FileIn(model.weights);
  WeightRules rules;
  rules.remove_prefixes = {"dinov3_vit.model.", "dinov3_vit.", "model.model.", "model.", "backbone."};
  rules.may_be_missing = model.weights_may_miss;
  rules.may_be_unexpected = model.weights_may_have_more;
  rules.convert_types = true;
  WeightReport report = LoadWeights(*backbone, file, rules);
  // The allowances are meant for a few names. A backbone must never start from random weights and report that it has
  // loaded them.
  const bool any = std::any_of(report.matched.begin(), report.matched.end(),
                               [](const std::string& name) { return name.compare(0, 6, "layer.") == 0; });
  if (!any)
    throw Error("no weights were loaded from \"" + base::Printable(file) +
                "\": not one layer of the backbone is in it, although the recipe allows what is missing.\n" +
                report.Text());
  return report;
}

std::vector<ParamGroup> ParamGroups(VisionModelImpl& model, double backbone_lr, bool decay_norm_and_bias) {
  std::vector<ParamGroup> groups = {{"backbone", {}, backbone_lr, true},
                                    {"backbone without decay", {}, backbone_lr, false},
                                    {"heads", {}, 1, true},
                                    {"heads without decay", {}, 1, false}};
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const bool of_backbone = item.key().compare(0, 9, "backbone.") == 0;
    const bool decayed = decay_norm_and_bias || IsDecayed(item.key(), item.value());
    groups[(of_backbone ? 0U : 2U) + (decayed ? 0U : 1U)].parameters.push_back(item.value());
  }
  groups.erase(
      std::remove_if(groups.begin(), groups.end(), [](const ParamGroup& group) { return group.parameters.empty(); }),
      groups.end());
  return groups;
}

}  // namespace fulldeck::dinov3
