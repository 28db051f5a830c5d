#include "collectives/kernels/datatype.h"

#include "fulldeck/rank_board.h"

namespace fulldeck::collectives {

bool IsDatatype(int number) {
  return number >= FULLDECK_BOOL && number <= FULLDECK_FLOAT64;
}

bool IsReduction(int number) {
  return number >= FULLDECK_SUM && number <= FULLDECK_XOR;
}

std::uint64_t BytesOf(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBool:
    case Datatype::kInt8:
    case Datatype::kUint8:
      return 1;
    case Datatype::kInt16:
    case Datatype::kUint16:
    case Datatype::kFloat16:
    case Datatype::kBfloat16:
      return 2;
    case Datatype::kInt32:
    case Datatype::kUint32:
    case Datatype::kFloat32:
      return 4;
    case Datatype::kInt64:
    case Datatype::kUint64:
    case Datatype::kFloat64:
      return 8;
  }
  return 0;
}

const char* NameOf(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBool:
      return "bool";
    case Datatype::kInt8:
      return "int8";
    case Datatype::kUint8:
      return "uint8";
    case Datatype::kInt16:
      return "int16";
    case Datatype::kUint16:
      return "uint16";
    case Datatype::kInt32:
      return "int32";
    case Datatype::kUint32:
      return "uint32";
    case Datatype::kInt64:
      return "int64";
    case Datatype::kUint64:
      return "uint64";
    case Datatype::kFloat16:
      return "float16";
    case Datatype::kBfloat16:
      return "bfloat16";
    case Datatype::kFloat32:
      return "float32";
    case Datatype::kFloat64:
      return "float64";
  }
  return "unknown";
}

const char* NameOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return "none";
    case Reduction::kSum:
      return "sum";
    case Reduction::kAvg:
      return "avg";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kProd:
      return "prod";
    case Reduction::kAnd:
      return "and";
    case Reduction::kOr:
      return "or";
    case Reduction::kXor:
      return "xor";
  }
  return "unknown";
}

bool IsFloat(Datatype datatype) {
  switch (datatype) {
    case Datatype::kFloat16:
    case Datatype::kBfloat16:
    case Datatype::kFloat32:
    case Datatype::kFloat64:
      return true;
    default:
      return false;
  }
}

bool CanReduce(Datatype datatype, Reduction reduction) {
  if (!IsDatatype(static_cast<int>(datatype))) return false;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMin:
    case Reduction::kMax:
    case Reduction::kProd:
      return true;
    case Reduction::kAvg:
      return datatype != Datatype::kBool;
    case Reduction::kAnd:
    case Reduction::kOr:
    case Reduction::kXor:
      return !IsFloat(datatype);
    case Reduction::kNone:
      return false;
  }
  return false;
}

std::uint32_t BoardDatatype(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBool:
      return FULLDECK_BOARD_BOOL;
    case Datatype::kInt8:
      return FULLDECK_BOARD_INT8;
    case Datatype::kUint8:
      return FULLDECK_BOARD_UINT8;
    case Datatype::kInt16:
      return FULLDECK_BOARD_INT16;
    case Datatype::kInt32:
      return FULLDECK_BOARD_INT32;
    case Datatype::kInt64:
      return FULLDECK_BOARD_INT64;
    case Datatype::kFloat16:
      return FULLDECK_BOARD_FLOAT16;
    case Datatype::kBfloat16:
      return FULLDECK_BOARD_BFLOAT16;
    case Datatype::kFloat32:
      return FULLDECK_BOARD_FLOAT32;
    case Datatype::kFloat64:
      return FULLDECK_BOARD_FLOAT64;
    case Datatype::kUint16:
    case Datatype::kUint32:
    case Datatype::kUint64:
      return FULLDECK_BOARD_OTHER_DATATYPE;
  }
  return FULLDECK_BOARD_OTHER_DATATYPE;
}

}  // namespace fulldeck::collectives
