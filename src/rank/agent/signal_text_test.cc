#include "agent/signal_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/files/unique_fd.h"
#include "temporary_folder.h"

namespace fulldeck::agent {
namespace {

class SignalTextTest : public ::testing::Test {
 protected:
  SignalTextTest() : fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    text_.WriteTo(fd_.get());
  }
  std::string Written() {
    text_.Flush();
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fulldeck::testing::TemporaryFolder folder_;
  std::string path_ = folder_.string() + "/text";
  base::UniqueFd fd_;
  SignalText text_;
};

TEST_F(SignalTextTest, WritesNumbersAsPeopleDo) {
  text_ << std::int64_t{0} << " " << std::int64_t{-17} << " " << std::numeric_limits<std::int64_t>::min() << " "
        << std::numeric_limits<std::int64_t>::max() << " ";
  text_.Hex(0) << " ";
  text_.Hex(0xfedcba9876543210) << " ";
  text_.Hex(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Written(), "0 -17 -9223372036854775808 9223372036854775807 0x0 0xfedcba9876543210 0xffffffffffffffff");
}

TEST_F(SignalTextTest, PassesTextsOfAnyLength) {
  const std::string part(1000, 'x');
  std::string all;
  for (int i = 0; i < 20; ++i) {
    text_ << part << std::int64_t{i};
    all += part + std::to_string(i);
  }
  EXPECT_EQ(Written(), all);
}

TEST_F(SignalTextTest, LetsNoNameBeginALine) {
  text_.Quoted("a\nend of report\r\x7f\tb – ü");
  EXPECT_EQ(Written(), "a?end of report???b – ü");
}

TEST_F(SignalTextTest, DropsWhatGoesNowhere) {
  text_ << "kept";
  text_.WriteTo(-1);
  text_ << std::string(10000, 'x');
  text_.WriteTo(fd_.get());
  text_ << " also kept";
  EXPECT_EQ(Written(), "kept also kept");
}

TEST_F(SignalTextTest, GivesUpOnADescriptorThatFails) {
  text_.WriteTo(9999);
  text_ << std::string(10000, 'x');
  text_.Flush();
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace fulldeck::agent
