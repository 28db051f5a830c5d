#include "device/visibility.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/simulated_spec.h"

namespace fulldeck::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Card> FourCards() {
  std::vector<Card> cards(4);
  for (int i = 0; i < 4; ++i) {
    cards[static_cast<std::size_t>(i)].index = i;
    cards[static_cast<std::size_t>(i)].uuid = "GPU-" + std::string(1, static_cast<char>('a' + i)) + "b23-4567";
  }
  return cards;
}

base::Result<VisibilityList> Parse(const char* vendor, const std::string& value) {
  const VendorTraits& traits = *FindVendorTraits(vendor);
  return ParseVisibility(traits, traits.visibility_variable, value, FourCards());
}

TEST(Visibility, KeepsTheOrderOfTheList) {
  EXPECT_THAT(Parse("enflame", "2, 0")->cards, ElementsAre(2, 0));
}

TEST(Visibility, TakesUuidsCutShortWhereTheVendorDoes) {
  EXPECT_THAT(Parse("nvidia", "GPU-cb23-4567,GPU-a")->cards, ElementsAre(2, 0));
  EXPECT_FALSE(Parse("enflame", "GPU-cb23").ok());
}

TEST(Visibility, HidesEveryCardForAnEmptyListOrMinusOne) {
  EXPECT_THAT(Parse("nvidia", "")->cards, IsEmpty());
  EXPECT_THAT(Parse("nvidia", " ")->cards, IsEmpty());
  EXPECT_THAT(Parse("nvidia", "-1")->cards, IsEmpty());
  EXPECT_THAT(Parse("nvidia", "1,-1,2")->cards, ElementsAre(1)) << "as the runtime does, the list ends at -1";
}

struct Wrong {
  const char* value;
  const char* message;
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << wrong.value;
}

class MalformedVisibility : public testing::TestWithParam<Wrong> {};

TEST_P(MalformedVisibility, NamesTheWrongEntryAndTheRightForms) {
  const auto list = Parse("nvidia", GetParam().value);
  ASSERT_FALSE(list.ok());
  EXPECT_THAT(list.error().message, HasSubstr(std::string("CUDA_VISIBLE_DEVICES='")));
  EXPECT_THAT(list.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(list.error().message, HasSubstr("card numbers from 0 to 3 or of UUIDs"));
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedVisibility,
                         testing::Values(Wrong{"0,4", "'4' names no card"}, Wrong{"0,x", "'x' names no card"},
                                         Wrong{"0,,1", "'' names no card"}, Wrong{"0;1", "'0;1' names no card"},
                                         Wrong{"1,0,1", "'1' comes twice"}, Wrong{"GPU-a,0", "'0' comes twice"},
                                         Wrong{"GPU-", "'GPU-' names no card"}, Wrong{"-2", "'-2' names no card"},
                                         Wrong{"99999999999999999999", "names no card"}));

TEST(Visibility, ReadsTheSecondVariableWhereTheFirstIsNotSet) {
  const VendorTraits& amd = *FindVendorTraits("amd");
  const auto list = ReadVisibility(amd, FourCards(), {{"ROCR_VISIBLE_DEVICES", "3"}});
  ASSERT_TRUE(list.ok() && list->has_value());
  EXPECT_EQ((*list)->variable, "ROCR_VISIBLE_DEVICES");
  EXPECT_THAT((*list)->cards, ElementsAre(3));
  EXPECT_FALSE(ReadVisibility(amd, FourCards(), {})->has_value());
}

// Two implementations must agree: the one of `fulldeck devices` and the launcher, and the one of programs on
// simulated cards.
TEST(Visibility, IsReadOfSimulatedCardsAsOfRealOnes) {
  for (const wire::SimulatedKind& kind : wire::SimulatedKinds()) {
    const VendorTraits& traits = *FindVendorTraits(kind.vendor);
    EXPECT_STREQ(kind.visibility[0], traits.visibility_variable);
    EXPECT_STREQ(kind.visibility[1], traits.second_visibility_variable);
    const auto spec = wire::ParseSimulatedSpec(std::string(kind.name) + ":4");
    ASSERT_TRUE(spec.ok());
    EXPECT_THAT(*wire::VisibleSimulatedCards(*spec, {}), ElementsAre(0, 1, 2, 3));
    for (const char* value : {"3", "2, 0", "", " ", "-1", "1,-1,2", "0,1,2,3", "4", "1,1", "2,", "x", "-2", "3;1"}) {
      const auto shown = ParseVisibility(traits, traits.visibility_variable, value, FourCards());
      const auto used = wire::VisibleSimulatedCards(*spec, {{traits.visibility_variable, value}});
      ASSERT_EQ(shown.ok(), used.ok()) << kind.name << " " << value;
      if (!shown) {
        EXPECT_THAT(used.error().message, HasSubstr(traits.visibility_variable));
        continue;
      }
      EXPECT_EQ(std::vector<int>(shown->cards.begin(), shown->cards.end()), *used) << kind.name << " " << value;
    }
  }
}

}  // namespace
}  // namespace fulldeck::device
