// Sessions on simulated cards, and loading their library as a plugin.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <set>

#include "fulldeck/memory.h"
#include "fulldeck/session.h"
#include "runtime/cards/plugin.h"
#include "runtime/session/session_for_test.h"

namespace fulldeck::runtime {
namespace {

using torch_backend::Has;
using torch_backend::RankOfTest;

const char kSimulator[] = FULLDECK_BUILD_DIR "/lib/libfulldeck_sim.so";
const char kPlugin[] = FULLDECK_BUILD_DIR "/tests/libplugin_for_test.so";

TEST(Plugin, IsCheckedForWhetherItCanWork) {
  ASSERT_EQ(access(kPlugin, R_OK), 0);
  RunSession(1, [](const RankOfTest&) {
    setenv("FULLDECK_TEST_PLUGIN", "refuses", 1);
    setenv("FULLDECK_TORCH_PLUGIN", kPlugin, 1);
    setenv("FULLDECK_DEVICE", "mlu:0", 1);
    const std::string text = MUST_THROW(Session::FromEnvironment());
    MUST(Has(text, "libplugin_for_test.so cannot work here: the driver has version 6, and 7 is needed"));
    // It loads, but provides no device of that name.
    unsetenv("FULLDECK_TEST_PLUGIN");
    MUST(Has(MUST_THROW(Session::FromEnvironment()), "nobody has taught torch that name; it knows cpu"));
    LoadTorchPlugin(kPlugin);
  });
}

TEST(Plugin, IsNotNeededForTheHost) {
  RunSession(1, [](const RankOfTest&) {
    setenv("FULLDECK_TORCH_PLUGIN", "/no/such/library.so", 1);
    SessionOptions options;
    options.device = "cpu";
    MUST(Session::FromEnvironment(options)->device().is_cpu());
  });
}

// In a rank: sets the cards as the launcher assigns them.
void GiveCard(const std::string& cards, int card, const std::string& folder) {
  setenv("FULLDECK_SIMULATE", cards.c_str(), 1);
  setenv("FULLDECK_SIMULATE_DIR", folder.c_str(), 1);
  setenv("FULLDECK_TORCH_PLUGIN", kSimulator, 1);
  setenv("FULLDECK_DEVICE", ("gcu:" + std::to_string(card)).c_str(), 1);
  setenv("FULLDECK_CARD_SERIAL", ("SIM-" + std::to_string(card)).c_str(), 1);
}

class Folder {
 public:
  Folder() { EXPECT_NE(mkdtemp(path_), nullptr); }
  ~Folder() { EXPECT_EQ(system(("rm -r " + std::string(path_)).c_str()), 0); }
  std::string path() const { return path_; }

 private:
  char path_[64] = "/tmp/fulldeck-session-test-XXXXXX";
};

TEST(SimulatedSession, AKindWithoutANumberIsTheLaunchersCard) {
  const Folder folder;
  RunSession(2, [&](const RankOfTest&) {
    GiveCard("gcu:4", 1, folder.path());
    SessionOptions options;
    options.device = "gcu";
    options.share_cards = true;
    MUST(Session::FromEnvironment(options)->device().str() == "gcu:1");
  });
}

TEST(SimulatedSession, EachRankHasItsOwnCardAndTheySumTogether) {
  const Folder folder;
  RunSession(3, [&](const RankOfTest& self) {
    GiveCard("gcu:4", self.rank, folder.path());
    const auto session = Session::FromEnvironment();
    MUST(session->device().str() == "gcu:" + std::to_string(self.rank));
    MUST(Has(session->line(), "rank " + std::to_string(self.rank) +
                                  "/3, backend fulldeck (no vendor library is reachable from C++), device gcu:" +
                                  std::to_string(self.rank) + ", card serial SIM-" + std::to_string(self.rank)));
    std::vector<at::Tensor> tensors = {at::full({5}, self.rank + 1.0).to(session->device())};
    session->team().group->allreduce(tensors)->wait();
    MUST_EQUAL(tensors[0].cpu(), at::full({5}, 6.0));
    session->Seed(5);
    const auto numbers = GatherTexts(
        session->team(), "weights", std::to_string(at::rand({1}, at::TensorOptions(session->device())).item<double>()));
    MUST(std::set<std::string>(numbers.begin(), numbers.end()).size() == 1);
    session->Barrier("end");
  });
}

TEST(SimulatedSession, TwoRanksOnOneCardAreRefusedUnlessTheyMay) {
  const Folder folder;
  for (const bool may : {false, true}) {
    RunSession(3, [&](const RankOfTest& self) {
      GiveCard("gcu:4", self.rank == 2 ? 0 : self.rank, folder.path());
      if (may) setenv("FULLDECK_SHARE_CARDS", "1", 1);
      if (may) {
        const auto session = Session::FromEnvironment();
        session->Barrier("end");
        return;
      }
      try {
        Session::FromEnvironment();
      } catch (const Refusal& refusal) {
        MUST(Has(refusal.what(), "ranks 0 and 2 of host "));
        MUST(Has(refusal.what(), "compute on one card, gcu:0 (serial SIM-0)"));
        return;
      }
      MUST(false);
    });
  }
}

TEST(SimulatedSession, ACardThatIsBrokenLiesOrHangsIsNamed) {
  const Folder folder;
  const struct {
    int card;
    const char* message;
    int exit_status;
  } kRows[] = {{0, "the card gcu:0 cannot compute a small test: ", 0},
               {1, "the card gcu:1 computes wrongly: ", 0},
               {2, "the card gcu:2 did not compute a small test within 1000 ms: it hangs", 1}};
  for (const auto& row : kRows) {
    torch_backend::RanksOptions options;
    options.exit_statuses = {row.exit_status};
    options.through_exit = true;
    options.limit = std::chrono::seconds(60);
    RunSession(
        1,
        [&](const RankOfTest&) {
          GiveCard("gcu:4,broken=0,lying=1,hung=2", row.card, folder.path());
          SessionOptions session;
          session.proof_timeout = std::chrono::milliseconds(row.card == 2 ? 1000 : 60000);
          const std::string text = MUST_THROW(Session::FromEnvironment(session));
          if (!Has(text, row.message)) throw std::runtime_error(text);
        },
        options);
  }
}

TEST(SimulatedSession, MemoryOfTheCardIsReportedAndItsLimitIsKnown) {
  const Folder folder;
  RunSession(1, [&](const RankOfTest&) {
    GiveCard("gcu:1,memory=64MiB", 0, folder.path());
    const auto session = Session::FromEnvironment();
    const at::Tensor block = at::zeros({16 << 20}, at::TensorOptions(session->device()).dtype(at::kByte));
    const MemoryFigures figures = ReadMemory(session->device());
    MUST(figures.used && *figures.used >= 16u << 20 && figures.peak && *figures.peak >= *figures.used);
    bool known = false;
    try {
      at::zeros({128 << 20}, at::TensorOptions(session->device()).dtype(at::kByte));
    } catch (...) {
      known = IsOutOfMemory(std::current_exception());
    }
    MUST(known);
  });
}

TEST(SimulatedSession, CachesAreReleasedAboveTheWatermarkAndItIsLoggedOnce) {
  const Folder folder;
  RunSession(1, [&](const RankOfTest&) {
    GiveCard("gcu:1,memory=64MiB", 0, folder.path());
    SessionOptions options;
    options.memory_watermark = 0.5;
    const auto session = Session::FromEnvironment(options);
    const at::Tensor block = at::zeros({48 << 20}, at::TensorOptions(session->device()).dtype(at::kByte));
    testing::internal::CaptureStderr();
    std::string log;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    // Checked after a step, at intervals.
    for (int steps = 0; log.empty() && std::chrono::steady_clock::now() < deadline; ++steps) {
      session->BeginStep().Done(1.0, 1);
      usleep(10'000);
      if (steps % 20 == 19) {
        log += testing::internal::GetCapturedStderr();
        testing::internal::CaptureStderr();
      }
    }
    for (int steps = 0; steps < 50; ++steps) {
      session->BeginStep().Done(1.0, 1);
      usleep(10'000);
    }
    log += testing::internal::GetCapturedStderr();
    MUST(Has(log, "rank 0: more than 50 % of the memory of gcu:0 was taken ("));
    MUST(Has(log, "caches were given back, and will be from now on"));
    MUST(log.find("was taken") == log.rfind("was taken"));
  });
}

}  // namespace
}  // namespace fulldeck::runtime
