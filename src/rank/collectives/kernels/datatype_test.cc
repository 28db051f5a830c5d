#include "collectives/kernels/datatype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fulldeck/rank_board.h"

namespace fulldeck::collectives {
namespace {

TEST(Datatype, IsKnownByTheNumbersOfThePublicHeaderAlone) {
  for (int number = FULLDECK_BOOL; number <= FULLDECK_FLOAT64; ++number) EXPECT_TRUE(IsDatatype(number)) << number;
  for (const int number : {-1, 0, FULLDECK_FLOAT64 + 1, 256 + FULLDECK_BOOL, 1 << 30}) {
    EXPECT_FALSE(IsDatatype(number)) << number;
  }
}

TEST(Datatype, HasASizeANameAndAPlaceOnTheBoard) {
  std::set<std::string> names;
  for (int number = FULLDECK_BOOL; number <= FULLDECK_FLOAT64; ++number) {
    const auto datatype = static_cast<Datatype>(number);
    const std::string name = NameOf(datatype);
    names.insert(name);
    EXPECT_NE(name, "unknown");
    // The name ends with the number of bits.
    const std::uint64_t bits =
        datatype == Datatype::kBool ? 8 : std::stoull(name.substr(name.find_first_of("0123456789")));
    EXPECT_EQ(BytesOf(datatype) * 8, bits) << name;
    EXPECT_EQ(IsFloat(datatype), name.find("float") != std::string::npos) << name;
    EXPECT_NE(BoardDatatype(datatype), static_cast<std::uint32_t>(FULLDECK_BOARD_NO_DATA)) << name;
  }
  EXPECT_EQ(names.size(), 13U);
  EXPECT_EQ(BoardDatatype(Datatype::kBfloat16), static_cast<std::uint32_t>(FULLDECK_BOARD_BFLOAT16));
  EXPECT_EQ(BoardDatatype(Datatype::kInt64), static_cast<std::uint32_t>(FULLDECK_BOARD_INT64));
  EXPECT_EQ(BoardDatatype(Datatype::kUint64), static_cast<std::uint32_t>(FULLDECK_BOARD_OTHER_DATATYPE));
}

TEST(Reduction, IsKnownByTheNumbersOfThePublicHeaderAlone) {
  std::set<std::string> names;
  for (int number = FULLDECK_SUM; number <= FULLDECK_XOR; ++number) {
    EXPECT_TRUE(IsReduction(number)) << number;
    names.insert(NameOf(static_cast<Reduction>(number)));
  }
  EXPECT_EQ(names.size(), 8U);
  for (const int number : {-1, 0, FULLDECK_XOR + 1, 256 + FULLDECK_SUM}) EXPECT_FALSE(IsReduction(number)) << number;
}

TEST(Reduction, OfBitsIsNotForFloatsAndAvgIsNotForBool) {
  for (const Reduction reduction : {Reduction::kAnd, Reduction::kOr, Reduction::kXor}) {
    EXPECT_TRUE(CanReduce(Datatype::kBool, reduction));
    EXPECT_TRUE(CanReduce(Datatype::kUint64, reduction));
    EXPECT_FALSE(CanReduce(Datatype::kFloat16, reduction));
    EXPECT_FALSE(CanReduce(Datatype::kFloat64, reduction));
  }
  EXPECT_TRUE(CanReduce(Datatype::kInt8, Reduction::kAvg));
  EXPECT_TRUE(CanReduce(Datatype::kBfloat16, Reduction::kAvg));
  EXPECT_FALSE(CanReduce(Datatype::kBool, Reduction::kAvg));
  EXPECT_TRUE(CanReduce(Datatype::kBool, Reduction::kSum));
  EXPECT_FALSE(CanReduce(Datatype::kFloat32, Reduction::kNone));
  EXPECT_FALSE(CanReduce(static_cast<Datatype>(0), Reduction::kSum));
  EXPECT_FALSE(CanReduce(static_cast<Datatype>(200), Reduction::kSum));
}

}  // namespace
}  // namespace fulldeck::collectives
