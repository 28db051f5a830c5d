#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "job/runs/run_registry.h"

namespace fulldeck::job {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kLongestText = 8192;
constexpr std::size_t kMaxArguments = 4096;
constexpr std::size_t kLongestCommand = 65536;  // of all arguments together
constexpr std::size_t kMaxRanks = 4096;
constexpr std::size_t kMaxCgroups = 256;

Json ToJson(const wire::ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_ticks", process.start_ticks}};
}

// A command may be longer than an entry should be; it is stored only for display.
std::vector<std::string> Shortened(const std::vector<std::string>& command) {
  std::vector<std::string> shortened;
  std::size_t left = kLongestCommand;
  for (const std::string& argument : command) {
    const std::size_t length = std::min(argument.size(), std::min(left, kLongestText / 2));
    shortened.push_back(length < argument.size() ? argument.substr(0, length) + "…" : argument);
    left -= length;
    if (left == 0 || shortened.size() == kMaxArguments) break;
  }
  return shortened;
}

// Reads fields one after the other. After the first invalid one it reads nothing more and keeps the error.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  void Text(const char* name, std::string& text, bool may_be_empty = true) {
    if (const Json* value = Find(name)) TakeText(name, *value, text);
    text = base::Printable(text);
    if (problem_.empty() && text.empty() && !may_be_empty) Fail(name, "is empty");
  }

  // Unchanged: another spelling would be another file.
  void Path(const char* name, std::string& path) {
    if (const Json* value = Find(name)) TakeText(name, *value, path);
  }

  template <typename Integer>
  void Number(const char* name, Integer& number, Integer least, Integer most) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    // A number that does not fit into 64 bits is stored as a double, and so is not an integer here.
    const bool fits =
        value->is_number_unsigned()
            ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
            : value->is_number_integer();
    if (!fits) return Fail(name, "is not a number that can be");
    const std::int64_t number_read = value->get<std::int64_t>();
    if (number_read < static_cast<std::int64_t>(least) || number_read > static_cast<std::int64_t>(most)) {
      return Fail(name, fmt::format("is {}, which cannot be", number_read));
    }
    number = static_cast<Integer>(number_read);
  }

  void Process(const char* name, wire::ProcessIdentity& process) {
    const Json* value = Find(name);
    if (value != nullptr) TakeProcess(name, *value, process);
  }

  void Texts(const char* name, std::vector<std::string>& texts, std::size_t most) {
    const Json* list = FindList(name, most);
    if (list == nullptr) return;
    for (const Json& value : *list) TakeText(name, value, texts.emplace_back());
  }

  void Ranks(std::vector<RegisteredRank>& ranks) {
    const Json* list = FindList("ranks", kMaxRanks);
    if (list == nullptr) return;
    for (const Json& value : *list) {
      RegisteredRank rank;
      Fields fields(value);
      fields.Number("local_rank", rank.local_rank, 0, static_cast<int>(kMaxRanks));
      fields.Process("process", rank.process);
      if (!fields.problem().empty()) return Fail("ranks", "holds one whose " + fields.problem());
      ranks.push_back(rank);
    }
  }

  void Cards(std::vector<std::optional<RegisteredCard>>& cards) {
    const Json* list = FindList("cards", kMaxRanks);
    if (list == nullptr) return;
    for (const Json& value : *list) {
      cards.emplace_back();
      if (value.is_null()) continue;
      RegisteredCard card;
      Fields fields(value);
      fields.Text("name", card.name, false);
      fields.Text("serial", card.serial);
      if (!fields.problem().empty()) return Fail("cards", "holds one whose " + fields.problem());
      cards.back() = std::move(card);
    }
  }

  const std::string& problem() const { return problem_; }

 private:
  const Json* Find(const char* name) {
    if (!problem_.empty()) return nullptr;
    if (!object_.is_object() || !object_.contains(name)) {
      Fail(name, "is missing");
      return nullptr;
    }
    return &object_[name];
  }

  const Json* FindList(const char* name, std::size_t most) {
    const Json* list = Find(name);
    if (list == nullptr) return nullptr;
    if (list->is_array() && list->size() <= most) return list;
    Fail(name, list->is_array() ? fmt::format("holds more than {}", most) : "is not a list");
    return nullptr;
  }

  void TakeText(const char* name, const Json& value, std::string& text) {
    if (!value.is_string()) return Fail(name, "is not a text");
    text = value.get<std::string>();
    if (text.size() > kLongestText) Fail(name, fmt::format("is longer than {} bytes", kLongestText));
    if (text.find('\0') != std::string::npos) Fail(name, "holds a zero byte");
  }

  void TakeProcess(const char* name, const Json& value, wire::ProcessIdentity& process) {
    Fields fields(value);
    fields.Number("pid", process.pid, 0, std::numeric_limits<int>::max());
    std::int64_t ticks = 0;
    fields.Number("start_ticks", ticks, std::int64_t{0}, std::numeric_limits<std::int64_t>::max());
    process.start_ticks = static_cast<std::uint64_t>(ticks);
    if (!fields.problem().empty()) Fail(name, fields.problem());
  }

  void Fail(const char* name, const std::string& why) {
    if (problem_.empty()) problem_ = fmt::format("field '{}' {}", name, why);
  }

  const Json& object_;
  std::string problem_;
};

}  // namespace

std::string FormatRunRecord(const RunRecord& record) {
  Json object = {{"version", kVersion},
                 {"run_id", record.run_id},
                 {"user", record.user},
                 {"host", record.host},
                 {"directory", record.directory},
                 {"working_directory", record.working_directory},
                 {"command", Shortened(record.command)},
                 {"front", ToJson(record.front)},
                 {"supervisor", ToJson(record.supervisor)},
                 {"board_fd", record.board_fd},
                 {"started_unix_seconds", record.started_unix_seconds},
                 {"grace_milliseconds", record.grace_milliseconds},
                 {"attempt", record.attempt},
                 {"max_restarts", record.max_restarts},
                 {"first_rank", record.first_rank},
                 {"world_size", record.world_size},
                 {"group_rank", record.group_rank},
                 {"group_world_size", record.group_world_size},
                 {"ranks", Json::array()},
                 {"cards", Json::array()},
                 {"cgroups", record.cgroups},
                 {"pid_space", record.pid_space}};
  for (const RegisteredRank& rank : record.ranks) {
    object["ranks"].push_back({{"local_rank", rank.local_rank}, {"process", ToJson(rank.process)}});
  }
  for (const std::optional<RegisteredCard>& card : record.cards) {
    object["cards"].push_back(card ? Json{{"name", card->name}, {"serial", card->serial}} : Json(nullptr));
  }
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

base::Result<RunRecord> ParseRunRecord(std::string_view text) {
  const Json object = Json::parse(text.begin(), text.end(), nullptr, false);
  if (object.is_discarded() || !object.is_object()) return base::Error{"it is not a JSON object"};
  constexpr int kMost = std::numeric_limits<int>::max();
  int version = 0;
  Fields fields(object);
  fields.Number("version", version, 0, kMost);
  if (fields.problem().empty() && version != kVersion) {
    return base::Error{
        fmt::format("it has version {}, this fulldeck speaks version {}: use the fulldeck that started the "
                    "run",
                    version, kVersion)};
  }
  RunRecord record;
  fields.Text("run_id", record.run_id, false);
  fields.Text("user", record.user);
  fields.Text("host", record.host);
  fields.Path("directory", record.directory);
  fields.Path("working_directory", record.working_directory);
  fields.Texts("command", record.command, kMaxArguments);
  fields.Process("front", record.front);
  fields.Process("supervisor", record.supervisor);
  fields.Number("board_fd", record.board_fd, -1, kMost);
  fields.Number("started_unix_seconds", record.started_unix_seconds, std::int64_t{0}, std::int64_t{1} << 40);
  fields.Number("grace_milliseconds", record.grace_milliseconds, 0, kMost);
  fields.Number("attempt", record.attempt, 0, kMost);
  fields.Number("max_restarts", record.max_restarts, 0, kMost);
  fields.Number("first_rank", record.first_rank, 0, kMost);
  fields.Number("world_size", record.world_size, 1, kMost);
  fields.Number("group_rank", record.group_rank, 0, kMost);
  fields.Number("group_world_size", record.group_world_size, 1, kMost);
  fields.Ranks(record.ranks);
  fields.Cards(record.cards);
  fields.Texts("cgroups", record.cgroups, kMaxCgroups);
  fields.Text("pid_space", record.pid_space);
  if (!fields.problem().empty()) return base::Error{fields.problem()};
  return record;
}

}  // namespace fulldeck::job
