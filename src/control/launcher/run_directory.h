// The folder of a run and its files:
//   LOG_DIR/RUN_ID/logs/train.log                    output of all ranks, merged
//   LOG_DIR/RUN_ID/events.jsonl                      events, one JSON object per line (events/event_log.h)
//   LOG_DIR/RUN_ID/launch.json                       how it was started (launch_info.h)
//   LOG_DIR/RUN_ID/stacks-N.txt                      stacks that were requested
//   LOG_DIR/RUN_ID/attempt_0/3/{stdout,stderr}.log   output of local rank 3, unchanged
//   LOG_DIR/RUN_ID/attempt_0/3/error.json, crash.txt, stacks.txt if present
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

// Whether a file could not be created because the disk or the user's quota is full.
bool IsOutOfRoom(const base::Error& error);

class RunDirectory {
 public:
  // Makes LOG_DIR/NAME, or NAME_2, NAME_3 … if it exists already. The error names the folder without write permission.
  // `for_others`: whether other users may read it, as far as the umask allows.
  static base::Result<RunDirectory> Make(const std::string& log_dir, const std::string& name, bool for_others = true);

  const std::string& path() const { return path_; }  // absolute
  std::string merged_log() const { return path_ + "/logs/train.log"; }
  std::string events_log() const { return path_ + "/events.jsonl"; }
  std::string attempt_folder(int attempt) const { return path_ + "/attempt_" + std::to_string(attempt); }

  base::Result<RankFiles> MakeRankFiles(int attempt, int local_rank) const;

  // The files of a rank whose output is discarded, for a restart on a full disk.
  base::Result<RankFiles> RankFilesWithoutOutput(int attempt, int local_rank) const;

 private:
  std::string path_;
};

// TMPDIR/fulldeck_runs-UID, where a run in place of torchrun keeps its logs. Created with mode 0700, and used only
// while it belongs to this user and no other user can write to it. Otherwise a new folder
// TMPDIR/fulldeck_runs-UID.XXXXXX.
base::Result<std::string> PrivateLogFolder(const std::string& temporary);

// 20261115-091500-k3fq: local time and a random suffix.
std::string NewRunId();
// Whether the id has that shape. If not, the user chose it, and it may be a rendezvous token.
bool IsGeneratedRunId(std::string_view id);

}  // namespace fulldeck::launcher
