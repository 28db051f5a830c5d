// The element types and the reductions, with the numbers of the public header, and which combinations are valid.
#pragma once

#include <cstdint>

#include "fulldeck/collectives.h"

namespace fulldeck::collectives {

enum class Datatype : std::uint8_t {
  kBool = FULLDECK_BOOL,
  kInt8 = FULLDECK_INT8,
  kUint8 = FULLDECK_UINT8,
  kInt16 = FULLDECK_INT16,
  kUint16 = FULLDECK_UINT16,
  kInt32 = FULLDECK_INT32,
  kUint32 = FULLDECK_UINT32,
  kInt64 = FULLDECK_INT64,
  kUint64 = FULLDECK_UINT64,
  kFloat16 = FULLDECK_FLOAT16,
  kBfloat16 = FULLDECK_BFLOAT16,
  kFloat32 = FULLDECK_FLOAT32,
  kFloat64 = FULLDECK_FLOAT64,
};

enum class Reduction : std::uint8_t {
  kNone = 0,  // data is moved, not reduced
  kSum = FULLDECK_SUM,
  kAvg = FULLDECK_AVG,
  kMin = FULLDECK_MIN,
  kMax = FULLDECK_MAX,
  kProd = FULLDECK_PROD,
  kAnd = FULLDECK_AND,
  kOr = FULLDECK_OR,
  kXor = FULLDECK_XOR,
};

// For numbers from outside: whether they are valid.
bool IsDatatype(int number);
bool IsReduction(int number);

std::uint64_t BytesOf(Datatype datatype);
const char* NameOf(Datatype datatype);    // "float32"
const char* NameOf(Reduction reduction);  // "sum"
bool IsFloat(Datatype datatype);
// and, or and xor are for integers and bool; avg is for numbers, not bool. kNone cannot be reduced with.
bool CanReduce(Datatype datatype, Reduction reduction);
// The type's number on the rank board (FULLDECK_BOARD_FLOAT32 and so on). The board has no unsigned types wider than
// one byte; they become its "other".
std::uint32_t BoardDatatype(Datatype datatype);

}  // namespace fulldeck::collectives
