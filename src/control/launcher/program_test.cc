#include "launcher/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "temporary_folder.h"

namespace fulldeck::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class Program : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_.string() + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  base::Result<std::vector<std::string>> Resolve(std::vector<std::string> program) {
    flags_.program = std::move(program);
    return ResolveProgram(flags_, environment_, own_folder_);
  }

  testing::TemporaryFolder folder_;
  job::LaunchFlags flags_;
  std::string own_folder_ = "/usr/bin";
  base::Environment environment_{{"PATH", "/usr/bin:/bin"}, {"PYTHON_EXEC", "/bin/sh"}};
};

TEST_F(Program, RunsAScriptWithPythonAndKeepsItsArguments) {
  const std::string script = Write("train.py", "print()", 0644);
  const auto line = Resolve({script, "--lr", "-m"});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_THAT(*line, ElementsAre("/bin/sh", "-u", script, "--lr", "-m"));
}

TEST_F(Program, TakesThePythonNextToFulldeckUnlessOneIsNamedOrTheFolderIsTheSystems) {
  const std::string script = Write("train.py", "", 0644);
  own_folder_ = folder_.string();
  EXPECT_EQ(Resolve({script})->front(), "/bin/sh") << "PYTHON_EXEC names one";
  environment_ = base::Environment{{"PATH", "/usr/bin:/bin"}};
  const auto on_path = Resolve({script});
  EXPECT_TRUE(!on_path.ok() || on_path->front() != own_folder_ + "/python3") << "there is none";
  const std::string neighbor = Write("python3", "#!/bin/sh\n", 0755);
  const auto line = Resolve({script});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_EQ(line->front(), neighbor);
  EXPECT_EQ(PythonOf(*line, flags_), neighbor);
  ASSERT_EQ(chmod(neighbor.c_str(), 0644), 0);
  const auto not_executable = Resolve({script});
  EXPECT_TRUE(!not_executable.ok() || not_executable->front() != neighbor);
}

TEST_F(Program, RunsAModuleWithoutSearchingForAFile) {
  flags_.module = true;
  const auto line = Resolve({"package.train", "1"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(*line, ElementsAre("/bin/sh", "-u", "-m", "package.train", "1"));
}

TEST_F(Program, RunsAnExecutableThatIsNotPythonDirectly) {
  const std::string script = Write("train.sh", "#!/bin/sh\n", 0755);
  EXPECT_THAT(*Resolve({script, "x"}), ElementsAre(script, "x"));
  const std::string python = Write("train", "#!/usr/bin/env python3\n", 0755);
  EXPECT_THAT(*Resolve({python}), ElementsAre("/bin/sh", "-u", python));
  flags_.no_python = true;
  EXPECT_THAT(*Resolve({"true"}), ElementsAre(EndsWith("/true")));
}

TEST_F(Program, AddsTheLocalRankInLaunchModeOnly) {
  const std::string script = Write("train.py", "", 0644);
  const auto line = Resolve({script, "a", "b"});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(ProgramOfRank(*line, flags_, 3), *line);
  flags_.add_local_rank = true;
  EXPECT_THAT(ProgramOfRank(*line, flags_, 3), ElementsAre("/bin/sh", "-u", script, "--local-rank=3", "a", "b"));
}

TEST_F(Program, RefusesWhatCannotRunAndNamesTheFix) {
  Write("train.py", "", 0644);
  const auto missing = Resolve({folder_.string() + "/trian.py"});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("did you mean train.py?"));

  flags_.no_python = true;
  const std::string plain = Write("plain", "data", 0644);
  EXPECT_THAT(Resolve({plain}).error().message, HasSubstr("chmod +x"));
  const std::string lost = Write("lost", "#!/no/such/interpreter -x\n", 0755);
  EXPECT_THAT(Resolve({lost}).error().message, HasSubstr("names the interpreter /no/such/interpreter"));
  const std::string dos = Write("dos", "#!/bin/shx\r\n", 0755);
  EXPECT_THAT(Resolve({dos}).error().message, HasSubstr("dos2unix"));
  EXPECT_THAT(Resolve({"no-such-program-anywhere"}).error().message, HasSubstr("on PATH"));
  EXPECT_THAT(Resolve({folder_.string() + "/nothing"}).error().message, HasSubstr("there is no file"));

  flags_.no_python = false;
  environment_ = base::Environment{{"PATH", folder_.string()}};
  EXPECT_THAT(Resolve({folder_.string() + "/train.py"}).error().message, HasSubstr("PYTHON_EXEC"));
}

}  // namespace
}  // namespace fulldeck::launcher
