// The content of the archive that `fulldeck bundle` writes: everything that support needs to understand a run,
// running or ended, without private data (job/redaction/redaction.h). docs/bundle.md lists it.
#pragma once

#include <string>
#include <vector>

#include "cli/tar_archive.h"
#include "job/redaction/redaction.h"
#include "job/runs/run_logs.h"

namespace fulldeck::cli {

struct SupportBundle {
  std::vector<ArchiveFile> files;     // redacted, in the order in which they are listed
  std::vector<std::string> left_out;  // sentences: what could not be included, and why
};

// Blocks: collects the stacks of a running run, and runs programs for at most a minute in total.
SupportBundle CollectBundle(const job::RunLogs& run, job::Redaction redaction);

}  // namespace fulldeck::cli
