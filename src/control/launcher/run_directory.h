// The folder of a run and the files in it:
//   LOG_DIR/RUN_ID/logs/train.log                    all ranks, merged
//   LOG_DIR/RUN_ID/events.jsonl                      what happened, one JSON object per line (events/event_log.h)
//   LOG_DIR/RUN_ID/launch.json                       how it was started (launch_info.h)
//   LOG_DIR/RUN_ID/stacks-N.txt                      stacks that somebody asked for
//   LOG_DIR/RUN_ID/attempt_0/3/{stdout,stderr}.log   of local rank 3, as it wrote them
//   LOG_DIR/RUN_ID/attempt_0/3/error.json, crash.txt, stacks.txt where there are any
#pragma once

#include <string>
#include <string_view>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::launcher {

struct RankFiles {
  std::string stdout_path, stderr_path, error_path, crash_path, stack_path;
  base::UniqueFd stdout_file, stderr_file;  // append, close-on-exec
};

// Whether a file could not be made because its disk, or the user's share of it, is full.
bool IsOutOfRoom(const base::Error& error);

class RunDirectory {
 public:
  // Makes LOG_DIR/NAME, or NAME_2, NAME_3 … when there is one already. The error says which folder cannot be written.
  // `for_others`: whether others may look into it, as far as the umask lets them.
  static base::Result<RunDirectory> Make(const std::string& log_dir, const std::string& name, bool for_others = true);

  const std::string& path() const { return path_; }  // absolute
  std::string merged_log() const { return path_ + "/logs/train.log"; }
  std::string events_log() const { return path_ + "/events.jsonl"; }
  std::string attempt_folder(int attempt) const { return path_ + "/attempt_" + std::to_string(attempt); }

  base::Result<RankFiles> MakeRankFiles(int attempt, int local_rank) const;

  // The files of a rank whose output goes nowhere, for a restart on a disk that has no room left.
  base::Result<RankFiles> RankFilesWithoutOutput(int attempt, int local_rank) const;

 private:
  std::string path_;
};

// TMPDIR/fulldeck_runs-UID, where a run in torchrun's place keeps its logs: made with mode 0700, and used only while it
// belongs to this user and nobody else can write to it. Else TMPDIR/fulldeck_runs-UID.XXXXXX, a new one.
base::Result<std::string> PrivateLogFolder(const std::string& temporary);

// 20261115-091500-k3fq: local time and chance.
std::string NewRunId();
// Whether it has that shape: no name that a user chose, which may be the token of a rendezvous.
bool IsGeneratedRunId(std::string_view id);

}  // namespace fulldeck::launcher
