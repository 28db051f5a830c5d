// Clipping, scaler, autocast; and the two native loops over gradients and parameters.
#include "fulldeck/gradients.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "fulldeck/checkpoint.h"
#include "fulldeck/grad_scaler.h"
#include "fulldeck/replica_check.h"
#include "runtime/data_parallel/data_parallel_for_test.h"
#include "runtime/data_parallel/nonfinite.h"

namespace fulldeck {
namespace {

// Some virtual machines report AMX but lack it. oneDNN reads this once, at the first product.
[[maybe_unused]] const int kWithoutAmx = setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);

TEST(ClipGradNorm, IsThatOfOneRankWithTheWholeBatch) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const double type : {2.0, 1.0, static_cast<double>(INFINITY)}) {
      auto net = std::make_shared<SmallNet>();
      DataParallel model(net, team);
      SmallNet alone;
      LossOf(alone.forward(WholeBatch(0))).backward();
      LossOf(model.Forward(PartOf(WholeBatch(0), self.rank, self.size))).backward();
      const double norm = ClipGradNorm(model, 0.01, type).item<double>();
      std::vector<at::Tensor> flat;
      for (const at::Tensor& parameter : alone.parameters()) flat.push_back(parameter.grad().flatten());
      const at::Tensor expected = at::linalg_vector_norm(at::cat(flat), type);
      MUST(std::abs(norm / expected.item<double>() - 1) < 1e-6);
      for (std::size_t i = 0; i < model.parameters().size(); ++i) {
        const at::Tensor clipped = alone.parameters()[i].grad() * (0.01 / (expected + 1e-6));
        MUST(at::allclose(model.parameters()[i].grad(), clipped, 1e-4, 1e-7));
      }
      // Bitwise identical on all ranks.
      std::vector<NamedTensor> gradients;
      for (const at::Tensor& parameter : model.parameters()) gradients.push_back({"gradient", parameter.grad()});
      MUST(CompareOverRanks(team, gradients).empty());
      // Below the limit nothing is changed.
      const at::Tensor before = net->first_bias.grad().clone();
      ClipGradNorm(model, 1000.0, type);
      MUST_EQUAL(net->first_bias.grad(), before);
    }
  });
}

TEST(ClipGradNorm, TakesParametersWithoutGradientsAndOfSeveralTypes) {
  at::set_num_threads(1);
  at::Tensor one = at::zeros({2}).requires_grad_();
  at::Tensor two = at::zeros({2}, at::kDouble).requires_grad_();
  const at::Tensor none = at::zeros({2}).requires_grad_();
  one.mutable_grad() = at::full({2}, 3.0);
  two.mutable_grad() = at::full({2}, 4.0, at::kDouble);
  EXPECT_NEAR(ClipGradNorm({one, none, two}, 1.0).item<double>(), std::sqrt(50.0), 1e-6);
  EXPECT_NEAR(one.grad()[0].item<double>(), 3 / std::sqrt(50.0), 1e-5);
  EXPECT_NEAR(two.grad()[0].item<double>(), 4 / std::sqrt(50.0), 1e-5);
  EXPECT_EQ(ClipGradNorm({none}, 1.0).item<double>(), 0);
  EXPECT_THROW(ClipGradNorm({one}, -1.0), Error);
  EXPECT_THROW(ClipGradNorm({one}, NAN), Error);
}

TEST(GradScaler, TrainsAsWithoutItAndLeavesOutAStepOnAllRanksWhenOneOverflows) {
  RunRanks(3, [](const RankOfTest& self) {
    for (const bool reduction_checks : {true, false}) {
      RankOfTest here = self;
      here.store = c10::make_intrusive<c10d::PrefixStore>(reduction_checks ? "a" : "b", self.store);
      const Team team = TeamOf(here);
      auto net = std::make_shared<SmallNet>();
      auto plain_net = std::make_shared<SmallNet>();
      DataParallelOptions options;
      options.check_finite = reduction_checks;
      DataParallel model(net, team, options);
      DataParallel plain(plain_net, team, options);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      torch::optim::SGD plain_optimizer(plain_net->parameters(), 0.1);
      GradScalerState state;
      state.growth_interval = 2;
      GradScaler scaler(state);
      for (int step = 0; step < 6; ++step) {
        const at::Tensor part = PartOf(WholeBatch(step), self.rank, self.size);
        optimizer.zero_grad();
        at::Tensor loss = LossOf(model.Forward(part));
        const bool overflows = step == 3;
        // Like an overflow of a float16 product, on one rank only.
        if (overflows && self.rank == 1) loss = loss * INFINITY;
        const double scale = scaler.scale();
        scaler.Scale(loss).backward();
        const std::uint64_t before = HashOf(*net);
        if (step % 2 == 0) {
          scaler.Unscale(model);
          ClipGradNorm(model, 1000.0);
        }
        MUST(scaler.Step(model, optimizer) == !overflows);
        MUST((HashOf(*net) == before) == overflows);
        if (overflows) {
          MUST(scaler.scale() == scale / 2 && scaler.skipped() == 1);
          continue;
        }
        plain_optimizer.zero_grad();
        LossOf(plain.Forward(part)).backward();
        plain.Step(plain_optimizer);
      }
      // Two good steps double the scale; one more and an overflow halve it; two more double it.
      MUST(scaler.scale() == 65536.0 * 2);
      MUST(Farthest(*net, *plain_net) < 1e-6);
      MUST(CompareOverRanks(team, NamedParameters(*net)).empty());
      MUST(model.steps() == 6);
    }
  });
}

TEST(GradScaler, GivesUpOnARealNanAndNamesIt) {
  RunRanks(2, [](const RankOfTest& self) {
    auto net = std::make_shared<SmallNet>();
    DataParallelOptions options;
    options.hash_every = 0;
    DataParallel model(net, TeamOf(self), options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    GradScaler scaler;
    std::string text;
    for (int step = 0; step < 60 && text.empty(); ++step) {
      optimizer.zero_grad();
      at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size)));
      if (self.rank == 1) loss = loss * NAN;
      scaler.Scale(loss).backward();
      try {
        scaler.Step(model, optimizer);
      } catch (const Error& error) {
        text = error.what();
      }
    }
    MUST(Has(text, "step 50: rank 1 gave a gradient that is not finite"));
  });
}

TEST(GradScaler, ReportsTheFirstStepThatItLeavesOutOnceFromRankZero) {
  RunRanks(2, [](const RankOfTest& self) {
    auto net = std::make_shared<SmallNet>();
    DataParallel model(net, TeamOf(self));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    GradScaler scaler;
    ::testing::internal::CaptureStderr();
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      at::Tensor loss = LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size)));
      if (step > 0 && self.rank == 1) loss = loss * INFINITY;
      scaler.Scale(loss).backward();
      MUST(scaler.Step(model, optimizer) == (step == 0));
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    MUST(scaler.skipped() == 3);
    const auto reports = [&](std::string_view what) {
      int times = 0;
      for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
      return times;
    };
    MUST(reports("is not finite at scale 65536") == (self.rank == 0 ? 1 : 0));
    MUST(reports("on rank 1") == (self.rank == 0 ? 1 : 0));
    MUST(reports("is not finite") == (self.rank == 0 ? 1 : 0));
  });
}

TEST(GradScaler, ItsTextBringsTheStateBackExactlyAndAnythingElseIsRefused) {
  GradScalerState state;
  state.scale = 0x1.921fb54442d18p+9;
  state.growth_factor = 1.5;
  state.backoff_factor = 0.3;
  state.growth_interval = 7;
  state.steps_since_overflow = 5;
  const GradScaler scaler(state);
  GradScaler other;
  other.FromText(scaler.ToText());
  EXPECT_EQ(other.ToText(), scaler.ToText());
  EXPECT_EQ(other.scale(), scaler.scale());
  EXPECT_EQ(other.state().backoff_factor, 0.3);
  EXPECT_EQ(other.state().growth_interval, 7);
  for (std::string bad : {std::string(), std::string("scale=1"), scaler.ToText() + " more=1", "x" + scaler.ToText(),
                          scaler.ToText().replace(6, 3, "abc"),
                          scaler.ToText().replace(scaler.ToText().find("enabled=1"), 9, "enabled=2")}) {
    EXPECT_THROW(other.FromText(bad), Error) << bad;
    EXPECT_EQ(other.ToText(), scaler.ToText()) << bad;
  }
  // GradScaler satisfies what checkpoint.h requires of an Object.
  State saved;
  saved.Object("scaler", other);
}

TEST(GradScaler, KeepsItsStateAndRefusesAnInvalidOne) {
  GradScalerState state;
  state.scale = 8;
  state.steps_since_overflow = 3;
  GradScaler scaler(state);
  EXPECT_EQ(scaler.Scale(at::full({}, 2.0)).item<double>(), 16);
  GradScaler other;
  other.Load(scaler.state());
  EXPECT_EQ(other.scale(), 8);
  EXPECT_EQ(other.state().steps_since_overflow, 3);
  state.enabled = false;
  EXPECT_EQ(GradScaler(state).Scale(at::full({}, 2.0)).item<double>(), 2);
  for (const double bad : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    GradScalerState wrong;
    wrong.scale = bad;
    EXPECT_THROW(GradScaler{wrong}, Error) << bad;
    wrong = {};
    wrong.growth_factor = bad;
    EXPECT_THROW(other.Load(wrong), Error) << bad;
  }
}

TEST(Autocast, ComputesInTheTypeAndEndsWithItsBlock) {
  at::set_num_threads(1);
  const at::Tensor matrix = at::full({4, 4}, 1.0);
  EXPECT_EQ(at::mm(matrix, matrix).scalar_type(), at::kFloat);
  {
    const Autocast outer(c10::kCPU, at::kBFloat16);
    EXPECT_EQ(at::mm(matrix, matrix).scalar_type(), at::kBFloat16);
    {
      const Autocast inner(c10::kCPU, at::kBFloat16, false);
      EXPECT_EQ(at::mm(matrix, matrix).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::mm(matrix, matrix).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(matrix, matrix).scalar_type(), at::kFloat);
  EXPECT_THROW(Autocast(c10::kCPU, at::kInt), Error);
}

TEST(Autocast, TrainsOverRanks) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    auto net = std::make_shared<SmallNet>();
    DataParallel model(net, team);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    SmallNet alone;
    TrainAlone(alone, 3);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const Autocast cast(c10::kCPU, at::kBFloat16);
        loss = LossOf(model.Forward(PartOf(WholeBatch(step), self.rank, self.size)).to(at::kFloat));
      }
      loss.backward();
      model.Step(optimizer);
    }
    MUST(Farthest(*net, alone) < 0.05);
    MUST(CompareOverRanks(team, NamedParameters(*net)).empty());
  });
}

// ---- the native loops ----

TEST(Nonfinite, IsFoundAtEveryPlaceInEveryType) {
  at::set_num_threads(1);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    ASSERT_TRUE(runtime::CanFindNonfinite(type));
    for (const std::int64_t count : {1, 7, 64, 9000, 20000}) {
      // The largest finite value, a subnormal, both zeros: all of them are finite.
      at::Tensor values = at::full({count}, type == at::kHalf ? 65504.0 : 1e38, type);
      values[0] = type == at::kHalf ? 6e-8 : 1e-40;
      values[count - 1] = -0.0;
      EXPECT_EQ(runtime::FirstNonfinite(values.data_ptr(), type, count), std::nullopt) << type << " " << count;
      for (const double bad :
           {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
        for (const std::int64_t place : std::set<std::int64_t>{0, count / 3, count / 2, count - 1}) {
          at::Tensor wrong = values.clone();
          wrong[place] = bad;
          EXPECT_EQ(runtime::FirstNonfinite(wrong.data_ptr(), type, count), static_cast<std::size_t>(place))
              << type << " " << count;
        }
      }
    }
  }
  EXPECT_FALSE(runtime::CanFindNonfinite(at::kInt));
}

TEST(HashOfBytes, ChangesWithEveryBitLengthPlaceAndSeed) {
  std::vector<unsigned char> bytes(3000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 256);
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const auto add = [&](std::uint64_t hash) {
    seen.insert(hash);
    ++made;
  };
  add(HashOfBytes(bytes.data(), bytes.size()));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    add(HashOfBytes(bytes.data(), bytes.size()));
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) add(HashOfBytes(bytes.data(), length));
  for (std::uint64_t seed = 1; seed < 100; ++seed) add(HashOfBytes(bytes.data(), bytes.size(), seed));
  // Two stripes, or two blocks, swapped.
  for (const std::size_t distance : {8, 64, 1024}) {
    std::vector<unsigned char> other = bytes;
    std::swap_ranges(other.begin(), other.begin() + 8, other.begin() + static_cast<std::ptrdiff_t>(distance));
    add(HashOfBytes(other.data(), other.size()));
  }
  // Only zeros, of any length.
  const std::vector<unsigned char> zeros(5000);
  for (std::size_t length = 1; length < zeros.size(); ++length) add(HashOfBytes(zeros.data(), length, 7));
  EXPECT_EQ(seen.size(), made);
  // The same value on every machine.
  EXPECT_EQ(HashOfBytes("fulldeck", 8), HashOfBytes("fulldeck", 8));
}

TEST(HashOfTensor, IsOfTheValuesInTheirOrder) {
  at::set_num_threads(1);
  const at::Tensor whole = at::arange(60, at::kFloat).view({6, 10});
  const at::Tensor turned = whole.t().contiguous().t();
  EXPECT_EQ(HashOfTensor(whole), HashOfTensor(turned));
  EXPECT_NE(HashOfTensor(whole), HashOfTensor(whole.t()));
  EXPECT_NE(HashOfTensor(whole), HashOfTensor(whole.slice(0, 0, 5)));
  EXPECT_NE(HashOfTensor(at::zeros({3})), HashOfTensor(at::zeros({4})));
  EXPECT_EQ(HashOfTensor(at::zeros({0})), HashOfTensor(at::zeros({0, 5})));
  EXPECT_EQ(HashOfTensor(at::full({}, 1.0)), HashOfTensor(at::full({1}, 1.0)));
}

TEST(ReplicaCheck, GoesThroughEverythingInEachRoundWhateverTheSizes) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const int every : {1, 3, 50}) {
      for (const std::int64_t size : {1, 400, 40000}) {
        for (const std::int64_t place : {std::int64_t{0}, size / 2, size - 1}) {
          std::vector<NamedTensor> tensors = {
              {"a", at::zeros({size})}, {"b", at::zeros({3, 5})}, {"c", at::zeros({0})}};
          ReplicaCheck check(team, every);
          for (int step = 0; step < every; ++step) check.Step(tensors, static_cast<std::uint64_t>(step));
          MUST(check.begins() && check.fingerprint() != 0);
          if (self.rank == 1) tensors[0].tensor[place] = 1e-30;
          const std::string text = MUST_THROW(for (int step = 0; step < every; ++step) check.Step(tensors, 7));
          if (!Has(text, "step 7: rank 1 differs from the 2 others, which agree; first in a (1 of 3)"))
            throw Error(text);
        }
      }
    }
    MUST(Has(MUST_THROW(ReplicaCheck(team, 0)), "impossible"));
  });
}

TEST(ReplicaCheck, SaysSoWhenThereIsNoMajority) {
  RunRanks(2, [](const RankOfTest& self) {
    const std::vector<NamedTensor> tensors = {{"weight", at::full({4}, static_cast<double>(self.rank))}};
    const std::string text = CompareOverRanks(TeamOf(self), tensors);
    MUST(Has(text, "the ranks differ, and there is no majority to tell who is right"));
    MUST(Has(text, "first in weight (1 of 1)"));
  });
}

}  // namespace
}  // namespace fulldeck
