#include "job/launch/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace fulldeck::job {
namespace {

using base::Environment;
using testing::HasSubstr;

// As srun sets them for one task.
Environment SlurmStep(int nodes, int per_node, int task) {
  const std::string count = std::to_string(nodes * per_node);
  const std::string list = nodes == 1 ? "host0" : "host[0-" + std::to_string(nodes - 1) + "]";
  const std::string tasks = std::to_string(per_node) + (nodes > 1 ? "(x" + std::to_string(nodes) + ")" : "");
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOBID", "4711"},
          {"SLURM_JOB_NUM_NODES", std::to_string(nodes)},
          {"SLURM_NNODES", std::to_string(nodes)},
          {"SLURM_JOB_NODELIST", list},
          {"SLURM_NTASKS", count},
          {"SLURM_TASKS_PER_NODE", tasks},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_NODES", std::to_string(nodes)},
          {"SLURM_STEP_NUM_TASKS", count},
          {"SLURM_STEP_TASKS_PER_NODE", tasks},
          {"SLURM_STEP_NODELIST", list},
          {"SLURM_PROCID", std::to_string(task)},
          {"SLURM_NODEID", std::to_string(task / per_node)},
          {"SLURM_LOCALID", std::to_string(task % per_node)},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
}

// The batch script of the same job: task variables, but no step.
Environment SlurmBatch(int nodes, int per_node) {
  Environment batch = SlurmStep(nodes, per_node, 0);
  for (const char* name : {"SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
                           "SLURM_STEP_NODELIST", "SLURM_LAUNCH_NODE_IPADDR"}) {
    batch.Remove(name);
  }
  return batch;
}

Environment With(Environment environment, const std::string& name, const std::string& value) {
  environment.Set(name, value);
  return environment;
}

Environment OpenMpi(int size, int rank, int local_size, int local_rank) {
  return {{"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_NODE_RANK", std::to_string(local_rank)},
          {"PMIX_NAMESPACE", "3226796033"}};
}

ClusterPlace Place(const Environment& environment) {
  const auto place = ReadCluster(environment);
  EXPECT_TRUE(place.ok()) << (place.ok() ? "" : place.error().message);
  EXPECT_TRUE(place.ok() && place->has_value());
  return place.ok() && *place ? **place : ClusterPlace();
}

bool IsAlone(const Environment& environment) {
  const auto place = ReadCluster(environment);
  EXPECT_TRUE(place.ok()) << (place.ok() ? "" : place.error().message);
  return place.ok() && !place->has_value();
}

// The flags of `line` with the cluster's values applied, or the error message.
struct Applied {
  LaunchFlags flags;
  std::string refusal;
};
Applied Apply(const Environment& environment, std::string_view line) {
  std::vector<std::string> words;
  for (const std::string_view word : base::Split(line, ' ')) words.emplace_back(word);
  const auto flags = ParseLaunchFlags(LaunchStyle::kFulldeck, words, environment);
  if (!flags) return {{}, flags.error().message};
  Applied applied{*flags, ""};
  const auto place = ReadCluster(environment);
  if (!place) return {{}, place.error().message};
  if (*place) {
    const auto done = ApplyCluster(**place, applied.flags);
    if (!done) return {{}, done.error().message};
  }
  const auto complete = CheckComplete(applied.flags);
  if (!complete) applied.refusal = complete.error().message;
  return applied;
}

TEST(Cluster, IsNotThereOnAnOrdinaryMachine) {
  EXPECT_TRUE(IsAlone({}));
  EXPECT_TRUE(IsAlone({{"HOME", "/root"}, {"PMIX_NAMESPACE", "x"}}));
}

TEST(Cluster, KnowsEachLauncherOfAnSrunStep) {
  std::optional<int> port;
  for (int task = 0; task < 2; ++task) {
    const ClusterPlace place = Place(SlurmStep(2, 1, task));
    EXPECT_EQ(place.manager, "Slurm");
    EXPECT_EQ(place.launchers, 2);
    EXPECT_EQ(place.launcher, task);
    EXPECT_EQ(place.local_launchers, 1);
    EXPECT_EQ(place.local_launcher, 0);
    EXPECT_EQ(place.first_host, "host0");
    EXPECT_EQ(place.job_id, "slurm-4711.0");
    ASSERT_TRUE(place.port.has_value());
    EXPECT_GE(*place.port, 20000);
    EXPECT_LT(*place.port, 29400);
    if (port) {
      EXPECT_EQ(place.port, port) << "every launcher must find the same port";
    }
    port = place.port;
  }
}

TEST(Cluster, TakesAnotherPortForAnotherJobStepOrRequeue) {
  const Environment step = SlurmStep(2, 1, 0);
  const ClusterPlace first = Place(step);
  const ClusterPlace requeued = Place(With(step, "SLURM_RESTART_COUNT", "1"));
  EXPECT_NE(requeued.port, first.port);
  EXPECT_EQ(requeued.job_id, "slurm-4711.0-restart1");
  EXPECT_EQ(Place(With(step, "SLURM_RESTART_COUNT", "0")).port, first.port);
  EXPECT_NE(Place(With(step, "SLURM_STEP_ID", "1")).port, first.port);
  EXPECT_NE(Place(With(step, "SLURM_JOB_ID", "4712")).port, first.port);
}

TEST(Cluster, SharesANodeAmongItsLaunchers) {
  const ClusterPlace place = Place(SlurmStep(2, 8, 11));
  EXPECT_EQ(place.launchers, 16);
  EXPECT_EQ(place.launcher, 11);
  EXPECT_EQ(place.local_launchers, 8);
  EXPECT_EQ(place.local_launcher, 3);
  const Environment uneven =
      With(With(SlurmStep(2, 2, 2), "SLURM_STEP_NUM_TASKS", "3"), "SLURM_STEP_TASKS_PER_NODE", "2,1");
  EXPECT_EQ(Place(uneven).local_launchers, 1);
}

TEST(Cluster, UsesLoopbackWhenAllLaunchersAreOnOneNode) {
  EXPECT_EQ(Place(SlurmStep(1, 2, 1)).first_host, "127.0.0.1");
}

TEST(Cluster, BelievesTheStepAndNotTheJobAroundIt) {
  // srun -N2 -n2 inside a job of 4 nodes with 8 tasks each.
  Environment step = SlurmStep(2, 1, 1);
  step.Set("SLURM_NTASKS", "32");
  step.Set("SLURM_JOB_NUM_NODES", "4");
  step.Set("SLURM_TASKS_PER_NODE", "8(x4)");
  step.Set("SLURM_JOB_NODELIST", "other[0-3]");
  const ClusterPlace place = Place(step);
  EXPECT_EQ(place.launchers, 2);
  EXPECT_EQ(place.local_launchers, 1);
  EXPECT_EQ(place.first_host, "host0");
}

TEST(Cluster, IsAloneInABatchScriptWhateverTheJobHas) {
  const Environment batch = SlurmBatch(4, 8);
  EXPECT_TRUE(IsAlone(batch));
  EXPECT_TRUE(IsAlone(With(batch, "SLURM_STEP_ID", "4294967291"))) << "the batch script, as it may be numbered";
  EXPECT_TRUE(IsAlone(With(batch, "SLURM_STEP_ID", "4294967290"))) << "an interactive shell of salloc";
  EXPECT_TRUE(IsAlone(SlurmStep(1, 1, 0)));
  EXPECT_EQ(Apply(batch, "t.py").flags.max_nodes, 1) << "it must not wait for launchers that nobody started";
}

TEST(Cluster, HintsAtNodesThatALoneLauncherLeavesIdle) {
  EXPECT_THAT(HintForLoneLauncher(SlurmBatch(4, 8)).value_or(""),
              HasSubstr("4 hosts, and fulldeck runs on one of them"));
  EXPECT_FALSE(HintForLoneLauncher(SlurmBatch(1, 8)).has_value());
  EXPECT_FALSE(HintForLoneLauncher(SlurmStep(1, 1, 0)).has_value());
  EXPECT_FALSE(HintForLoneLauncher(SlurmStep(2, 1, 0)).has_value());
  EXPECT_FALSE(HintForLoneLauncher({}).has_value());
}

TEST(Cluster, RefusesVariablesOfSlurmThatContradictEachOther) {
  struct Row {
    const char* name;
    const char* value;
    const char* message;
  };
  const Row rows[] = {
      {"SLURM_PROCID", "2", "this is number 2 of 2 launchers"},
      {"SLURM_PROCID", "-1", "this is number -1 of 2 launchers"},
      {"SLURM_PROCID", "x", "is no number"},
      {"SLURM_STEP_NUM_TASKS", "many", "is no number"},
      {"SLURM_STEP_NUM_TASKS", "0", "of 0 launchers"},
      {"SLURM_STEP_NUM_TASKS", "99999999", "of 99999999 launchers"},
      {"SLURM_LOCALID", "1", "number 1 of 1 launchers on this host"},
      {"SLURM_STEP_TASKS_PER_NODE", "9", "launchers on this host, of 2 in all"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x", "does not say how many of them share this host"},
      {"SLURM_STEP_TASKS_PER_NODE", "0", "does not say how many of them share this host"},
      {"SLURM_NODEID", "99999999999", "does not say how many of them share this host"},
      {"SLURM_STEP_NODELIST", "host[0-", "Slurm's list of hosts cannot be read"},
  };
  for (const Row& row : rows) {
    const auto place = ReadCluster(With(SlurmStep(2, 1, 0), row.name, row.value));
    ASSERT_FALSE(place.ok()) << row.name << "=" << row.value;
    EXPECT_THAT(place.error().message, HasSubstr(row.message)) << row.name << "=" << row.value;
  }
}

TEST(Cluster, KnowsTheLaunchersOfMpirun) {
  const ClusterPlace place = Place(OpenMpi(2, 1, 2, 1));
  EXPECT_EQ(place.manager, "OpenMPI");
  EXPECT_EQ(place.launchers, 2);
  EXPECT_EQ(place.launcher, 1);
  EXPECT_EQ(place.local_launchers, 2);
  EXPECT_EQ(place.local_launcher, 1);
  EXPECT_EQ(place.first_host, "127.0.0.1");
  EXPECT_EQ(place.job_id, "mpirun-3226796033");
  EXPECT_EQ(place.port, Place(OpenMpi(2, 0, 2, 0)).port);
  EXPECT_TRUE(IsAlone(OpenMpi(1, 0, 1, 0)));
  EXPECT_FALSE(ReadCluster(OpenMpi(2, 2, 2, 0)).ok());
}

TEST(Cluster, MakesAPlainNameOfAnyJobId) {
  const ClusterPlace place = Place(With(OpenMpi(2, 1, 2, 1), "PMIX_NAMESPACE", "prterun-node@1/../x"));
  EXPECT_EQ(place.job_id, "mpirun-prterun-node_1_.._x");
}

TEST(Cluster, WantsAnAddressWhereMpirunGivesNone) {
  const Applied applied = Apply(OpenMpi(2, 1, 1, 0), "t.py");
  EXPECT_THAT(applied.refusal,
              HasSubstr("OpenMPI started 2 launchers, and OpenMPI does not tell where the first one is"));
  EXPECT_THAT(applied.refusal, HasSubstr("--master-addr"));
  const Applied named = Apply(OpenMpi(2, 1, 1, 0), "--master-addr node0 t.py");
  EXPECT_EQ(named.refusal, "");
  EXPECT_EQ(named.flags.node_rank, 1);
  EXPECT_EQ(named.flags.endpoint_host, "node0");
  EXPECT_EQ(named.flags.max_nodes, 2);
  EXPECT_EQ(named.flags.endpoint_port, Place(OpenMpi(2, 0, 1, 0)).port);
}

TEST(Cluster, BelievesMpirunBeforeTheSlurmJobAroundIt) {
  // mpirun starts its helpers as one srun step, so Slurm's task number is the helper's.
  Environment both = SlurmStep(2, 1, 1);
  const Environment mpirun = OpenMpi(4, 3, 2, 1);
  for (const auto& variable : mpirun.all()) both.Set(variable.first, variable.second);
  const ClusterPlace place = Place(both);
  EXPECT_EQ(place.manager, "OpenMPI");
  EXPECT_EQ(place.launcher, 3);
  EXPECT_EQ(place.local_launchers, 2);
  EXPECT_EQ(place.first_host, "host0") << "the job's list tells what mpirun does not";
  both.Set("SLURM_JOB_NODELIST", "[");
  EXPECT_FALSE(ReadCluster(both).ok());
}

TEST(Cluster, KnowsTheLaunchersOfMpich) {
  const Environment mpich = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "7"}};
  const ClusterPlace place = Place(mpich);
  EXPECT_EQ(place.manager, "MPICH");
  EXPECT_EQ(place.launchers, 2);
  EXPECT_EQ(place.launcher, 1);
  EXPECT_EQ(place.local_launcher, 1);
  EXPECT_EQ(place.first_host, "127.0.0.1");
  EXPECT_FALSE(place.port.has_value());
  EXPECT_EQ(Apply(mpich, "t.py").flags.endpoint_port, 29500);
  const auto unknown = ReadCluster({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("how many of them share this host"));
  EXPECT_TRUE(IsAlone({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
}

TEST(Cluster, BelievesSlurmWhereItsOwnPmiSetsVariablesToo) {
  EXPECT_EQ(Place(With(With(SlurmStep(2, 1, 1), "PMI_RANK", "1"), "PMI_SIZE", "2")).manager, "Slurm");
}

TEST(Cluster, GivesAPodItsNumberOnlyWhenSeveralNodesWereRequested) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "1"}};
  const ClusterPlace place = Place(pod);
  EXPECT_EQ(place.manager, "Kubernetes");
  EXPECT_FALSE(place.launchers.has_value());
  const Applied alone = Apply(pod, "t.py");
  EXPECT_EQ(alone.refusal, "");
  EXPECT_EQ(alone.flags.max_nodes, 1);
  EXPECT_FALSE(alone.flags.node_rank.has_value());
  const Applied two = Apply(pod, "--nnodes 2 --master-addr job-0.svc t.py");
  EXPECT_EQ(two.refusal, "");
  EXPECT_EQ(two.flags.node_rank, 1);
  EXPECT_EQ(Apply(pod, "--nnodes 2 --node-rank 0 --master-addr job-0.svc t.py").flags.node_rank, 0);
  EXPECT_FALSE(Apply(pod, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint job-0.svc t.py").flags.node_rank.has_value());
  EXPECT_THAT(Apply({{"JOB_COMPLETION_INDEX", "5"}}, "--nnodes 2 --master-addr h t.py").refusal,
              HasSubstr("numbered from 0 to 1"));
  EXPECT_FALSE(ReadCluster({{"JOB_COMPLETION_INDEX", "first"}}).ok());
  const Environment kubeflow = {{"JOB_COMPLETION_INDEX", "1"},
                                {"PET_NNODES", "2"},
                                {"PET_NODE_RANK", "1"},
                                {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                {"PET_MASTER_PORT", "29400"}};
  EXPECT_EQ(Apply(kubeflow, "t.py").refusal, "");
}

TEST(Cluster, FillsWhatTheUserLeftOpen) {
  const Environment second = SlurmStep(2, 1, 1);
  const Applied applied = Apply(second, "train.py");
  ASSERT_EQ(applied.refusal, "");
  EXPECT_EQ(applied.flags.min_nodes, 2);
  EXPECT_EQ(applied.flags.max_nodes, 2);
  EXPECT_EQ(applied.flags.node_rank, 1);
  EXPECT_EQ(applied.flags.rendezvous, Rendezvous::kStatic);
  EXPECT_EQ(applied.flags.endpoint_host, "host0");
  EXPECT_EQ(applied.flags.endpoint_port, Place(second).port);
  EXPECT_EQ(applied.flags.rdzv_id, "slurm-4711.0");
}

TEST(Cluster, LetsTheUserWin) {
  const Environment second = SlurmStep(2, 1, 1);
  struct Row {
    const char* line;
    Rendezvous rendezvous;
    std::optional<int> node_rank;
    const char* host;
    std::optional<int> port;  // absent: the cluster's
    const char* id;
  };
  const Row rows[] = {
      {"--nnodes 2 t.py", Rendezvous::kStatic, 1, "host0", std::nullopt, "slurm-4711.0"},
      {"--master-port 31000 t.py", Rendezvous::kStatic, 1, "host0", 31000, "slurm-4711.0"},
      {"--master-addr other t.py", Rendezvous::kStatic, 1, "other", std::nullopt, "slurm-4711.0"},
      {"--nnodes 2 --node-rank 0 --master-addr other --master-port 7 t.py", Rendezvous::kStatic, 0, "other", 7,
       "slurm-4711.0"},
      {"--node-rank 1 t.py", Rendezvous::kStatic, 1, "host0", std::nullopt, "slurm-4711.0"},
      {"--rdzv-id mine t.py", Rendezvous::kStatic, 1, "host0", std::nullopt, "mine"},
      {"--rdzv-backend c10d t.py", Rendezvous::kC10d, 1, "host0", std::nullopt, "slurm-4711.0"},
      {"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint head:29400 t.py", Rendezvous::kC10d, std::nullopt, "head", 29400,
       "slurm-4711.0"},
      {"--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint head t.py", Rendezvous::kC10d, std::nullopt, "head", 29400,
       "slurm-4711.0"},
      {"--nnodes 1:4 --rdzv-backend c10d t.py", Rendezvous::kC10d, std::nullopt, "host0", std::nullopt, "slurm-4711.0"},
  };
  for (const Row& row : rows) {
    const Applied applied = Apply(second, row.line);
    EXPECT_EQ(applied.refusal, "") << row.line;
    EXPECT_EQ(applied.flags.max_nodes, 2) << row.line;
    EXPECT_EQ(applied.flags.rendezvous, row.rendezvous) << row.line;
    EXPECT_EQ(applied.flags.node_rank, row.node_rank) << row.line;
    EXPECT_EQ(applied.flags.endpoint_host, row.host) << row.line;
    EXPECT_EQ(applied.flags.endpoint_port, row.port ? row.port : Place(second).port) << row.line;
    EXPECT_EQ(applied.flags.rdzv_id, row.id) << row.line;
  }
}

TEST(Cluster, RefusesANumberOfNodesThatIsNotTheNumberOfLaunchers) {
  const Environment two = SlurmStep(2, 1, 1);
  EXPECT_THAT(Apply(two, "--nnodes 4 t.py").refusal, HasSubstr("--nnodes 4 and Slurm started 2 launchers"));
  EXPECT_THAT(Apply(two, "--nnodes 1 t.py").refusal, HasSubstr("--standalone"));
  EXPECT_THAT(Apply(two, "--nnodes 3:4 --rdzv-backend c10d t.py").refusal, HasSubstr("--nnodes 3:4"));
  const std::string classic = Apply(SlurmStep(2, 8, 9), "--nnodes 2 --nproc-per-node 8 t.py").refusal;
  EXPECT_THAT(classic, HasSubstr("Slurm started 16 launchers, 8 of them on this host"));
  EXPECT_THAT(classic, HasSubstr("--ntasks-per-node=1"));
}

TEST(Cluster, LeavesStandaloneLaunchersAlone) {
  const Applied applied = Apply(SlurmStep(2, 2, 3), "--standalone t.py");
  EXPECT_EQ(applied.refusal, "");
  EXPECT_EQ(applied.flags.max_nodes, 1);
  EXPECT_EQ(applied.flags.rendezvous, Rendezvous::kNone);
  EXPECT_FALSE(applied.flags.rdzv_id.has_value());
}

TEST(Cluster, RefusesAnInvalidHostName) {
  const std::string refusal = Apply(With(SlurmStep(2, 1, 1), "SLURM_STEP_NODELIST", "ho\x1bst,b"), "t.py").refusal;
  EXPECT_THAT(refusal, HasSubstr("names 'ho?st' as its first host"));
}

TEST(HostList, ExpandsSlurmsGrammar) {
  struct Row {
    const char* text;
    std::vector<std::string> hosts;
  };
  const Row rows[] = {
      {"login", {"login"}},
      {"host[0-1,4],login", {"host0", "host1", "host4", "login"}},
      {"n[08-10]", {"n08", "n09", "n10"}},
      {"a[1-2]b", {"a1b", "a2b"}},
      {"r[0-1]n[0-1]", {"r0n0", "r0n1", "r1n0", "r1n1"}},
      {"gpu-a,gpu-b", {"gpu-a", "gpu-b"}},
      {"x[7]", {"x7"}},
      {"x[007-008]", {"x007", "x008"}},
  };
  for (const Row& row : rows) {
    const auto hosts = ExpandHostList(row.text);
    ASSERT_TRUE(hosts.ok()) << row.text;
    EXPECT_EQ(*hosts, row.hosts) << row.text;
  }
}

TEST(HostList, RefusesWhatIsNoneAndWhatWouldBeEndless) {
  for (const char* text : {"", ",", "a,", "a[", "a[]", "a]", "a[1", "a[x]", "a[2-1]", "a[0-99999999]", "a[1-]", "a[-1]",
                           "a[0-60000]b[0-9]", "a[[1]]", "a[1]]", "a[1,]", "a[4294967290-4294967295]"}) {
    EXPECT_FALSE(ExpandHostList(text).ok()) << text;
  }
  EXPECT_FALSE(ExpandHostList(std::string(2'000'000, 'a')).ok());
}

TEST(TasksOfNode, ReadsSlurmsCounts) {
  EXPECT_EQ(TasksOfNode("2(x3),1", 0), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 2), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 3), 1);
  EXPECT_EQ(TasksOfNode("8", 0), 8);
  for (const char* bad : {"", "x", "2(", "2(x)", "2(x3", "2(x0)", "0", "-1", "2(x-1)", "2 (x2)"}) {
    EXPECT_FALSE(TasksOfNode(bad, 0).has_value()) << bad;
  }
  EXPECT_FALSE(TasksOfNode("2(x3),1", 4).has_value());
  EXPECT_FALSE(TasksOfNode("2", -1).has_value());
}

}  // namespace
}  // namespace fulldeck::job
