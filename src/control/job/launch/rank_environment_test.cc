#include "job/launch/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace fulldeck::job {
namespace {

using base::Environment;
using testing::Contains;
using testing::Pair;

device::Card MakeCard(const std::string& vendor, const std::string& kind, int index, int torch_number) {
  device::Card card;
  card.vendor = vendor;
  card.kind = kind;
  card.index = index;
  card.serial = "W" + std::to_string(index);
  card.torch_type = kind;
  card.torch_device = kind + ":" + std::to_string(torch_number);
  return card;
}

AttemptContext SecondNode() {
  AttemptContext attempt;
  attempt.run_id = "job-7";
  attempt.run_dir = "/runs/job-7";
  attempt.role = "trainer";
  attempt.master_addr = "10.0.0.1";
  attempt.master_port = 31234;
  attempt.attempt = 2;
  attempt.max_restarts = 3;
  attempt.local_world_size = 4;
  attempt.world_size = 8;
  attempt.first_rank = 4;
  attempt.group_rank = 1;
  attempt.group_world_size = 2;
  attempt.board_fd = 198;
  return attempt;
}

RankContext ThirdRank() {
  RankContext rank;
  rank.local_rank = 2;
  rank.threads = 6;
  rank.error_file = "/runs/job-7/error.json";
  rank.crash_file = "/runs/job-7/crash.txt";
  rank.stack_file = "/runs/job-7/stacks.txt";
  return rank;
}

std::map<std::string, std::string> Variables(const Environment& callers, const AttemptContext& attempt,
                                             const RankContext& rank) {
  std::map<std::string, std::string> variables;
  const std::vector<std::string> entries = RankEnvironment(callers, attempt, rank);
  EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end()));
  for (const std::string& entry : entries) {
    const auto equals = entry.find('=');
    const bool is_new = variables.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second;
    EXPECT_TRUE(is_new) << entry;
  }
  return variables;
}

TEST(RankEnvironment, HoldsTheWholeContract) {
  const auto variables = Variables({}, SecondNode(), ThirdRank());
  const std::map<std::string, std::string> expected = {
      {"RANK", "6"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "2"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "6"},
      {"ROLE_WORLD_SIZE", "8"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "31234"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RUN_ID", "job-7"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", "/runs/job-7/error.json"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "6"},
      {"FULLDECK_RUN_ID", "job-7"},
      {"FULLDECK_RUN_DIR", "/runs/job-7"},
      {"FULLDECK_BOARD_FD", "198"},
      {"FULLDECK_BOARD_SLOT", "2"},
      {"FULLDECK_CRASH_FILE", "/runs/job-7/crash.txt"},
      {"FULLDECK_STACK_FILE", "/runs/job-7/stacks.txt"},
  };
  EXPECT_EQ(variables, expected);
}

TEST(RankEnvironment, IsCompleteForASingleRankToo) {
  AttemptContext attempt;
  attempt.run_id = "one";
  attempt.master_addr = "127.0.0.1";
  attempt.master_port = 40000;
  const auto variables = Variables({}, attempt, {});
  for (const char* name : {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"})
    EXPECT_THAT(variables, Contains(Pair(name, "0")));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    EXPECT_THAT(variables, Contains(Pair(name, "1")));
  }
  EXPECT_EQ(variables.count("ACCELERATE_USE_CPU"), 0U);
  EXPECT_EQ(variables.count("FULLDECK_BOARD_FD"), 0U);
  EXPECT_EQ(variables.count("TORCHELASTIC_ERROR_FILE"), 0U);
}

TEST(RankEnvironment, PassesTheCallersVariablesAndReplacesStaleOnes) {
  const Environment callers = {{"HOME", "/home/me"},
                               {"EMPTY", ""},
                               {"RANK", "99"},
                               {"MASTER_PORT", "1"},
                               {"TORCHELASTIC_RUN_ID", "outer"},
                               {"TORCHELASTIC_ERROR_FILE", "/outer/error.json"},
                               {"FULLDECK_RANK_PID", "77"},
                               {"FULLDECK_DEVICE", "gcu:7"},
                               {"FULLDECK_CARD_SERIAL", "W7"},
                               {"FULLDECK_AGENT", "/outer/agent.so"},
                               {"FULLDECK_TOKEN", "secret"},
                               {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "x"}};
  const auto variables = Variables(callers, SecondNode(), ThirdRank());
  EXPECT_EQ(variables.at("HOME"), "/home/me");
  EXPECT_EQ(variables.at("EMPTY"), "");
  EXPECT_EQ(variables.at("RANK"), "6");
  EXPECT_EQ(variables.at("MASTER_PORT"), "31234");
  EXPECT_EQ(variables.at("TORCHELASTIC_RUN_ID"), "job-7");
  EXPECT_EQ(variables.at("TORCHELASTIC_ERROR_FILE"), "/runs/job-7/error.json");
  EXPECT_EQ(variables.at("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"), "x");
  for (const char* stale :
       {"FULLDECK_TOKEN", "FULLDECK_RANK_PID", "FULLDECK_DEVICE", "FULLDECK_CARD_SERIAL", "FULLDECK_AGENT"}) {
    EXPECT_EQ(variables.count(stale), 0U) << stale;
  }
}

TEST(RankEnvironment, LeavesWhatTheUserChose) {
  AttemptContext attempt = SecondNode();
  attempt.cpu_requested = true;
  const device::Card card = MakeCard("enflame", "gcu", 2, 2);
  RankContext rank = ThirdRank();
  rank.card = &card;
  const Environment callers = {{"OMP_NUM_THREADS", "3"},
                               {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                               {"ACCELERATE_USE_CPU", "no"},
                               {"ECCL_BACKEND", "mine"},
                               {"TOPS_VISIBLE_DEVICES", "0,1,2,3"}};
  const auto variables = Variables(callers, attempt, rank);
  for (const auto& variable : callers.all()) EXPECT_EQ(variables.at(variable.first), variable.second);
  EXPECT_EQ(variables.at("ECCL_DEVICE_TYPE"), "gcu");
}

TEST(RankEnvironment, SetsAccelerateToTheCpu) {
  AttemptContext attempt = SecondNode();
  attempt.cpu_requested = true;
  EXPECT_EQ(Variables({}, attempt, ThirdRank()).at("ACCELERATE_USE_CPU"), "true");
}

TEST(RankEnvironment, HidesRealCudaCardsFromAnUnadaptedRankOnASimulatedCardOfAnotherKind) {
  device::Card card = MakeCard("enflame", "gcu", 2, 2);
  RankContext rank = ThirdRank();
  rank.card = &card;
  AttemptContext attempt = SecondNode();
  const Environment callers = {{"CUDA_VISIBLE_DEVICES", "0,1,2"}};
  card.simulated = true;
  const auto list = [&] { return Variables(callers, attempt, rank).at("CUDA_VISIBLE_DEVICES"); };
  EXPECT_EQ(list(), "-1,-1,-1,-1") << "no agent, no adapters";
  attempt.agent_library = "/lib/agent.so";
  EXPECT_EQ(list(), "-1,-1,-1,-1") << "what the rank starts has no adapters";
  attempt.adapter_variables = {{"FULLDECK_ADAPT", "0"}};
  EXPECT_EQ(list(), "-1,-1,-1,-1");
  card.simulated = false;
  EXPECT_EQ(Variables(callers, attempt, rank).at("CUDA_VISIBLE_DEVICES"), "0,1,2");
  card = MakeCard("nvidia", "cuda", 2, 2);
  card.simulated = true;
  EXPECT_EQ(Variables(callers, attempt, rank).at("CUDA_VISIBLE_DEVICES"), "0,1,2");
}

TEST(RankEnvironment, NamesTheCard) {
  const device::Card gcu = MakeCard("enflame", "gcu", 6, 2);
  RankContext rank = ThirdRank();
  rank.card = &gcu;
  auto variables = Variables({}, SecondNode(), rank);
  EXPECT_EQ(variables.at("FULLDECK_DEVICE"), "gcu:2");
  EXPECT_EQ(variables.at("FULLDECK_CARD_SERIAL"), "W6");
  EXPECT_EQ(variables.at("ECCL_BACKEND"), "eccl");
  EXPECT_EQ(variables.at("ECCL_DEVICE_TYPE"), "gcu");
  EXPECT_EQ(variables.count("TOPS_VISIBLE_DEVICES"), 0U) << "all cards stay visible";

  const device::Card npu = MakeCard("ascend", "npu", 1, 1);
  rank.card = &npu;
  variables = Variables({}, SecondNode(), rank);
  EXPECT_EQ(variables.count("ECCL_BACKEND"), 0U);
}

TEST(RankEnvironment, AppendsTheAgentBehindTheUsersLibraries) {
  AttemptContext attempt = SecondNode();
  attempt.agent_library = "/opt/agent.so";
  const auto preload = [&](const Environment& callers) { return Variables(callers, attempt, {}).at("LD_PRELOAD"); };
  EXPECT_EQ(preload({}), "/opt/agent.so");
  EXPECT_EQ(preload({{"LD_PRELOAD", ""}}), "/opt/agent.so");
  EXPECT_EQ(preload({{"LD_PRELOAD", "/a.so"}}), "/a.so:/opt/agent.so");
  EXPECT_EQ(preload({{"LD_PRELOAD", "/a.so /b.so"}}), "/a.so /b.so:/opt/agent.so");
  EXPECT_EQ(preload({{"LD_PRELOAD", "/a.so /opt/agent.so"}}), "/a.so /opt/agent.so");
  EXPECT_EQ(Variables({}, attempt, {}).at("FULLDECK_AGENT"), "/opt/agent.so");
  attempt.agent_library.reset();
  EXPECT_EQ(Variables({{"LD_PRELOAD", "/a.so"}}, attempt, {}).at("LD_PRELOAD"), "/a.so");
}

TEST(RankEnvironment, PutsTheHookFirstOnPythonsPath) {
  AttemptContext attempt = SecondNode();
  attempt.python_hook = "/opt/hook";
  const auto path = [&](const Environment& callers) { return Variables(callers, attempt, {}).at("PYTHONPATH"); };
  EXPECT_EQ(path({}), "/opt/hook");
  EXPECT_EQ(path({{"PYTHONPATH", ""}}), "/opt/hook");
  EXPECT_EQ(path({{"PYTHONPATH", "/a:/b"}}), "/opt/hook:/a:/b");
  EXPECT_EQ(path({{"PYTHONPATH", "/opt/hook:/a"}}), "/opt/hook:/a");
  EXPECT_EQ(path({{"PYTHONPATH", "/a:/opt/hook"}}), "/opt/hook:/a:/opt/hook");
}

TEST(RankEnvironment, NarrowsTheListToTheRanksOwnCardUnderVirtualLocalRank) {
  struct Row {
    const char* vendor;
    int index;
    int torch_number;
    Environment callers;
    const char* variable;
    const char* value;
  };
  const Row rows[] = {
      {"nvidia", 2, 2, {}, "CUDA_VISIBLE_DEVICES", "2"},
      {"nvidia", 6, 2, {{"CUDA_VISIBLE_DEVICES", "4, 5, 6,7"}}, "CUDA_VISIBLE_DEVICES", "6"},
      {"nvidia", 6, 1, {{"CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb"}}, "CUDA_VISIBLE_DEVICES", "GPU-bb"},
      {"enflame", 3, 3, {}, "TOPS_VISIBLE_DEVICES", "3"},
      {"ascend", 3, 0, {{"ASCEND_RT_VISIBLE_DEVICES", "3"}}, "ASCEND_RT_VISIBLE_DEVICES", "3"},
      {"amd", 1, 1, {}, "HIP_VISIBLE_DEVICES", "1"},
      {"amd", 5, 1, {{"ROCR_VISIBLE_DEVICES", "4,5"}}, "ROCR_VISIBLE_DEVICES", "5"},
  };
  AttemptContext attempt = SecondNode();
  attempt.virtual_local_rank = true;
  for (const Row& row : rows) {
    const device::Card card = MakeCard(row.vendor, "cuda", row.index, row.torch_number);
    RankContext rank = ThirdRank();
    rank.card = &card;
    const auto variables = Variables(row.callers, attempt, rank);
    EXPECT_EQ(variables.at("LOCAL_RANK"), "0") << row.vendor;
    EXPECT_EQ(variables.at("RANK"), "6") << row.vendor;
    EXPECT_EQ(variables.at(row.variable), row.value) << row.vendor;
    EXPECT_EQ(variables.at("FULLDECK_DEVICE"), "cuda:0") << row.vendor;
  }
  // The launcher chose cards 4 to 7, and this rank has the third of them.
  attempt.visible_devices = {"TOPS_VISIBLE_DEVICES", "4,5,6,7"};
  const device::Card card = MakeCard("enflame", "gcu", 6, 2);
  RankContext rank = ThirdRank();
  rank.card = &card;
  EXPECT_EQ(Variables({}, attempt, rank).at("TOPS_VISIBLE_DEVICES"), "6");
}

TEST(RankEnvironment, SetsThatRanksMayShareACardOnlyWhereTheyMay) {
  AttemptContext attempt = SecondNode();
  const Environment outer = {{"FULLDECK_SHARE_CARDS", "1"}};
  EXPECT_EQ(Variables(outer, attempt, ThirdRank()).count("FULLDECK_SHARE_CARDS"), 0u) << "an outer run's";
  attempt.share_cards = true;
  EXPECT_EQ(Variables({}, attempt, ThirdRank()).at("FULLDECK_SHARE_CARDS"), "1");
}

TEST(RankEnvironment, PutsTheRequestedTorchPluginsBeforeTheCallers) {
  AttemptContext attempt = SecondNode();
  const Environment callers = {{"FULLDECK_TORCH_PLUGIN", "/opt/b.so"}};
  EXPECT_EQ(Variables(callers, attempt, ThirdRank()).at("FULLDECK_TORCH_PLUGIN"), "/opt/b.so");
  attempt.torch_plugins = "/opt/a.so";
  EXPECT_EQ(Variables(callers, attempt, ThirdRank()).at("FULLDECK_TORCH_PLUGIN"), "/opt/a.so:/opt/b.so");
  EXPECT_EQ(Variables({}, attempt, ThirdRank()).at("FULLDECK_TORCH_PLUGIN"), "/opt/a.so");
}

TEST(RankEnvironment, ThreadsThatAreMoreThanTheCoresDoNotSpin) {
  const auto policy = [](const Environment& callers) {
    const auto variables = Variables(callers, SecondNode(), ThirdRank());
    const auto found = variables.find("OMP_WAIT_POLICY");
    return found == variables.end() ? "" : found->second;
  };
  EXPECT_EQ(policy({}), "");
  EXPECT_EQ(policy({{"OMP_NUM_THREADS", "6"}}), "");
  EXPECT_EQ(policy({{"OMP_NUM_THREADS", "7"}}), "passive");
  EXPECT_EQ(policy({{"OMP_NUM_THREADS", "7"}, {"OMP_WAIT_POLICY", "active"}}), "active");
  EXPECT_EQ(policy({{"OMP_NUM_THREADS", "7"}, {"GOMP_SPINCOUNT", "100"}}), "");
  EXPECT_EQ(policy({{"OMP_NUM_THREADS", "many"}}), "");
}

TEST(RankEnvironment, PassesTheFlagsToTheAdaptersAndLeavesTheCallersVariablesElse) {
  AttemptContext attempt = SecondNode();
  LaunchFlags flags;
  attempt.adapter_variables = AdapterVariables(flags);
  EXPECT_TRUE(attempt.adapter_variables.empty());
  const Environment callers = {{"FULLDECK_TIMEOUT", "7"}, {"FULLDECK_PROBE", "0"}};
  EXPECT_EQ(Variables(callers, attempt, ThirdRank()).at("FULLDECK_TIMEOUT"), "7");
  flags.adapt = false;
  flags.probe = false;
  flags.place = true;
  flags.trace_ddp = true;
  flags.timeout = std::chrono::milliseconds(1500);
  flags.accelerate_config = "/a.yaml";
  flags.mp_start_method = "spawn";
  flags.opencv_threads = 0;
  attempt.adapter_variables = AdapterVariables(flags);
  const auto variables = Variables(callers, attempt, ThirdRank());
  EXPECT_EQ(variables.at("FULLDECK_ADAPT"), "0");
  EXPECT_EQ(variables.at("FULLDECK_PROBE"), "0");
  EXPECT_EQ(variables.at("FULLDECK_PLACE"), "1");
  EXPECT_EQ(variables.at("FULLDECK_TRACE_DDP"), "1");
  EXPECT_EQ(variables.at("FULLDECK_TIMEOUT"), "1.5");
  EXPECT_EQ(variables.at("FULLDECK_ACCELERATE_CONFIG"), "/a.yaml");
  EXPECT_EQ(variables.at("FULLDECK_MP_START_METHOD"), "spawn");
  EXPECT_EQ(variables.at("FULLDECK_OPENCV_THREADS"), "0");
}

TEST(RankEnvironment, SetsTheListThatTheLauncherChose) {
  AttemptContext attempt = SecondNode();
  attempt.visible_devices = {"CUDA_VISIBLE_DEVICES", "4,5"};
  const device::Card card = MakeCard("nvidia", "cuda", 5, 1);
  RankContext rank = ThirdRank();
  rank.card = &card;
  auto variables = Variables({}, attempt, rank);
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "4,5");
  EXPECT_EQ(variables.at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID") << "else 4 and 5 may be other cards for CUDA";
  variables = Variables({{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}, attempt, rank);
  EXPECT_EQ(variables.at("CUDA_DEVICE_ORDER"), "FASTEST_FIRST");
  variables = Variables({{"CUDA_VISIBLE_DEVICES", "3,4,5"}}, attempt, rank);
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "4,5");
  EXPECT_EQ(variables.count("CUDA_DEVICE_ORDER"), 0U);
}

TEST(NarrowedVisibility, LeavesTheListAloneWhereTorchCountsTheCardsAlready) {
  const std::vector<device::Card> first = {MakeCard("enflame", "gcu", 0, 0), MakeCard("enflame", "gcu", 1, 1)};
  EXPECT_FALSE(NarrowedVisibility({}, first).has_value());
  const std::vector<device::Card> listed = {MakeCard("enflame", "gcu", 5, 0), MakeCard("enflame", "gcu", 3, 1)};
  EXPECT_FALSE(NarrowedVisibility({{"TOPS_VISIBLE_DEVICES", "5,3,1"}}, listed).has_value());
  EXPECT_FALSE(NarrowedVisibility({}, {}).has_value());
}

TEST(NarrowedVisibility, MakesTheChosenCardsTheFirstOnes) {
  const std::vector<device::Card> chosen = {MakeCard("enflame", "gcu", 2, 2), MakeCard("enflame", "gcu", 0, 0)};
  EXPECT_EQ(NarrowedVisibility({}, chosen), std::pair(std::string("TOPS_VISIBLE_DEVICES"), std::string("2,0")));
  // Uses the entries of the caller's own list.
  const std::vector<device::Card> cards = {MakeCard("nvidia", "cuda", 7, 2)};
  EXPECT_EQ(NarrowedVisibility({{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b, GPU-c"}}, cards)->second, "GPU-c");
  const std::vector<device::Card> amd = {MakeCard("amd", "cuda", 5, 1)};
  EXPECT_EQ(NarrowedVisibility({{"ROCR_VISIBLE_DEVICES", "4,5"}}, amd),
            std::pair(std::string("ROCR_VISIBLE_DEVICES"), std::string("5")));
}

TEST(NarrowedVisibility, CountsCardsWithoutATorchNameByTheirIndex) {
  std::vector<device::Card> cards = {MakeCard("enflame", "gcu", 0, 0), MakeCard("enflame", "gcu", 1, 1)};
  for (device::Card& card : cards) card.torch_device.reset();
  EXPECT_FALSE(NarrowedVisibility({}, cards).has_value());
  cards.erase(cards.begin());
  EXPECT_EQ(NarrowedVisibility({}, cards)->second, "1");
}

}  // namespace
}  // namespace fulldeck::job
