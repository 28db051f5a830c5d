#include "fulldeck/team.h"

#include <gmock/gmock.h>

#include "torch_backend/ranks_for_test.h"

namespace fulldeck {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using torch_backend::Has;
using torch_backend::RankOfTest;
using torch_backend::RunRanks;

Team TeamOf(const RankOfTest& self) {
  Team team;
  team.rank = self.rank;
  team.world_size = self.size;
  team.local_rank = self.rank;
  team.store = self.store;
  team.timeout = std::chrono::seconds(60);
  return team;
}

TEST(Team, GathersTheTextsOfAllRanksInTheirOrderAgainAndAgain) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (int round = 0; round < 3; ++round) {
      const auto texts = GatherTexts(team, "names", round == 1 ? "" : "rank " + std::to_string(self.rank + round));
      MUST(texts.size() == 3);
      for (int rank = 0; rank < 3; ++rank) {
        MUST(texts[static_cast<std::size_t>(rank)] == (round == 1 ? "" : "rank " + std::to_string(rank + round)));
      }
    }
    MUST(Has(MUST_THROW(GatherTexts(team, "too long", std::string(70000, 'x'))), "70000 bytes"));
    Barrier(team, "end");
  });
}

TEST(Team, ABarrierLeavesNothingInTheStoreButItsCounts) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (int i = 0; i < 5; ++i) Barrier(team, "often");
    GatherTexts(team, "some", "text");
    Barrier(team, "last");
    // The last rank to leave deletes the keys.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto is_clean = [&] {
      for (const std::string key : {"meet/barrier/often/5/0", "meet/barrier/often/5/all", "meet/barrier/often/5/left",
                                    "meet/barrier/often/1/1", "meet/gather/some/1/0", "where/0", "where/1"}) {
        if (team.store->check({key})) return false;
      }
      return true;
    };
    while (!is_clean() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
    MUST(is_clean());
  });
}

TEST(Team, ABarrierThatTimesOutSaysWhoIsMissingAndWhereTheyWait) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    Barrier(team, "begin");
    if (self.rank < 2) {
      // Once the other ranks wait where they should.
      team.store->wait({"where/2"});
      const std::string text = MUST_THROW(Barrier(team, "epoch end", milliseconds(500)));
      MUST(Has(text, "barrier \"epoch end\": rank " + std::to_string(self.rank) + " waited 0.5 s; missing: "));
      MUST(Has(text, "rank 2 (waits in barrier \"save\"), rank 3"));
      MUST(!Has(text, "rank 3 ("));
      team.store->set("seen/" + std::to_string(self.rank), std::string("1"));
    } else if (self.rank == 2) {
      MUST(Has(MUST_THROW(Barrier(team, "save", std::chrono::seconds(5))), "missing: rank 0"));
    }
    team.store->wait({"seen/0", "seen/1"}, std::chrono::seconds(60));
  });
}

TEST(Team, NamesOfBarriersAreBounded) {
  RunRanks(1, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    MUST(Has(MUST_THROW(Barrier(team, "")), "needs a name"));
    MUST(Has(MUST_THROW(Barrier(team, std::string(101, 'x'))), "this one has 101"));
    Barrier(team, std::string(100, 'x'));
  });
}

TEST(Team, WhatRankZeroDoesAloneIsWaitedForAndItsFailureIsEverybodys) {
  RunRanks(3, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    int done = 0;
    OnMain(team, "download", [&] {
      team.store->set("downloaded", std::string("1"));
      ++done;
    });
    MUST(done == (self.rank == 0 ? 1 : 0));
    MUST(team.store->check({"downloaded"}));
    const std::string text = MUST_THROW(OnMain(team, "download", [] { throw std::runtime_error("disk full"); }));
    if (self.rank == 0) {
      MUST(text == "disk full");
    } else {
      MUST(Has(text, "rank 0 could not do \"download\"") && Has(text, "disk full"));
    }
    bool others_began = false;
    MUST_THROW(MainFirst(team, "cache", [&] {
      others_began = self.rank != 0;
      throw Error("no cache");
    }));
    MUST(!others_began);
    MainFirst(team, "cache", [&] {
      if (self.rank == 0) {
        team.store->set("cache", std::string("1"));
      } else {
        MUST(team.store->check({"cache"}));
        ++done;
      }
    });
    MUST(done == 1);
    Barrier(team, "end");
  });
}

}  // namespace
}  // namespace fulldeck
