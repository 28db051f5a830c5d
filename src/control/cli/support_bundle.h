// What `fulldeck bundle` puts into its archive: everything that somebody far away needs to understand a run, running or
// over, and nothing that is not theirs to see (job/redaction/redaction.h). docs/bundle.md has the table.
#pragma once

#include <string>
#include <vector>

#include "cli/tar_archive.h"
#include "job/redaction/redaction.h"
#include "job/runs/run_logs.h"

namespace fulldeck::cli {

struct SupportBundle {
  std::vector<ArchiveFile> files;     // redacted, in the order in which they are listed
  std::vector<std::string> left_out;  // sentences: what could not be had, and why
};

// Blocks: a running run is asked for its stacks, and programs are run for at most a minute together.
SupportBundle CollectBundle(const job::RunLogs& run, job::Redaction redaction);

}  // namespace fulldeck::cli
