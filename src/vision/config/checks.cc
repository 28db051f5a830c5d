#include "config/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/keys.h"
#include "model_spec/backbones.h"

namespace fulldeck::config {
namespace {

const char* KindName(model_spec::DataKind kind) {
  switch (kind) {
    case model_spec::DataKind::kSynthetic:
      return "synthetic";
    case model_spec::DataKind::kMmseg:
      return "mmseg";
    case model_spec::DataKind::kLoveda:
      return "loveda";
    case model_spec::DataKind::kMmrs1m:
      return "mmrs1m";
    case model_spec::DataKind::kFolders:
      return "folders";
  }
  return "";
}

class Checker {
 public:
  explicit Checker(const Config& config) : config_(config) {}

  std::vector<Contradiction> Check() {
    CheckName();
    CheckLength();
    CheckKind();
    CheckClasses();
    CheckImages();
    CheckModel();
    CheckTrain();
    CheckRest();
    return std::move(found_);
  }

 private:
  template <typename... Arguments>
  void AddProblem(const char* key, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    found_.push_back({key, fmt::format("{} {}", key, fmt::format(text, std::forward<Arguments>(arguments)...))});
  }

  void CheckName() {
    const std::string& name = config_.name;
    if (name.empty())
      return AddProblem("name", "is missing: write name = \"my-job\"; it becomes the folder of the job");
    constexpr std::size_t kLongest = 100;
    const bool plain = std::all_of(name.begin(), name.end(), [](char letter) {
      return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
             letter == '-' || letter == '_' || letter == '.';
    });
    if (!plain || name.front() == '.' || name.front() == '-' || name.size() > kLongest) {
      AddProblem(
          "name",
          "{} cannot be the name of a folder here: use up to {} letters, digits, '-', '_' and '.', with a letter "
          "or digit first",
          Quoted(base::Printable(name.substr(0, kLongest))), kLongest);
    }
    if (config_.work_dirs.empty()) AddProblem("work_dirs", "is empty: name a folder, or leave the key away");
  }

  void CheckLength() {
    if (config_.steps > 0 && config_.epochs > 0) {
      AddProblem("steps", "= {} and epochs = {} contradict each other: give one of the two", config_.steps,
                 config_.epochs);
    }
    if (config_.steps == 0 && config_.epochs == 0) {
      AddProblem("steps", "is missing: say how long to train, with steps = N or epochs = N");
    }
  }

  void CheckKind() {
    const model_spec::DataOptions& data = config_.data;
    const bool images_alone = data.kind == model_spec::DataKind::kMmrs1m || data.kind == model_spec::DataKind::kFolders;
    if (images_alone && data.task == model_spec::Task::kSegmentation) {
      AddProblem("data.task",
                 "= \"segmentation\" needs masks, and data of kind {} has none{}; use task = \"classification\", or "
                 "masks in folders with kind = \"mmseg\"",
                 KindName(data.kind),
                 data.kind == model_spec::DataKind::kMmrs1m
                     ? ": MMRS-1M holds captions, boxes, questions and categories of whole images"
                     : ": a folder is the category of the images in it");
    }
    if ((data.kind == model_spec::DataKind::kMmseg || data.kind == model_spec::DataKind::kLoveda) &&
        data.task == model_spec::Task::kClassification) {
      AddProblem("data.task",
                 "= \"classification\" needs one category an image, and data of kind {} has masks; use task = "
                 "\"segmentation\", or kind = \"folders\"",
                 KindName(data.kind));
    }
    if (data.kind == model_spec::DataKind::kSynthetic) {
      if (!data.root.empty()) {
        AddProblem("data.root",
                   "is given, and synthetic data has no files; name the data's kind: kind = \"mmseg\", \"loveda\", "
                   "\"mmrs1m\" or \"folders\"");
      }
    } else {
      if (data.root.empty()) AddProblem("data.root", "is missing: the folder of the {} data", KindName(data.kind));
      if (data.train.empty()) AddProblem("data.train", "is empty: the name of the part to train on");
      if (data.val.empty()) AddProblem("data.val", "is empty: the name of the part to validate on");
      if (!data.train.empty() && data.train == data.val && !data.overlap_allowed) {
        AddProblem("data.val",
                   "= {} is the part that is trained on, so the score would say nothing; name another part, or set "
                   "overlap_allowed = true",
                   Quoted(base::Printable(data.val)));
      }
    }
    if (data.kind != model_spec::DataKind::kMmrs1m && !data.sets.empty()) {
      AddProblem("data.sets", "is for kind = \"mmrs1m\" alone, and the kind is {}", KindName(data.kind));
    }
    const model_spec::DataOptions defaults;
    if (data.kind != model_spec::DataKind::kMmseg) {
      if (data.image_dir != defaults.image_dir) OnlyForMmseg("data.image_dir");
      if (data.mask_dir != defaults.mask_dir) OnlyForMmseg("data.mask_dir");
      if (data.image_suffix != defaults.image_suffix) OnlyForMmseg("data.image_suffix");
      if (data.mask_suffix != defaults.mask_suffix) OnlyForMmseg("data.mask_suffix");
    }
    if (data.reduce_zero_label && data.kind != model_spec::DataKind::kMmseg &&
        data.kind != model_spec::DataKind::kLoveda) {
      AddProblem("data.reduce_zero_label", "is for masks in folders (kind = \"mmseg\"), and the kind is {}",
                 KindName(data.kind));
    }
  }

  void OnlyForMmseg(const char* key) {
    AddProblem(key, "is for kind = \"mmseg\" alone, and the kind is {}", KindName(config_.data.kind));
  }

  void CheckClasses() {
    const model_spec::DataOptions& data = config_.data;
    if (data.kind == model_spec::DataKind::kMmseg && data.classes.empty()) {
      AddProblem("data.classes",
                 "is missing: masks hold numbers alone, so name the classes in the order of their numbers");
    }
    if (data.classes.size() == 1)
      AddProblem("data.classes", "has one class, and at least two are needed to tell apart");
    std::set<std::string> seen;
    for (const std::string& name : data.classes) {
      if (name.empty()) {
        AddProblem("data.classes", "holds a class without a name");
      } else if (!seen.insert(name).second) {
        AddProblem("data.classes", "names {} twice", Quoted(base::Printable(name)));
      }
    }
    if (data.task == model_spec::Task::kSegmentation) {
      constexpr std::size_t kMaxClasses = 255;
      if (data.classes.size() > kMaxClasses) {
        AddProblem("data.classes", "has {} classes, and a mask can tell {} apart", data.classes.size(), kMaxClasses);
      } else if (data.ignore_label < static_cast<std::int64_t>(data.classes.size())) {
        AddProblem("data.ignore_label", "= {} is the number of class {}: it would be left out; use 255",
                   data.ignore_label,
                   Quoted(base::Printable(data.classes[static_cast<std::size_t>(data.ignore_label)])));
      }
    }
  }

  void CheckImages() {
    const model_spec::DataOptions& data = config_.data;
    if (data.bands.empty())
      AddProblem("data.bands", "is empty: the bands of the files that the model sees, such as [1, 2, 3]");
    const std::set<std::int64_t> distinct(data.bands.begin(), data.bands.end());
    if (distinct.size() != data.bands.size()) AddProblem("data.bands", "names a band twice");
    if (data.kind == model_spec::DataKind::kSynthetic && (data.bands.size() != 3 || *distinct.rbegin() > 3)) {
      AddProblem("data.bands", "must be [1, 2, 3] for synthetic data, which has these three");
    }
    if (data.mean.size() != data.bands.size()) {
      AddProblem("data.mean", "has {} numbers for {} bands: one for each band", data.mean.size(), data.bands.size());
    }
    if (data.std.size() != data.bands.size()) {
      AddProblem("data.std", "has {} numbers for {} bands: one for each band", data.std.size(), data.bands.size());
    }
    constexpr std::int64_t kPatch = 16;
    if (data.size % kPatch != 0) {
      const std::int64_t below = data.size / kPatch * kPatch;
      AddProblem("data.size", "= {} is no multiple of {}, the side of a patch; use {} or {}", data.size, kPatch, below,
                 below + kPatch);
    }
    if (data.scale[0] > data.scale[1]) {
      AddProblem("data.scale", "= [{}, {}] goes from large to small; write the smaller one first", data.scale[0],
                 data.scale[1]);
    }
  }

  void CheckModel() {
    const model_spec::ModelOptions& model = config_.model;
    const model_spec::BackboneOptions* backbone = model_spec::FindBackbone(model.backbone);
    if (backbone == nullptr) {
      const auto near = base::ClosestMatch(model.backbone, model_spec::BackboneNames());
      AddProblem("model.backbone", "{} is not known{}; there are {}", Quoted(base::Printable(model.backbone)),
                 near ? fmt::format(": did you mean {}?", Quoted(*near)) : "",
                 base::Join(model_spec::BackboneNames(), ", "));
    } else if (model.freeze > backbone->layers) {
      AddProblem("model.freeze", "= {} is more than the {} blocks of {}; −1 freezes the whole backbone", model.freeze,
                 backbone->layers, model.backbone);
    }
    if (config_.data.task == model_spec::Task::kClassification) {
      if (model.head == model_spec::Head::kUp) {
        AddProblem("model.head", "= \"up\" is a head for segmentation; classification has head = \"linear\"");
      }
      if (model.auxiliary_weight > 0) {
        AddProblem("model.auxiliary_weight", "= {} asks for an auxiliary head, which only segmentation has; use 0",
                   model.auxiliary_weight);
      }
    }
    if (model.weights.empty() && (!model.weights_may_miss.empty() || !model.weights_may_have_more.empty())) {
      AddProblem("model.weights", "is empty, and there are rules about what it may miss or have more; name the file");
    }
  }

  void CheckTrain() {
    const Train& train = config_.train;
    if (train.global_batch > 0) {
      if (train.accumulation > 1) {
        AddProblem("train.accumulation", "= {} and global_batch = {} are two ways to say the same; give one of the two",
                   train.accumulation, train.global_batch);
      }
      if (train.global_batch < train.batch) {
        AddProblem("train.global_batch", "= {} is less than batch = {}, what one card computes at once",
                   train.global_batch, train.batch);
      }
    }
    if (config_.steps > 0 && train.warmup >= config_.steps) {
      AddProblem("train.warmup", "= {} would last to the end of all {} steps; use a tenth of them or less",
                 train.warmup, config_.steps);
    }
    if (config_.log.every == 0)
      AddProblem("log.every", "= 0 would log nothing; use 1 or more, or -1 for a twentieth of the steps");
    if (train.warmup != 0 && train.warmup_lr > train.lr) {
      AddProblem("train.warmup_lr", "= {} is above lr = {}: a warm-up rises", train.warmup_lr, train.lr);
    }
    if (train.decay != Decay::kConstant && train.min_lr > train.lr) {
      AddProblem("train.min_lr", "= {} is above lr = {}: the learning rate falls to it", train.min_lr, train.lr);
    }
    if (train.oom == OnOutOfMemory::kHalve && config_.environment.backend == "gloo") {
      AddProblem("train.oom",
                 "= \"halve\" cannot be done with backend = \"gloo\", whose waits cannot be ended; use \"fulldeck\" "
                 "or \"nccl\"");
    }
  }

  void CheckRest() {
    if (config_.validation.patience > 0 && config_.validation.every == 0) {
      AddProblem("validation.patience",
                 "= {} counts validations, and every = 0 has one at the end alone; set validation.every",
                 config_.validation.patience);
    }
    const std::vector<std::string> backends = {"nccl", "fulldeck", "gloo"};
    const std::string& backend = config_.environment.backend;
    if (!backend.empty() && std::find(backends.begin(), backends.end(), backend) == backends.end()) {
      const auto near = base::ClosestMatch(backend, backends);
      AddProblem("environment.backend", "{} is not known{}; there are {}, and \"\" chooses by the cards",
                 Quoted(base::Printable(backend)), near ? fmt::format(": did you mean {}?", Quoted(*near)) : "",
                 base::Join(backends, ", "));
    }
  }

  const Config& config_;
  std::vector<Contradiction> found_;
};

}  // namespace

std::vector<Contradiction> Contradictions(const Config& config) {
  return Checker(config).Check();
}

void ApplyDefaults(Config& config, const std::function<bool(std::string_view key)>& given) {
  model_spec::DataOptions& data = config.data;
  if (data.kind == model_spec::DataKind::kLoveda) {
    if (!given("data.train")) data.train = "Train";
    if (!given("data.val")) data.val = "Val";
    if (!given("data.classes")) {
      data.classes = {"background", "building", "road", "water", "barren", "forest", "agricultural"};
    }
    data.reduce_zero_label = true;
  }
  if (data.kind == model_spec::DataKind::kMmrs1m && !given("data.val")) data.val = "test";
}

std::vector<Change> ChangesBetween(const Config& before, const Config& after) {
  std::vector<Change> changes;
  for (const Key& key : Keys()) {
    const std::string old_value = key.Get(before);
    const std::string new_value = key.Get(after);
    if (old_value == new_value) continue;
    bool fixed = key.rules.fixed;
    // Of these keys only this aspect is fixed: whether the feature is enabled, or the number of bands.
    const std::string_view name = key.name;
    if (name == "model.auxiliary_weight") {
      fixed = (before.model.auxiliary_weight > 0) != (after.model.auxiliary_weight > 0);
    }
    if (name == "model.ema") fixed = (before.model.ema > 0) != (after.model.ema > 0);
    if (name == "data.bands") fixed = before.data.bands.size() != after.data.bands.size();
    changes.push_back({key.name, old_value, new_value, fixed});
  }
  return changes;
}

}  // namespace fulldeck::config
