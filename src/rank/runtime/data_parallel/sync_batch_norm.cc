#include "fulldeck/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>

#include <ostream>
#include <utility>

#include "runtime/data_parallel/replica_difference.h"

namespace fulldeck {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupOfGraph : torch::CustomClassHolder {
  Team team;
};

at::ScalarType WideType(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// One value per feature, shaped to broadcast over the input.
at::Tensor AsFeature(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

std::vector<std::int64_t> AllButFeatures(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

// Over all ranks. Combines each rank's mean and squared deviations from it. Sums of squares would cancel if the mean is
// large compared with the deviation.
struct Statistics {
  at::Tensor mean;
  at::Tensor variance;  // biased
  at::Tensor count;     // values per feature, one element
};

Statistics StatisticsOf(const at::Tensor& wide, const Team& team) {
  const std::int64_t features = wide.size(1);
  const std::int64_t count = features == 0 ? 0 : wide.numel() / features;
  at::Tensor mine = at::zeros({2 * features + 1}, wide.options());
  if (count > 0) {
    const auto dimensions = AllButFeatures(wide);
    const at::Tensor mean = wide.mean(dimensions);
    const at::Tensor distances = (wide - AsFeature(mean, wide)).square_().sum(dimensions);
    mine = at::cat({mean, distances, at::full({1}, static_cast<double>(count), wide.options())});
  }
  const at::Tensor all = runtime::RowsOfRanks(team, mine);
  const at::Tensor means = all.slice(1, 0, features);
  const at::Tensor distances = all.slice(1, features, 2 * features);
  const at::Tensor counts = all.slice(1, 2 * features);
  Statistics statistics;
  statistics.count = counts.sum(0);
  statistics.mean = (means * counts).sum(0) / statistics.count;
  const at::Tensor between = ((means - statistics.mean).square_() * counts).sum(0);
  statistics.variance = (distances.sum(0) + between) / statistics.count;
  return statistics;
}

struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                            const at::Tensor& count, const c10::intrusive_ptr<GroupOfGraph>& group) {
    const at::Tensor wide = input.to(WideType(input));
    const at::Tensor output = (wide - AsFeature(mean, wide)) * AsFeature(inverse_deviation, wide) *
                                  AsFeature(weight.to(wide.scalar_type()), wide) +
                              AsFeature(bias.to(wide.scalar_type()), wide);
    context->save_for_backward({input, weight, mean, inverse_deviation, count});
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const at::Tensor& inverse_deviation = saved[3];
    const at::Tensor& count = saved[4];
    const Team& team = static_cast<GroupOfGraph*>(context->saved_data["group"].toCapsule().get())->team;

    const at::Tensor wide = input.to(WideType(input));
    const at::Tensor gradient = gradients[0].to(wide.scalar_type());
    const at::Tensor normalized = (wide - AsFeature(mean, wide)) * AsFeature(inverse_deviation, wide);
    const auto dimensions = AllButFeatures(wide);
    const std::int64_t features = wide.size(1);
    // The gradients of weight and bias are this rank's only; data parallel averaging covers them.
    const at::Tensor of_bias = gradient.sum(dimensions);
    const at::Tensor of_weight = (gradient * normalized).sum(dimensions);
    std::vector<at::Tensor> sums = {at::cat({of_bias, of_weight})};
    team.group->allreduce(sums)->wait();

    at::Tensor of_input;
    if (context->needs_input_grad(0)) {
      const at::Tensor of_bias_everywhere = AsFeature(sums[0].slice(0, 0, features) / count, wide);
      const at::Tensor of_weight_everywhere = AsFeature(sums[0].slice(0, features) / count, wide);
      of_input = (gradient - of_bias_everywhere - normalized * of_weight_everywhere) *
                 AsFeature(inverse_deviation * weight.to(wide.scalar_type()), wide);
      of_input = of_input.to(input.scalar_type());
    }
    return {of_input,
            of_weight.to(weight.scalar_type()),
            of_bias.to(weight.scalar_type()),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

template <typename BatchNorm>
SyncBatchNorm Synced(const BatchNorm& plain, const Team& team) {
  SyncBatchNormOptions options(plain.options.num_features());
  options.eps = plain.options.eps();
  options.momentum = plain.options.momentum();
  options.affine = plain.options.affine();
  options.track_running_stats = plain.options.track_running_stats();
  SyncBatchNorm synced(
      team, options,
      SyncBatchNormTensors{plain.weight, plain.bias, plain.running_mean, plain.running_var, plain.num_batches_tracked});
  synced->train(plain.is_training());
  return synced;
}

std::optional<SyncBatchNorm> SyncedIfBatchNorm(const torch::nn::Module& module, const Team& team) {
  if (const auto* one = module.as<torch::nn::BatchNorm1dImpl>()) return Synced(*one, team);
  if (const auto* two = module.as<torch::nn::BatchNorm2dImpl>()) return Synced(*two, team);
  if (const auto* three = module.as<torch::nn::BatchNorm3dImpl>()) return Synced(*three, team);
  return std::nullopt;
}

SyncBatchNormTensors FreshTensors(const SyncBatchNormOptions& options) {
  if (options.features < 1)
    throw Error("batch normalisation of " + std::to_string(options.features) + " features is impossible.");
  SyncBatchNormTensors tensors;
  if (options.affine) {
    tensors.weight = at::ones({options.features}).requires_grad_();
    tensors.bias = at::zeros({options.features}).requires_grad_();
  }
  if (options.track_running_stats) {
    tensors.running_mean = at::zeros({options.features});
    tensors.running_var = at::ones({options.features});
    tensors.num_batches_tracked = at::zeros({}, at::kLong);
  }
  return tensors;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(Team team, const SyncBatchNormOptions& of_options)
    : SyncBatchNormImpl(std::move(team), of_options, FreshTensors(of_options)) {}

SyncBatchNormImpl::SyncBatchNormImpl(Team team, const SyncBatchNormOptions& of_options,
                                     const SyncBatchNormTensors& tensors)
    : options(of_options), team_(std::move(team)) {
  if (options.affine) {
    weight = register_parameter("weight", tensors.weight, tensors.weight.requires_grad());
    bias = register_parameter("bias", tensors.bias, tensors.bias.requires_grad());
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", tensors.running_mean);
    running_var = register_buffer("running_var", tensors.running_var);
    num_batches_tracked = register_buffer("num_batches_tracked", tensors.num_batches_tracked);
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "fulldeck::SyncBatchNorm(" << options.features << ", eps=" << options.eps << ", momentum=";
  if (options.momentum) {
    stream << *options.momentum;
  } else {
    stream << "none";
  }
  stream << ", affine=" << options.affine << ", track_running_stats=" << options.track_running_stats << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.features)
    throw Error("SyncBatchNorm of " + std::to_string(options.features) + " features was given a tensor of " +
                std::to_string(input.dim()) + " dimensions" +
                (input.dim() < 2 ? "" : " with " + std::to_string(input.size(1)) + " features") +
                "; it needs [batch, features, …].");
  if (!is_training() && options.track_running_stats)
    return at::batch_norm(input, weight, bias, running_mean, running_var, false, 0.0, options.eps, false);

  Statistics statistics;
  {
    const c10::AutoGradMode no_grad(false);
    statistics = StatisticsOf(input.detach().to(WideType(input)), team_);
    // A rank with two values of its own need not read the count (and wait for its card).
    if (input.numel() < 2 * options.features && statistics.count.item<double>() < 2)
      throw Error("SyncBatchNorm of " + std::to_string(options.features) +
                  " features: all ranks together have fewer than two values a feature, which have no variance.");
    if (is_training() && options.track_running_stats) {
      num_batches_tracked.add_(1);
      const at::Tensor unbiased = statistics.variance * (statistics.count / (statistics.count - 1));
      const auto mix = [&](at::Tensor& running, const at::Tensor& now) {
        if (options.momentum) {
          running.mul_(1.0 - *options.momentum).add_(now.to(running.scalar_type()), *options.momentum);
        } else {
          running.add_((now.to(running.scalar_type()) - running) / num_batches_tracked.to(running.scalar_type()));
        }
      };
      mix(running_mean, statistics.mean);
      mix(running_var, unbiased);
    }
  }
  auto group = c10::make_intrusive<GroupOfGraph>();
  group->team = team_;
  // Multiplying by 1 and adding 0 is exact.
  const auto plain = [&](double value) { return at::full({options.features}, value, statistics.mean.options()); };
  return Normalize::apply(input, options.affine ? weight : plain(1), options.affine ? bias : plain(0), statistics.mean,
                          at::rsqrt(statistics.variance + options.eps), statistics.count, group);
}

torch::nn::Sequential SyncedBatchNorm(const torch::nn::Sequential& sequential, const Team& team) {
  torch::nn::Sequential synced;
  const auto names = sequential->named_children();
  std::size_t place = 0;
  for (auto& layer : *sequential) {
    const std::string& name = names[place++].key();
    const std::shared_ptr<torch::nn::Module> module = layer.ptr();
    if (auto replacement = SyncedIfBatchNorm(*module, team)) {
      synced->push_back(std::string(name), torch::nn::AnyModule(*replacement));
    } else {
      synced->push_back(std::string(name), torch::nn::AnyModule(layer));
    }
  }
  synced->train(sequential->is_training());
  return synced;
}

std::vector<std::string> UnsyncedBatchNorms(const torch::nn::Module& module) {
  std::vector<std::string> names;
  const auto look = [&](const std::string& name, const torch::nn::Module& part) {
    if (part.as<torch::nn::BatchNorm1dImpl>() || part.as<torch::nn::BatchNorm2dImpl>() ||
        part.as<torch::nn::BatchNorm3dImpl>())
      names.push_back(name);
  };
  look(module.name(), module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) look(item.key(), *item.value());
  return names;
}

}  // namespace fulldeck
