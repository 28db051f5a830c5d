#include "job/launch/launch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::job {
namespace {

using testing::HasSubstr;
using testing::Not;

LaunchFileRequest On(const std::string& vendor, const std::string& type, int cards, int nodes = 1) {
  LaunchFileRequest request;
  request.nodes = nodes;
  request.selection.ranks = cards == 0 ? 1 : cards;
  request.selection.cpu_requested = cards == 0;
  for (int i = 0; i < cards; ++i) {
    device::Card card;
    card.vendor = vendor;
    card.kind = type;
    card.torch_type = type;
    card.index = i;
    request.selection.cards.push_back(card);
  }
  return request;
}

std::string File(LaunchFileKind kind, const LaunchFileRequest& request) {
  return *LaunchFile(kind, request);
}

TEST(LaunchFile, NamesAreThoseOfTheCommandLine) {
  ASSERT_EQ(LaunchFileNames().size(), 5u);
  EXPECT_EQ(FindLaunchFile("accelerate"), LaunchFileKind::kAccelerate);
  EXPECT_EQ(FindLaunchFile("jobset"), LaunchFileKind::kJobSet);
  EXPECT_EQ(FindLaunchFile("Accelerate"), std::nullopt);
}

TEST(LaunchFile, GivesAccelerateTheTypeOfEveryVendor) {
  struct Row {
    const char *vendor, *torch, *type;
  };
  for (const Row& row :
       {Row{"nvidia", "cuda", "MULTI_GPU"}, Row{"amd", "cuda", "MULTI_GPU"}, Row{"ascend", "npu", "MULTI_NPU"},
        Row{"cambricon", "mlu", "MULTI_MLU"}, Row{"moorethreads", "musa", "MULTI_MUSA"},
        Row{"intel", "xpu", "MULTI_XPU"}, Row{"enflame", "gcu", "MULTI_GPU"}}) {
    const std::string text = File(LaunchFileKind::kAccelerate, On(row.vendor, row.torch, 4, 2));
    EXPECT_THAT(text, HasSubstr(std::string("distributed_type: '") + row.type + "'")) << row.vendor;
    EXPECT_THAT(text, HasSubstr("num_processes: 8")) << row.vendor;
    EXPECT_THAT(text, HasSubstr("use_cpu: false")) << row.vendor;
  }
}

TEST(LaunchFile, WarnsOfAccelerateLaunchWhereAccelerateDoesNotKnowTheCards) {
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, On("enflame", "gcu", 8)),
              HasSubstr("fulldeck run --accelerate-config"));
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, On("enflame", "gcu", 8)), Not(HasSubstr("accelerate launch --config")));
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, On("nvidia", "cuda", 8)), HasSubstr("accelerate launch --config_file"));
}

TEST(LaunchFile, IsForTheCpuWhereThereIsNoCard) {
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, On("", "", 0)), HasSubstr("distributed_type: 'NO'"));
  LaunchFileRequest four = On("", "", 0);
  four.selection.ranks = 4;
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, four), HasSubstr("distributed_type: 'MULTI_CPU'"));
  EXPECT_THAT(File(LaunchFileKind::kAccelerate, four), HasSubstr("use_cpu: true"));
  EXPECT_THAT(File(LaunchFileKind::kSlurm, four), Not(HasSubstr("gpus-per-node")));
  EXPECT_THAT(File(LaunchFileKind::kPytorchJob, four), Not(HasSubstr("limits:")));
}

TEST(LaunchFile, TakesTheLauncherThatGivesTheCardsToTheRanks) {
  EXPECT_THAT(File(LaunchFileKind::kTorchrun, On("nvidia", "cuda", 8)),
              HasSubstr("exec ${LAUNCHER:-torchrun} --standalone"));
  EXPECT_THAT(File(LaunchFileKind::kTorchrun, On("enflame", "gcu", 8)), HasSubstr("exec ${LAUNCHER:-fulldeck run}"));
  EXPECT_THAT(File(LaunchFileKind::kTorchrun, On("nvidia", "cuda", 8, 3)), HasSubstr("--nnodes=3 --nproc-per-node=8"));
}

TEST(LaunchFile, StartsOneTaskOfSlurmPerNode) {
  const std::string text = File(LaunchFileKind::kSlurm, On("enflame", "gcu", 8, 4));
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=4\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --ntasks-per-node=1\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --gres=gcu:8\n"));
  EXPECT_THAT(File(LaunchFileKind::kSlurm, On("nvidia", "cuda", 8)), HasSubstr("#SBATCH --gpus-per-node=8\n"));
}

TEST(LaunchFile, RequestsTheVendorsResourceFromKubernetes) {
  EXPECT_THAT(File(LaunchFileKind::kPytorchJob, On("enflame", "gcu", 8, 2)), HasSubstr("enflame.com/gcu: 8"));
  EXPECT_THAT(File(LaunchFileKind::kJobSet, On("nvidia", "cuda", 8, 2)),
              HasSubstr("'--master-addr=fulldeck-hosts-0-0.fulldeck'"));
  EXPECT_THAT(File(LaunchFileKind::kPytorchJob, On("nvidia", "cuda", 8)), Not(HasSubstr("Worker:")));
}

TEST(LaunchFile, QuotesWhatTheUserGave) {
  LaunchFileRequest request = On("nvidia", "cuda", 2);
  request.script = "it's $(x) & y.py";
  EXPECT_THAT(File(LaunchFileKind::kSlurm, request), HasSubstr("'it'\\''s $(x) & y.py'"));
  EXPECT_THAT(File(LaunchFileKind::kJobSet, request), HasSubstr("'it''s $(x) & y.py'"));
}

TEST(LaunchFile, RefusesWhatWouldBecomeAnotherLine) {
  for (const char* script : {"", "a\nb", "a\x1b[0m"}) {
    LaunchFileRequest request = On("nvidia", "cuda", 2);
    request.script = script;
    EXPECT_FALSE(LaunchFile(LaunchFileKind::kSlurm, request).ok()) << script;
  }
  for (const char* name : {"", "Big", "a b", "-a", "a-", "1a", "a\n#SBATCH --x"}) {
    LaunchFileRequest request = On("nvidia", "cuda", 2);
    request.name = name;
    EXPECT_FALSE(LaunchFile(LaunchFileKind::kSlurm, request).ok()) << name;
  }
}

}  // namespace
}  // namespace fulldeck::job
