// Parsers for the values of launch flags. Each returns the value, or an error sentence that says what is wrong and
// which forms are valid; the caller adds the flag's name. Pure.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

// A larger number of either is a typing error.
inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxRanksPerNode = 4096;

// As Python's int() parses it: surrounding space and a sign are allowed.
std::optional<long long> ParseWhole(std::string_view text);
// A number of seconds from 0 to ten million: "30", "0.5", ".5", "1e-3".
std::optional<std::chrono::milliseconds> ParseSeconds(std::string_view text);

struct NodeRange {
  int min = 1;
  int max = 1;
};
base::Result<NodeRange> ParseNodeRange(std::string_view text);  // "4", "2:4"

struct Endpoint {
  std::string host;  // without the brackets of an IPv6 address; localhost becomes 127.0.0.1
  std::optional<int> port;
};
base::Result<Endpoint> ParseEndpoint(std::string_view text);  // "host", "host:29400", "[::1]:29400"
base::Result<std::string> ParseHostName(std::string_view text);
base::Result<int> ParsePort(std::string_view text);  // 0 to 65535

base::Result<StreamChoice> ParseStreams(std::string_view text);              // "3", "0:1,12:2"
base::Result<std::vector<int>> ParseLocalRanks(std::string_view text);       // "0,2": sorted, each once
base::Result<std::vector<std::string>> ParseFilters(std::string_view text);  // "a,b,,c": a and b,c
base::Result<std::vector<int>> ParseSignals(std::string_view text);          // "SIGTERM,USR1": each once

struct RendezvousConf {
  std::optional<std::chrono::milliseconds> join_timeout;
  std::optional<std::chrono::milliseconds> last_call_timeout;
  std::optional<std::chrono::milliseconds> silence_limit;
  std::optional<bool> is_host;
  std::optional<int> rank;
};
base::Result<RendezvousConf> ParseRendezvousConf(std::string_view text);

}  // namespace fulldeck::job
