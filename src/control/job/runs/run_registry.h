// The runs of this user on this machine: one small file a running run, so that ps, stop, logs and top find it without
// looking for names of processes. A file whose supervisor no longer lives is what a killed run left; it says what else
// may have stayed (ranks, a cgroup).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

struct RegisteredCard {
  std::string name;    // "gcu 3"
  std::string serial;  // empty when the card tells none
};

struct RegisteredRank {
  int local_rank = 0;
  wire::ProcessIdentity process;
};

struct RunRecord {
  std::string run_id;
  std::string user;
  std::string host;
  std::string directory;  // run directory, absolute
  std::string working_directory;
  std::vector<std::string> command;  // the program of the ranks
  wire::ProcessIdentity front;
  wire::ProcessIdentity supervisor;
  int board_fd = -1;  // of the supervisor: /proc/PID/fd/N
  std::int64_t started_unix_seconds = 0;
  int grace_milliseconds = 30'000;  // that the ranks get between SIGTERM and SIGKILL
  int attempt = 0;
  int max_restarts = 0;
  int first_rank = 0;
  int world_size = 1;
  int group_rank = 0;
  int group_world_size = 1;
  std::vector<RegisteredRank> ranks;
  std::vector<std::optional<RegisteredCard>> cards;  // by local rank; absent: on the host's processors
  std::vector<std::string> cgroups;                  // folders that hold the ranks
  // In which boot and pid namespace the pids count: see ThisPidSpace. Write fills it in when it is empty.
  std::string pid_space;
};

// "BOOT-ID/NAMESPACE" of this process. Pids of a record from before a reboot, from another host (a shared folder) or
// from another container name other processes here, or none.
std::string ThisPidSpace();

// JSON; docs/runs.md describes it. A text that is malformed or of another version is an error that names the field.
// What is read back is capped in number and length; run id, user and host are printable, paths and arguments are as
// they were (a very long command is cut short when it is written).
std::string FormatRunRecord(const RunRecord& record);
base::Result<RunRecord> ParseRunRecord(std::string_view text);

class RunRegistry {
 public:
  // The folder of this user: FULLDECK_RUNTIME_DIR, else $XDG_RUNTIME_DIR/fulldeck, else /tmp/fulldeck-UID. Made when
  // something is written; a folder that another user could have planted is refused.
  explicit RunRegistry(const base::Environment& environment);

  // Writes or replaces the entry of the run (whole or not at all), and returns its path. An entry belongs to one
  // launcher: run id and front process name it, so that launchers of one job on one host do not overwrite each other.
  base::Result<std::string> Write(const RunRecord& record) const;

  struct Entry {
    RunRecord record;
    std::string path;
    bool alive = false;  // the supervisor lives
  };
  void Remove(const RunRecord& record) const;
  void Remove(const Entry& entry) const;

  // All runs of this user, oldest first, found in every folder that this or another session of the user would use.
  // Removes nothing. `warnings` (may be null) gets a sentence for each file that is no entry, and for each run that
  // only another container can reach.
  std::vector<Entry> List(std::vector<std::string>* warnings = nullptr) const;

  // The entry as it stands in its file now; an error when it is gone.
  base::Result<Entry> ReadAgain(const Entry& entry) const;

  // By run id, prefix of it, or run directory. Several only when they have the same run id (launchers of one job). The
  // only running one when `which` is empty. The error lists what there is.
  base::Result<std::vector<Entry>> FindAll(std::string_view which) const;
  // The same for what can show one only: of several, the one with the lowest group rank.
  base::Result<Entry> Find(std::string_view which) const;

 private:
  std::vector<std::string> folders_;  // the first one is written to
};

}  // namespace fulldeck::job
