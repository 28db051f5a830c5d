// Conversions between torch's tensors and those of a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"

namespace fulldeck::runtime {

struct SavedTensor {
  std::string name;
  at::Tensor tensor;
};

// Nullopt for types that safetensors does not have.
std::optional<checkpoint::Dtype> DtypeOf(const at::Tensor& tensor);
c10::ScalarType ScalarTypeOf(checkpoint::Dtype dtype);
std::vector<std::uint64_t> ShapeOf(const at::Tensor& tensor);
std::vector<std::int64_t> SizesOf(const checkpoint::TensorEntry& entry);

// Whether its bytes are in host memory in file layout.
bool IsPlain(const at::Tensor& tensor);

// Throws an Error that names the tensor if it cannot be saved.
void CheckSavable(const std::string& part, const SavedTensor& tensor);

// Contiguous, on the CPU.
at::Tensor EmptyLike(const checkpoint::TensorEntry& entry);

// "F32 [7, 3]".
std::string Describe(const checkpoint::TensorEntry& entry);
std::string Describe(const at::Tensor& tensor);

}  // namespace fulldeck::runtime
