#include "checkpoint/exchange.h"

#include <gmock/gmock.h>

namespace fulldeck::checkpoint {
namespace {

using ::testing::ElementsAre;

ReadyToSave Sample() {
  return {
      "", true, "the disk was full: \xff \"ä\"", true, {std::string("\0\x80:\n{", 5), "", std::string(5056, '\xfe')}};
}

TEST(Exchange, BringsAnyBytesOver) {
  const ReadyToSave sent = Sample();
  const auto read = ParseReadyToSave(ToBytes(sent));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->problem, "");
  EXPECT_TRUE(read->started);
  EXPECT_EQ(read->earlier_failure, sent.earlier_failure);
  EXPECT_TRUE(read->too_many_failures);
  EXPECT_EQ(read->rank_texts, sent.rank_texts);
  const auto found = ParseFoundFolders(ToBytes(FoundFolders{"why", {"step-000000002", "step-000000001"}}));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->problem, "why");
  EXPECT_THAT(found->folders, ElementsAre("step-000000002", "step-000000001"));
}

// A rank's texts may be 48 KiB, and what ranks exchange at most 64 KiB.
TEST(Exchange, AddsLittleToTheBytes) {
  ReadyToSave message;
  message.earlier_failure.assign(4000, 'x');
  message.rank_texts.assign(100, std::string((48 << 10) / 100, '\xff'));
  EXPECT_LT(ToBytes(message).size(), std::size_t{60} << 10);
}

TEST(Exchange, AnythingElseIsAnError) {
  const std::string bytes = ToBytes(Sample());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_FALSE(ParseReadyToSave({bytes.data(), length}).ok()) << length;
  EXPECT_FALSE(ParseReadyToSave(bytes + "x").ok());
  EXPECT_FALSE(ParseReadyToSave(ToBytes(FoundFolders{})).ok());
  EXPECT_FALSE(ParseFoundFolders("3:abc").ok());
  // Any flipped bit gives a message or an error, and nothing worse.
  for (std::size_t bit = 0; bit < 8 * std::size_t{100}; ++bit) {
    std::string other = bytes;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    (void)ParseReadyToSave(other);
  }
}

}  // namespace
}  // namespace fulldeck::checkpoint
