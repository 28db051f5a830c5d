#include "fulldeck/micro_batches.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "fulldeck/memory.h"
#include "runtime/data_parallel/micro_batches_plan.h"
#include "runtime/out_of_memory_for_test.h"
#include "runtime/session/session_for_test.h"

namespace fulldeck::runtime {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using torch_backend::Has;
using torch_backend::RankOfTest;

constexpr std::int64_t kSamples = 16;  // of a rank per step
constexpr int kSteps = 5;

enum class Place { kNowhere, kForward, kBackward, kLastBackward, kOptimizer };
struct Fault {
  Place place = Place::kNowhere;
  int step = 0;
  std::vector<int> ranks;
  std::int64_t too_large = 8;  // micro-batches of this number of samples or more do not fit
};

struct Outcome {
  std::vector<double> losses;
  at::Tensor weight;
  std::vector<double> drawn;  // the first random number of each attempt of the faulty step
  double forwards = 0;        // counted in a tensor that is restored
  int halved = 0;
  std::int64_t micro_batch = 0;
};

// A small training with hand-written averaging of the gradients, identical in each call except for the fault.
Outcome Train(Session& session, std::int64_t micro_batch, OutOfMemory oom, const Fault& fault) {
  session.Seed(1);
  at::Tensor weight = at::randn({6, 3}).requires_grad_();
  at::Tensor bias = at::zeros({3}).requires_grad_();
  torch::optim::AdamW optimizer({weight, bias}, torch::optim::AdamWOptions(0.05));
  at::Tensor counted = at::zeros({1});
  Outcome outcome;
  int step = 0;
  std::int64_t largest = 0;
  const auto is_due = [&](Place place, std::int64_t size) {
    return fault.place == place && fault.step == step && size >= fault.too_large &&
           std::find(fault.ranks.begin(), fault.ranks.end(), session.rank()) != fault.ranks.end();
  };
  MicroBatchOptions options;
  options.micro_batch = micro_batch;
  options.oom = oom;
  options.restored = {counted};
  options.apply = [&] {
    if (is_due(Place::kOptimizer, largest)) {
      // Half of the update is done.
      const c10::NoGradGuard no_grad;
      weight.add_(100);
      optimizer.state().erase(bias.unsafeGetTensorImpl());
      RunOutOfMemory();
    }
    optimizer.step();
  };
  MicroBatches micro(session, optimizer, options);
  for (; step < kSteps; ++step) {
    at::Tensor inputs;
    {
      auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + session.rank()));
      inputs = at::randn({kSamples, 6}, generator);
    }
    const at::Tensor targets = inputs.narrow(1, 0, 3) * 2 + 1;
    double loss_of_step = 0;
    micro.Run(kSamples, [&](const MicroBatch& part) {
      if (part.index == 0) {
        loss_of_step = 0;
        largest = 0;
        const double drawn = at::rand({1}).item<double>();
        if (step == fault.step) outcome.drawn.push_back(drawn);
      }
      counted.add_(part.weight());
      largest = std::max(largest, part.size);
      if (is_due(Place::kForward, part.size)) RunOutOfMemory();
      const at::Tensor x = inputs.narrow(0, part.begin, part.size);
      const bool fails =
          is_due(Place::kBackward, part.size) || (part.is_last() && is_due(Place::kLastBackward, part.size));
      const at::Tensor y = FailingBackward::apply(at::matmul(x, weight) + bias, fails && !part.is_last());
      at::Tensor loss = (y - targets.narrow(0, part.begin, part.size)).pow(2).mean() * part.weight();
      loss.backward();
      loss_of_step += loss.item<double>();
      if (!part.is_last()) return;
      if (fails && fault.place == Place::kBackward) RunOutOfMemory();
      for (at::Tensor parameter : {weight, bias}) {
        std::vector<at::Tensor> gradients = {parameter.mutable_grad()};
        session.team().group->allreduce(gradients)->wait();
        parameter.mutable_grad().div_(session.world_size());
      }
      // All gradients are averaged; another rank may have continued.
      if (fails && fault.place == Place::kLastBackward) RunOutOfMemory();
    });
    outcome.losses.push_back(loss_of_step);
  }
  outcome.weight = weight.detach();
  outcome.forwards = counted.item<double>();
  outcome.halved = micro.times_halved();
  outcome.micro_batch = micro.micro_batch();
  return outcome;
}

std::string Bits(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.contiguous().const_data_ptr()), tensor.nbytes()};
}

void ExpectHalved(int ranks, const Fault& fault) {
  RunSession(ranks, [&](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    const Outcome expected = Train(*session, 8, OutOfMemory::kFail, {});
    const Outcome outcome = Train(*session, 16, OutOfMemory::kHalve, fault);
    MUST(outcome.halved == 1 && outcome.micro_batch == 8);
    MUST(session->generation() == 1);
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      MUST(std::abs(outcome.losses[i] - expected.losses[i]) <= 1e-6 * std::max(1.0, std::abs(expected.losses[i])));
    }
    MUST(at::allclose(outcome.weight, expected.weight, 1e-6, 1e-6));
    for (const std::string& bits : GatherTexts(session->team(), "weights", Bits(outcome.weight))) {
      MUST(bits == Bits(outcome.weight));
    }
    // A repeated step begins with the same random numbers, and forward's counter is restored.
    for (const double drawn : outcome.drawn) MUST(drawn == outcome.drawn[0]);
    MUST(std::abs(outcome.forwards - kSteps) < 1e-5);
    session->Barrier("end");
  });
}

TEST(MicroBatches, OneRankOutOfMemoryInForwardHalvesAll) {
  ExpectHalved(3, {Place::kForward, 2, {1}, 16});
}
TEST(MicroBatches, OneRankOutOfMemoryInBackwardHalvesAll) {
  ExpectHalved(3, {Place::kBackward, 0, {2}, 16});
}
TEST(MicroBatches, OneRankOutOfMemoryAfterAllGradientsAreAveragedHalvesAll) {
  ExpectHalved(2, {Place::kLastBackward, 3, {0}, 16});
}
TEST(MicroBatches, OneRankOutOfMemoryInTheOptimizerGetsTheOthersState) {
  ExpectHalved(3, {Place::kOptimizer, 2, {1}, 16});
}
TEST(MicroBatches, OneRankOutOfMemoryInTheFirstOptimizerStepGetsTheOthersState) {
  ExpectHalved(2, {Place::kOptimizer, 0, {1}, 16});
}
TEST(MicroBatches, AllOutOfMemoryInTheFirstOptimizerStepGoBackToBeforeIt) {
  ExpectHalved(2, {Place::kOptimizer, 0, {0, 1}, 16});
}
TEST(MicroBatches, ASingleRankHalvesToo) {
  ExpectHalved(1, {Place::kBackward, 1, {0}, 16});
}

TEST(MicroBatches, HalvesAsOftenAsNeeded) {
  RunSession(2, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    const Outcome expected = Train(*session, 2, OutOfMemory::kFail, {});
    const Outcome outcome = Train(*session, 0, OutOfMemory::kHalve, {Place::kForward, 1, {1}, 3});
    MUST(outcome.halved == 3 && outcome.micro_batch == 2);
    MUST(session->generation() == 3);
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      MUST(std::abs(outcome.losses[i] - expected.losses[i]) <= 1e-6 * std::max(1.0, std::abs(expected.losses[i])));
    }
    session->Barrier("end");
  });
}

TEST(MicroBatches, OneSampleThatDoesNotFitIsAnErrorOnAllRanks) {
  RunSession(2, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    const std::string text = MUST_THROW(Train(*session, 0, OutOfMemory::kHalve, {Place::kForward, 1, {1}, 1}));
    MUST(Has(text, "micro-batches of one sample do not fit: rank 1: out of memory in forward or backward (cpu: "));
    session->Barrier("end");
  });
}

TEST(MicroBatches, AllOutOfMemoryInALaterOptimizerStepIsAnErrorThatSaysSo) {
  RunSession(2, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    const std::string text = MUST_THROW(Train(*session, 0, OutOfMemory::kHalve, {Place::kOptimizer, 2, {0, 1}, 16}));
    MUST(Has(text, "none has the state from before it"));
    session->Barrier("end");
  });
}

TEST(MicroBatches, FailByDefaultWithTheFiguresAndTheFix) {
  RunSession(1, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    const std::string text = MUST_THROW(Train(*session, 0, OutOfMemory::kFail, {Place::kBackward, 1, {0}, 16}));
    MUST(Has(text, "rank 0 ran out of memory in forward or backward on cpu with 16 samples at once: "));
    MUST(Has(text, "the test allows no more"));
    MUST(Has(text, " used (peak ") && Has(text, "MicroBatchOptions::micro_batch") && Has(text, "oom = \"halve\""));
  });
}

TEST(MicroBatches, OtherErrorsPassAsTheyAre) {
  RunSession(1, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    at::Tensor weight = at::zeros({1}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 0.1);
    MicroBatches micro(*session, optimizer, {.oom = OutOfMemory::kHalve});
    MUST(MUST_THROW(micro.Run(4, [](const MicroBatch&) { throw std::runtime_error("a bug"); })) == "a bug");
    MUST(micro.times_halved() == 0);
  });
}

TEST(MicroBatches, RefuseWhatTheyCouldNotRepair) {
  RunSession(2, [](const RankOfTest&) {
    setenv("FULLDECK_BACKEND", "gloo", 1);
    const auto session = Session::FromEnvironment();
    at::Tensor weight = at::zeros({1}).requires_grad_();
    torch::optim::LBFGS unknown({weight});
    MUST(Has(MUST_THROW(MicroBatches(*session, unknown, {.oom = OutOfMemory::kHalve})), "SGD, Adam, AdamW, RMSprop"));
    torch::optim::SGD known({weight}, 0.1);
    MUST(
        Has(MUST_THROW(MicroBatches(*session, known, {.oom = OutOfMemory::kHalve})), "a wait in Gloo cannot be ended"));
    MicroBatches fine(*session, unknown);
    session->Barrier("end");
  });
}

TEST(MicroBatches, AreCutEvenlyAndCoverAllSamples) {
  for (const std::int64_t samples : {1, 7, 16, 17}) {
    for (const std::int64_t size : {0, 1, 2, 3, 8, 100}) {
      std::int64_t next = 0;
      double weight = 0;
      const auto parts = CutIntoMicroBatches(samples, size);
      for (const MicroBatch& part : parts) {
        EXPECT_EQ(part.begin, next);
        EXPECT_GT(part.size, 0);
        EXPECT_TRUE(size == 0 || part.size <= size);
        EXPECT_EQ(part.count, static_cast<std::int64_t>(parts.size()));
        next += part.size;
        weight += part.weight();
      }
      EXPECT_EQ(next, samples);
      EXPECT_NEAR(weight, 1, 1e-12);
      EXPECT_TRUE(parts.back().is_last());
    }
  }
  EXPECT_THROW(CutIntoMicroBatches(0, 4), Error);
  EXPECT_THROW(CutIntoMicroBatches(4, -1), Error);
  EXPECT_EQ(OutOfMemoryFromText("halve"), OutOfMemory::kHalve);
  EXPECT_EQ(OutOfMemoryFromText("fail"), OutOfMemory::kFail);
  EXPECT_THAT([] { OutOfMemoryFromText("pray"); }, ThrowsMessage<Error>(HasSubstr("oom is \"pray\"")));
}

TEST(RepairPlan, FollowsFromHowFarEachRankCame) {
  using List = std::vector<Arrival>;
  constexpr auto kBefore = Reached::kGradients;
  constexpr auto kPartlyStepped = Reached::kPartlyStepped;
  constexpr auto kStepped = Reached::kStepped;
  const struct {
    List arrivals;
    std::vector<bool> is_done;
    int source;
    bool from_copies;
  } kRows[] = {
      {{{3, kBefore}, {3, kBefore}}, {false, false}, -1, false},
      {{{3, kBefore}, {3, kPartlyStepped}}, {false, false}, 0, false},
      {{{3, kPartlyStepped}, {3, kBefore}}, {false, false}, 1, false},
      {{{3, kPartlyStepped}, {3, kPartlyStepped}}, {false, false}, -1, true},
      {{{3, kPartlyStepped}, {3, kStepped}}, {true, true}, 1, false},
      {{{3, kBefore}, {3, kStepped}, {3, kPartlyStepped}}, {true, true, true}, 1, false},
      {{{3, kStepped}, {3, kStepped}}, {true, true}, -1, false},
      // Rank 0 was leaving step 3 when rank 1 ran out of memory in step 4.
      {{{3, kStepped}, {4, kBefore}}, {true, false}, -1, false},
      {{{4, kBefore}, {3, kStepped}, {4, kBefore}}, {false, true, false}, -1, false},
      {{{1, kPartlyStepped}}, {false}, -1, true},
  };
  for (const auto& row : kRows) {
    const RepairPlan plan = PlanRepair(row.arrivals);
    EXPECT_EQ(plan.is_done, row.is_done);
    EXPECT_EQ(plan.source, row.source);
    EXPECT_EQ(plan.from_copies, row.from_copies);
  }
}

// ---- memory ----

TEST(Memory, OfTheHostIsThatOfTheProcess) {
  const MemoryFigures before = ReadMemory(c10::kCPU);
  ASSERT_TRUE(before.used && before.peak && before.total && before.free);
  EXPECT_GE(*before.peak, *before.used);
  std::string block(64 << 20, 'x');
  const MemoryFigures with = ReadMemory(c10::kCPU);
  EXPECT_GE(*with.used, *before.used + (48u << 20));
  EXPECT_EQ(block[block.size() / 2], 'x');
  EXPECT_THAT(with.ToText(), HasSubstr(" used (peak "));
  EXPECT_TRUE(ReleaseCaches(c10::kCPU));
  EXPECT_EQ(MemoryFigures().ToText(), "its allocator tells no figures");
  // An unregistered device reports nothing, which is not zero.
  EXPECT_FALSE(ReadMemory(c10::Device(c10::kXLA, 0)).used);
  EXPECT_FALSE(ReleaseCaches(c10::Device(c10::kXLA, 0)));
}

TEST(Memory, RecognizesEveryFormOfOutOfMemory) {
  const auto is_out_of_memory = [](const auto& thrown) { return IsOutOfMemory(std::make_exception_ptr(thrown)); };
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA error: out of memory")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("a bug")));
  EXPECT_FALSE(is_out_of_memory(Error("rank 1 is out of memory")));
  EXPECT_FALSE(is_out_of_memory(7));
  EXPECT_FALSE(IsOutOfMemory(nullptr));
  std::string text;
  try {
    RunOutOfMemory();
  } catch (...) {
    EXPECT_TRUE(IsOutOfMemory(std::current_exception(), &text));
  }
  EXPECT_EQ(text, "the test allows no more");
  try {
    at::empty({std::int64_t{1} << 60}, at::kByte);
  } catch (...) {
    EXPECT_TRUE(IsOutOfMemory(std::current_exception(), &text)) << text;
  }
}

}  // namespace
}  // namespace fulldeck::runtime
