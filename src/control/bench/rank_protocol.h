// The protocol between the bench and its ranks: one JSON object per line, over a Unix socket that the rank connects to.
//
//   rank:   {"rank": 3, "about": "torch 2.13.0"}     or {"rank": 3, "absent": "No module named 'torch'"}
//   bench:  {"do": "measure", "operation": "all_reduce", "datatype": "float32", "bytes": 4096, …}
//   rank:   {"times_ns": [2100, …], "checked": 8192}  or {"cannot": …}, {"failed": …}, {"wrong": …}
//   bench:  {"do": "timeline", …}
//   rank:   {"begin_ns": …, "end_ns": …, "events": [["in", 0, 12, 40], …]}
//
// A rank exits at the end of the connection.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "bench/measurement.h"
#include "bench/timeline.h"

namespace fulldeck::bench {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kLongestLine = std::size_t{64} << 20;

struct Greeting {
  int rank = -1;
  std::string about;
  std::optional<std::string> absent;
};

Json ToJson(const Greeting& greeting);
Json ToJson(const Cell& cell);
Json ToJson(const Measurement& measurement);
Json ToJson(const RankTimeline& timeline);

// Errors name the field that is missing or has the wrong type. Returned strings are printable and capped.
base::Result<Greeting> ReadGreeting(const std::string& line);
base::Result<Measurement> ReadMeasurement(const std::string& line);
base::Result<RankTimeline> ReadTimeline(const std::string& line);

struct Order {
  enum class Kind { kMeasure, kTimeline } kind = Kind::kMeasure;
  Cell cell;
};
std::string LineOf(Order::Kind kind, const Cell& cell);
base::Result<Order> ReadOrder(const std::string& line);

// Sends and receives one line per call. Blocking; not thread safe.
class LineSocket {
 public:
  static base::Result<LineSocket> Connect(const std::string& path);
  explicit LineSocket(base::UniqueFd socket) : socket_(std::move(socket)) {}

  base::Result<void> Send(const std::string& line);
  // nullopt: the other side is gone.
  std::optional<std::string> Receive();

 private:
  base::UniqueFd socket_;
  std::string received_;
};

}  // namespace fulldeck::bench
