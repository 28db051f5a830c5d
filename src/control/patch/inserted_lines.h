// Which lines `fulldeck patch mmengine` puts into mmengine/runner/runner.py, and where: just before wrap_model makes
// the data-parallel wrapper, so that they see the model as the wrapper will. Pure text; nothing here touches a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::patch {

enum class TraceWhen {
  kOnRequest,  // the report is written in runs that have FULLDECK_TRACE_DDP=1
  kAlways,     // --trace-ddp
};

// The source with the lines in it. They stand between two comment lines of ours, have the indentation and the line
// ends of their place, and do nothing where the package fulldeck is not there or anything in it fails.
//
// The place is looked for by shape, not by line number: in `def wrap_model`, outside of strings and comments, before
// the `if model_wrapper_cfg is None:` that chooses the wrapper, or else before the first `MMDistributedDataParallel(`
// or `DistributedDataParallel(`. An error when there is no such place, when there are two functions of that name, when
// our lines are there already, or when it is no text at all.
base::Result<std::string> WithLines(std::string_view source, TraceWhen when);

// The text without our lines; nothing when they are not there, or there is anything but one whole set of them.
std::optional<std::string> WithoutLines(std::string_view source);

bool HasLines(std::string_view source);

}  // namespace fulldeck::patch
