#include "fulldeck/session.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <torch/library.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/cards/backend_choice.h"
#include "runtime/cards/device_choice.h"
#include "runtime/cards/device_proof.h"
#include "runtime/session/session_cards.h"
#include "runtime/session/session_environment.h"
#include "runtime/session/session_for_test.h"
#include "runtime/session/session_loop.h"
#include "torch_backend/ranks_for_test.h"
#include "wire/rank_board.h"
#include "wire/variables.h"

namespace fulldeck::runtime {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch_backend::Has;
using torch_backend::RankOfTest;
using torch_backend::RunRanks;

// ---- the environment ----

TEST(LaunchFacts, AreThoseOfASingleRankWithoutVariables) {
  const LaunchFacts facts = ReadLaunchFacts({});
  EXPECT_EQ(facts.rank, 0);
  EXPECT_EQ(facts.world_size, 1);
  EXPECT_EQ(facts.local_rank, 0);
  EXPECT_EQ(facts.local_world_size, 1);
  EXPECT_EQ(facts.master_address, "127.0.0.1");
  EXPECT_EQ(facts.master_port, 29500);
  EXPECT_TRUE(facts.one_node());
  EXPECT_FALSE(facts.store_is_launchers);
}

TEST(LaunchFacts, ReadWhatALauncherSets) {
  const LaunchFacts facts = ReadLaunchFacts({{"RANK", "9"},
                                             {"WORLD_SIZE", "16"},
                                             {"LOCAL_RANK", "1"},
                                             {"LOCAL_WORLD_SIZE", "8"},
                                             {"MASTER_ADDR", "node-a.example"},
                                             {"MASTER_PORT", "1234"},
                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                                             {"OMP_NUM_THREADS", "4,2"},
                                             {"FULLDECK_DEVICE", "gcu:1"},
                                             {"FULLDECK_CARD_SERIAL", "T20-0042"},
                                             {"FULLDECK_SHARE_CARDS", "1"},
                                             {"FULLDECK_TORCH_PLUGIN", "/a.so::/b.so"}});
  EXPECT_EQ(facts.rank, 9);
  EXPECT_EQ(facts.world_size, 16);
  EXPECT_EQ(facts.local_rank, 1);
  EXPECT_EQ(facts.master_address, "node-a.example");
  EXPECT_EQ(facts.master_port, 1234);
  EXPECT_FALSE(facts.one_node());
  EXPECT_TRUE(facts.store_is_launchers);
  EXPECT_EQ(facts.attempt, "2");
  EXPECT_EQ(facts.threads, 4);
  EXPECT_EQ(facts.device, "gcu:1");
  EXPECT_TRUE(facts.share_cards);
  EXPECT_THAT(facts.torch_plugins, testing::ElementsAre("/a.so", "/b.so"));
}

TEST(LaunchFacts, NameTheVariableAndTheValueThatCannotBe) {
  const struct {
    base::Environment variables;
    const char* message;
  } kRows[] = {
      {{{"RANK", "x"}}, "RANK is \"x\", and must be a whole number from 0 to"},
      {{{"RANK", ""}}, "RANK is \"\""},
      {{{"RANK", "-1"}}, "RANK is \"-1\""},
      {{{"RANK", "1.5"}}, "RANK is \"1.5\""},
      {{{"RANK", " 1"}}, "RANK is \" 1\""},
      {{{"RANK", "99999999999999999999"}}, "RANK is \"99999999999999999999\""},
      {{{"RANK", "1\x1b[31m"}}, "RANK is \"1?[31m\""},
      {{{"RANK", "3"}}, "RANK is 3, and must be less than WORLD_SIZE, which is 1 because it is not set"},
      {{{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK is 4, and must be less than WORLD_SIZE, which is 4."},
      {{{"WORLD_SIZE", "4"}}, "WORLD_SIZE is 4 and RANK is not set"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE is \"0\""},
      {{{"WORLD_SIZE", "many"}}, "WORLD_SIZE is \"many\""},
      {{{"LOCAL_RANK", "-2"}}, "LOCAL_RANK is \"-2\""},
      {{{"LOCAL_RANK", "1"}}, "LOCAL_RANK is 1, and must be less than LOCAL_WORLD_SIZE, which is 1"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}, "LOCAL_WORLD_SIZE is 3, and must not be more"},
      {{{"LOCAL_WORLD_SIZE", "one"}}, "LOCAL_WORLD_SIZE is \"one\""},
      {{{"MASTER_ADDR", ""}}, "MASTER_ADDR is \"\""},
      {{{"MASTER_ADDR", "a b"}}, "MASTER_ADDR is \"a b\""},
      {{{"MASTER_ADDR", std::string(300, 'a')}}, "MASTER_ADDR is \"aaa"},
      {{{"MASTER_PORT", "0"}}, "MASTER_PORT is \"0\""},
      {{{"MASTER_PORT", "65536"}}, "MASTER_PORT is \"65536\""},
      {{{"MASTER_PORT", "http"}}, "MASTER_PORT is \"http\""},
      {{{"FULLDECK_SHARE_CARDS", "yes"}}, "FULLDECK_SHARE_CARDS is \"yes\""},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT([&] { ReadLaunchFacts(row.variables); }, ThrowsMessage<Error>(HasSubstr(row.message)));
  }
}

// ---- the device ----

TEST(DeviceChoice, ReadsNamesOfDevices) {
  EXPECT_EQ(ParseDeviceName("gcu:3").word, "gcu");
  EXPECT_EQ(ParseDeviceName("gcu:3").index, 3);
  EXPECT_EQ(ParseDeviceName("npu").index, std::nullopt);
  for (const char* bad : {"", ":", ":0", "gcu:", "gcu:x", "gcu:-1", "gcu:128", "GCU:0", "gcu:0:0", "gcu 0", "7:0",
                          "a\x1b:0", "averyveryverylongnameofacard:0"}) {
    EXPECT_THAT([&] { ParseDeviceName(bad); }, ThrowsMessage<Error>(HasSubstr("is no name of a device"))) << bad;
  }
}

TEST(DeviceChoice, OneNameIsMappedToWhateverStackIsThere) {
  const Stacks none;
  const Stacks nvidia = {.cuda = true};
  const Stacks older = {.xla = true};
  const Stacks newer = {.private_name = "gcu"};
  const Stacks ascend = {.private_name = "npu"};
  const struct {
    const char* word;
    Stacks stacks;
    std::optional<c10::DeviceType> type;
  } kRows[] = {
      {"cpu", none, c10::kCPU},
      {"cpu", nvidia, c10::kCPU},
      {"cuda", nvidia, c10::kCUDA},
      {"cuda", none, std::nullopt},
      {"gcu", newer, c10::kPrivateUse1},
      {"gcu", older, c10::kXLA},
      {"gcu", none, std::nullopt},
      {"gcu", ascend, std::nullopt},
      {"xla", older, c10::kXLA},
      {"xla", newer, c10::kPrivateUse1},
      {"xla", nvidia, std::nullopt},
      {"npu", ascend, c10::kPrivateUse1},
      {"npu", newer, std::nullopt},
      {"mlu", {.private_name = "mlu"}, c10::kPrivateUse1},
      {"musa", {.private_name = "musa"}, c10::kPrivateUse1},
      {"xpu", {.xpu = true}, c10::kXPU},
      {"xpu", none, std::nullopt},
      {"privateuseone", none, std::nullopt},
  };
  for (const auto& row : kRows) EXPECT_EQ(TypeOf(row.word, row.stacks), row.type) << row.word;
}

TEST(DeviceChoice, SaysWhatIsThereWhenADeviceIsNot) {
  LaunchFacts facts;
  const auto choose = [&](const std::string& requested) { return ChooseDevice({requested, {}, &facts}); };
  EXPECT_EQ(choose("cpu").device, c10::Device(c10::kCPU));
  if (!HasCudaCards()) {
    EXPECT_EQ(choose("").device, c10::Device(c10::kCPU));
    EXPECT_THAT([&] { choose("cuda:0"); }, ThrowsMessage<Error>(HasSubstr("there is no /dev/nvidia*")));
  }
  EXPECT_THAT(
      [&] { choose("mlu:1"); },
      ThrowsMessage<Error>(HasSubstr("mlu:1 is asked for by the program, and nobody has taught torch that name")));
  facts.device = "mlu:1";
  EXPECT_THAT([&] { choose(""); }, ThrowsMessage<Error>(HasSubstr("by FULLDECK_DEVICE")));
  facts.torch_plugins = {"/no/such/plugin.so"};
  EXPECT_THAT([&] { choose(""); },
              ThrowsMessage<Error>(HasSubstr("the torch plugin /no/such/plugin.so cannot be loaded")));
}

TEST(DeviceChoice, LooksForCudaCardsInDeviceNodesOnly) {
  char folder[] = "/tmp/fulldeck-nodes-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string root = folder;
  EXPECT_FALSE(HasCudaCards(root));
  ASSERT_EQ(system(("mkdir -p " + root + "/dev && touch " + root + "/dev/nvidiactl").c_str()), 0);
  EXPECT_TRUE(HasCudaCards(root));
  ASSERT_EQ(system(("rm -r " + root).c_str()), 0);
}

// ---- cards ----

TEST(Cards, TwoRanksOnOneCardAreFound) {
  const CardClaim a = {"host a", "gcu:0", "S-1", ""};
  const auto with = [](CardClaim claim, auto change) {
    change(claim);
    return claim;
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(FindSharedCard({a}), Pair(-1, -1));
  EXPECT_EQ(FindSharedCard({a, a}), Pair(0, 1));
  // The serial decides, whatever names the ranks use.
  EXPECT_EQ(FindSharedCard({a, with(a, [](CardClaim& c) { c.device = "gcu:1"; })}), Pair(0, 1));
  EXPECT_EQ(FindSharedCard({a, with(a, [](CardClaim& c) { c.serial = "S-2"; })}), Pair(-1, -1));
  EXPECT_EQ(FindSharedCard({a, with(a, [](CardClaim& c) { c.node = "host b"; })}), Pair(-1, -1));
  // Without one: device and visible list.
  const CardClaim nameless = with(a, [](CardClaim& c) { c.serial = ""; });
  EXPECT_EQ(FindSharedCard({a, nameless}), Pair(0, 1));
  EXPECT_EQ(FindSharedCard({nameless, with(nameless, [](CardClaim& c) { c.device = "gcu:1"; })}), Pair(-1, -1));
  EXPECT_EQ(FindSharedCard({nameless, with(nameless, [](CardClaim& c) { c.visible = "CUDA_VISIBLE_DEVICES=1 "; })}),
            Pair(-1, -1));
  // The CPU can be shared.
  const CardClaim on_cpu = {"host a", "", "", ""};
  EXPECT_EQ(FindSharedCard({on_cpu, on_cpu, a, on_cpu}), Pair(-1, -1));
  EXPECT_EQ(FindSharedCard({on_cpu, a, on_cpu, a}), Pair(1, 3));
  const CardClaim back = CardClaim::FromText(a.ToText());
  EXPECT_EQ(back.node, a.node);
  EXPECT_EQ(back.device, a.device);
  EXPECT_EQ(back.serial, a.serial);
}

// ---- the backend ----

TEST(BackendChoice, FollowsFromTheDeviceAndSaysWhy) {
  BackendFacts cpu;
  cpu.device = "cpu";
  cpu.nccl_lacks = "NCCL moves tensors of cuda only";
  EXPECT_EQ(ChooseBackend(cpu).kind, BackendKind::kFulldeck);
  EXPECT_EQ(ChooseBackend(cpu).reason, "the ranks compute on processors");

  BackendFacts card = cpu;
  card.type = c10::kPrivateUse1;
  card.device = "gcu:3";
  EXPECT_EQ(ChooseBackend(card).kind, BackendKind::kFulldeck);
  EXPECT_EQ(ChooseBackend(card).reason, "no vendor library is reachable from C++");

  BackendFacts cuda = card;
  cuda.type = c10::kCUDA;
  cuda.nccl_lacks = "";
  EXPECT_EQ(ChooseBackend(cuda).kind, BackendKind::kNccl);
  cuda.one_rank_per_card = false;
  EXPECT_EQ(ChooseBackend(cuda).kind, BackendKind::kFulldeck);
  EXPECT_EQ(ChooseBackend(cuda).reason, "several ranks share a card");

  BackendFacts many = cpu;
  many.fulldeck_lacks = WhatFulldeckLacks(300);
  EXPECT_EQ(ChooseBackend(many).kind, BackendKind::kGloo);
  EXPECT_THAT(ChooseBackend(many).reason, HasSubstr("up to 256 ranks, and there are 300"));
  many.type = c10::kPrivateUse1;
  EXPECT_THAT([&] { ChooseBackend(many); }, ThrowsMessage<Error>(HasSubstr("no backend can work on")));
}

TEST(BackendChoice, WhatIsRequestedIsDoneOrRefusedWithWhatIsPossible) {
  BackendFacts facts;
  facts.device = "cpu";
  facts.requested_by = "FULLDECK_BACKEND";
  facts.nccl_lacks = "NCCL moves tensors of cuda only";
  facts.requested = "gloo";
  EXPECT_EQ(ChooseBackend(facts).kind, BackendKind::kGloo);
  EXPECT_EQ(ChooseBackend(facts).reason, "asked for by FULLDECK_BACKEND");
  facts.requested = "nccl";
  EXPECT_THAT([&] { ChooseBackend(facts); },
              ThrowsMessage<Error>(HasSubstr("cannot work on cpu: NCCL moves tensors of cuda only. Possible here: "
                                             "fulldeck, gloo.")));
  facts.requested = "mpi";
  EXPECT_THAT([&] { ChooseBackend(facts); }, ThrowsMessage<Error>(HasSubstr("there is no backend of that name")));
  facts.requested = "gloo";
  facts.type = c10::kPrivateUse1;
  facts.device = "gcu:0";
  EXPECT_THAT([&] { ChooseBackend(facts); }, ThrowsMessage<Error>(HasSubstr("Possible here: fulldeck.")));
}

// ---- the probe ----

// In a rank: replaces the CPU's matrix product from now on.
template <typename Product>
torch::Library WithProduct(Product product) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("mm", product);
  return library;
}

TEST(DeviceProof, PassesWhereTheHostComputes) {
  RunRanks(1, [](const RankOfTest&) { ProveDevice(c10::kCPU, std::chrono::seconds(60)); });
}

TEST(DeviceProof, NamesACardThatLies) {
  RunRanks(1, [](const RankOfTest&) {
    const auto lying = WithProduct([](const at::Tensor& a, const at::Tensor&) { return a + 1; });
    const std::string text = MUST_THROW(ProveDevice(c10::kCPU, std::chrono::seconds(60)));
    MUST(Has(text, "the card cpu computes wrongly: a product of two matrices is wrong"));
  });
}

TEST(DeviceProof, NamesACardThatFails) {
  RunRanks(1, [](const RankOfTest&) {
    const auto failing = WithProduct([](const at::Tensor&, const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("the card has fallen off the bus\nand more");
    });
    const std::string text = MUST_THROW(ProveDevice(c10::kCPU, std::chrono::seconds(60)));
    MUST(Has(text, "the card cpu cannot compute a small test: the card has fallen off the bus Take it out"));
  });
}

TEST(DeviceProof, ACardThatHangsIsNamedAndDoesNotBlockTheExit) {
  torch_backend::RanksOptions options;
  options.exit_statuses = {1};  // exit does not wait, and the exit code is never 0
  options.through_exit = true;
  options.limit = std::chrono::seconds(60);
  RunRanks(
      1,
      [](const RankOfTest&) {
        static const auto hanging = WithProduct([](const at::Tensor& a, const at::Tensor&) {
          while (true) pause();
          return a;
        });
        // What a vendor's library might do in an exit handler.
        std::atexit([] {
          while (true) pause();
        });
        const std::string text = MUST_THROW(ProveDevice(c10::kCPU, milliseconds(300)));
        MUST(Has(text, "the card cpu did not compute a small test within 300 ms: it hangs"));
      },
      options);
}

// ---- the session ----

at::Tensor SumOverRanks(Session& session, const at::Tensor& mine) {
  std::vector<at::Tensor> tensors = {mine.clone()};
  session.team().group->allreduce(tensors)->wait();
  return tensors[0];
}

TEST(Session, EightRanksLogOneLineEachAndSumTogether) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  RunSession(8, [&](const RankOfTest& self) {
    const int output = dup(2);
    dup2(ends[1], 2);
    const auto session = Session::FromEnvironment();
    dup2(output, 2);
    MUST(session->rank() == self.rank && session->world_size() == 8);
    MUST(session->backend() == "fulldeck");
    MUST(session->device() == c10::Device(c10::kCPU));
    MUST_EQUAL(SumOverRanks(*session, at::full({3}, self.rank)), at::full({3}, 28));
    MUST(std::string(getenv("DDP_DISABLE_COMM_MEM")) == "0");
    session->Barrier("end");
  });
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  char node[256] = {};
  gethostname(node, sizeof node - 1);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(text,
                HasSubstr("fulldeck: rank " + std::to_string(rank) +
                          "/8, backend fulldeck (the ranks compute on processors), device cpu, host " + node + "\n"));
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8) << text;
}

TEST(Session, IsMadeOnceAndTheSecondCallGivesTheSame) {
  RunSession(1, [](const RankOfTest&) {
    auto session = Session::FromEnvironment();
    MUST(Session::FromEnvironment() == session);
    SessionOptions other;
    other.threads = 2;
    MUST(Has(MUST_THROW(Session::FromEnvironment(other)), "made with other options"));
    // After it is destroyed, another may be created.
    session.reset();
    MUST(Session::FromEnvironment(other)->settings().find("threads 2") != std::string::npos);
  });
}

TEST(Session, ReportsWhenTheProbeOfItsCardEnded) {
  RunSession(1, [](const RankOfTest&) {
    auto board = wire::RankBoard::Create(
        {.run_id = "test", .attempt = 0, .local_ranks = 1, .first_rank = 0, .world_size = 1, .made_ns = 0});
    MUST(board && board->Probed(0) == 0);
    setenv(wire::kBoardFdVariable, std::to_string(board->fd()).c_str(), 1);
    setenv(wire::kBoardSlotVariable, "0", 1);
    const auto session = Session::FromEnvironment();
    MUST(board->Probed(0) != 0);
  });
}

TEST(Session, RefusesAnotherNumberOfRanksThanTheProgramRequests) {
  RunSession(1, [](const RankOfTest&) {
    SessionOptions options;
    options.world_size = 8;
    try {
      Session::FromEnvironment(options);
      MUST(false);
    } catch (const Refusal& refusal) {
      MUST(Has(refusal.what(), "the program asks for 8 ranks, and WORLD_SIZE is 1"));
    }
  });
}

TEST(Session, ListensOnLoopbackAloneWhereThereIsOneNode) {
  RunSession(2, [](const RankOfTest& self) {
    // Also when the launcher uses another name for this node.
    char node[256] = {};
    gethostname(node, sizeof node - 1);
    setenv("MASTER_ADDR", node, 1);
    const auto session = Session::FromEnvironment();
    if (self.rank == 0) {
      char port[8];
      std::snprintf(port, sizeof port, ":%04X", std::atoi(getenv("MASTER_PORT")));
      int listening = 0;
      for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream sockets(file);
        for (std::string line; std::getline(sockets, line);) {
          const auto at = line.find(port);
          if (at == std::string::npos || at > 40 || !Has(line, " 0A ")) continue;
          ++listening;
          MUST(Has(line, std::string("0100007F") + port));
        }
      }
      MUST(listening == 1);
    }
    session->Barrier("end");
  });
}

TEST(Session, UsesGlooWhereItIsRequested) {
  RunSession(2, [](const RankOfTest& self) {
    setenv("FULLDECK_BACKEND", "gloo", 1);
    const auto session = Session::FromEnvironment();
    MUST(session->backend() == "gloo" && session->backend_reason() == "asked for by FULLDECK_BACKEND");
    MUST_EQUAL(SumOverRanks(*session, at::full({2}, self.rank + 1)), at::full({2}, 3));
    session->Barrier("end");
  });
}

TEST(Session, SaysWhoHasTheMasterPort) {
  RunSession(1, [](const RankOfTest&) {
    const int holder = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(holder, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(holder, 1) == 0);
    socklen_t length = sizeof address;
    getsockname(holder, reinterpret_cast<sockaddr*>(&address), &length);
    setenv("MASTER_PORT", std::to_string(ntohs(address.sin_port)).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    MUST(Has(MUST_THROW(Session::FromEnvironment()), "Another program has the port: set MASTER_PORT"));
  });
}

TEST(Session, NamesTheRanksThatDoNotCome) {
  RunSession(1, [](const RankOfTest&) {
    setenv("WORLD_SIZE", "3", 1);
    setenv("LOCAL_WORLD_SIZE", "3", 1);
    SessionOptions options;
    options.timeout = milliseconds(1500);
    MUST(Has(MUST_THROW(Session::FromEnvironment(options)), "missing: rank 1, rank 2"));
    setenv("RANK", "1", 1);
    setenv("MASTER_PORT", "1", 1);
    MUST(Has(MUST_THROW(Session::FromEnvironment(options)), "found nobody listening at 127.0.0.1, port 1"));
  });
}

TEST(Session, SetsTheLimitsAndReadsThemBack) {
  RunSession(1, [](const RankOfTest&) {
    rlimit before = {};
    getrlimit(RLIMIT_NOFILE, &before);
    before.rlim_cur = 256;
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    setenv("OMP_NUM_THREADS", "3", 1);
    SessionOptions options;
    options.cudnn_benchmark = true;
    const auto session = Session::FromEnvironment(options);
    MUST(session->settings() == "open files 4096, threads 3, cudnn_benchmark on");
    std::ifstream limits("/proc/self/limits");
    bool found = false;
    for (std::string line; std::getline(limits, line);)
      found = found || (Has(line, "Max open files") && Has(line, " 4096 "));
    MUST(found);
    MUST(at::get_num_threads() == 3);
  });
}

TEST(Session, ItsThreadIsNamedAndGoesWithIt) {
  RunSession(1, [](const RankOfTest&) {
    const auto hearts = [] {
      int count = 0;
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        count += name == "fulldeck-beat" ? 1 : 0;
      }
      return count;
    };
    auto session = Session::FromEnvironment();
    MUST(hearts() == 1);
    session.reset();
    MUST(hearts() == 0);
  });
}

TEST(Session, RanksGetEachOtherOutOfAGroupAndMakeANewOne) {
  RunSession(3, [](const RankOfTest& self) {
    const auto session = Session::FromEnvironment();
    int callbacks = 0;
    const auto handle = session->OnRegroup([&](const Team& team) {
      MUST(team.group == session->team().group);
      ++callbacks;
    });
    {
      const auto gone = session->OnRegroup([](const Team&) { MUST(false); });
    }
    for (int round = 1; round <= 3; ++round) {
      if (self.rank == round % 3) {
        MUST(!session->WhyAborted());
        session->AbortGroup("no reason");
      } else {
        MUST_THROW(SumOverRanks(*session, at::ones({1000})));
      }
      MUST(session->WhyAborted() == "rank " + std::to_string(round % 3) + ": no reason");
      session->Regroup("the test wants it");
      MUST(session->generation() == round && callbacks == round);
      MUST_EQUAL(SumOverRanks(*session, at::ones({1000})), at::full({1000}, 3.0));
    }
    session->Barrier("end");
  });
}

TEST(Session, SeedsMakeWeightsEqualAndDropoutDifferent) {
  RunSession(3, [](const RankOfTest&) {
    const auto session = Session::FromEnvironment();
    session->Seed(42);
    MUST(session->seed() == 42);
    const auto different = [&](const at::Tensor& mine) {
      const auto texts = GatherTexts(session->team(), "numbers", std::to_string(mine.item<double>()));
      return std::set<std::string>(texts.begin(), texts.end()).size();
    };
    MUST(different(at::rand({1})) == 1);
    session->SeedDropout();
    const at::Tensor first = at::rand({1});
    MUST(different(first) == 3);
    session->SeedDropout(1);
    MUST(!at::equal(at::rand({1}), first));
    session->SeedDropout(0);
    MUST_EQUAL(at::rand({1}), first);
    session->Barrier("end");
  });
}

TEST(Session, TheLoopsTimesGoToTheirPhases) {
  LoopClock clock(nullptr);
  const auto work = [](milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  for (int i = 0; i < 3; ++i) {
    clock.BeginStep();
    work(milliseconds(4));
    clock.Enter(Phase::kCompute);
    work(milliseconds(8));
    clock.AddCommunication(milliseconds(3));
    clock.Done(0.5 - i, 10);
  }
  clock.Enter(Phase::kCheckpoint);
  work(milliseconds(5));
  clock.BeginStep();
  clock.Abandon();
  const fulldeck_board_figures& figures = clock.figures();
  EXPECT_EQ(figures.step, 3u);
  EXPECT_EQ(figures.samples, 30u);
  EXPECT_EQ(figures.loss, -1.5);
  EXPECT_GE(ms(figures.data_ns), 12);
  EXPECT_GE(ms(figures.compute_ns), 15);
  EXPECT_DOUBLE_EQ(ms(figures.communication_ns), 9);
  EXPECT_GE(ms(figures.checkpoint_ns), 5);
  clock.SetProgress(100, 500, 2);
  clock.Done(std::nullopt, 1);
  EXPECT_EQ(figures.step, 101u);
  EXPECT_EQ(figures.total_steps, 500u);
  EXPECT_EQ(figures.has_loss, 0u);
}

// ---- no CUDA on machines without it (S0.1) ----

// NVIDIA libraries that this process has loaded.
std::string CudaLibrariesHere() {
  std::ifstream maps("/proc/self/maps");
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    for (const char* name : {"/libcuda.so", "/libcudart.so", "/libnccl.so", "/libnvidia-ml.so", "/libtorch_cuda.so"}) {
      if (Has(line, name) && !Has(found, name)) found += name;
    }
  }
  return found;
}

// Runs only in the process that the test below starts.
TEST(CudaTrap, DISABLED_ASessionLoadsNothingOfCuda) {
  const std::string planted = getenv("FULLDECK_PLANTED_CALL") == nullptr ? "" : getenv("FULLDECK_PLANTED_CALL");
  ASSERT_EQ(CudaLibrariesHere(), "");
  if (planted == "1") {
    ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW), nullptr) << "the trap is not where the loader looks";
  }
  {
    const auto session = Session::FromEnvironment();
    session->Seed(3);
    session->SeedDropout();
    auto step = session->BeginStep();
    step.Done(1.0, 1);
    session->AbortGroup("to make another");
    session->Regroup("to make another");
    session->Barrier("end");
  }
  EXPECT_EQ(CudaLibrariesHere(), "");
}

TEST(CudaTrap, FailsWhereSomethingOfCudaIsCalledAndPassesForASession) {
  if (HasCudaCards()) GTEST_SKIP() << "this machine has cards that torch calls cuda";
  char folder[] = "/tmp/fulldeck-trap-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  // A call to CUDA loads one of these: the loader finds the fake ones, and they stay visible in the process.
  std::string source;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line) && source.empty();) {
    if (Has(line, "/libgcc_s.so")) source = line.substr(line.find('/'));
  }
  ASSERT_FALSE(source.empty());
  for (const char* name : {"libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "libnccl.so.2", "libnvidia-ml.so.1"}) {
    std::filesystem::copy_file(source, std::string(folder) + "/" + name);
  }
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const char* paths = getenv("LD_LIBRARY_PATH");
  const std::string command =
      "env -u FULLDECK_DEVICE -u FULLDECK_SIMULATE -u RANK -u WORLD_SIZE -u LOCAL_RANK LD_LIBRARY_PATH=" +
      std::string(folder) + (paths == nullptr ? "" : ":" + std::string(paths)) + " FULLDECK_PLANTED_CALL=";
  const std::string rest = std::string(" timeout 120 '") + self +
                           "' --gtest_also_run_disabled_tests --gtest_filter=CudaTrap.DISABLED_* > " + folder +
                           "/out 2>&1";
  EXPECT_EQ(system((command + "0" + rest).c_str()), 0) << "see the test above, run by hand";
  EXPECT_NE(system((command + "1" + rest).c_str()), 0) << "a planted call of CUDA was not noticed";
  ASSERT_EQ(system((std::string("rm -r ") + folder).c_str()), 0);
}

}  // namespace
}  // namespace fulldeck::runtime
