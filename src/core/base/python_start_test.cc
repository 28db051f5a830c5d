#include "base/python_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "temporary_folder.h"

namespace fulldeck::base {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

TEST(PythonStart, TakesTheWorkingDirectoryOffBeforeTheScriptImportsAnything) {
  const PythonStart start = StartPythonScript("/usr/bin/python3", "import json\n", {"one"}, {}, "/work");
  ASSERT_EQ(start.arguments.size(), 4U);
  EXPECT_EQ(start.arguments[0], "/usr/bin/python3");
  EXPECT_EQ(start.arguments[1], "-c");
  EXPECT_THAT(start.arguments[2], EndsWith("import json\n"));
  EXPECT_LT(start.arguments[2].find("sys.path[:]"), start.arguments[2].find("import json"));
  EXPECT_EQ(start.arguments[3], "one");
  EXPECT_THAT(start.Variables(), ElementsAre("PYTHONSAFEPATH=1"));
}

TEST(PythonStart, KeepsOnlyEntriesOfPythonpathThatLeadElsewhere) {
  testing::TemporaryFolder temporary;
  const std::string here = temporary.string();
  std::filesystem::create_symlink(here, here + "/again");
  const auto path = [&](const std::string& value) {
    return StartPythonScript("p", "", {}, {{"PYTHONPATH", value}}, here).environment.Get("PYTHONPATH");
  };
  EXPECT_EQ(path("/opt/a:/opt/b"), "/opt/a:/opt/b");
  EXPECT_EQ(path(":/opt/a:.:src:" + here + ":" + here + "/again:"), "/opt/a");
  EXPECT_EQ(path(here), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::base
