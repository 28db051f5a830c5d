#include "wire/simulated_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace fulldeck::wire {
namespace {

using testing::HasSubstr;

TEST(SimulatedSpec, ReadsEveryKind) {
  for (const SimulatedKind& kind : SimulatedKinds()) {
    const auto spec = ParseSimulatedSpec(std::string(kind.name) + ":4");
    ASSERT_TRUE(spec.ok()) << kind.name;
    EXPECT_STREQ(spec->kind->name, kind.name);
    EXPECT_EQ(spec->cards.size(), 4U);
    EXPECT_EQ(spec->memory_bytes, kind.memory_bytes);
  }
}

TEST(SimulatedSpec, ReadsMemoryAndTheFaultsOfSingleCards) {
  const auto spec =
      ParseSimulatedSpec("gcu:8,memory=64MiB,idle=3,slow=1+5:2.5,dropped=6-7,broken=0,lying=2,hung=4,slow=4:3");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->memory_bytes, 64U << 20);
  const std::vector<std::uint32_t> faults = {
      kFaultBroken, kFaultSlow,    kFaultLying,  kFaultIdle, kFaultHung | kFaultSlow,
      kFaultSlow,   kFaultDropped, kFaultDropped};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(spec->cards[i].faults, faults[i]) << "card " << i;
  EXPECT_DOUBLE_EQ(spec->cards[5].slow_factor, 2.5);
  EXPECT_DOUBLE_EQ(spec->cards[4].slow_factor, 3);
  EXPECT_DOUBLE_EQ(spec->cards[0].slow_factor, 1);
}

struct Wrong {
  const char* text;
  const char* part;
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << base::Printable(wrong.text);
}

class MalformedSpec : public testing::TestWithParam<Wrong> {};

TEST_P(MalformedSpec, NamesTheWrongPartAndTheRightForms) {
  const auto spec = ParseSimulatedSpec(GetParam().text);
  ASSERT_FALSE(spec.ok()) << GetParam().text;
  EXPECT_THAT(spec.error().message, HasSubstr(GetParam().part));
  EXPECT_THAT(spec.error().message, HasSubstr("Right forms: KIND:COUNT"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedSpec,
    testing::Values(Wrong{"", "'' is not a kind"}, Wrong{"gpu:8", "'gpu' is not a kind of card; did you mean gcu?"},
                    Wrong{"gcu", "'gcu' needs a number"}, Wrong{"gcu:0", "'gcu:0' needs a number"},
                    Wrong{"gcu:65", "'gcu:65'"}, Wrong{"gcu:8x", "'gcu:8x'"}, Wrong{"gcu:-1", "'gcu:-1'"},
                    Wrong{"gcu:99999999999999999999", "needs a number"}, Wrong{"8", "'8' is not a kind"},
                    Wrong{"gcu:8,", "'' is not an option"}, Wrong{"gcu:8,idel=1", "did you mean idle?"},
                    Wrong{"gcu:8,idle", "'idle' does not name cards from 0 to 7"},
                    Wrong{"gcu:8,idle=8", "'idle=8' does not name"}, Wrong{"gcu:8,idle=3-1", "'idle=3-1'"},
                    Wrong{"gcu:8,idle=1++2", "'idle=1++2'"}, Wrong{"gcu:8,slow=2", "'slow=2' needs a factor"},
                    Wrong{"gcu:8,slow=2:0.5", "needs a factor"}, Wrong{"gcu:8,slow=2:inf", "needs a factor"},
                    Wrong{"gcu:8,memory=lots", "'memory=lots' is not a size"}, Wrong{"gcu:8,memory=0", "not a size"},
                    Wrong{"gcu:8,\x1b[31m=1", "'?[31m=1' is not an option"}));

}  // namespace
}  // namespace fulldeck::wire
