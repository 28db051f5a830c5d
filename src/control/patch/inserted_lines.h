// The lines that `fulldeck patch mmengine` inserts into mmengine/runner/runner.py, and their position: just before
// wrap_model creates the data-parallel wrapper, so that they see the model as the wrapper will. Works on text only;
// accesses no file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::patch {

enum class TraceWhen {
  kOnRequest,  // runs with FULLDECK_TRACE_DDP=1 write the report
  kAlways,     // --trace-ddp
};

// Returns the source with the lines inserted. They are enclosed by two marker comments and use the indentation and
// line endings of their position. They do nothing if the package fulldeck is not installed or anything in it fails.
//
// The position is found by structure, not by line number: in `def wrap_model`, outside of strings and comments,
// before the `if model_wrapper_cfg is None:` that chooses the wrapper, or otherwise before the first
// `MMDistributedDataParallel(` or `DistributedDataParallel(`. Fails if there is no such position, if two functions
// have that name, if the lines are already inserted, or if the source is not text.
base::Result<std::string> WithLines(std::string_view source, TraceWhen when);

// The source without the inserted lines; nullopt unless it contains exactly one complete set of them.
std::optional<std::string> WithoutLines(std::string_view source);

bool HasLines(std::string_view source);

}  // namespace fulldeck::patch
