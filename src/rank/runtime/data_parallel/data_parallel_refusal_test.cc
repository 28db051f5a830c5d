// Each kind of wrong training that is refused, and the message.
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include <cstdlib>

#include "fulldeck/gradients.h"
#include "runtime/data_parallel/data_parallel_for_test.h"

namespace fulldeck {
namespace {

// The report shows the variables that place a rank; hide those of the environment in which the tests run.
void SetEnvironment(int rank, int size) {
  for (const char* const name :
       {"LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ECCL_BACKEND", "ECCL_DEVICE_TYPE", "FULLDECK_SIMULATE"})
    unsetenv(name);
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
}

struct BigNet : torch::nn::Module {
  explicit BigNet(const c10::Device& device = c10::kCPU) {
    for (int i = 0; i < 7; ++i) {
      parameters.push_back(
          register_parameter("layer" + std::to_string(i), at::empty({i + 1, 2}, at::TensorOptions().device(device))));
    }
  }
  std::vector<at::Tensor> parameters;
};

template <typename Expression>
std::string RefusalOf(Expression&& expression) {
  try {
    expression();
  } catch (const Refusal& refusal) {
    return refusal.what();
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("not a refusal: ") + error.what());
  }
  throw std::runtime_error("nothing is refused");
}
void MustBe(const std::string& text, const std::string& expected) {
  if (text != expected) throw std::runtime_error("the text is\n" + text + "\nand not\n" + expected);
}

TEST(Refusal, OfAModuleThatIsStillOnTheHostComesWithTheReport) {
  RunRanks(2, [](const RankOfTest& self) {
    SetEnvironment(self.rank, self.size);
    Team team = TeamOf(self);
    team.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(self.rank));
    const std::string card = "cuda:" + std::to_string(self.rank);
    const std::string rank = std::to_string(self.rank);
    auto net = std::make_shared<BigNet>();
    MustBe(RefusalOf([&] { DataParallel(net, team); }),
           "7 of 7 parameters are not on " + card + ", the device of rank " + rank +
               ".\n"
               "placement of fulldeck::(anonymous namespace)::BigNet on rank " +
               rank + " of 2 (local rank " + rank +
               "):\n"
               "  wanted            " +
               card +
               "\n"
               "  module            cpu\n"
               "  first parameter   cpu\n"
               "  current devices   cpu alone\n"
               "  parameters        7 (56 elements): 7 on cpu\n"
               "    layer0  cpu  [1, 2]\n"
               "    layer1  cpu  [2, 2]\n"
               "    layer2  cpu  [3, 2]\n"
               "    layer3  cpu  [4, 2]\n"
               "    layer4  cpu  [5, 2]\n"
               "    … and 2 more\n"
               "  environment       RANK=" +
               rank + " LOCAL_RANK=" + rank +
               " WORLD_SIZE=2\n"
               "  verdict           case B: the module is still on the CPU, and this rank trains on " +
               card + ". Cure: module->to(team.device) before it is wrapped, and before the optimizer is made.");
  });
}

TEST(Refusal, OfAModuleOnSeveralDevicesOrOnAnotherCountsThem) {
  RunRanks(1, [](const RankOfTest& self) {
    SetEnvironment(0, 1);
    const Team team = TeamOf(self);
    auto spread = std::make_shared<BigNet>();
    spread->register_parameter("late", at::empty({3}, at::TensorOptions().device(c10::kMeta)));
    const std::string text = RefusalOf([&] { DataParallel(spread, team); });
    MUST(Has(text, "1 of 8 parameters are not on cpu, the device of rank 0.\n"));
    MUST(Has(text, "  module            2 devices\n"));
    MUST(Has(text, "  parameters        8 (59 elements): 7 on cpu, 1 on meta\n"));
    MUST(Has(text,
             "verdict           case B: the module is spread over 2 devices, and this rank trains on cpu. Cure: "
             "module->to(team.device) before it is wrapped; look for parameters that are made after it was moved."));
    auto elsewhere = std::make_shared<BigNet>(c10::kMeta);
    MUST(Has(RefusalOf([&] { DataParallel(elsewhere, team); }),
             "verdict           the module is on another card than this rank's cpu."));
    auto buffer = std::make_shared<BigNet>();
    buffer->register_buffer("places", at::empty({3}, at::TensorOptions().device(c10::kMeta)));
    MUST(Has(RefusalOf([&] { DataParallel(buffer, team); }), "1 of 1 buffers are not on cpu, the device of rank 0."));
  });
}

TEST(PlacementReport, ReportsCaseAWhereTheDeviceIsRightAndNeverThrows) {
  RunRanks(1, [](const RankOfTest& self) {
    SetEnvironment(0, 1);
    const Team team = TeamOf(self);
    MUST(Has(PlacementReport(BigNet(), team), "  module            cpu\n"));
    MUST(Has(PlacementReport(BigNet(), team),
             "verdict           case A: the device is right (cpu). If wrapping or training still fails, the module is "
             "not the cause: look at the backend (is it made for cpu?), at the batch, and at the library of the card's "
             "vendor."));
    struct Empty : torch::nn::Module {};
    MUST(Has(PlacementReport(Empty(), team), "verdict           no parameters: nothing can be trained."));
    setenv("RANK", "0\x1b[31m", 1);
    MUST(!Has(PlacementReport(BigNet(), team), "\x1b"));
  });
}

TEST(Refusal, OfOneRankIsTheRefusalOfAll) {
  RunRanks(3, [](const RankOfTest& self) {
    SetEnvironment(self.rank, self.size);
    const Team team = TeamOf(self);
    auto net = std::make_shared<BigNet>(self.rank == 1 ? c10::Device(c10::kMeta) : c10::Device(c10::kCPU));
    const std::string text = RefusalOf([&] { DataParallel(net, team); });
    if (self.rank == 1) {
      MUST(Has(text, "7 of 7 parameters are not on cpu, the device of rank 1.\nplacement of"));
    } else {
      MustBe(text,
             "rank 1 cannot wrap its module, so no rank can: 7 of 7 parameters are not on cpu, the device of rank "
             "1.");
    }
  });
}

TEST(Refusal, OfModulesThatDifferNamesRankAndParameter) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>(1, self.rank == 2 ? kHidden + 1 : kHidden);
    MustBe(RefusalOf([&] { DataParallel(net, team); }),
           "the module is not the same on all ranks; names, types, shapes or options differ:\n"
           "  rank 2 against ranks 0 and 1:\n"
           "    parameter first_weight Float [25, 12]\n"
           "      and not parameter first_weight Float [24, 12]\n"
           "    parameter first_bias Float [25]\n"
           "      and not parameter first_bias Float [24]\n"
           "    parameter branch_weight Float [25, 25]\n"
           "      and not parameter branch_weight Float [24, 24]\n"
           "All ranks must build the same module: look for sizes that depend on the rank or on its data.");
    auto longer = std::make_shared<SmallNet>();
    if (self.rank == 0) longer->register_parameter("more", at::full({1}, 1.0));
    if (self.rank == 1) longer->first_bias.set_requires_grad(false);
    const std::string text = RefusalOf([&] { DataParallel(longer, team); });
    MUST(Has(text, "differ:\n"));
    MUST(Has(text, "parameter first_bias Float [24], no gradient\n      and not parameter first_bias Float [24]\n"));
  });
}

TEST(Refusal, OfOptionsThatDiffer) {
  RunRanks(3, [](const RankOfTest& self) {
    DataParallelOptions options;
    options.find_unused_parameters = self.rank == 1;
    MUST(Has(RefusalOf([&] { DataParallel(std::make_shared<SmallNet>(), TeamOf(self), options); }),
             "  rank 1 against ranks 0 and 2:\n    option find_unused_parameters 1\n      and not option "
             "find_unused_parameters 0\n"));
  });
}

TEST(Refusal, OfARankWithoutAnythingToTrain) {
  RunRanks(1, [](const RankOfTest& self) {
    auto net = std::make_shared<SmallNet>();
    for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
    MUST(Has(RefusalOf([&] { DataParallel(net, TeamOf(self)); }),
             "no parameter of the module needs a gradient: there is nothing to train."));
  });
}

TEST(Refusal, OfParametersThatDifferAfterWrapping) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamWith(self, c10::make_intrusive<PlainBackend>(self, /*lies=*/self.rank == 2));
    auto net = std::make_shared<SmallNet>();
    MustBe(RefusalOf([&] { DataParallel(net, team); }),
           "after parameters and buffers were copied from rank 0 to all ranks, rank 2 differs from the 2 others, which "
           "agree; first in first_weight (1 of 5). Broadcast or memory cannot be trusted here: test the cards, and the "
           "backend.");
  });
}

TEST(Refusal, OfATeamThatItsGroupDoesNotKnow) {
  RunRanks(1, [](const RankOfTest& self) {
    Team team = TeamOf(self);
    team.world_size = 8;
    MUST(Has(RefusalOf([&] { DataParallel(std::make_shared<SmallNet>(), team); }),
             "the team says rank 0 of 8, and its process group is rank 0 of 1."));
  });
}

TEST(Refusal, OfABatchThatIsPartlyElsewhere) {
  RunRanks(1, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    const at::Tensor here = at::empty({2, 3});
    const at::Tensor number = at::empty({});
    const at::Tensor there = at::empty({4, 5}, at::TensorOptions().device(c10::kMeta));
    CheckBatch({here, number, at::Tensor()}, team.device);
    MustBe(RefusalOf([&] {
             CheckBatch({here, there}, team.device);
           }),
           "1 of 2 tensors of the batch are not on this rank's device cpu: number 2 is on meta [4, 5]. Move the whole "
           "batch with .to(team.device) first.");
    CheckBatch({number}, c10::Device(c10::kCUDA, 0));
    DataParallel model(std::make_shared<SmallNet>(), team);
    MUST(
        Has(RefusalOf([&] { model.Forward(there); }), "1 of 1 tensors of the batch are not on this rank's device cpu"));
  });
}

TEST(Refusal, OfAStepInWhichNothingWasReduced) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    DataParallel model(net, team);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const std::uint64_t before = HashOf(*net);
    const at::Tensor part = PartOf(WholeBatch(0), self.rank, self.size);
    MustBe(RefusalOf([&] { model.Step(optimizer); }),
           "step 1 is refused: there was no backward pass since the last step, so that no gradient was reduced.");

    // Bypasses the wrapper.
    LossOf(net->forward(part)).backward();
    MustBe(RefusalOf([&] { model.Step(optimizer); }),
           "step 1 is refused: backward brought gradients that were not reduced over the ranks: the forward pass went "
           "around DataParallel. Call Forward of the wrapper and not of the module itself.");
    MUST(Has(RefusalOf([&] { ClipGradNorm(model, 1.0); }), "went around DataParallel"));
    MUST(HashOf(*net) == before);

    // A forgotten reduction before a correct one no longer counts.
    optimizer.zero_grad();
    LossOf(model.Forward(part)).backward();
    model.Step(optimizer);
    MUST(HashOf(*net) != before);
    MUST(Has(RefusalOf([&] { model.Step(optimizer); }), "step 2 is refused: there was no backward pass"));

    // Accumulated and never reduced; or accumulated once more after the reduction.
    {
      const auto guard = model.NoSync();
      LossOf(model.Forward(part)).backward();
    }
    MustBe(RefusalOf([&] { model.Step(optimizer); }),
           "step 2 is refused: gradients were accumulated under NoSync and not reduced afterwards. The last backward "
           "before a step must run outside of NoSync.");
    LossOf(model.Forward(part)).backward();
    model.CheckReduced();
    {
      const auto guard = model.NoSync();
      LossOf(model.Forward(part)).backward();
    }
    MUST(Has(RefusalOf([&] { model.CheckReduced(); }), "accumulated under NoSync"));

    // An optimizer of another module.
    LossOf(model.Forward(part)).backward();
    SmallNet other;
    torch::optim::SGD wrong(other.parameters(), 0.1);
    MUST(Has(RefusalOf([&] { model.Step(wrong); }), "the optimizer holds none of the wrapped module's parameters"));
    model.Step(optimizer);
  });
}

TEST(Refusal, OfALossThatLeavesParametersOut) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    net->uses_branch = false;
    DataParallel model(net, team);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const at::Tensor part = PartOf(WholeBatch(0), self.rank, self.size);
    LossOf(model.Forward(part)).backward();
    const std::string expected =
        "step 1 is refused: backward brought no gradient for 1 of 4 parameters (branch_weight), so that not all "
        "gradients were reduced. The loss does not depend on them on rank " +
        std::to_string(self.rank) +
        ". Give find_unused_parameters (or static_graph, if it is so in every step), or freeze them.";
    MustBe(RefusalOf([&] { model.Step(optimizer); }), expected);
    // A program that does not call the check gets the error in its next forward.
    MustBe(RefusalOf([&] { model.Forward(part); }), expected);
  });
}

TEST(Refusal, OfOneRankThatLeavesParametersOutEndsTheOthersToo) {
  RunRanks(3, [](const RankOfTest& self) {
    auto team = std::make_unique<Team>(TeamOf(self));
    auto net = std::make_shared<SmallNet>();
    net->uses_branch = self.rank != 1;
    DataParallel model(net, *team);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(0), self.rank, self.size)));
    if (self.rank == 1) {
      loss.backward();
      MUST(Has(RefusalOf([&] { model.Step(optimizer); }), "(branch_weight)"));
      return;  // the other ranks see its exit
    }
    const std::string text = MUST_THROW(loss.backward(); model.Step(optimizer));
    MUST(Has(text, "rank 1"));
  });
}

TEST(Refusal, OfParametersThatWereExchangedAfterWrapping) {
  RunRanks(2, [](const RankOfTest& self) {
    struct Exchanging : SmallNet {
      void Exchange() { parameters_["last_weight"] = last_weight = at::randn({1, kHidden}).requires_grad_(); }
    };
    auto net = std::make_shared<Exchanging>();
    DataParallelOptions options;
    options.hash_every = 1;
    DataParallel model(net, TeamOf(self), options);
    net->Exchange();
    MUST(Has(RefusalOf([&] { model.StepDone(); }), "the module's parameters are not those that were wrapped"));
  });
}

TEST(DataParallel, RefusesOptionsThatCannotBe) {
  RunRanks(1, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    DataParallelOptions options;
    options.bucket_bytes = 0;
    MUST(Has(MUST_THROW(DataParallel(std::make_shared<SmallNet>(), team, options)), "are impossible; at least 1"));
    options = {};
    options.hash_every = -1;
    MUST(Has(MUST_THROW(DataParallel(std::make_shared<SmallNet>(), team, options)), "hash_every of -1"));
    MUST(Has(MUST_THROW(DataParallel(std::shared_ptr<SmallNet>(), team)), "there is no module"));
    MUST(Has(MUST_THROW(DataParallel(std::make_shared<SmallNet>(), Team())), "no process group"));
  });
}

}  // namespace
}  // namespace fulldeck
