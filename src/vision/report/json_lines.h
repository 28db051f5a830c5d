// The measurements of a run as JSON lines, for programs: one object a line, {"step":50,"loss":0.8312,"lr":0.0001}.
//
// A line goes to the file in one write and at once, so a process that is killed loses none, and at most leaves half a
// line at the end of a full disk, which the next Open cuts off. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "report/run_report.h"

namespace fulldeck::report {

// One line in the making. Names are used as they are given, once each, and "step" is the first of all.
class JsonLine {
 public:
  explicit JsonLine(std::int64_t step);
  // The shortest digits that give the same double again. JSON has no NaN and no infinities: they stand as the texts
  // "NaN", "Infinity" and "-Infinity".
  JsonLine& Number(const std::string& name, double value);
  JsonLine& Integer(const std::string& name, std::int64_t value);
  JsonLine& Text(const std::string& name, const std::string& value);
  // With the line's end.
  std::string Finished() const { return text_ + "}\n"; }

 private:
  void Name(const std::string& name);
  std::string text_;
};

class JsonLines {
 public:
  // What Open found and put right.
  struct Repair {
    std::uint64_t half_line_bytes = 0;  // cut off at the end
    std::uint64_t lines_dropped = 0;    // of steps after the one at which the run resumes
  };

  // `resumed_at`: the step after which the run goes on; lines from the first one of a later step on are dropped.
  // Absent: a new run; a file that is there already becomes PATH.old.
  static base::Result<JsonLines> Open(const std::string& path, std::optional<std::int64_t> resumed_at);

  base::Result<void> Append(const JsonLine& line);
  const Repair& repair() const { return repair_; }

 private:
  JsonLines(base::UniqueFd file, std::string path, Repair repair);
  base::UniqueFd file_;
  std::string path_;
  Repair repair_;
};

// The curves of these names from a file of JSON lines, for a report that begins before the run was resumed. Lines
// without a name have no point of it; a line that is no JSON is skipped. A file that is not there gives empty curves.
base::Result<std::vector<Curve>> ReadCurves(const std::string& path, const std::vector<std::string>& names);

}  // namespace fulldeck::report
