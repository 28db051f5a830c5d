#include "config/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "config/job_folder.h"
#include "model_spec/backbones.h"

namespace fulldeck::config {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kFloat = 4;
// Host memory of one rank: torch's libraries and its own data.
constexpr std::uint64_t kRankOnHost = 350 * kMiB;
// A driver context and the workspace of its libraries, on a real card.
constexpr std::uint64_t kContext = 600 * kMiB;
// Maximum error of an estimate.
constexpr double kFarOff = 1.5;

std::uint64_t Unsigned(std::int64_t number) {
  return number > 0 ? static_cast<std::uint64_t>(number) : 0;
}

std::int64_t ClassesOf(const Config& config) {
  // If the data determines the number of classes: large enough for the known datasets.
  constexpr std::int64_t kUnknown = 45;
  constexpr std::int64_t kSynthetic = 7;
  if (!config.data.classes.empty()) return static_cast<std::int64_t>(config.data.classes.size());
  return config.data.kind == model_spec::DataKind::kSynthetic ? kSynthetic : kUnknown;
}

std::string Bytes(std::uint64_t bytes) {
  return base::FormatByteSize(bytes);
}

std::string Bytes(const std::optional<std::uint64_t>& bytes) {
  return bytes ? Bytes(*bytes) : "–";
}

bool HasFusedAttention(const MachineFacts& machine) {
  return machine.cards == 0 || machine.card_kind == "cuda" || machine.card_kind == "hip";
}

class Planner {
 public:
  Planner(const Config& config, const MachineFacts& machine) : config_(config), machine_(machine) {}

  base::Result<Plan> Make() {
    auto shape = StepShapeFor(config_, machine_.ranks);
    if (!shape) return shape.error();
    plan_.shape = *shape;
    CountSteps();
    plan_.memory = EstimateMemory(config_, plan_.shape.micro_batch, HasFusedAttention(machine_));
    if (machine_.cards > 0 && !machine_.simulated) plan_.memory.rest += kContext;
    CheckCards();
    CheckHost();
    CheckDisk();
    CheckCpus();
    CheckSettings();
    return std::move(plan_);
  }

 private:
  template <typename... Arguments>
  void Refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    plan_.errors.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  }
  template <typename... Arguments>
  void Warn(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    plan_.warnings.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  void CountSteps() {
    if (config_.steps > 0) plan_.steps = config_.steps;
    if (!machine_.training_samples) return;
    const std::uint64_t samples = *machine_.training_samples;
    plan_.steps_per_epoch = StepsPerEpoch(samples, plan_.shape.global_batch);
    if (*plan_.steps_per_epoch == 0) {
      return Refuse(
          "{} training images do not fill one global batch of {}: make it smaller (train.batch, "
          "train.global_batch), or use fewer cards",
          samples, plan_.shape.global_batch);
    }
    plan_.steps = TotalSteps(config_, samples, plan_.shape.global_batch);
    plan_.epochs = static_cast<double>(*plan_.steps) / static_cast<double>(*plan_.steps_per_epoch);
    if (config_.epochs > 0 && config_.train.warmup >= *plan_.steps) {
      Refuse("train.warmup = {} would last to the end of all {} steps; use a tenth of them or less",
             config_.train.warmup, *plan_.steps);
    }
  }

  int RanksOfCard() const {
    return machine_.cards == 0 ? machine_.ranks : (machine_.ranks + machine_.cards - 1) / machine_.cards;
  }

  void CheckCards() {
    if (machine_.cards == 0 || !machine_.card_memory) return;
    const std::uint64_t needed = plan_.memory.total() * static_cast<std::uint64_t>(RanksOfCard());
    const std::uint64_t there = *machine_.card_memory;
    if (needed <= there * 9 / 10) return;
    const bool hopeless = static_cast<double>(needed) > kFarOff * static_cast<double>(there);
    const std::string sentence = fmt::format(
        "{} needs about {} of a card's memory, and a card has {}; {}{}use a smaller train.batch (with global_batch the "
        "training stays the same), precision = \"bf16\", or a smaller backbone",
        RanksOfCard() > 1 ? fmt::format("{} ranks on one card", RanksOfCard()) : "a rank", Bytes(needed), Bytes(there),
        RanksOfCard() > 1 ? "give each rank a card of its own, " : "",
        config_.train.oom == OnOutOfMemory::kHalve || hopeless ? "" : "train.oom = \"halve\" may make it fit; or ");
    if (hopeless) {
      Refuse("{}", sentence);
    } else {
      Warn("{}", sentence);
    }
  }

  void CheckHost() {
    const auto ranks = static_cast<std::uint64_t>(machine_.ranks);
    const std::uint64_t pixels = Unsigned(config_.data.size) * Unsigned(config_.data.size);
    const std::uint64_t batch = Unsigned(plan_.shape.rank_batch) * pixels * (config_.data.bands.size() * kFloat + 1);
    plan_.host_memory = ranks * (kRankOnHost + batch * (Unsigned(config_.data.prefetch) + 1));
    plan_.host_memory += plan_.memory.checkpoint();
    if (machine_.cards == 0 || machine_.simulated) plan_.host_memory += ranks * plan_.memory.total();
    if (!machine_.host_memory || plan_.host_memory <= *machine_.host_memory) return;
    const bool hopeless = static_cast<double>(plan_.host_memory) > kFarOff * static_cast<double>(*machine_.host_memory);
    const std::string sentence = fmt::format(
        "about {} of the host's memory are needed ({} for the copy of a checkpoint), and {} are free; use fewer ranks, "
        "a "
        "smaller train.batch or data.prefetch, or a smaller backbone",
        Bytes(plan_.host_memory), Bytes(plan_.memory.checkpoint()), Bytes(*machine_.host_memory));
    if (hopeless) {
      Refuse("{}", sentence);
    } else {
      Warn("{}", sentence);
    }
  }

  void CheckDisk() {
    const Checkpoint& rule = config_.checkpoint;
    std::int64_t kept = rule.keep_last + rule.keep_best;
    const std::int64_t steps = plan_.steps.value_or(0);
    const std::int64_t num_checkpoints = rule.every > 0 ? steps / rule.every + 1 : 1;
    if (rule.keep_last == 0) kept = num_checkpoints;
    if (plan_.steps) kept = std::min(kept, num_checkpoints);
    // Plus the checkpoint that is being written.
    plan_.disk = Unsigned(kept + 1) * plan_.memory.checkpoint();
    if (machine_.disk_free && plan_.disk > *machine_.disk_free) {
      Refuse(
          "the checkpoints need up to {} of disk ({} of {}), and {} are free in {}; free some, keep fewer "
          "(checkpoint.keep_last), or use another disk: --set work_dirs=FOLDER",
          Bytes(plan_.disk), kept + 1, Bytes(plan_.memory.checkpoint()), Bytes(*machine_.disk_free),
          base::Printable(config_.work_dirs));
    }
  }

  void CheckCpus() {
    plan_.threads = config_.data.workers * machine_.ranks;
    const std::int64_t share = std::max(1, machine_.cores / machine_.ranks);
    const bool real = machine_.cards > 0 && !machine_.simulated;
    if (real && plan_.threads > machine_.cores && config_.data.workers > share) {
      Warn("{} threads would load data ({} a rank) on {} cores; data.workers = {} suits this machine", plan_.threads,
           config_.data.workers, machine_.cores, share);
    }
    if (real && machine_.cores < machine_.ranks) {
      Warn("{} ranks share {} cores: the cards will wait for their data", machine_.ranks, machine_.cores);
    }
  }

  void CheckSettings() {
    if (config_.model.freeze != 0 && config_.model.weights.empty()) {
      Warn("model.freeze = {} freezes random weights, as model.weights is empty: what is frozen never learns",
           config_.model.freeze);
    }
    if (config_.data.bands.size() != 3 && !config_.model.weights.empty()) {
      Warn("the published weights are for 3 bands, and data.bands has {}: the first layer will not fit",
           config_.data.bands.size());
    }
    if (plan_.steps && config_.validation.every > *plan_.steps) {
      Warn("validation.every = {} is more than the {} steps: there is one validation, at the end",
           config_.validation.every, *plan_.steps);
    }
    if (plan_.steps && config_.checkpoint.every > *plan_.steps) {
      Warn("checkpoint.every = {} is more than the {} steps: there is one checkpoint, at the end",
           config_.checkpoint.every, *plan_.steps);
    }
    if (plan_.shape.lr > 10 * config_.train.lr) {
      Warn(
          "the learning rate is scaled from {} to {}, because the global batch is {} and train.lr_base_batch is {}: "
          "check that this is what you want",
          config_.train.lr, plan_.shape.lr, plan_.shape.global_batch, config_.train.lr_base_batch);
    }
  }

  const Config& config_;
  const MachineFacts& machine_;
  Plan plan_;
};

}  // namespace

MemoryEstimate EstimateMemory(const Config& config, std::int64_t micro_batch, bool fused_attention) {
  const model_spec::BackboneOptions* named = model_spec::FindBackbone(config.model.backbone);
  FULLDECK_CHECK(named != nullptr);
  model_spec::BackboneOptions backbone = *named;
  backbone.channels = static_cast<std::int64_t>(config.data.bands.size());
  const bool half = config.train.precision != Precision::kFloat32;
  const std::uint64_t element = half ? 2 : kFloat;

  MemoryEstimate estimate;
  const std::int64_t in_backbone = model_spec::ParameterCount(backbone);
  const std::int64_t in_heads =
      model_spec::HeadParameterCount(config.model, config.data.task, ClassesOf(config), backbone.dim);
  estimate.parameters = in_backbone + in_heads;
  const std::int64_t frozen_layers = config.model.freeze < 0 ? backbone.layers : config.model.freeze;
  estimate.trainable = config.model.freeze < 0
                           ? in_heads
                           : in_heads + in_backbone -
                                 in_backbone / std::max<std::int64_t>(1, backbone.layers) * frozen_layers -
                                 backbone.dim;  // mask_token, which only pre-training uses
  const std::uint64_t parameters = Unsigned(estimate.parameters);
  const std::uint64_t trainable = Unsigned(estimate.trainable);
  estimate.weights = kFloat * parameters;
  estimate.gradients = kFloat * trainable;
  estimate.optimizer = 2 * kFloat * trainable;
  estimate.ema = config.model.ema > 0 ? kFloat * parameters : 0;

  const std::uint64_t patches =
      Unsigned(config.data.size / backbone.patch) * Unsigned(config.data.size / backbone.patch);
  const std::uint64_t tokens = patches + 1 + Unsigned(backbone.registers);
  const std::uint64_t dim = Unsigned(backbone.dim);
  // A block keeps for backward: the inputs of its linear layers and of the attention, in the compute type; and the
  // residual stream with the inputs of the norms, in fp32.
  const std::uint64_t of_token =
      element * (8 * dim + (backbone.gated ? 4 : 2) * Unsigned(backbone.mlp)) + kFloat * 4 * dim;
  std::uint64_t of_layer = tokens * of_token;
  if (!fused_attention) of_layer += 2 * element * Unsigned(backbone.heads) * tokens * tokens;
  const std::uint64_t layers = Unsigned(backbone.layers - frozen_layers);
  std::uint64_t per_sample = layers * of_layer + kFloat * Unsigned(backbone.channels) * Unsigned(config.data.size) *
                                                     Unsigned(config.data.size);
  if (config.data.task == model_spec::Task::kSegmentation) {
    const std::uint64_t heads = config.model.auxiliary_weight > 0 ? 2 : 1;
    // Upsampled logits, their log-softmax, and the gradient of one of them.
    per_sample +=
        heads * 3 * kFloat * Unsigned(ClassesOf(config)) * Unsigned(config.data.size) * Unsigned(config.data.size);
    if (config.model.head == model_spec::Head::kUp)
      per_sample += 8 * element * patches * Unsigned(config.model.head_channels);
  }
  estimate.activations = Unsigned(micro_batch) * per_sample;
  // Half-precision weights, gradient buckets for communication, and a tenth of the sum for fragmentation.
  estimate.rest = (half ? 2 * parameters : 0) + kFloat * trainable;
  estimate.rest += estimate.total() / 10;
  return estimate;
}

base::Result<Plan> MakePlan(const Config& config, const MachineFacts& machine) {
  return Planner(config, machine).Make();
}

std::string Plan::ToText(const Config& config, const MachineFacts& machine) const {
  std::string text = fmt::format("plan of {}\n", base::Printable(config.name));
  const auto line = [&](const char* title, const std::string& value) {
    text += fmt::format("  {:<15}{}\n", title, value);
  };
  line("ranks", machine.cards == 0
                    ? fmt::format("{}, on the processors: no card is used", machine.ranks)
                    : fmt::format("{} on {} {} card{}{}{}", machine.ranks, machine.cards, machine.card_kind,
                                  machine.cards == 1 ? "" : "s",
                                  machine.card_model.empty() ? "" : " (" + base::Printable(machine.card_model) + ")",
                                  machine.simulated ? ", simulated" : ""));
  line("model", fmt::format("{}, {} parameters, {} of them learn", config.model.backbone,
                            base::FormatThousands(memory.parameters),
                            memory.trainable == memory.parameters ? "all" : base::FormatThousands(memory.trainable)));
  line("weights", config.model.weights.empty() ? "random" : base::Printable(config.model.weights));
  line("global batch",
       fmt::format("{} = {} rank{} × {} part{} of {}{}", shape.global_batch, shape.ranks, shape.ranks == 1 ? "" : "s",
                   shape.accumulation, shape.accumulation == 1 ? "" : "s", shape.micro_batch,
                   shape.micro_batch * shape.accumulation != shape.rank_batch ? " (the last is smaller)" : ""));
  line("learning rate", shape.lr == config.train.lr
                            ? fmt::format("{}, backbone × {}", shape.lr, config.train.backbone_lr)
                            : fmt::format("{} = {} × {} / {}, backbone × {}", shape.lr, config.train.lr,
                                          shape.global_batch, config.train.lr_base_batch, config.train.backbone_lr));
  std::string length = steps ? base::FormatThousands(*steps) + " steps" : fmt::format("{} epochs", config.epochs);
  if (epochs && steps_per_epoch) {
    length +=
        fmt::format(" = {:.1f} epochs of {} ({} training images)", *epochs, base::FormatThousands(*steps_per_epoch),
                    base::FormatThousands(static_cast<std::int64_t>(*machine.training_samples)));
  } else {
    length += "; the training images were not counted";
  }
  line("length", length);
  line("card memory",
       fmt::format("about {} a rank: weights {}, gradients {}, AdamW {}, averaged {}, activations {}, rest "
                   "{}; a card has {}",
                   Bytes(memory.total()), Bytes(memory.weights), Bytes(memory.gradients), Bytes(memory.optimizer),
                   Bytes(memory.ema), Bytes(memory.activations), Bytes(memory.rest),
                   machine.cards == 0 ? "–" : Bytes(machine.card_memory)));
  line("host memory", fmt::format("about {}, of it {} for the copy of a checkpoint; {} are free", Bytes(host_memory),
                                  Bytes(memory.checkpoint()), Bytes(machine.host_memory)));
  line("loaders", fmt::format("{} thread{} ({} a rank) on {} core{}", threads, threads == 1 ? "" : "s",
                              config.data.workers, machine.cores, machine.cores == 1 ? "" : "s"));
  line("disk", fmt::format("up to {} for checkpoints of {}; {} are free", Bytes(disk), Bytes(memory.checkpoint()),
                           Bytes(machine.disk_free)));
  line("folder", base::Printable(JobFolder(config).path));
  text += "  Memory is estimated from the model's shapes, good to about a third.\n";
  return text;
}

}  // namespace fulldeck::config
