// The runs of this user on this machine: one small file per running run, so that ps, stop, logs and top find it
// without searching for process names. A file whose supervisor is dead belongs to a killed run; it lists what else
// may remain (ranks, a cgroup).
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
  std::string serial;  // empty if the card has none
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
  int grace_milliseconds = 30'000;  // time between SIGTERM and SIGKILL for the ranks
  int attempt = 0;
  int max_restarts = 0;
  int first_rank = 0;
  int world_size = 1;
  int group_rank = 0;
  int group_world_size = 1;
  std::vector<RegisteredRank> ranks;
  std::vector<std::optional<RegisteredCard>> cards;  // by local rank; absent: on the node's CPUs
  std::vector<std::string> cgroups;                  // folders that hold the ranks
  // The boot and pid namespace in which the pids are valid: see ThisPidSpace. Write sets it if it is empty.
  std::string pid_space;
};

// "BOOT-ID/NAMESPACE" of this process. Pids of a record from before a reboot, from another machine (a shared folder)
// or from another container denote different processes here, or none.
std::string ThisPidSpace();

// JSON; docs/runs.md describes it. A malformed text or another version is an error that names the field. Parsed
// values are limited in number and length. Run id, user and host are made printable; paths and arguments are
// unchanged (a very long command is shortened when it is written).
std::string FormatRunRecord(const RunRecord& record);
base::Result<RunRecord> ParseRunRecord(std::string_view text);

class RunRegistry {
 public:
  // The folder of this user: FULLDECK_RUNTIME_DIR, otherwise $XDG_RUNTIME_DIR/fulldeck, otherwise /tmp/fulldeck-UID.
  // Created by the first write. A folder that another user could have planted is rejected.
  explicit RunRegistry(const base::Environment& environment);

  // Atomically writes or replaces the entry of the run and returns its path. An entry belongs to one launcher: its
  // name has the run id and the front process, so that launchers of one job on one node do not overwrite each other.
  base::Result<std::string> Write(const RunRecord& record) const;

  struct Entry {
    RunRecord record;
    std::string path;
    bool alive = false;  // the supervisor runs
  };
  void Remove(const RunRecord& record) const;
  void Remove(const Entry& entry) const;

  // All runs of this user, oldest first, from every folder that this or another session of the user would use.
  // Removes nothing. `warnings` (may be null) receives a sentence for each file that is not an entry, and for each
  // run that only another container can reach.
  std::vector<Entry> List(std::vector<std::string>* warnings = nullptr) const;

  // The current content of the entry's file; fails if the file is gone.
  base::Result<Entry> ReadAgain(const Entry& entry) const;

  // By run id, prefix of it, or run directory. Returns several entries only if they have the same run id (launchers
  // of one job). If `which` is empty, the only running run. The error lists the existing runs.
  base::Result<std::vector<Entry>> FindAll(std::string_view which) const;
  // The same for commands that show a single entry: of several, the one with the lowest group rank.
  base::Result<Entry> Find(std::string_view which) const;

 private:
  std::vector<std::string> folders_;  // the first one is written to
};

}  // namespace fulldeck::job
