#include "fulldeck/data_parallel.h"

#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include "runtime/data_parallel/data_parallel_for_test.h"

namespace fulldeck {
namespace {

struct Trained {
  double farthest_loss = 0;
  double farthest_parameter = 0;
  std::uint64_t hash = 0;
  std::uint64_t reductions = 0;
  std::size_t buckets = 0;
};

// Trains the module over the ranks and compares with one rank that has the whole batch.
Trained TrainTogether(const Team& team, const DataParallelOptions& options, int steps, bool uses_branch = true) {
  auto net = std::make_shared<SmallNet>(1 + team.rank);  // rank 0's initial values are used
  net->uses_branch = uses_branch;
  DataParallel model(net, team, options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  SmallNet alone(1);
  alone.uses_branch = uses_branch;
  const std::vector<double> expected = TrainAlone(alone, steps);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(step), team.rank, team.world_size)));
    loss.backward();
    model.Step(optimizer);
    std::vector<at::Tensor> sum = {loss.detach().clone()};
    team.group->allreduce(sum)->wait();
    const double mean = sum[0].item<double>() / team.world_size;
    trained.farthest_loss = std::max(trained.farthest_loss, std::abs(mean - expected[static_cast<std::size_t>(step)]));
  }
  trained.farthest_parameter = Farthest(*net, alone);
  trained.hash = HashOf(*net);
  trained.reductions = model.reductions();
  trained.buckets = model.buckets();
  const std::string difference = CompareOverRanks(team, NamedParameters(*net));
  if (!difference.empty()) throw Error(difference);
  MUST(model.steps() == static_cast<std::uint64_t>(steps));
  return trained;
}

TEST(DataParallel, TrainsOnEightRanksAsOneRankWithTheWholeBatchUnderEveryOption) {
  RunRanks(8, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    constexpr std::uint64_t kSteps = 6;
    std::vector<DataParallelOptions> rows(7);
    rows[1].gradient_as_bucket_view = false;
    rows[2].bucket_bytes = 1024;  // several buckets
    rows[2].first_bucket_bytes = 64;
    rows[3] = rows[2];
    rows[3].find_unused_parameters = true;
    rows[4] = rows[2];
    rows[4].static_graph = true;
    rows[5] = rows[2];
    rows[5].find_unused_parameters = true;
    rows[5].static_graph = true;
    rows[6].broadcast_buffers = false;
    rows[6].check_finite = false;
    rows[6].check_parameters = false;
    rows[6].hash_every = 2;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const Trained trained = TrainTogether(team, rows[row], kSteps);
      if (trained.farthest_loss > 1e-6 || trained.farthest_parameter > 1e-6)
        throw Error("row " + std::to_string(row) + ": loss differs by " + std::to_string(trained.farthest_loss) +
                    ", parameters by " + std::to_string(trained.farthest_parameter));
      if (rows[row].bucket_bytes == 1024) {
        // The Reducer rebuilds the buckets after the first step, in which there is one bucket, unless it searches for
        // unused parameters. With a static graph it observes the first step, then rebuilds.
        const std::uint64_t whole = rows[row].static_graph ? 2 : rows[row].find_unused_parameters ? 0 : 1;
        MUST(trained.buckets > 1);
        if (trained.reductions != whole + (kSteps - whole) * trained.buckets)
          throw Error("row " + std::to_string(row) + ": " + std::to_string(trained.reductions) + " reductions of " +
                      std::to_string(trained.buckets) + " buckets");
      } else {
        MUST(trained.reductions == 1 + (kSteps - 1) * trained.buckets);
      }
    }
  });
}

TEST(DataParallel, GivesTheSameBitsInEveryRun) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    DataParallelOptions options;
    options.bucket_bytes = 1024;
    const Trained once = TrainTogether(team, options, 5);
    const Trained again = TrainTogether(team, options, 5);
    MUST(once.hash == again.hash);
    options.static_graph = true;
    options.gradient_as_bucket_view = false;
    MUST(TrainTogether(team, options, 5).hash == once.hash);
  });
}

TEST(DataParallel, TrainsOverABackendThatOnlyAdds) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamWith(self, c10::make_intrusive<PlainBackend>(self));
    const Trained trained = TrainTogether(team, {}, 5);
    MUST(trained.farthest_loss < 1e-6 && trained.farthest_parameter < 1e-6);
  });
}

TEST(DataParallel, OfOneRankIsTheModuleItself) {
  RunRanks(1, [](const RankOfTest& self) {
    const Trained trained = TrainTogether(TeamOf(self), {}, 4);
    MUST(trained.farthest_parameter == 0);
  });
}

TEST(DataParallel, AccumulatesUnderNoSyncToOneBigBatch) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const int row : {0, 1, 2, 3}) {
      auto net = std::make_shared<SmallNet>();
      DataParallelOptions options;
      options.gradient_as_bucket_view = row == 0;
      options.static_graph = row == 2;
      options.find_unused_parameters = row == 3;
      DataParallel model(net, team, options);
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      SmallNet alone;
      TrainAlone(alone, 4);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        const at::Tensor part = PartOf(WholeBatch(step), self.rank, self.size);
        const std::uint64_t before = model.reductions();
        for (int micro = 0; micro < 3; ++micro) {
          const auto outer = model.NoSync();
          const auto inner = model.NoSync();  // may be nested
          (LossOf(model.Forward(PartOf(part, micro, 4))) / 4).backward();
        }
        MUST(model.reductions() == before);
        (LossOf(model.Forward(PartOf(part, 3, 4))) / 4).backward();
        if (model.reductions() != before + model.buckets())
          throw Error("row " + std::to_string(row) + ", step " + std::to_string(step) + ": " +
                      std::to_string(model.reductions() - before) + " reductions of " +
                      std::to_string(model.buckets()) + " buckets");
        model.Step(optimizer);
      }
      MUST(Farthest(*net, alone) < 1e-6);
    }
  });
}

TEST(DataParallel, LeavesOutParametersThatNoRankUsesWhenConfiguredTo) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const bool is_static : {false, true}) {
      DataParallelOptions options;
      options.find_unused_parameters = !is_static;
      options.static_graph = is_static;
      options.bucket_bytes = 1024;
      const Trained trained = TrainTogether(team, options, 5, /*uses_branch=*/false);
      MUST(trained.farthest_loss < 1e-6 && trained.farthest_parameter < 1e-6);
      MUST(trained.reductions >= 5);
    }
  });
}

TEST(DataParallel, AveragesAParameterThatOnlySomeRanksUse) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    DataParallelOptions options;
    options.find_unused_parameters = true;
    DataParallel model(net, team, options);
    for (int step = 0; step < 3; ++step) {
      net->uses_branch = self.rank == step;
      net->zero_grad();
      LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size))).backward();
      model.CheckReduced();
      // A third of that rank's gradient, on all ranks.
      SmallNet alone;
      LossOf(alone.forward(PartOf(WholeBatch(step), step, self.size))).backward();
      MUST(at::allclose(net->branch_weight.grad(), alone.branch_weight.grad() / 3, 1e-5, 1e-7));
      model.StepDone();
    }
  });
}

// Two outputs in a tuple, of which the loss uses one.
struct TwoHeads : torch::nn::Module {
  TwoHeads() {
    at::manual_seed(3);
    used = register_parameter("used", at::randn({1, kInputs}));
    unused = register_parameter("unused", at::randn({1, kInputs}));
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& input) {
    return {at::linear(input, used), {at::linear(input, unused)}};
  }
  at::Tensor used, unused;
};

TEST(DataParallel, TakesOutputsThatTheLossDoesNotUse) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const bool is_static : {false, true}) {
      auto net = std::make_shared<TwoHeads>();
      DataParallelOptions options;
      options.find_unused_parameters = !is_static;
      options.static_graph = is_static;
      DataParallel model(net, team, options);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        const auto [used, unused] = model.Forward(PartOf(WholeBatch(step), self.rank, self.size));
        LossOf(used).backward();
        model.CheckReduced();
        TwoHeads alone;
        LossOf(std::get<0>(alone.forward(WholeBatch(step)))).backward();
        MUST(at::allclose(net->used.grad(), alone.used.grad(), 1e-5, 1e-6));
        model.StepDone();
      }
      MUST(model.reductions() >= 3);
    }
  });
}

TEST(DataParallel, CopiesBuffersFromRankZeroBeforeForwardAndNotInEvaluation) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const bool broadcast : {true, false}) {
      auto net = std::make_shared<SmallNet>(1 + self.rank);
      DataParallelOptions options;
      options.broadcast_buffers = broadcast;
      DataParallel model(net, team, options);
      MUST(net->seen.item<double>() == 1);  // by wrapping, whatever the options
      net->seen.fill_(10 + self.rank);
      {
        const c10::AutoGradMode evaluation(false);
        // A single rank may evaluate.
        if (self.rank == 1) model.Forward(WholeBatch(0));
      }
      MUST(net->seen.item<double>() == 10 + self.rank);
      LossOf(model.Forward(PartOf(WholeBatch(0), self.rank, self.size))).backward();
      MUST(net->seen.item<double>() == (broadcast ? 10 : 10 + self.rank));
    }
  });
}

TEST(DataParallel, RunsAForwardOfAnyNameAndLooksIntoMaps) {
  RunRanks(2, [](const RankOfTest& self) {
    auto net = std::make_shared<SmallNet>();
    DataParallelOptions options;
    options.find_unused_parameters = true;
    DataParallelCore model(net, TeamOf(self), options);
    auto output = model.Run(
        [&](const std::map<std::string, at::Tensor>& batch, double factor) {
          std::map<std::string, std::optional<at::Tensor>> found;
          found["loss"] = LossOf(net->forward(batch.at("images"))) * factor;
          found["nothing"] = std::nullopt;
          return found;
        },
        std::map<std::string, at::Tensor>{{"images", PartOf(WholeBatch(0), self.rank, self.size)}}, 2.0);
    output["loss"]->backward();
    model.CheckReduced();
    MUST(model.reductions() == model.buckets());
  });
}

TEST(DataParallel, SaysHowLongItWaitedForASlowRank) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    DataParallel model(net, team);
    MUST(!model.communication_wait());
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size)));
      // The measurement itself: one rank is late.
      if (self.rank == 0 && step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      loss.backward();
      model.StepDone();
    }
    MUST(model.communication_wait());
    MUST(self.rank == 0 || *model.communication_wait() > std::chrono::milliseconds(100));
  });
}

// Number of faults that a test injects, one after another: `few`, or more if the variable is set.
// tests/grids/promises.py sets it, and sums the property "tries".
int Faults(const char* variable, std::size_t few) {
  const char* wanted = std::getenv(variable);
  return std::max(static_cast<int>(few), wanted == nullptr ? 0 : std::atoi(wanted));
}

torch_backend::RanksOptions TimeFor(int trainings) {
  torch_backend::RanksOptions options;
  options.limit += std::chrono::seconds(5) * trainings;
  return options;
}

struct BadGradient {
  bool checks_finite;  // the backend checks for non-finite values
  bool plain;          // a backend other than fulldeck's
  double value;
  int step;
  int rank;
  std::size_t parameter;
  std::int64_t element;
};

TEST(DataParallel, NamesRankTensorAndStepOfAGradientThatIsNotFinite) {
  std::vector<BadGradient> rows = {{true, false, NAN, 2, 2, 2, 77},
                                   {true, false, INFINITY, 2, 2, 2, 77},
                                   {false, false, NAN, 2, 2, 2, 77},
                                   {false, true, -INFINITY, 2, 2, 2, 77}};
  const int tries = Faults("FULLDECK_NONFINITE_GRADIENTS", rows.size());
  std::mt19937_64 draw(6);
  const auto below = [&](int limit) { return static_cast<int>(draw() % static_cast<unsigned>(limit)); };
  while (static_cast<int>(rows.size()) < tries) {
    const bool plain = below(3) == 0;
    const bool checks_finite = !plain && below(2) == 0;
    const double value = std::array<double, 3>{NAN, INFINITY, -INFINITY}[static_cast<std::size_t>(below(3))];
    rows.push_back(
        {checks_finite, plain, value, below(4), below(4), static_cast<std::size_t>(below(4)), below(1 << 20)});
  }
  const auto body = [&](const RankOfTest& self) {
    for (std::size_t number = 0; number < rows.size(); ++number) {
      const BadGradient& row = rows[number];
      RankOfTest here = self;
      here.store = c10::make_intrusive<c10d::PrefixStore>(std::to_string(number), self.store);
      const Team team =
          row.plain ? TeamWith(here, c10::make_intrusive<PlainBackend>(here)) : TeamOf(here, row.checks_finite);
      auto net = std::make_shared<SmallNet>();
      DataParallelOptions options;
      options.bucket_bytes = 512;
      options.first_bucket_bytes = 64;
      DataParallel model(net, team, options);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      const NamedTensor parameter = NamedParameters(*net)[row.parameter];
      const std::int64_t element = row.element % parameter.tensor.numel();
      for (int step = 0; step <= row.step; ++step) {
        optimizer.zero_grad();
        const at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size)));
        if (step == row.step && self.rank == row.rank) {
          parameter.tensor.register_hook([&](const at::Tensor& gradient) {
            at::Tensor wrong = gradient.clone(at::MemoryFormat::Contiguous);
            wrong.view(-1)[element] = row.value;
            return wrong;
          });
        }
        loss.backward();
        if (step < row.step) {
          model.Step(optimizer);
          continue;
        }
        const std::uint64_t before = HashOf(*net);
        const std::string text = MUST_THROW(model.Step(optimizer));
        const std::string expected =
            "step " + std::to_string(row.step + 1) + ": rank " + std::to_string(row.rank) +
            " gave a gradient that is not finite: " + parameter.name + " (element " + std::to_string(element) + " of " +
            std::to_string(parameter.tensor.numel()) +
            "). No parameter was changed. Look at that rank's batch, at the learning rate, and at logarithms and "
            "divisions in the loss; with 16-bit types use a GradScaler.";
        if (text != expected) throw Error("fault " + std::to_string(number) + ": " + text);
        MUST(HashOf(*net) == before);
      }
    }
  };
  RunRanks(4, body, TimeFor(tries));
  RecordProperty("tries", tries);
}

TEST(DataParallel, DistinguishesASumThatOverflowsFromARankThatDid) {
  RunRanks(2, [](const RankOfTest& self) {
    auto net = std::make_shared<SmallNet>();
    DataParallel model(net, TeamOf(self));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(0), self.rank, self.size)));
    net->first_bias.register_hook([](const at::Tensor& gradient) { return at::full_like(gradient, 3e38); });
    loss.backward();
    const std::string text = MUST_THROW(model.Step(optimizer));
    if (!Has(text, "the sum over the ranks of the gradient of first_bias (element 0 of 24) is not finite"))
      throw Error(text);
  });
}

// A record belongs to its own call, even if other calls were made before it was read.
TEST(DataParallel, ReadsTheRecordOfEachCall) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(at::full({5000}, 1.0));
      if (i % 3 == 1 && self.rank == i % 2) tensors.back()[i] = NAN;
      std::vector<at::Tensor> call = {tensors.back()};
      works.push_back(team.group->allreduce(call));
    }
    for (auto& work : works) work->wait();
    for (int i = 0; i < 20; ++i) {
      const auto record = torch_backend::NonfiniteOfCall(works[static_cast<std::size_t>(i)]);
      MUST(record);
      MUST(record->found == (i % 3 == 1));
      MUST(!record->found || (record->rank == i % 2 && record->element == static_cast<std::uint64_t>(i)));
    }
  });
}

TEST(DataParallel, NamesTheRankOfAFlippedBitWithinTwoRounds) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    DataParallelOptions options;
    options.hash_every = 5;
    DataParallel model(net, team, options);
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    std::string text;
    int step = 0;
    for (; step < 40 && text.empty(); ++step) {
      if (step == 7 && self.rank == 3) {
        const c10::AutoGradMode no_grad(false);
        reinterpret_cast<std::uint32_t*>(net->last_weight.data_ptr<float>())[11] ^= 1U << 21;
      }
      optimizer.zero_grad();
      LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size))).backward();
      try {
        model.Step(optimizer);
      } catch (const Error& error) {
        text = error.what();
      }
      if (step == 4) MUST(model.parameters_fingerprint() != 0);
    }
    MUST(step <= 7 + 2 * 5);
    if (!Has(text, ": rank 3 differs from the 3 others, which agree; first in last_weight (1 of 4)")) throw Error(text);
    MUST(Has(text, "step " + std::to_string(step) + ": "));
  });
  RecordProperty("tries", 1);
}

struct FlippedBit {
  int rank;
  std::size_t parameter;
  std::int64_t element;
  unsigned bit;
  int step;
};

// The documented guarantee: eight ranks, the default interval, and bits of every significance in a float, except the
// lowest ones, whose change rounding may remove again. A bit that makes a weight infinite is reported through the
// gradients.
TEST(DataParallel, NamesTheRankOfAFlippedBitWithin100StepsByDefault) {
  std::vector<FlippedBit> rows = {{0, 3, 0, 4, 60}, {5, 3, 11, 13, 60}, {7, 3, 3, 31, 60}};
  const int tries = Faults("FULLDECK_FLIPPED_BITS", rows.size());
  std::mt19937_64 draw(7);
  const auto below = [&](int limit) { return static_cast<int>(draw() % static_cast<unsigned>(limit)); };
  while (static_cast<int>(rows.size()) < tries) {
    const auto bit = static_cast<unsigned>(4 + below(28));
    rows.push_back({below(8), static_cast<std::size_t>(below(4)), below(1 << 20), bit, below(100)});
  }
  const auto body = [&](const RankOfTest& self) {
    for (std::size_t number = 0; number < rows.size(); ++number) {
      const FlippedBit& row = rows[number];
      RankOfTest here = self;
      here.store = c10::make_intrusive<c10d::PrefixStore>(std::to_string(number), self.store);
      const Team team = TeamOf(here);
      auto net = std::make_shared<SmallNet>();
      DataParallel model(net, team);
      torch::optim::SGD optimizer(net->parameters(), 0.01);
      const NamedTensor parameter = NamedParameters(*net)[row.parameter];
      std::string text;
      for (int step = 0; step < row.step + 100 && text.empty(); ++step) {
        if (step == row.step && self.rank == row.rank) {
          const c10::AutoGradMode no_grad(false);
          const std::int64_t element = row.element % parameter.tensor.numel();
          reinterpret_cast<std::uint32_t*>(parameter.tensor.data_ptr<float>())[element] ^= 1U << row.bit;
        }
        optimizer.zero_grad();
        LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size))).backward();
        try {
          model.Step(optimizer);
        } catch (const Error& error) {
          text = error.what();
        }
      }
      const std::string named = ": rank " + std::to_string(row.rank);
      if (!Has(text, named + " differs from the 7 others, which agree; first in " + parameter.name + " (1 of 4)") &&
          !Has(text, named + " gave a gradient that is not finite")) {
        throw Error("flip " + std::to_string(number) + ", bit " + std::to_string(row.bit) + " of " + parameter.name +
                    " in step " + std::to_string(row.step) + ": " + text);
      }
    }
  };
  RunRanks(8, body, TimeFor(tries));
  RecordProperty("tries", tries);
}

}  // namespace
}  // namespace fulldeck
