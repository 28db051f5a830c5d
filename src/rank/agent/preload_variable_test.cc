#include "agent/preload_variable.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

namespace fulldeck::agent {
namespace {

std::string Without(std::string list, std::string_view entry) {
  list.resize(RemoveEntry(list.data(), list.size(), entry));
  return list;
}

TEST(PreloadVariable, TakesTheEntryOutAndLeavesTheOthersAsTheyWere) {
  EXPECT_EQ(Without("/a.so:/us.so", "/us.so"), "/a.so");
  EXPECT_EQ(Without("/a.so /b.so:/us.so", "/us.so"), "/a.so /b.so");
  EXPECT_EQ(Without("/us.so:/a.so", "/us.so"), "/a.so");
  EXPECT_EQ(Without("/a.so:/us.so /b.so", "/us.so"), "/a.so /b.so");
  EXPECT_EQ(Without("/a.so: :/b.so:/us.so", "/us.so"), "/a.so: :/b.so");
  EXPECT_EQ(Without("/a.so", "/us.so"), "/a.so");
}

TEST(PreloadVariable, LeavesNothingOfAListThatHoldsNothingElse) {
  EXPECT_EQ(Without("/us.so", "/us.so"), "");
  EXPECT_EQ(Without(":/us.so", "/us.so"), "");
  EXPECT_EQ(Without("/us.so:/us.so /us.so", "/us.so"), "");
  EXPECT_EQ(Without("", "/us.so"), "");
}

TEST(PreloadVariable, TakesWholeEntriesOnly) {
  EXPECT_EQ(Without("/us.so.1:/x/us.so:/us.s", "/us.so"), "/us.so.1:/x/us.so:/us.s");
  EXPECT_EQ(Without("/a.so:/us.so", ""), "/a.so:/us.so");
}

class Variables {
 public:
  explicit Variables(std::vector<std::string> rows) : rows_(std::move(rows)) {
    for (std::string& row : rows_) pointers_.push_back(row.data());
    pointers_.push_back(nullptr);
  }
  // A shortened entry is newly allocated memory, which belongs to the environment.
  ~Variables() {
    for (char* row : pointers_) {
      if (std::none_of(rows_.begin(), rows_.end(), [row](std::string& own) { return own.data() == row; })) free(row);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  char** get() { return pointers_.data(); }
  std::vector<std::string> Rows() const {
    std::vector<std::string> rows;
    for (char* const* row = pointers_.data(); *row != nullptr; ++row) rows.emplace_back(*row);
    return rows;
  }

 private:
  std::vector<std::string> rows_;
  std::vector<char*> pointers_;
};

using Rows = std::vector<std::string>;

TEST(PreloadVariable, LeavesAnEnvironmentAsTheUserHadIt) {
  Variables with_own({"A=1", "LD_PRELOAD=/their.so:/us.so", "FULLDECK_AGENT=/us.so", "B=2"});
  RemoveAgent(with_own.get(), "/us.so");
  EXPECT_EQ(with_own.Rows(), (Rows{"A=1", "LD_PRELOAD=/their.so", "B=2"}));
  Variables without({"LD_PRELOAD=/us.so", "LD_PRELOAD_X=/us.so", "A="});
  RemoveAgent(without.get(), "/us.so");
  EXPECT_EQ(without.Rows(), (Rows{"LD_PRELOAD_X=/us.so", "A="}));
}

TEST(PreloadVariable, CleansEveryRowOfAnEnvironmentThatHasANameTwice) {
  Variables variables({"LD_PRELOAD=/us.so", "LD_PRELOAD=/a.so:/us.so"});
  RemoveAgent(variables.get(), "/us.so");
  EXPECT_EQ(variables.Rows(), (Rows{"LD_PRELOAD=/a.so"}));
}

TEST(PreloadVariable, ChangesNothingWithoutAnEnvironmentOrAName) {
  RemoveAgent(nullptr, "/us.so");
  Variables variables({"LD_PRELOAD=/a.so", "FULLDECK_AGENT=/us.so"});
  RemoveAgent(variables.get(), "");
  EXPECT_EQ(variables.Rows(), (Rows{"LD_PRELOAD=/a.so", "FULLDECK_AGENT=/us.so"}));
}

TEST(PreloadVariable, FindsAVariableByItsWholeName) {
  Variables variables({"AB=1", "A=", "ABC"});
  EXPECT_STREQ(FindVariable(variables.get(), "A"), "");
  EXPECT_STREQ(FindVariable(variables.get(), "AB"), "1");
  EXPECT_EQ(FindVariable(variables.get(), "ABC"), nullptr);
  EXPECT_EQ(FindVariable(nullptr, "A"), nullptr);
}

}  // namespace
}  // namespace fulldeck::agent
