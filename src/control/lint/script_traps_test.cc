#include "lint/script_traps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/text.h"
#include "lint/script_check.h"
#include "temporary_folder.h"

namespace fulldeck::lint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files in fixtures/script-traps mark their traps with a comment: "# trap: no-sampler".
constexpr std::string_view kMark = "# trap: ";

const ScriptMachine kEightGcu = {false, 8, 8, 8, "gcu"};
const ScriptMachine kEightCuda = {true, 8, 8, 8, "cuda"};

std::string ReadText(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> Fixtures() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(FULLDECK_FIXTURES "/script-traps"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> MarksOf(const std::filesystem::path& path) {
  std::set<std::string> marks;
  int number = 0;
  const std::string text = ReadText(path);
  for (const std::string_view line : base::Split(text, '\n')) {
    ++number;
    if (const std::size_t at = line.find(kMark); at != std::string_view::npos) {
      marks.insert(std::to_string(number) + " " + std::string(base::Trim(line.substr(at + kMark.size()))));
    }
  }
  return marks;
}

std::set<std::string> HitsIn(const std::filesystem::path& path, const ScriptMachine& machine,
                             bool without_cuda_too = true) {
  std::set<std::string> hits;
  const auto report = CheckScript({path.string()}, machine);
  EXPECT_TRUE(report) << path;
  if (!report) return hits;
  for (const TrapHit& hit : report->hits) {
    if (hit.file != path.string() || (!without_cuda_too && hit.trap->without_cuda)) continue;
    hits.insert(std::to_string(hit.line) + " " + std::string(hit.trap->id));
  }
  return hits;
}

TEST(ScriptTraps, FireAtTheirLinesAndNowhereElse) {
  for (const auto& path : Fixtures()) EXPECT_EQ(HitsIn(path, kEightGcu), MarksOf(path)) << path;
}

TEST(ScriptTraps, SoundScriptsGiveNothingOnAnyMachine) {
  int seen = 0;
  for (const auto& path : Fixtures()) {
    if (path.filename().string().find(".sound.") == std::string::npos) continue;
    ++seen;
    EXPECT_THAT(HitsIn(path, kEightGcu), IsEmpty()) << path;
    EXPECT_THAT(HitsIn(path, kEightCuda), IsEmpty()) << path;
  }
  EXPECT_GT(seen, 25);
}

TEST(ScriptTraps, WhatConcernsCudaIsSilentWhereThereIsCuda) {
  for (const auto& path : Fixtures()) {
    std::set<std::string> others;
    for (const std::string& mark : MarksOf(path)) {
      if (!FindTrap(mark.substr(mark.find(' ') + 1)).without_cuda) others.insert(mark);
    }
    EXPECT_EQ(HitsIn(path, kEightCuda), others) << path;
  }
}

TEST(ScriptTraps, EachHasAFixtureAndTextInBothLanguages) {
  std::set<std::string> marked;
  for (const auto& path : Fixtures()) {
    for (const std::string& mark : MarksOf(path)) marked.insert(mark.substr(mark.find(' ') + 1));
  }
  std::set<std::string> ids;
  for (const Trap& trap : Traps()) {
    EXPECT_TRUE(ids.insert(std::string(trap.id)).second) << trap.id;
    EXPECT_FALSE(trap.row.empty() || trap.what.english.empty() || trap.what.chinese.empty()) << trap.id;
    EXPECT_FALSE(trap.fix.english.empty() || trap.fix.chinese.empty()) << trap.id;
  }
  EXPECT_EQ(marked, ids);
}

TEST(ScriptTraps, TheDocumentShowsTheTable) {
  const std::string document = ReadText(FULLDECK_FIXTURES "/../../docs/doctor-script.md");
  std::string table;
  for (const Trap& trap : Traps()) {
    std::string fix = trap.fix.english;
    table += "| `" + std::string(trap.id) + "` | " + std::string(trap.row) + " | " +
             (trap.severity == Severity::kFail ? "fail" : "warn") + (trap.without_cuda ? ", without CUDA" : "") +
             " | " + trap.what.english + " | " + fix + " |\n";
  }
  EXPECT_THAT(document, HasSubstr(table));
}

TEST(ScriptTraps, AHitReportsTheLineAndBothNumbers) {
  const Script script("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=8)   \n");
  const auto hits = TrapsIn(script, "x.py", ".", {false, 2, 2, 2, "gcu"});
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].text, "mp.spawn(main, nprocs=8)");
  EXPECT_EQ(hits[0].detail.english, "8 there, 2 here");
  EXPECT_THAT(hits[0].detail.chinese, HasSubstr("8"));
  EXPECT_THAT(TrapsIn(script, "x.py", ".", kEightGcu), IsEmpty()) << "eight is right where there are eight";
}

TEST(ScriptTraps, WhatIsShownOfALineCannotSteerATerminal) {
  const Script script("os.environ['CUDA_VISIBLE_DEVICES'] = '\x1b[2J'\n");
  const auto hits = TrapsIn(script, "x.py", ".", kEightGcu);
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].text.find('\x1b'), std::string::npos);
}

class ScriptFiles : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((std::filesystem::path(folder_.string()) / name).parent_path());
    std::ofstream(folder_.string() + "/" + name) << text;
    return folder_.string() + "/" + name;
  }
  fulldeck::testing::TemporaryFolder folder_;
};

TEST_F(ScriptFiles, AChainOfBasesIsFollowedOnce) {
  Write("base/runtime.py", "_base_ = '../config.py'\nenv_cfg = dict(dist_cfg=dict(backend='nccl'))\n");
  const std::string config = Write("config.py", "_base_ = ['base/runtime.py']\n");
  const std::string script = Write("train.py", "print()\n");
  const auto report = CheckScript({script, config}, kEightGcu);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->files.size(), 3u);
  ASSERT_EQ(report->hits.size(), 1u);
  EXPECT_EQ(report->hits[0].trap->id, "hard-coded-nccl");
  EXPECT_THAT(report->hits[0].file, HasSubstr("base/runtime.py"));
  EXPECT_EQ(report->hits[0].line, 2);
}

TEST_F(ScriptFiles, AConfigThatIsNotThereIsAHitAndAScriptAnError) {
  const std::string script = Write("train.py", "print()\n");
  const auto report = CheckScript({script, folder_.string() + "/absent.py"}, kEightGcu);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->hits.size(), 1u);
  EXPECT_EQ(report->hits[0].trap->id, "config-missing");
  EXPECT_EQ(report->hits[0].line, 0);
  const auto absent = CheckScript({folder_.string() + "/absent.py"}, kEightGcu);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("absent.py"));
}

TEST_F(ScriptFiles, AScriptThatSetsTheLauncherMakesTheConfigsHarmless) {
  const std::string config = Write("config.py", "default_scope = 'mmseg'\nlauncher = 'none'\n");
  EXPECT_EQ(CheckScript({Write("a.py", "print()\n"), config}, kEightGcu)->hits.size(), 1u);
  EXPECT_THAT(CheckScript({Write("b.py", "cfg.launcher = args.launcher\n"), config}, kEightGcu)->hits, IsEmpty());
}

TEST(ScriptYaml, MachinesDecideAboutAccelerate) {
  const std::string text = "distributed_type: MULTI_CPU\nnum_processes: 4\nnum_machines: 1\n";
  const auto ids = [&](const ScriptMachine& machine) {
    std::vector<std::string> all;
    for (const TrapHit& hit : TrapsInYaml(text, "a.yaml", machine)) all.emplace_back(hit.trap->id);
    return all;
  };
  EXPECT_THAT(ids({false, 0, 0, 4, "cpu"}), IsEmpty());
  EXPECT_THAT(ids(kEightGcu), ElementsAre("accelerate-type", "accelerate-processes"));
}

}  // namespace
}  // namespace fulldeck::lint
