#include "fulldeck/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

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
#include "temporary_folder.h"
#include "torch_backend/ranks_for_test.h"

#include "checkpoint/faulty_files.h"

namespace fulldeck {
namespace {

namespace fs = std::filesystem;
using checkpoint::Fault;
using checkpoint::FaultyFiles;
using fulldeck::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch_backend::Has;
using torch_backend::RankOfTest;
using torch_backend::RunRanks;

Team AloneTeam() {
  Team team;
  team.store = c10::make_intrusive<c10d::HashStore>();
  team.timeout = std::chrono::seconds(60);
  return team;
}

Team TeamOf(const RankOfTest& rank) {
  Team team;
  team.rank = rank.rank;
  team.world_size = rank.size;
  team.local_rank = rank.rank;
  team.store = rank.store;
  team.timeout = std::chrono::seconds(60);
  return team;
}

// Two layers with a dropout between them, and buffers of several types.
struct Scale : torch::nn::Module {
  Scale() { weight = register_parameter("weight", at::ones({8})); }
  at::Tensor weight;
};

struct Tiny : torch::nn::Module {
  explicit Tiny(std::int64_t classes = 3) {
    first = register_parameter("first_weight", at::randn({8, 6}));
    bias = register_parameter("first_bias", at::randn({8}));
    second = register_parameter("second_weight", at::randn({classes, 8}));
    scale = register_module("scale", std::make_shared<Scale>());
    seen = register_buffer("seen", at::zeros({}, at::kLong));
    mean = register_buffer("mean", at::zeros({8}));
  }
  at::Tensor Loss(const at::Tensor& input, const at::Tensor& target) {
    const at::Tensor hidden =
        at::dropout(at::relu(at::linear(input, first, bias) * scale->weight), 0.3, /*train=*/true);
    const at::NoGradGuard no_grad;
    seen.add_(1);
    mean.mul_(0.9).add_(hidden.detach().mean(0), 0.1);
    const at::AutoGradMode grad(true);
    return at::mse_loss(at::linear(hidden, second), target);
  }
  at::Tensor first, bias, second, seen, mean;
  std::shared_ptr<Scale> scale;
};

// Steps whose data depends only on their number, and whose dropout depends on torch's generator.
void Train(Tiny& model, torch::optim::Optimizer& optimizer, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step <= to; ++step) {
    const at::Tensor input = at::sin(at::arange(24, at::kFloat) * static_cast<double>(step)).view({4, 6});
    optimizer.zero_grad();
    model.Loss(input, at::ones({4, model.second.size(0)})).backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> Copies(torch::nn::Module& module) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : module.parameters()) copies.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : module.buffers()) copies.push_back(tensor.clone());
  return copies;
}

bool Same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].scalar_type() != b[i].scalar_type() || !at::equal(a[i], b[i])) return false;
  }
  return true;
}

CheckpointOptions Quiet() {
  CheckpointOptions options;
  options.announce = false;
  return options;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

std::vector<std::pair<std::string, MakeOptimizer>> Optimizers() {
  namespace optim = torch::optim;
  using Tensors = std::vector<at::Tensor>;
  return {
      {"Adam", [](Tensors p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions(0.01).weight_decay(0.1)); }},
      {"Adam with amsgrad",
       [](Tensors p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions(0.01).amsgrad(true)); }},
      {"AdamW", [](Tensors p) { return std::make_unique<optim::AdamW>(p, optim::AdamWOptions(0.01)); }},
      {"SGD", [](Tensors p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.01)); }},
      {"SGD with momentum",
       [](Tensors p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.01).momentum(0.9)); }},
      {"RMSprop",
       [](Tensors p) {
         return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"Adagrad",
       [](Tensors p) { return std::make_unique<optim::Adagrad>(p, optim::AdagradOptions(0.01).lr_decay(0.1)); }},
  };
}

TEST(Checkpoints, ResumeToTheSameBitsWithEveryOptimizer) {
  for (const auto& [name, make] : Optimizers()) {
    TemporaryFolder folder;
    at::manual_seed(1);
    Tiny model;
    auto optimizer = make(model.parameters());
    const Team team = AloneTeam();
    {
      Checkpoints checkpoints(folder.string(), team, Quiet());
      State state;
      state.Module("model", model).Optimizer("optimizer", *optimizer).Random();
      Train(model, *optimizer, 1, 5);
      const SaveReport report = checkpoints.Save(5, state);
      EXPECT_TRUE(report.started) << name;
      EXPECT_GT(report.bytes, 0U);
      Train(model, *optimizer, 6, 9);
      checkpoints.Finish();
      EXPECT_EQ(checkpoints.durable_step(), 5);
    }
    at::manual_seed(99);
    Tiny again;
    // Its state before loading must not matter: another learning rate, other steps.
    std::vector<at::Tensor> parameters = again.parameters();
    std::reverse(parameters.begin(), parameters.end());
    auto second = make(parameters);
    Train(again, *second, 1, 2);
    second->param_groups()[0].options().set_lr(7);
    Checkpoints checkpoints(folder.string(), team, Quiet());
    State state;
    state.Module("model", again).Optimizer("optimizer", *second).Random();
    const auto loaded = checkpoints.Load(state);
    ASSERT_TRUE(loaded.has_value()) << name;
    EXPECT_EQ(loaded->step, 5);
    Train(again, *second, 6, 9);
    EXPECT_TRUE(Same(Copies(model), Copies(again))) << name;
  }
}

TEST(Checkpoints, OfAnOptimizerThatHasNotSteppedMakeOneThatHasNot) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Tiny model;
  torch::optim::AdamW fresh(model.parameters(), torch::optim::AdamWOptions(0.01));
  Checkpoints checkpoints(folder.string(), team, Quiet());
  State state;
  state.Module("model", model).Optimizer("optimizer", fresh);
  checkpoints.Save(0, state);
  Train(model, fresh, 1, 2);
  EXPECT_FALSE(fresh.state().empty());
  ASSERT_TRUE(checkpoints.Load(state).has_value());
  EXPECT_TRUE(fresh.state().empty());
}

TEST(Checkpoints, KeepTensorsOfEveryTypeAndLayout) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  at::manual_seed(3);
  State::NamedTensors tensors;
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat})
    tensors["real " + std::string(c10::toString(type))] = at::randn({5, 3}).to(type);
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong})
    tensors["whole " + std::string(c10::toString(type))] = at::randint(0, 2, {7}).to(type);
  tensors["transposed"] = at::randn({4, 6}).t();
  tensors["sliced"] = at::randn({10, 4}).slice(0, 1, 9, 2);
  tensors["conjugated"] = at::randn({3}, at::kComplexFloat).conj();
  tensors["channels last"] = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  tensors["expanded"] = at::randn({1, 4}).expand({3, 4});
  tensors["empty"] = at::empty({0, 3});
  tensors["scalar"] = at::scalar_tensor(3.5);
  State::NamedTensors loaded;
  State state;
  state.Tensors(
      "extra", [&] { return tensors; }, [&](const State::NamedTensors& read) { loaded = read; });
  Checkpoints checkpoints(folder.string(), team, Quiet());
  checkpoints.Save(1, state);
  ASSERT_TRUE(checkpoints.Load(state).has_value());
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(loaded.at(name).sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(loaded.at(name), tensor.resolve_conj())) << name;
  }
  State sparse;
  sparse.Tensors(
      "bad",
      [] {
        return State::NamedTensors{{"s", at::eye(3).to_sparse()}};
      },
      [](const auto&) {});
  EXPECT_THAT(MUST_THROW(checkpoints.Save(2, sparse)), AllOf(HasSubstr("\"s\" of \"bad\""), HasSubstr("sparse")));
  EXPECT_TRUE(checkpoints.Save(3, state).started) << "a state that cannot be saved harms no other";
}

TEST(Checkpoints, KeepValuesTextsSchedulersAndObjects) {
  struct Sampler {
    std::int64_t position = 0;
    std::string ToText() const { return "position " + std::to_string(position); }
    void FromText(const std::string& text) { position = std::stoll(text.substr(9)); }
  };
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Tiny model;
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(1.0));
  torch::optim::StepLR scheduler(optimizer, 3, 0.5);
  Sampler sampler{41};
  bool flag = true;
  std::int64_t epoch = -7;
  double best = -std::numeric_limits<double>::infinity();
  std::string note = "caf\xc3\xa9 \xff";
  State state;
  state.Module("model", model).Optimizer("optimizer", optimizer).Scheduler("schedule", scheduler);
  state.Object("sampler", sampler).Value("flag", flag).Value("epoch", epoch).Value("best", best).Value("note", note);
  for (int i = 0; i < 5; ++i) scheduler.step();
  Checkpoints checkpoints(folder.string(), team, Quiet());
  checkpoints.Save(1, state);
  for (int i = 0; i < 2; ++i) scheduler.step();
  const double later = optimizer.param_groups()[0].options().get_lr();
  sampler.position = 0;
  flag = false;
  epoch = 0;
  best = 0;
  note.clear();
  ASSERT_TRUE(checkpoints.Load(state).has_value());
  EXPECT_EQ(sampler.position, 41);
  EXPECT_TRUE(flag);
  EXPECT_EQ(epoch, -7);
  EXPECT_EQ(best, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(note, "caf\xc3\xa9 \xff");
  for (int i = 0; i < 2; ++i) scheduler.step();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), later);
}

TEST(Checkpoints, OfADirectoryWithoutAnyAreNothingToLoad) {
  TemporaryFolder folder;
  Checkpoints checkpoints(folder.string() + "/new/deep/", AloneTeam(), Quiet());
  Tiny model;
  State state;
  state.Module("model", model);
  EXPECT_FALSE(checkpoints.Load(state).has_value());
  EXPECT_EQ(checkpoints.durable_step(), std::nullopt);
}

TEST(Checkpoints, ThatAreDamagedArePassedOverWithFileAndTensorNamed) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Tiny model;
  State state;
  state.Module("model", model);
  {
    Checkpoints checkpoints(folder.string(), team, Quiet());
    for (const std::int64_t step : {1, 2}) {
      const at::NoGradGuard no_grad;
      model.bias.fill_(static_cast<double>(step));
      checkpoints.Save(step, state);
    }
    checkpoints.Finish();
  }
  const fs::path file = folder.path() / "step-000000002" / "model.safetensors";
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-5, std::ios::end);
    stream.put('\x55');
  }
  {
    Checkpoints checkpoints(folder.string(), team, Quiet());
    const auto loaded = checkpoints.Load(state);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->step, 1);
    EXPECT_THAT(loaded->passed_over,
                ElementsAre(AllOf(HasSubstr("step-000000002/model.safetensors"), HasSubstr("tensor \""))));
    EXPECT_EQ(model.bias[0].item<float>(), 1);
    fs::resize_file(folder.path() / "step-000000001" / "manifest.json", 20);
    EXPECT_THAT(MUST_THROW(checkpoints.Load(state)),
                AllOf(HasSubstr("is good"), HasSubstr("step-000000001"), HasSubstr("step-000000002")));
  }
}

TEST(Checkpoints, ThatDoNotFitChangeNothingAndNameEveryKey) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Checkpoints checkpoints(folder.string(), team, Quiet());
  Tiny model;
  torch::optim::AdamW adamw(model.parameters(), torch::optim::AdamWOptions(0.01));
  Train(model, adamw, 1, 2);
  State saved;
  saved.Module("model", model).Optimizer("optimizer", adamw);
  checkpoints.Save(1, saved);

  Tiny wider(5);
  wider.register_parameter("more", at::zeros({2}));
  torch::optim::AdamW other(wider.parameters(), torch::optim::AdamWOptions(0.5));
  const auto before = Copies(wider);
  State state;
  std::int64_t epoch = 3;
  state.Module("model", wider).Optimizer("optimizer", other).Value("epoch", epoch);
  EXPECT_THAT(MUST_THROW(checkpoints.Load(state)),
              AllOf(HasSubstr("\"second_weight\" of \"model\" is F32 [3, 8] in the checkpoint and F32 [5, 8]"),
                    HasSubstr("\"more\" of \"model\" is not in the checkpoint"), HasSubstr("\"epoch\""),
                    HasSubstr("only in the program: more"), HasSubstr("nothing was changed")));
  EXPECT_TRUE(Same(Copies(wider), before));
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.5);
  EXPECT_EQ(epoch, 3);

  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1));
  State another;
  another.Module("model", model).Optimizer("optimizer", sgd);
  EXPECT_THAT(MUST_THROW(checkpoints.Load(another)), HasSubstr("was saved from AdamW and is now SGD"));
}

TEST(Checkpoints, RefuseNamesThatAreTakenOrNone) {
  Tiny model;
  State state;
  state.Module("model", model);
  EXPECT_THAT(MUST_THROW(state.Module("model", model)), HasSubstr("already"));
  EXPECT_THAT(MUST_THROW(state.Module("../model", model)), HasSubstr("cannot be the name"));
  EXPECT_THAT(MUST_THROW(state.Module("", model)), HasSubstr("cannot be the name"));
}

TEST(Checkpoints, LetOnlyOneWriterIntoADirectory) {
  TemporaryFolder folder;
  Checkpoints first(folder.string(), AloneTeam(), Quiet());
  EXPECT_THAT(MUST_THROW(Checkpoints(folder.string(), AloneTeam(), Quiet())), HasSubstr("writes checkpoints there"));
}

// C2: the disk fills up, training continues, the next call reports the error, the last valid checkpoint remains.
TEST(Checkpoints, ThatFailAreReportedAndTrainingGoesOn) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Tiny model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  State state;
  state.Module("model", model).Optimizer("optimizer", optimizer);
  checkpoint::RealFiles real(/*syncs=*/false);
  {
    Checkpoints checkpoints(folder.string(), team, Quiet());
    Train(model, optimizer, 1, 1);
    checkpoints.Save(1, state);
  }
  const auto good = Copies(model);
  FaultyFiles files(real, {Fault::Kind::kError, 4, ENOSPC, true});
  CheckpointOptions options = Quiet();
  options.files = &files;
  options.failed_saves_allowed = 1;
  std::vector<std::string> ended;
  options.on_ended = [&](std::int64_t step, const std::optional<std::string>& failure) {
    ended.push_back(std::to_string(step) + (failure ? " failed" : " durable"));
  };
  {
    Checkpoints checkpoints(folder.string(), team, options);
    Train(model, optimizer, 2, 2);
    EXPECT_EQ(checkpoints.Save(2, state).earlier_failure, std::nullopt);
    Train(model, optimizer, 3, 3);
    const auto second = checkpoints.Save(3, state);
    EXPECT_THAT(second.earlier_failure.value_or(""), AllOf(HasSubstr("step 2"), HasSubstr("No space left")));
    const std::string text = MUST_THROW(checkpoints.Save(4, state));
    EXPECT_THAT(text, AllOf(HasSubstr("step 3"), HasSubstr("2 saves in a row")));
    EXPECT_THAT(MUST_THROW(checkpoints.Finish()), HasSubstr("step 4"));
    files.Heal();
    EXPECT_EQ(checkpoints.Save(5, state).earlier_failure, std::nullopt) << "it was told by Finish";
    checkpoints.Check();
    checkpoints.Finish();
  }
  EXPECT_THAT(ended, ElementsAre("2 failed", "3 failed", "4 failed", "5 durable"));
  fs::remove_all(folder.path() / "step-000000005");
  Checkpoints checkpoints(folder.string(), team, Quiet());
  ASSERT_EQ(checkpoints.Load(state)->step, 1);
  EXPECT_TRUE(Same(Copies(model), good));
}

TEST(Checkpoints, WhileOneIsWrittenTheNextWaitsOrIsRefused) {
  for (const auto when : {CheckpointOptions::WhenBusy::kWait, CheckpointOptions::WhenBusy::kRefuse}) {
    TemporaryFolder folder;
    std::mutex mutex;
    std::condition_variable changed;
    bool go_on = false;
    CheckpointOptions options = Quiet();
    options.when_busy = when;
    // Blocks the writer until the test releases it.
    options.on_ended = [&](std::int64_t step, const std::optional<std::string>&) {
      std::unique_lock lock(mutex);
      if (step == 1) changed.wait(lock, [&] { return go_on; });
    };
    Checkpoints checkpoints(folder.string(), AloneTeam(), options);
    Tiny model;
    State state;
    state.Module("model", model);
    EXPECT_TRUE(checkpoints.Save(1, state).started);
    checkpoints.Check();
    std::thread releases;
    const auto release = [&] {
      const std::lock_guard lock(mutex);
      go_on = true;
      changed.notify_all();
    };
    if (when == CheckpointOptions::WhenBusy::kRefuse) {
      EXPECT_FALSE(checkpoints.Save(2, state).started);
      release();
    } else {
      releases = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        release();
      });
      const SaveReport report = checkpoints.Save(2, state);
      EXPECT_TRUE(report.started);
      EXPECT_GT(report.waited.count(), 0);
      releases.join();
    }
    checkpoints.Finish();
    EXPECT_EQ(checkpoints.durable_step(), when == CheckpointOptions::WhenBusy::kWait ? 2 : 1);
  }
}

TEST(Checkpoints, WhatIsSavedIsTheStateOfThatMoment) {
  TemporaryFolder folder;
  const Team team = AloneTeam();
  Tiny model;
  State state;
  state.Module("model", model);
  Checkpoints checkpoints(folder.string(), team, Quiet());
  checkpoints.Prepare(state);
  const auto then = Copies(model);
  EXPECT_FALSE(checkpoints.Save(1, state).buffer_grew);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : model.parameters()) tensor.zero_();
  }
  ASSERT_TRUE(checkpoints.Load(state).has_value());
  EXPECT_TRUE(Same(Copies(model), then));
}

// C5: saved by 8 ranks, loaded by other numbers of ranks, bitwise identical on every rank.
TEST(CheckpointRanks, SavedByEightAreLoadedByAnyNumber) {
  TemporaryFolder folder;
  const auto body = [&](const RankOfTest& rank, bool save) {
    const Team team = TeamOf(rank);
    at::manual_seed(save ? 5 : 77);
    Tiny model;
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<std::string> texts;
    State state;
    state.Module("model", model).Optimizer("optimizer", optimizer).Random();
    state.OfEachRank(
        "mine", [&] { return "of rank " + std::to_string(team.rank); },
        [&](const std::vector<std::string>& all) { texts = all; });
    Checkpoints checkpoints(folder.string(), team, Quiet());
    if (save) {
      Train(model, optimizer, 1, 3);
      at::manual_seed(static_cast<std::uint64_t>(1000 + team.rank));
      checkpoints.Save(3, state);
      checkpoints.Finish();
      return;
    }
    const auto loaded = checkpoints.Load(state);
    MUST(loaded && loaded->step == 3 && loaded->saved_by_ranks == 8);
    MUST(texts.size() == 8 && texts[7] == "of rank 7");
    // Ranks that existed before continue their own random numbers, and no two ranks have the same.
    const at::Tensor drawn = at::rand({4});
    if (team.rank < 8) {
      at::manual_seed(static_cast<std::uint64_t>(1000 + team.rank));
      MUST_EQUAL(drawn, at::rand({4}));
    }
    const auto all = GatherTexts(team, "drawn", std::to_string(drawn[0].item<double>()));
    MUST(std::set<std::string>(all.begin(), all.end()).size() == all.size());
    // What a single rank gets from the same steps.
    at::manual_seed(5);
    Tiny alone;
    torch::optim::AdamW other(alone.parameters(), torch::optim::AdamWOptions(0.01));
    Train(alone, other, 1, 3);
    MUST(Same(Copies(model), Copies(alone)));
    at::manual_seed(6);
    Train(model, optimizer, 4, 5);
    at::manual_seed(6);
    Train(alone, other, 4, 5);
    MUST(Same(Copies(model), Copies(alone)));
  };
  RunRanks(8, [&](const RankOfTest& rank) { body(rank, true); });
  int tries = 0;  // number of loads, set by tests/grids/promises.py
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    RunRanks(ranks, [&](const RankOfTest& rank) { body(rank, false); });
    ++tries;
  }
  RecordProperty("tries", tries);
}

TEST(CheckpointRanks, AllLearnOfAFailureAndAllFallBackTogether) {
  TemporaryFolder folder;
  RunRanks(3, [&](const RankOfTest& rank) {
    const Team team = TeamOf(rank);
    checkpoint::RealFiles real(/*syncs=*/false);
    FaultyFiles files(real, {Fault::Kind::kError, 30, EIO, true});
    CheckpointOptions options = Quiet();
    options.files = &files;
    options.failed_saves_allowed = 0;
    Tiny model;
    State state;
    state.Module("model", model);
    {
      Checkpoints checkpoints(folder.string(), team, options);
      const at::NoGradGuard no_grad;
      model.bias.fill_(1);
      checkpoints.Save(1, state);
      bool thrown = false;
      for (std::int64_t step = 2; step < 9 && !thrown; ++step) {
        try {
          checkpoints.Save(step, state);
        } catch (const SaveFailed&) {
          thrown = true;
        }
      }
      MUST(thrown);
      Barrier(team, "all threw");
      MUST(Has(MUST_THROW(checkpoints.Finish()), "not saved"));
      files.Heal();
      model.bias.fill_(9);
      checkpoints.Save(20, state);
      checkpoints.Finish();
    }
    Barrier(team, "written");
    if (team.is_main()) {
      std::fstream stream(folder.path() / "step-000000020" / "model.safetensors",
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(-3, std::ios::end);
      stream.put('\x55');
    }
    Barrier(team, "damaged");
    model.bias.requires_grad_(false).fill_(5);
    Checkpoints checkpoints(folder.string(), team, Quiet());
    const auto loaded = checkpoints.Load(state);
    MUST(loaded && loaded->step < 9 && loaded->passed_over.size() == 1);
    MUST(model.bias[0].item<float>() == 1);
  });
}

// ---- pretrained weights ----

class Weights : public ::testing::Test {
 protected:
  // A pretrained file: the tensors of a Tiny, under other names.
  std::string Write(const State::NamedTensors& tensors) {
    Checkpoints checkpoints(folder_.string(), AloneTeam(), Quiet());
    State state;
    state.Tensors(
        "weights", [&] { return tensors; }, [](const auto&) {});
    checkpoints.Save(1, state);
    checkpoints.Finish();
    return folder_.string() + "/step-000000001/weights.safetensors";
  }
  static State::NamedTensors Of(Tiny& model, const std::string& prefix) {
    State::NamedTensors tensors;
    for (const auto& item : model.named_parameters()) tensors[prefix + item.key()] = item.value().detach().clone();
    for (const auto& item : model.named_buffers()) tensors[prefix + item.key()] = item.value().clone();
    return tensors;
  }
  TemporaryFolder folder_;
};

TEST_F(Weights, AreLoadedWithPrefixesAndRenames) {
  Tiny source;
  auto tensors = Of(source, "model.");
  tensors["model.embed.kernel"] = tensors["model.first_weight"];
  tensors.erase("model.first_weight");
  tensors["model.old_weight"] = tensors["model.second_weight"];
  tensors.erase("model.second_weight");
  tensors["head.weight"] = at::ones({3});
  const std::string path = Write(tensors);
  Tiny target;
  WeightRules rules;
  rules.remove_prefixes = {"backbone.", "model."};
  rules.renames = {{"embed.kernel", "first_weight"}, {"old_*", "second_*"}};
  rules.may_be_unexpected = {"head.*"};
  const WeightReport report = LoadWeights(target, path, rules);
  EXPECT_EQ(report.matched.size(), 6U);
  EXPECT_THAT(report.unexpected, ElementsAre("head.weight"));
  EXPECT_TRUE(Same(Copies(source), Copies(target)));
}

TEST_F(Weights, ThatDoNotMatchAreNotLoadedAndEveryKeyIsReported) {
  Tiny source;
  auto tensors = Of(source, "");
  tensors["second_weight"] = at::ones({7, 8});
  tensors["first_bias"] = tensors["first_bias"].to(at::kBFloat16);
  tensors.erase("mean");
  tensors["more"] = at::ones({1});
  const std::string path = Write(tensors);
  Tiny target;
  const auto before = Copies(target);
  EXPECT_THAT(MUST_THROW(LoadWeights(target, path)),
              AllOf(HasSubstr("matched (3):"), HasSubstr("not in the file (1):\n  mean"),
                    HasSubstr("not in the module (1):\n  more"),
                    HasSubstr("second_weight: F32 [7, 8] in the file, F32 [3, 8] in the module"),
                    HasSubstr("first_bias: BF16 [8] in the file, F32 [8] in the module")));
  EXPECT_TRUE(Same(Copies(target), before));
  WeightRules rules;
  rules.may_be_missing = {"*"};
  rules.may_be_unexpected = {"*"};
  rules.convert_types = true;
  EXPECT_THAT(MUST_THROW(LoadWeights(target, path, rules)), HasSubstr("wrong shape (1)"));
  tensors["second_weight"] = at::ones({3, 8});
  const WeightReport report = LoadWeights(target, Write(tensors), rules);
  EXPECT_EQ(report.matched.size(), 5U);
  EXPECT_TRUE(at::equal(target.bias.detach(), tensors["first_bias"].to(at::kFloat)));
}

TEST_F(Weights, ThatAreNoSafetensorsFileAreRefused) {
  Tiny target;
  EXPECT_THAT(MUST_THROW(LoadWeights(target, folder_.string() + "/none")), HasSubstr("No such file"));
  folder_.Write("pickle", std::string("\x80\x02}q\x00", 5) + std::string(100, 'x'));
  EXPECT_THAT(MUST_THROW(LoadWeights(target, folder_.string() + "/pickle")), HasSubstr("no safetensors file"));
}

}  // namespace
}  // namespace fulldeck
