// The metrics of a run as JSON lines, for programs: one object per line, {"step":50,"loss":0.8312,"lr":0.0001}.
//
// Each line is written immediately, in one write, so a killed process loses no line. On a full disk, half a line may
// remain at the end; the next Open removes it. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "report/run_report.h"

namespace fulldeck::report {

// Builds one line. Names are not escaped and must be unique; "step" comes first.
class JsonLine {
 public:
  explicit JsonLine(std::int64_t step);
  // The shortest digits that parse to the same double. JSON has neither NaN nor infinity: they are written as the
  // strings "NaN", "Infinity" and "-Infinity".
  JsonLine& Number(const std::string& name, double value);
  JsonLine& Integer(const std::string& name, std::int64_t value);
  JsonLine& Text(const std::string& name, const std::string& value);
  // Includes the newline.
  std::string Finished() const { return text_ + "}\n"; }

 private:
  void Name(const std::string& name);
  std::string text_;
};

class JsonLines {
 public:
  // What Open found and repaired.
  struct Repair {
    std::uint64_t half_line_bytes = 0;  // removed at the end of the file
    std::uint64_t lines_dropped = 0;    // of steps after the one at which the run resumes
  };

  // `resumed_at`: the step after which the run resumes; drops all lines from the first one of a later step. Absent: a
  // new run; an existing file is renamed to PATH.old.
  static base::Result<JsonLines> Open(const std::string& path, std::optional<std::int64_t> resumed_at);

  base::Result<void> Append(const JsonLine& line);
  const Repair& repair() const { return repair_; }

 private:
  JsonLines(base::UniqueFd file, std::string path, Repair repair);
  base::UniqueFd file_;
  std::string path_;
  Repair repair_;
};

// The curves with these names from a file of JSON lines, for a report that starts before a resume. A line without a
// name adds no point to that curve; invalid lines are skipped. A missing file yields empty curves.
base::Result<std::vector<Curve>> ReadCurves(const std::string& path, const std::vector<std::string>& names);

}  // namespace fulldeck::report
