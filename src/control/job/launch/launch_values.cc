#include "job/launch/launch_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "base/text.h"

namespace fulldeck::job {
namespace {

constexpr double kMaxSeconds = 1e7;

// As Python's float() parses it: also .5, 5. and 1e-3.
std::optional<double> ParseNumber(std::string_view text) {
  text = base::Trim(text);
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.size() > 1 && digits[0] == '+') digits.remove_prefix(1);
    const auto read = base::ParseInteger<int>(digits);
    if (!read || *read < -9 || *read > 9) return std::nullopt;
    exponent = *read;
    text = text.substr(0, e);
  }
  std::string mantissa(text);
  if (mantissa.size() > 1 && mantissa.front() == '.') mantissa.insert(0, "0");
  if (mantissa.size() > 1 && mantissa.back() == '.') mantissa.pop_back();
  auto number = base::ParseDecimal(mantissa);
  for (; number && exponent > 0; --exponent) *number *= 10;
  for (; number && exponent < 0; ++exponent) *number /= 10;
  return number;
}

bool IsHostCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
         c == '_' || c == ':' || c == '%';
}

struct SignalRow {
  const char* name;
  int number;
  const char* why_not;  // nullptr: it can stop a run
};

constexpr char kCannotBeCaught[] = "no process can catch it";
constexpr char kReportsAFault[] = "it tells of a fault in the program itself";
constexpr char kClosedConsole[] = "a console that is closed must not end a run";
constexpr char kUsedByLauncher[] = "the launcher needs it to see its ranks end";

constexpr SignalRow kSignals[] = {
    {"HUP", SIGHUP, nullptr},
    {"INT", SIGINT, nullptr},
    {"QUIT", SIGQUIT, nullptr},
    {"TERM", SIGTERM, nullptr},
    {"USR1", SIGUSR1, nullptr},
    {"USR2", SIGUSR2, nullptr},
    {"ALRM", SIGALRM, nullptr},
    {"VTALRM", SIGVTALRM, nullptr},
    {"PROF", SIGPROF, nullptr},
    {"XCPU", SIGXCPU, nullptr},
    {"XFSZ", SIGXFSZ, nullptr},
    {"PWR", SIGPWR, nullptr},
    {"TSTP", SIGTSTP, nullptr},
    {"TTIN", SIGTTIN, nullptr},
    {"TTOU", SIGTTOU, nullptr},
    {"CONT", SIGCONT, nullptr},
    {"WINCH", SIGWINCH, nullptr},
    {"URG", SIGURG, nullptr},
    {"IO", SIGIO, nullptr},
    {"KILL", SIGKILL, kCannotBeCaught},
    {"STOP", SIGSTOP, kCannotBeCaught},
    {"CHLD", SIGCHLD, kUsedByLauncher},
    {"PIPE", SIGPIPE, kClosedConsole},
    {"SEGV", SIGSEGV, kReportsAFault},
    {"BUS", SIGBUS, kReportsAFault},
    {"FPE", SIGFPE, kReportsAFault},
    {"ILL", SIGILL, kReportsAFault},
    {"ABRT", SIGABRT, kReportsAFault},
    {"TRAP", SIGTRAP, kReportsAFault},
    {"SYS", SIGSYS, kReportsAFault},
};

std::optional<Streams> ParseStreamDigit(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  return static_cast<Streams>(text[0] - '0');
}

std::optional<int> ParseLocalRank(std::string_view text) {
  const auto rank = base::ParseInteger<int>(base::Trim(text));
  if (!rank || *rank < 0 || *rank >= kMaxRanksPerNode) return std::nullopt;
  return rank;
}

// Keys that only other backends or torch's own store use, and why they cannot be supported.
struct RefusedKey {
  const char* key;
  const char* why;
};
constexpr char kOfEtcd[] = "it belongs to the etcd backends, which fulldeck does not have";
constexpr RefusedKey kRefusedKeys[] = {
    {"heartbeat_timeout",
     "it bounds a write to torch's store, and there is none; to wait longer for a silent host raise "
     "keep_alive_interval or keep_alive_max_attempt"},
    {"protocol", kOfEtcd},
    {"cert", kOfEtcd},
    {"key", kOfEtcd},
    {"cacert", kOfEtcd},
    {"ssl_cert", kOfEtcd},
    {"ssl_cert_key", kOfEtcd},
    {"ca_cert", kOfEtcd},
    {"etcd_prefix", kOfEtcd},
};
constexpr const char* kKnownKeys[] = {"timeout",      "join_timeout", "last_call_timeout",   "close_timeout",
                                      "read_timeout", "is_host",      "keep_alive_interval", "keep_alive_max_attempt",
                                      "rank",         "store_type"};

std::optional<bool> ParseYesOrNo(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  for (const char* yes : {"1", "true", "t", "yes", "y"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

using KeyValues = std::map<std::string, std::string, std::less<>>;

base::Result<KeyValues> SplitConf(std::string_view text) {
  KeyValues values;
  if (base::Trim(text).empty()) return values;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto equals = part.find('=');
    const std::string_view key = base::Trim(part.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : base::Trim(part.substr(equals + 1));
    if (key.empty() || value.empty()) {
      return base::Error{fmt::format("'{}' is not of the form KEY=VALUE", base::Printable(part.substr(0, 60)))};
    }
    values[std::string(key)] = std::string(value);
  }
  return values;
}

base::Result<void> CheckKey(const std::string& key) {
  for (const RefusedKey& row : kRefusedKeys) {
    if (key == row.key) return base::Error{fmt::format("{} cannot be kept: {}", key, row.why)};
  }
  const std::vector<std::string> known(std::begin(kKnownKeys), std::end(kKnownKeys));
  if (std::find(known.begin(), known.end(), key) != known.end()) return {};
  const auto near = base::ClosestMatch(key, known);
  return base::Error{fmt::format("there is no key '{}'{}. Keys: {}", base::Printable(key.substr(0, 60)),
                                 near ? "; did you mean " + *near + "?" : "", base::Join(known, ", "))};
}

// Integers, as in torchrun; all of these must be positive.
base::Result<std::optional<long long>> PositiveValue(const KeyValues& values, const char* key) {
  const auto found = values.find(std::string_view(key));
  if (found == values.end()) return std::optional<long long>();
  const auto number = ParseWhole(found->second);
  if (!number || *number < 1 || static_cast<double>(*number) > kMaxSeconds) {
    return base::Error{fmt::format("{} must be a whole number from 1 on, not '{}'", key,
                                   base::Printable(found->second.substr(0, 60)))};
  }
  return number;
}

base::Result<void> ReadTimes(const KeyValues& values, RendezvousConf& conf) {
  std::map<std::string_view, std::optional<long long>> read;
  for (const char* key : {"timeout", "join_timeout", "last_call_timeout", "close_timeout", "read_timeout",
                          "keep_alive_interval", "keep_alive_max_attempt"}) {
    const auto value = PositiveValue(values, key);
    if (!value) return value.error();
    read[key] = *value;
  }
  const auto join = read["join_timeout"];
  const auto timeout = read["timeout"];
  if (join && timeout && *join != *timeout) {
    return base::Error{
        fmt::format("timeout={} and join_timeout={} are the same thing here: give one", *timeout, *join)};
  }
  if (join || timeout) conf.join_timeout = std::chrono::seconds(join ? *join : *timeout);
  if (read["last_call_timeout"]) conf.last_call_timeout = std::chrono::seconds(*read["last_call_timeout"]);
  const auto interval = read["keep_alive_interval"];
  const auto attempts = read["keep_alive_max_attempt"];
  // torchrun's defaults replace the value that is not given.
  constexpr long long kInterval = 5;
  constexpr long long kAttempts = 3;
  if (interval || attempts) {
    conf.silence_limit = std::chrono::seconds(interval.value_or(kInterval) * attempts.value_or(kAttempts));
  }
  return {};
}

}  // namespace

std::optional<long long> ParseWhole(std::string_view text) {
  text = base::Trim(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return base::ParseInteger<long long>(text);
}

std::optional<std::chrono::milliseconds> ParseSeconds(std::string_view text) {
  const auto number = ParseNumber(text);
  if (!number || *number > kMaxSeconds) return std::nullopt;
  return std::chrono::milliseconds(std::llround(*number * 1000));
}

base::Result<NodeRange> ParseNodeRange(std::string_view text) {
  const auto parts = base::Split(text, ':');
  const auto min = ParseWhole(parts[0]);
  const auto max = ParseWhole(parts.back());
  if (parts.size() > 2 || !min || !max) {
    return base::Error{"it must be a number of hosts, or MIN:MAX such as 2:4"};
  }
  if (*min < 1) return base::Error{"at least one host is needed"};
  if (*min > *max) return base::Error{fmt::format("MIN is larger than MAX; did you mean {}:{}?", *max, *min)};
  if (*max > kMaxNodes) return base::Error{fmt::format("more than {} hosts cannot be", kMaxNodes)};
  return NodeRange{static_cast<int>(*min), static_cast<int>(*max)};
}

base::Result<std::string> ParseHostName(std::string_view text) {
  text = base::Trim(text);
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  constexpr std::size_t kLongestName = 255;
  if (text.empty() || text.size() > kLongestName || !std::all_of(text.begin(), text.end(), IsHostCharacter)) {
    return base::Error{"it must be the name or the address of a host"};
  }
  if (text == "localhost") return std::string("127.0.0.1");
  return std::string(text);
}

base::Result<int> ParsePort(std::string_view text) {
  const auto port = ParseWhole(text);
  if (!port || *port < 0 || *port > 65535) return base::Error{"a port is a number from 0 to 65535"};
  return static_cast<int>(*port);
}

base::Result<Endpoint> ParseEndpoint(std::string_view text) {
  text = base::Trim(text);
  Endpoint endpoint;
  std::string_view host = text;
  const auto colon = text.rfind(':');
  const bool bracketed = text.size() > 1 && text.front() == '[' && text.back() == ']';
  if (!bracketed && colon != std::string_view::npos) {
    host = text.substr(0, colon);
    if (host.find(':') != std::string_view::npos && host.front() != '[') {
      return base::Error{"write an IPv6 address in brackets: [::1]:29400"};
    }
    const auto port = ParsePort(text.substr(colon + 1));
    if (!port) return base::Error{"it must be HOST or HOST:PORT, and " + port.error().message};
    endpoint.port = *port;
  }
  auto name = ParseHostName(host);
  if (!name) return name.error();
  endpoint.host = std::move(*name);
  return endpoint;
}

base::Result<StreamChoice> ParseStreams(std::string_view text) {
  constexpr char kForms[] =
      "it must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a map of local ranks such as 0:3,12:1";
  StreamChoice choice;
  if (const auto all = ParseStreamDigit(text)) {
    choice.others = *all;
    return choice;
  }
  for (const std::string_view part : base::Split(text, ',')) {
    const auto colon = part.find(':');
    if (colon == std::string_view::npos) return base::Error{kForms};
    const auto rank = ParseLocalRank(part.substr(0, colon));
    const auto streams = ParseStreamDigit(base::Trim(part.substr(colon + 1)));
    if (!rank || !streams) return base::Error{kForms};
    const bool is_new = choice.by_local_rank.emplace(*rank, *streams).second;
    if (!is_new) return base::Error{fmt::format("local rank {} comes twice", *rank)};
  }
  return choice;
}

base::Result<std::vector<int>> ParseLocalRanks(std::string_view text) {
  std::vector<int> ranks;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto rank = ParseLocalRank(part);
    if (!rank) return base::Error{"it must be a list of local ranks such as 0,1,2"};
    ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

base::Result<std::vector<std::string>> ParseFilters(std::string_view text) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  if (std::find(filters.begin(), filters.end(), "") != filters.end()) {
    return base::Error{"an empty text would match every line; two commas stand for one"};
  }
  return filters;
}

base::Result<std::vector<int>> ParseSignals(std::string_view text) {
  std::vector<int> signals;
  for (const std::string_view part : base::Split(text, ',')) {
    std::string name(base::Trim(part));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); });
    if (name.starts_with("SIG")) name.erase(0, 3);
    const auto* row =
        std::find_if(std::begin(kSignals), std::end(kSignals), [&](const SignalRow& r) { return name == r.name; });
    if (row == std::end(kSignals)) {
      return base::Error{fmt::format("there is no signal '{}'; names are such as SIGTERM,SIGINT,SIGUSR1",
                                     base::Printable(part.substr(0, 40)))};
    }
    if (row->why_not != nullptr) return base::Error{fmt::format("SIG{} cannot stop a run: {}", name, row->why_not)};
    if (std::find(signals.begin(), signals.end(), row->number) == signals.end()) signals.push_back(row->number);
  }
  return signals;
}

base::Result<RendezvousConf> ParseRendezvousConf(std::string_view text) {
  const auto values = SplitConf(text);
  if (!values) return values.error();
  RendezvousConf conf;
  for (const auto& entry : *values) {
    const auto known = CheckKey(entry.first);
    if (!known) return known.error();
  }
  const auto times = ReadTimes(*values, conf);
  if (!times) return times.error();
  if (const auto found = values->find("is_host"); found != values->end()) {
    conf.is_host = ParseYesOrNo(found->second);
    if (!conf.is_host) return base::Error{"is_host must be true or false"};
  }
  if (const auto found = values->find("rank"); found != values->end()) {
    const auto rank = ParseWhole(found->second);
    if (!rank || *rank < 0 || *rank >= kMaxNodes) return base::Error{"rank must be the number of this host, from 0"};
    conf.rank = static_cast<int>(*rank);
  }
  if (const auto found = values->find("store_type"); found != values->end() && found->second != "tcp") {
    return base::Error{"store_type: only tcp can be kept; hosts meet over the network, not in a file"};
  }
  return conf;
}

}  // namespace fulldeck::job
