#include "job/launch/launch_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "base/text.h"

namespace fulldeck::job {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  for (const std::string_view word : base::Split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

base::Result<LaunchFlags> Parse(std::string_view line, const base::Environment& environment = {},
                                LaunchStyle style = LaunchStyle::kFulldeck) {
  return ParseLaunchFlags(style, Words(line), environment);
}

LaunchFlags Parsed(std::string_view line, const base::Environment& environment = {},
                   LaunchStyle style = LaunchStyle::kFulldeck) {
  const auto flags = Parse(line, environment, style);
  EXPECT_TRUE(flags.ok()) << line << ": " << (flags.ok() ? "" : flags.error().message);
  return flags.ok() ? *flags : LaunchFlags();
}

// All steps for a launcher outside a cluster.
base::Result<LaunchFlags> ParseAndCheck(std::string_view line, const base::Environment& environment = {}) {
  auto flags = Parse(line, environment);
  if (!flags) return flags;
  const auto complete = CheckComplete(*flags);
  if (!complete) return complete.error();
  return flags;
}

std::string Refusal(std::string_view line, const base::Environment& environment = {},
                    LaunchStyle style = LaunchStyle::kFulldeck) {
  auto flags = Parse(line, environment, style);
  if (!flags) return flags.error().message;
  const auto complete = CheckComplete(*flags);
  return complete ? "(accepted)" : complete.error().message;
}

TEST(LaunchFlags, TakesTheProgramAndLeavesItsArgumentsAlone) {
  const LaunchFlags flags = Parsed("train.py --nproc-per-node 3 -- -m --unknown");
  EXPECT_THAT(flags.program, ElementsAre("train.py", "--nproc-per-node", "3", "--", "-m", "--unknown"));
  EXPECT_FALSE(flags.nproc.has_value());
  EXPECT_FALSE(flags.module);
}

TEST(LaunchFlags, HasTheDefaultsOfEachStyle) {
  const LaunchFlags ours = Parsed("train.py");
  EXPECT_FALSE(ours.nproc.has_value());
  EXPECT_FALSE(ours.nproc_kind.has_value());
  EXPECT_FALSE(ours.add_local_rank);
  EXPECT_EQ(ours.devices, "auto");
  EXPECT_EQ(ours.grace, 30s);
  EXPECT_EQ(ours.join_timeout, 600s);
  EXPECT_EQ(ours.rendezvous, Rendezvous::kNone);
  EXPECT_EQ(ours.endpoint_host, "127.0.0.1");
  EXPECT_FALSE(ours.master_port.has_value());
  EXPECT_TRUE(ours.agent);
  EXPECT_TRUE(ours.progress);

  const LaunchFlags torchrun = Parsed("train.py", {}, LaunchStyle::kTorchrun);
  EXPECT_EQ(torchrun.nproc, 1);
  EXPECT_FALSE(torchrun.add_local_rank);
  EXPECT_FALSE(Parsed("--nproc-per-node auto train.py", {}, LaunchStyle::kTorchrun).nproc.has_value());

  const LaunchFlags launch = Parsed("train.py", {}, LaunchStyle::kLaunch);
  EXPECT_EQ(launch.nproc, 1);
  EXPECT_TRUE(launch.add_local_rank);
  EXPECT_FALSE(Parsed("--use_env train.py", {}, LaunchStyle::kLaunch).add_local_rank);
}

TEST(LaunchFlags, UnderstandsEverySpellingOfTheSameLine) {
  for (const char* line :
       {"--nproc-per-node 4 t.py", "--nproc_per_node 4 t.py", "--nproc-per-node=4 t.py", "--nproc_per_node=4 t.py",
        "--nproc=4 t.py", "--nproc 4 t.py", "--np 4 t.py", "--nproc_per 4 t.py", "--nproc-per-node 4 -- t.py",
        "--nproc-per-node 2 --nproc_per_node 4 t.py", "--nproc-per-node=+4 t.py"}) {
    const LaunchFlags flags = Parsed(line);
    EXPECT_EQ(flags.nproc, 4) << line;
    EXPECT_THAT(flags.program, ElementsAre("t.py")) << line;
  }
  for (const char* line : {"-r 3 t.py", "-r3 t.py", "-r=3 t.py", "--redirects 3 t.py", "--redir=3 t.py"}) {
    EXPECT_EQ(Parsed(line).redirects.others, Streams::kBoth) << line;
  }
  for (const char* line : {"-m -r3 pkg.mod", "-mr3 pkg.mod", "-mr 3 pkg.mod", "-r3 --module pkg.mod"}) {
    const LaunchFlags flags = Parsed(line);
    EXPECT_TRUE(flags.module) << line;
    EXPECT_EQ(flags.redirects.others, Streams::kBoth) << line;
    EXPECT_THAT(flags.program, ElementsAre("pkg.mod")) << line;
  }
}

TEST(LaunchFlags, KeepsTorchrunsShorteningsWhereAFlagOfOursBeginsAlike) {
  EXPECT_TRUE(Parsed("--no-p ./a.out").no_python);
  EXPECT_EQ(Parsed("--sh 5 t.py").grace, 5s);
  EXPECT_TRUE(Parsed("--share-c t.py").share_cards);
}

TEST(LaunchFlags, TakesAValueThatBeginsWithADashWhereItCanBeNoFlag) {
  EXPECT_THAT(Refusal("--node-rank -1 t.py"), HasSubstr("--node-rank '-1': it must be a whole number from 0 on"));
  const auto flags = ParseLaunchFlags(LaunchStyle::kFulldeck, {"--role", "-x role", "t.py"}, {});
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(flags->role, "-x role");
  EXPECT_THAT(Parsed("-").program, ElementsAre("-"));
}

// Each row: a command line that must be rejected, and a part of the expected message.
TEST(LaunchFlags, RefusesWhatItCannotHonorAndNamesTheFix) {
  struct Row {
    const char* line;
    const char* message;
  };
  const Row rows[] = {
      // The command line itself.
      {"", "no program was given"},
      {"--nproc-per-node 8", "no program was given"},
      {"--role train.py", "no program was given"},
      {"--", "no program was given"},
      {"--nprocs-per-node 8 t.py", "did you mean --nproc-per-node?"},
      {"--n-proc-per-node 8 t.py", "did you mean --nproc-per-node?"},
      {"--stand-alone t.py", "did you mean --standalone?"},
      {"--frobnicate t.py", "unknown flag '--frobnicate'. Flags of your program stand behind it"},
      {"-master_port 5 t.py", "did you mean --master-port?"},
      {"-nnodes 2 t.py", "did you mean --nnodes?"},
      {"-x t.py", "unknown flag '-x'"},
      {"--n 2 t.py", "can be short for"},
      {"--rdzv x t.py", "--rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf"},
      {"--share t.py", "--share-cards, --share-leases"},
      {"--standalone=1 t.py", "--standalone takes no value"},
      {"-mpkg.mod", "--module takes no value"},
      {"--nnodes", "--nnodes needs a value: --nnodes N|MIN:MAX"},
      {"--nnodes --standalone t.py", "--nnodes needs a value"},
      {"--nnodes -- t.py", "--nnodes needs a value"},
      // Size.
      {"--nnodes 0 t.py", "--nnodes '0': at least one host is needed"},
      {"--nnodes -2 t.py", "at least one host is needed"},
      {"--nnodes 4:2 t.py", "MIN is larger than MAX; did you mean 2:4?"},
      {"--nnodes 1:2:3 t.py", "MIN:MAX such as 2:4"},
      {"--nnodes two t.py", "MIN:MAX such as 2:4"},
      {"--nnodes 1: t.py", "MIN:MAX such as 2:4"},
      {"--nnodes= t.py", "MIN:MAX such as 2:4"},
      {"--nnodes 99999999999999999999 t.py", "MIN:MAX such as 2:4"},
      {"--nnodes 1000000 t.py", "more than 4096 hosts"},
      {"--nproc-per-node 0 t.py", "at least one rank is needed; leave the flag at auto"},
      {"--nproc-per-node -8 t.py", "at least one rank is needed"},
      {"--nproc-per-node 100000 t.py", "at most 4096 ranks"},
      {"--nproc-per-node gpus t.py", "did you mean gpu?"},
      {"--nproc-per-node 2.5 t.py", "it must be a number, auto, cpu, gpu or a kind of card"},
      {"--nproc-per-node= t.py", "it must be a number, auto, cpu, gpu or a kind of card"},
      {"--standalone --nnodes 2 t.py", "contradicts --standalone, which is one host"},
      // Cards.
      {"--devices 0 t.py", "card 0 alone is `0,`, and no card at all is `cpu`"},
      {"--devices gcuu t.py", "did you mean gcu?"},
      {"--devices 1,1 t.py", "card 1 comes twice"},
      {"--devices 0,x t.py", "'x' is not the number of a card"},
      {"--devices 3-1 t.py", "'3-1' is not the number of a card"},
      {"--devices -1 t.py", "'-1' is not the number of a card"},
      {"--devices 0-99999999 t.py", "is not the number of a card"},
      {"--devices=,, t.py", "is not the number of a card"},
      {"--devices= t.py", "it must be auto, cpu, a kind"},
      {"--devices cpu --nproc-per-node gpu t.py", "contradicts --devices cpu"},
      {"--devices cpu --nproc-per-node gcu t.py", "contradicts --devices cpu"},
      {"--devices gcu --nproc-per-node cpu t.py", "contradicts --devices gcu"},
      {"--devices 4 --nproc-per-node cpu t.py", "contradicts --devices 4"},
      {"--devices cpu --idle-card fail t.py", "there is no card to look at"},
      {"--devices cpu --idle-card require t.py", "there is no card to look at"},
      {"--idle-card off --idle-card-after 9 t.py", "contradict each other"},
      {"--idle-card maybe t.py", "it must be one of warn, fail, require, off"},
      {"--idle-card-after 0 t.py", "whole number of seconds from 1 on"},
      {"--idle-card-after 1m t.py", "whole number of seconds"},
      {"--torch-plugin /no/such.so t.py", "there is no library /no/such.so"},
      {"--numa-binding numa t.py", "node, socket, exclusive, core-complex"},
      // Several nodes.
      {"--rdzv-backend etcd --nnodes 2 t.py", "the backends are static"},
      {"--rdzv-backend etcd-v2 t.py", "and c10d (as they come)"},
      {"--rdzv-backend zeus t.py", "--rdzv-backend 'zeus'"},
      {"--rdzv-backend= t.py", "the backends are"},
      {"--rdzv-endpoint h:99999 t.py", "a port is a number from 0 to 65535"},
      {"--rdzv-endpoint h:x t.py", "it must be HOST or HOST:PORT"},
      {"--rdzv-endpoint h: t.py", "it must be HOST or HOST:PORT"},
      {"--rdzv-endpoint ::1:29400 t.py", "in brackets: [::1]:29400"},
      {"--rdzv-endpoint tcp://h:1 t.py", "in brackets"},
      {"--rdzv-endpoint :29400 t.py", "the name or the address of a host"},
      {"--rdzv-endpoint a/b:1 t.py", "the name or the address of a host"},
      {"--master-addr h:29500 t.py", "give the port with --master-port"},
      {"--master-addr= t.py", "the name or the address of a host"},
      {"--master-addr [] t.py", "the name or the address of a host"},
      {"--master-port 70000 t.py", "a port is a number from 0 to 65535"},
      {"--master-port x t.py", "a port is a number from 0 to 65535"},
      {"--node-rank one t.py", "whole number from 0 on"},
      {"--node-rank 1 t.py", "--node-rank 1 with one host"},
      {"--nnodes 2 --node-rank 2 --master-addr h t.py", "numbered from 0 to 1"},
      {"--nnodes 2 t.py", "2 hosts need a place to meet"},
      {"--nnodes 2 --node-rank 0 t.py", "2 hosts need a place to meet"},
      {"--nnodes 2 --master-addr h t.py", "which of the 2 hosts is this?"},
      {"--nnodes 2 --rdzv-endpoint h:1 t.py", "--rdzv-backend c10d --rdzv-endpoint h:1"},
      {"--nnodes 2 --rdzv-backend c10d t.py", "2 hosts need a place to meet"},
      {"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:0 t.py", "every host would take another one"},
      {"--nnodes 2 --master-addr h --master-port 0 --node-rank 0 t.py", "every host would take another one"},
      {"--nnodes 1:4 --master-addr h --node-rank 0 t.py", "needs --rdzv-backend c10d"},
      {"--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint h --node-rank 0 t.py", "numbered as they come"},
      {"--nnodes 2 --rdzv-endpoint a:1 --master-addr b --node-rank 0 t.py", "two meeting points"},
      {"--nnodes 2 --rdzv-endpoint a:1 --master-port 2 --node-rank 0 t.py", "contradict each other"},
      {"--rdzv-endpoint a:1 --master-port 2 t.py", "contradict each other"},
      {"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:1 --master-addr b t.py", "two meeting points"},
      {"--rdzv-id a/b t.py", "without '/'"},
      {"--rdzv-id .. t.py", "a plain name"},
      {"--rdzv-id= t.py", "a plain name"},
      {"--role= t.py", "a plain name"},
      {"--rdzv-conf join_timeout t.py", "KEY=VALUE"},
      {"--rdzv-conf =3 t.py", "KEY=VALUE"},
      {"--rdzv-conf timeout=1,, t.py", "KEY=VALUE"},
      {"--rdzv-conf join_timeot=3 t.py", "did you mean join_timeout?"},
      {"--rdzv-conf colour=3 t.py", "there is no key 'colour'"},
      {"--rdzv-conf join_timeout=0 t.py", "from 1 on"},
      {"--rdzv-conf join_timeout=1.5 t.py", "from 1 on"},
      {"--rdzv-conf timeout=5,join_timeout=6 t.py", "the same thing here"},
      {"--rdzv-conf is_host=maybe t.py", "is_host must be true or false"},
      {"--rdzv-conf heartbeat_timeout=9 t.py", "raise keep_alive_interval"},
      {"--rdzv-conf protocol=https t.py", "etcd"},
      {"--rdzv-conf store_type=file t.py", "only tcp can be kept"},
      {"--rdzv-conf rank=-1 t.py", "rank must be the number of this host"},
      {"--node-rank 0 --rdzv-conf rank=1 t.py", "rank=1 contradicts --node-rank 0"},
      {"--nnodes 2 --master-addr h --node-rank 0 --rdzv-conf is_host=1 t.py", "belongs to --rdzv-backend c10d"},
      {"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h --node-rank 1 --rdzv-conf is_host=1 t.py",
       "contradicts --node-rank 1"},
      // Program and ranks.
      {"-m --no-python pkg", "a module needs Python"},
      {"-m --run-path pkg", "a module has a name, not a path"},
      {"--max-restarts -1 t.py", "whole number from 0 on"},
      {"--max-restarts many t.py", "whole number from 0 on"},
      {"--shutdown-timeout -1 t.py", "number of seconds from 0 on"},
      {"--shutdown-timeout soon t.py", "number of seconds from 0 on"},
      {"--shutdown-timeout inf t.py", "number of seconds from 0 on"},
      {"--signals-to-handle SIGFOO t.py", "there is no signal 'SIGFOO'"},
      {"--signals-to-handle= t.py", "there is no signal ''"},
      {"--signals-to-handle SIGTERM,SIGKILL t.py", "SIGKILL cannot stop a run: no process can catch it"},
      {"--signals-to-handle SEGV t.py", "it tells of a fault"},
      {"--signals-to-handle SIGCHLD t.py", "the launcher needs it"},
      {"--monitor-interval never t.py", "a number of seconds"},
      {"--monitor-interval -1 t.py", "a number of seconds"},
      {"--start-method thread t.py", "spawn, fork, forkserver"},
      {"--start-method fork --run-path /t.py", "with --run-path only spawn works"},
      {"--detach --dry-run t.py", "nothing is started"},
      // Output.
      {"-r 4 t.py", "0 (none), 1 (stdout), 2 (stderr) or 3 (both)"},
      {"-r 0:4 t.py", "0 (none)"},
      {"-r 0:1,0:2 t.py", "local rank 0 comes twice"},
      {"-t 0:1, t.py", "0 (none)"},
      {"-t -1:1 t.py", "--tee needs a value"},
      {"--tee= t.py", "0 (none)"},
      {"--local-ranks-filter 0,a t.py", "a list of local ranks such as 0,1,2"},
      {"--local-ranks-filter 0,-1 t.py", "a list of local ranks such as 0,1,2"},
      {"--duplicate-stdout-filters a, t.py", "an empty text would match every line"},
      {"--logs-specs mine t.py", "Python objects"},
      {"--event-log-handler console t.py", "only null works"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(Refusal(row.line), HasSubstr(row.message)) << "line: " << row.line;
  }
}

TEST(LaunchFlags, ReadsTheMostCommonLinesThatUsersWrite) {
  LaunchFlags flags = Parsed("--standalone --nnodes=1 --nproc-per-node=8 train.py --batch-size 32");
  EXPECT_EQ(flags.nproc, 8);
  EXPECT_EQ(flags.rendezvous, Rendezvous::kNone);
  EXPECT_TRUE(flags.standalone);
  EXPECT_TRUE(CheckComplete(flags).ok());

  flags = Parsed("--nproc_per_node=4 --master_port=29501 tools/train.py config.py --launcher pytorch");
  EXPECT_EQ(flags.master_port, 29501);
  EXPECT_THAT(flags.program, ElementsAre("tools/train.py", "config.py", "--launcher", "pytorch"));

  // MMEngine's tools/dist_train.sh.
  flags = Parsed(
      "--nnodes=1 --node_rank=0 --master_addr=127.0.0.1 --nproc_per_node=8 --master_port=29500 t.py --launcher "
      "pytorch");
  EXPECT_EQ(flags.rendezvous, Rendezvous::kNone);
  EXPECT_EQ(flags.master_port, 29500);
  EXPECT_TRUE(CheckComplete(flags).ok());

  flags = Parsed("--nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=29500 --nproc_per_node=8 t.py");
  EXPECT_EQ(flags.rendezvous, Rendezvous::kStatic);
  EXPECT_EQ(flags.endpoint_host, "10.0.0.1");
  EXPECT_EQ(flags.endpoint_port, 29500);
  EXPECT_EQ(flags.node_rank, 1);
  EXPECT_TRUE(CheckComplete(flags).ok());

  flags = Parsed("--nnodes 2 --nproc_per_node 8 --rdzv_id 456 --rdzv_backend c10d --rdzv_endpoint head:29400 t.py");
  EXPECT_EQ(flags.rendezvous, Rendezvous::kC10d);
  EXPECT_EQ(flags.endpoint_host, "head");
  EXPECT_EQ(flags.endpoint_port, 29400);
  EXPECT_EQ(flags.rdzv_id, "456");
  EXPECT_FALSE(flags.node_rank.has_value());
  EXPECT_TRUE(CheckComplete(flags).ok());

  flags = Parsed(
      "--nnodes=1:4 --nproc-per-node=8 --max-restarts=3 --rdzv-id=job --rdzv-backend=c10d --rdzv-endpoint=h t.py");
  EXPECT_EQ(flags.min_nodes, 1);
  EXPECT_EQ(flags.max_nodes, 4);
  EXPECT_EQ(flags.max_restarts, 3);
  EXPECT_EQ(flags.endpoint_port, 29400) << "torchrun's default for c10d";
  EXPECT_TRUE(CheckComplete(flags).ok());

  flags = Parsed("--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=2 t.py");
  EXPECT_EQ(flags.rendezvous, Rendezvous::kNone);
  EXPECT_EQ(flags.endpoint_host, "127.0.0.1");
  EXPECT_FALSE(flags.master_port.has_value());

  flags = Parsed("--use_env --nproc_per_node=2 t.py", {}, LaunchStyle::kLaunch);
  EXPECT_FALSE(flags.add_local_rank);

  flags = Parsed("--no_python --nproc_per_node 2 /bin/true");
  EXPECT_TRUE(flags.no_python);

  flags = Parsed("-m torch.utils.collect_env");
  EXPECT_TRUE(flags.module);
}

TEST(LaunchFlags, KnowsWhichPortOnOneNodeIsRankZerosStore) {
  struct Row {
    const char* line;
    std::optional<int> master_port;
    const char* host;
  };
  const Row rows[] = {
      {"t.py", std::nullopt, "127.0.0.1"},
      {"--master-port 0 t.py", std::nullopt, "127.0.0.1"},
      {"--master-port 29501 t.py", 29501, "127.0.0.1"},
      {"--standalone --master-port 29501 t.py", 29501, "127.0.0.1"},
      {"--master-addr localhost --master-port 29501 t.py", 29501, "127.0.0.1"},
      {"--master-addr 10.0.0.7 --master-port 29501 t.py", 29501, "10.0.0.7"},
      {"--master-addr [::1] --master-port 29501 t.py", 29501, "::1"},
      // c10d: the endpoint is torchrun's rendezvous, and its MASTER_PORT is a different port.
      {"--rdzv-backend c10d --rdzv-endpoint localhost:29400 t.py", std::nullopt, "127.0.0.1"},
      {"--rdzv-backend c10d --rdzv-endpoint [::1]:29400 t.py", std::nullopt, "127.0.0.1"},
      {"--standalone --rdzv-endpoint localhost:29400 t.py", std::nullopt, "127.0.0.1"},
      {"--rdzv-backend c10d --rdzv-endpoint h:1 --master-port 7 t.py", 7, "127.0.0.1"},
      // static: torchrun's endpoint is MASTER_ADDR and MASTER_PORT.
      {"--rdzv-endpoint localhost:29400 t.py", 29400, "127.0.0.1"},
      {"--rdzv-backend static --rdzv-endpoint 10.0.0.7:29400 t.py", 29400, "10.0.0.7"},
      {"--rdzv-endpoint localhost:0 t.py", std::nullopt, "127.0.0.1"},
      {"--rdzv-endpoint localhost --master-port 5 t.py", 5, "127.0.0.1"},
      {"--local-addr 10.0.0.7 t.py", std::nullopt, "10.0.0.7"},
  };
  for (const Row& row : rows) {
    const LaunchFlags flags = Parsed(row.line);
    EXPECT_EQ(flags.rendezvous, Rendezvous::kNone) << row.line;
    EXPECT_EQ(flags.master_port, row.master_port) << row.line;
    EXPECT_EQ(flags.endpoint_host, row.host) << row.line;
    EXPECT_TRUE(CheckComplete(flags).ok()) << row.line;
  }
}

TEST(LaunchFlags, FindsTheRendezvousOfSeveralNodes) {
  struct Row {
    const char* line;
    Rendezvous rendezvous;
    const char* host;
    int port;
    std::optional<int> master_port;
  };
  const Row rows[] = {
      {"--master-addr h --node-rank 0", Rendezvous::kStatic, "h", 29500, std::nullopt},
      {"--master-addr h --master-port 5 --node-rank 0", Rendezvous::kStatic, "h", 5, std::nullopt},
      {"--rdzv-endpoint h:5 --node-rank 0", Rendezvous::kStatic, "h", 5, std::nullopt},
      {"--rdzv-endpoint h --master-port 5 --node-rank 0", Rendezvous::kStatic, "h", 5, std::nullopt},
      {"--rdzv-endpoint h:5 --master-addr h --master-port 5 --node-rank 1", Rendezvous::kStatic, "h", 5, std::nullopt},
      {"--rdzv-endpoint h --rdzv-conf rank=1", Rendezvous::kStatic, "h", 29500, std::nullopt},
      {"--rdzv-backend c10d --rdzv-endpoint h", Rendezvous::kC10d, "h", 29400, std::nullopt},
      {"--rdzv-backend c10d --rdzv-endpoint [fe80::1%eth0]:7", Rendezvous::kC10d, "fe80::1%eth0", 7, std::nullopt},
      {"--rdzv-backend c10d --rdzv-endpoint [fe80::1]", Rendezvous::kC10d, "fe80::1", 29400, std::nullopt},
      {"--rdzv-backend c10d --rdzv-endpoint h:7 --master-port 8", Rendezvous::kC10d, "h", 7, 8},
      {"--rdzv-backend c10d --rdzv-endpoint h:7 --master-addr h --master-port 7", Rendezvous::kC10d, "h", 7,
       std::nullopt},
      {"--rdzv-backend c10d --master-addr h --master-port 8", Rendezvous::kC10d, "h", 8, std::nullopt},
      {"--rdzv-backend c10d --master-addr h", Rendezvous::kC10d, "h", 29400, std::nullopt},
      {"--rdzv-backend c10d --rdzv-endpoint h --node-rank 1", Rendezvous::kC10d, "h", 29400, std::nullopt},
  };
  for (const Row& row : rows) {
    const auto flags = ParseAndCheck(std::string("--nnodes 2 ") + row.line + " t.py");
    ASSERT_TRUE(flags.ok()) << row.line << ": " << flags.error().message;
    EXPECT_EQ(flags->rendezvous, row.rendezvous) << row.line;
    EXPECT_EQ(flags->endpoint_host, row.host) << row.line;
    EXPECT_EQ(flags->endpoint_port, row.port) << row.line;
    EXPECT_EQ(flags->master_port, row.master_port) << row.line;
  }
}

TEST(LaunchFlags, HonorsTheRendezvousConfiguration) {
  const LaunchFlags flags = Parsed(
      "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h "
      "--rdzv-conf "
      "join_timeout=900,last_call_timeout=5,is_host=0,keep_alive_interval=10,close_timeout=9,read_timeout=60,"
      "store_type=tcp t.py");
  EXPECT_EQ(flags.join_timeout, 900s);
  EXPECT_EQ(flags.last_call_timeout, 5s);
  EXPECT_EQ(flags.silence_limit, 30s) << "10 s, three times";
  EXPECT_EQ(flags.is_host, false);
  EXPECT_EQ(Parsed("--rdzv-conf timeout=7 t.py").join_timeout, 7s);
  EXPECT_EQ(Parsed("--rdzv-conf timeout=7,join_timeout=7 t.py").join_timeout, 7s);
  EXPECT_EQ(Parsed("--rdzv-conf keep_alive_max_attempt=4 t.py").silence_limit, 20s);
  EXPECT_FALSE(Parsed("t.py").silence_limit.has_value());
  EXPECT_EQ(Parsed("--rdzv-conf is_host=Yes t.py").is_host, true);
}

TEST(LaunchFlags, TakesNoneAsNoRendezvousId) {
  EXPECT_FALSE(Parsed("--rdzv-id none t.py").rdzv_id.has_value());
  EXPECT_FALSE(Parsed("--rdzv-id=none t.py", {{"PET_RDZV_ID", "x"}}).rdzv_id.has_value());
}

TEST(LaunchFlags, ReadsRanksOfAnyWidthInStreamMaps) {
  const LaunchFlags flags = Parsed("-r 0:1,12:3 --tee 7:0,100:2 --local-ranks-filter 3,1,1 t.py");
  EXPECT_EQ(flags.redirects.For(0), Streams::kStdout);
  EXPECT_EQ(flags.redirects.For(12), Streams::kBoth);
  EXPECT_EQ(flags.redirects.For(1), Streams::kNone);
  ASSERT_TRUE(flags.tee.has_value());
  EXPECT_EQ(flags.tee->For(7), Streams::kNone);
  EXPECT_EQ(flags.tee->For(100), Streams::kStderr);
  EXPECT_THAT(flags.shown_local_ranks, ElementsAre(1, 3));
  EXPECT_FALSE(Parsed("t.py").tee.has_value());
  EXPECT_EQ(Parsed("-t0 t.py").tee->For(5), Streams::kNone);
}

TEST(LaunchFlags, SplitsFiltersAtSingleCommasOnly) {
  const LaunchFlags flags = Parsed("--duplicate-stdout-filters apple,orange --duplicate_stderr_filters a,,b,c t.py");
  EXPECT_THAT(flags.stdout_filters, ElementsAre("apple", "orange"));
  EXPECT_THAT(flags.stderr_filters, ElementsAre("a,b", "c"));
  EXPECT_THAT(Parsed("--duplicate-stdout-filters= t.py").stdout_filters, IsEmpty());
}

TEST(LaunchFlags, ReadsSignalsWithAndWithoutSig) {
  EXPECT_THAT(Parsed("--signals-to-handle SIGTERM,usr1,SIGUSR2,TERM t.py").stop_signals,
              ElementsAre(SIGTERM, SIGUSR1, SIGUSR2));
  EXPECT_THAT(Parsed("t.py").stop_signals, IsEmpty());
}

TEST(LaunchFlags, ReadsTheRest) {
  const LaunchFlags flags = Parsed(
      "--devices 0-2,5 --share-cards --share-leases --idle-card fail --idle-card-after 15 --no-agent --dry-run "
      "--no-progress --numa-binding core-complex --virtual-local-rank --shutdown-timeout 2.5 --role trainer "
      "--log-dir /var/log/x --monitor-interval .5 --start-method fork --event-log-handler null t.py");
  EXPECT_EQ(flags.devices, "0-2,5");
  EXPECT_TRUE(flags.share_cards);
  EXPECT_TRUE(flags.ignore_leases);
  EXPECT_EQ(flags.idle_card, IdleCardPolicy::kFail);
  EXPECT_EQ(flags.idle_card_after, 15s);
  EXPECT_FALSE(flags.agent);
  EXPECT_TRUE(flags.dry_run);
  EXPECT_FALSE(flags.progress);
  EXPECT_EQ(flags.numa_binding, NumaBinding::kCoreComplex);
  EXPECT_TRUE(flags.virtual_local_rank);
  EXPECT_EQ(flags.grace, 2500ms);
  EXPECT_EQ(flags.role, "trainer");
  EXPECT_EQ(flags.log_dir, "/var/log/x");
  EXPECT_TRUE(Parsed("--detach t.py").detach);
  EXPECT_EQ(Parsed("--torch-plugin /proc/./version:/proc/stat t.py").torch_plugins, "/proc/version:/proc/stat");
  const LaunchFlags adapters =
      Parsed("--place --trace-ddp --no-probe --timeout 90.5 --accelerate-config /proc/./version t.py");
  EXPECT_TRUE(adapters.adapt && adapters.place && adapters.trace_ddp && !adapters.probe);
  EXPECT_EQ(adapters.timeout, 90500ms);
  EXPECT_EQ(adapters.accelerate_config, "/proc/version");
  EXPECT_FALSE(Parsed("--no-adapt t.py").adapt);
  for (const char* number : {"5", "0.1", ".5", "5.", "1e-3", "2E+1", "0"}) {
    EXPECT_TRUE(Parse(std::string("--monitor-interval ") + number + " t.py").ok()) << number;
  }
  EXPECT_EQ(Parsed("--shutdown-timeout 0 t.py").grace, 0ms);
}

TEST(LaunchFlags, RefusesWhatAdaptersCannotReceive) {
  EXPECT_THAT(Refusal("--timeout 0 t.py"), HasSubstr("number of seconds above 0"));
  EXPECT_THAT(Refusal("--timeout soon t.py"), HasSubstr("number of seconds above 0"));
  EXPECT_THAT(Refusal("--accelerate-config /no/such.yaml t.py"), HasSubstr("there is no file /no/such.yaml"));
  EXPECT_THAT(Refusal("--no-adapt --place t.py"), HasSubstr("which --no-adapt leaves out"));
  EXPECT_THAT(Refusal("--no-agent --timeout 5 t.py"), HasSubstr("which --no-agent leaves out"));
}

TEST(LaunchFlags, RunsARunPathAsAScript) {
  const LaunchFlags flags = Parsed("--run-path --no-python /abs/t.py");
  EXPECT_TRUE(flags.run_path);
  EXPECT_FALSE(flags.no_python) << "torchrun documents that --run-path wins";
  EXPECT_TRUE(Parse("--run-path --start-method spawn /abs/t.py").ok());
}

TEST(LaunchFlags, WantsUseEnvWithNoPythonInLaunchMode) {
  EXPECT_THAT(Refusal("--no-python ./a.out", {}, LaunchStyle::kLaunch), HasSubstr("add --use-env"));
  EXPECT_TRUE(Parse("--no-python --use-env ./a.out", {}, LaunchStyle::kLaunch).ok());
}

TEST(LaunchFlags, StopsAtHelp) {
  const LaunchFlags flags = Parsed("--nnodes 2 --help --nonsense");
  EXPECT_TRUE(flags.help);
  EXPECT_TRUE(Parsed("-h").help);
  EXPECT_FALSE(Parsed("t.py --help").help);
}

TEST(LaunchFlags, TakesItsDefaultsFromTheVariablesThatKubeflowSets) {
  const base::Environment kubeflow = {{"PET_NNODES", "2"},
                                      {"PET_NPROC_PER_NODE", "8"},
                                      {"PET_NODE_RANK", "1"},
                                      {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                      {"PET_MASTER_PORT", "29400"}};
  const auto flags = ParseAndCheck("t.py", kubeflow);
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->max_nodes, 2);
  EXPECT_TRUE(flags->nodes_given);
  EXPECT_EQ(flags->nproc, 8);
  EXPECT_EQ(flags->node_rank, 1);
  EXPECT_EQ(flags->rendezvous, Rendezvous::kStatic);
  EXPECT_EQ(flags->endpoint_host, "job-node-0-0.job");
  EXPECT_EQ(flags->endpoint_port, 29400);

  const base::Environment elastic = {{"PET_NNODES", "1:3"},
                                     {"PET_RDZV_BACKEND", "c10d"},
                                     {"PET_RDZV_ENDPOINT", "job-worker-0:23456"},
                                     {"PET_RDZV_ID", "job"},
                                     {"PET_MAX_RESTARTS", "3"}};
  const auto few = ParseAndCheck("t.py", elastic);
  ASSERT_TRUE(few.ok()) << few.error().message;
  EXPECT_EQ(few->min_nodes, 1);
  EXPECT_EQ(few->max_nodes, 3);
  EXPECT_EQ(few->rendezvous, Rendezvous::kC10d);
  EXPECT_EQ(few->max_restarts, 3);
}

TEST(LaunchFlags, HasAPetVariableForEveryFlagOfTorchrunThatHasOneThere) {
  std::set<std::string> without;
  for (const FlagRow& row : LaunchFlagTable()) {
    if (row.is_torchruns && !row.has_pet) without.insert(row.LongName());
    if (!row.is_torchruns) {
      EXPECT_FALSE(row.has_pet) << row.names;
    }
  }
  EXPECT_THAT(without, ElementsAre("--help", "--logs-specs", "--numa-binding", "--use-env"));
}

TEST(LaunchFlags, LetsAFlagWinOverItsVariable) {
  EXPECT_EQ(Parsed("--nproc-per-node 2 t.py", {{"PET_NPROC_PER_NODE", "garbage"}}).nproc, 2);
  EXPECT_EQ(Parsed("t.py", {{"PET_NPROC_PER_NODE", "4"}}, LaunchStyle::kTorchrun).nproc, 4);
  EXPECT_TRUE(Parsed("--standalone t.py", {{"PET_STANDALONE", "0"}}).standalone);
  // A rendezvous endpoint on the command line overrides one in another form from the environment.
  LaunchFlags flags = Parsed("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:7 t.py",
                             {{"PET_MASTER_ADDR", "other"}, {"PET_MASTER_PORT", "9"}});
  EXPECT_EQ(flags.endpoint_host, "h");
  EXPECT_FALSE(flags.master_port.has_value());
  flags = Parsed("--nnodes 2 --node-rank 0 --master-addr h t.py", {{"PET_RDZV_ENDPOINT", "other:9"}});
  EXPECT_EQ(flags.endpoint_host, "h");
  EXPECT_EQ(flags.endpoint_port, 29500);
}

TEST(LaunchFlags, ReadsSwitchesFromVariablesAsTorchrunDoes) {
  EXPECT_TRUE(Parsed("t.py", {{"PET_STANDALONE", "1"}}).standalone);
  EXPECT_FALSE(Parsed("t.py", {{"PET_STANDALONE", "0"}}).standalone);
  EXPECT_TRUE(Parsed("t.py", {{"PET_MODULE", "1"}}).module);
  EXPECT_EQ(Parsed("t.py", {{"PET_REDIRECTS", "3"}}).redirects.others, Streams::kBoth);
  EXPECT_EQ(Parsed("t.py", {{"PET_TEE", "0:1"}}).tee->For(0), Streams::kStdout);
}

TEST(LaunchFlags, NamesTheVariableWhoseValueIsBad) {
  struct Row {
    const char* variable;
    const char* value;
    const char* message;
  };
  const Row rows[] = {
      {"PET_NNODES", "two", "PET_NNODES='two': it must be a number of hosts"},
      {"PET_NNODES", "", "PET_NNODES='': it must be a number of hosts"},
      {"PET_NPROC_PER_NODE", "0", "PET_NPROC_PER_NODE='0': at least one rank"},
      {"PET_STANDALONE", "true", "PET_STANDALONE='true': it is a switch"},
      {"PET_MAX_RESTARTS", "", "PET_MAX_RESTARTS=''"},
      {"PET_MASTER_PORT", "tcp://10.0.0.1:80", "PET_MASTER_PORT='tcp://10.0.0.1:80'"},
      {"PET_RDZV_BACKEND", "etcd", "PET_RDZV_BACKEND='etcd'"},
      {"PET_NODE_RANK", "1", "--node-rank 1 with one host"},
      {"PET_SIGNALS_TO_HANDLE", "SIGKILL", "PET_SIGNALS_TO_HANDLE='SIGKILL'"},
      {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "long", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT='long'"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(Refusal("t.py", {{row.variable, row.value}}), HasSubstr(row.message)) << row.variable;
  }
  EXPECT_THAT(Refusal("--nnodes 2 t.py", {{"PET_STANDALONE", "1"}}), HasSubstr("contradicts PET_STANDALONE"));
}

TEST(LaunchFlags, TakesEmptyVariablesOfTextsAsNotGiven) {
  for (const char* variable : {"PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOG_DIR", "PET_LOCAL_RANKS_FILTER",
                               "PET_DUPLICATE_STDOUT_FILTERS"}) {
    EXPECT_TRUE(Parse("t.py", {{variable, ""}}).ok()) << variable;
  }
  EXPECT_TRUE(Parse("--rdzv-endpoint= t.py").ok());
}

TEST(LaunchFlags, TakesTheGraceTimeFromTorchrunsVariable) {
  EXPECT_EQ(Parsed("t.py", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90"}}).grace, 90s);
  EXPECT_EQ(Parsed("--shutdown-timeout 5 t.py", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90"}}).grace, 5s);
  EXPECT_EQ(Parsed("t.py", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90"}, {"PET_SHUTDOWN_TIMEOUT", "7"}}).grace, 7s);
}

TEST(LaunchFlags, NeverShowsControlCharactersOrEndlessTexts) {
  const std::string evil = "--\x1b[31m" + std::string(100'000, 'x');
  const auto unknown = ParseLaunchFlags(LaunchStyle::kFulldeck, {evil, "t.py"}, {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, Not(HasSubstr("\x1b")));
  EXPECT_LT(unknown.error().message.size(), 600U);
  const auto value = ParseLaunchFlags(LaunchStyle::kFulldeck, {"--nnodes", evil.substr(2), "t.py"}, {});
  ASSERT_FALSE(value.ok());
  EXPECT_THAT(value.error().message, Not(HasSubstr("\x1b")));
  EXPECT_LT(value.error().message.size(), 600U);
}

TEST(LaunchFlagTable, KeepsRowsOfAGroupTogetherAndEveryNameOnce) {
  std::set<std::string> names;
  std::set<FlagId> ids;
  std::vector<std::string> groups;
  for (const FlagRow& row : LaunchFlagTable()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.names;
    for (const std::string_view name : base::Split(row.names, ',')) {
      EXPECT_TRUE(names.insert(std::string(name)).second) << name;
    }
    EXPECT_EQ(row.help[std::string_view(row.help).size() - 1], '.') << row.names;
    if (groups.empty() || groups.back() != row.group) groups.emplace_back(row.group);
  }
  EXPECT_EQ(std::set<std::string>(groups.begin(), groups.end()).size(), groups.size());
}

TEST(LaunchFlagTable, NamesThePetVariableAsTorchrunDoes) {
  for (const FlagRow& row : LaunchFlagTable()) {
    if (row.id == FlagId::kTee) {
      EXPECT_EQ(row.PetVariable(), "PET_TEE");
    }
    if (row.id == FlagId::kNprocPerNode) {
      EXPECT_EQ(row.PetVariable(), "PET_NPROC_PER_NODE");
    }
  }
}

TEST(LaunchHelp, ShowsEveryFlagWithinAHundredColumns) {
  for (const LaunchStyle style : {LaunchStyle::kFulldeck, LaunchStyle::kTorchrun, LaunchStyle::kLaunch}) {
    const std::string help = LaunchHelp(style);
    for (const FlagRow& row : LaunchFlagTable()) EXPECT_THAT(help, HasSubstr(" " + row.LongName())) << row.names;
    std::string_view text = help;
    for (const std::string_view line : base::Split(text, '\n')) {
      std::size_t columns = 0;
      for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      EXPECT_LE(columns, 100U) << line;
    }
    EXPECT_THAT(help, AllOf(HasSubstr("Usage: "), HasSubstr("Examples:")));
  }
  EXPECT_THAT(LaunchHelp(LaunchStyle::kTorchrun), HasSubstr("Usage: torchrun "));
}

}  // namespace
}  // namespace fulldeck::job
