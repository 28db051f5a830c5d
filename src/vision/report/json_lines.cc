#include "report/json_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files/whole_file.h"
#include "base/text.h"

namespace fulldeck::report {
namespace {

using Json = nlohmann::json;

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<double> NumberIn(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// The step of a line, if it has the format of this file.
std::optional<std::int64_t> StepIn(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

struct Kept {
  std::uint64_t bytes = 0;
  JsonLines::Repair repair;
};

// The part of the file to keep: whole lines, up to the first one whose step is after `resumed_at`.
Kept WhatStays(std::istream& file, std::int64_t resumed_at) {
  Kept kept;
  std::string line;
  while (std::getline(file, line)) {
    // getline also returns a last line without a newline; eof() is set then.
    if (file.eof()) {
      kept.repair.half_line_bytes = line.size();
      break;
    }
    const std::optional<std::int64_t> step = StepIn(Json::parse(line, nullptr, false));
    if (kept.repair.lines_dropped > 0 || (step && *step > resumed_at)) {
      ++kept.repair.lines_dropped;
    } else {
      kept.bytes += line.size() + 1;
    }
  }
  return kept;
}

}  // namespace

JsonLine::JsonLine(std::int64_t step) : text_(fmt::format("{{\"step\":{}", step)) {}

void JsonLine::Name(const std::string& name) {
  text_ += ',';
  text_ += Quoted(name);
  text_ += ':';
}

JsonLine& JsonLine::Number(const std::string& name, double value) {
  Name(name);
  if (std::isnan(value)) {
    text_ += "\"NaN\"";
  } else if (std::isinf(value)) {
    text_ += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    text_ += fmt::format("{}", value);
  }
  return *this;
}

JsonLine& JsonLine::Integer(const std::string& name, std::int64_t value) {
  Name(name);
  text_ += fmt::format("{}", value);
  return *this;
}

JsonLine& JsonLine::Text(const std::string& name, const std::string& value) {
  Name(name);
  text_ += Quoted(value);
  return *this;
}

JsonLines::JsonLines(base::UniqueFd file, std::string path, Repair repair)
    : file_(std::move(file)), path_(std::move(path)), repair_(repair) {}

base::Result<JsonLines> JsonLines::Open(const std::string& path, std::optional<std::int64_t> resumed_at) {
  if (!resumed_at && rename(path.c_str(), (path + ".old").c_str()) != 0 && errno != ENOENT)
    return base::ErrnoError("cannot set " + base::Printable(path) + " of an earlier run aside");
  base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return base::ErrnoError("cannot open " + base::Printable(path));
  Repair repair;
  if (resumed_at) {
    std::ifstream before(path, std::ios::binary);
    if (!before) return base::ErrnoError("cannot read " + base::Printable(path));
    const Kept kept = WhatStays(before, *resumed_at);
    repair = kept.repair;
    if (repair.half_line_bytes + repair.lines_dropped > 0 && ftruncate(file.get(), static_cast<off_t>(kept.bytes)) != 0)
      return base::ErrnoError("cannot shorten " + base::Printable(path));
  }
  return JsonLines(std::move(file), path, repair);
}

base::Result<void> JsonLines::Append(const JsonLine& line) {
  return base::WriteAllTo(file_.get(), line.Finished(), path_);
}

base::Result<std::vector<Curve>> ReadCurves(const std::string& path, const std::vector<std::string>& names) {
  std::vector<Curve> curves;
  for (const std::string& name : names) curves.push_back({name, {}});
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) return curves;
  if (!file) return base::ErrnoError("cannot read " + base::Printable(path));
  std::string text;
  while (std::getline(file, text)) {
    const Json line = Json::parse(text, nullptr, false);
    const std::optional<std::int64_t> step = StepIn(line);
    if (!step) continue;
    for (Curve& curve : curves) {
      const auto value = line.find(curve.name);
      if (value == line.end()) continue;
      if (const std::optional<double> number = NumberIn(*value)) curve.points.push_back({*step, *number});
    }
  }
  return curves;
}

}  // namespace fulldeck::report
