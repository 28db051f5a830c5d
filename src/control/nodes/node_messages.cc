#include "nodes/node_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace fulldeck::nodes {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNameLimit = 64;
constexpr std::size_t kAddressLimit = 64;
constexpr std::size_t kTextLimit = 1024;
constexpr std::int64_t kMaxRanksPerNode = 4096;
constexpr std::int64_t kMaxRanks = kMaxRanksPerNode * kMaxNodes;
constexpr std::int64_t kMaxAttempts = 1'000'000'000;
constexpr std::uint64_t kMaxNanoseconds = std::uint64_t{1} << 62;

// Encoding.

std::string Short(std::string_view text, std::size_t limit) {
  return base::Printable(text.substr(0, limit));
}

Json ToJson(const NodeFailure& failure) {
  return {{"group_rank", failure.group_rank},
          {"host", Short(failure.host_name, kNameLimit)},
          {"summary", Short(failure.summary, kTextLimit)},
          {"exit_code", std::clamp(failure.exit_code, 0, 255)},
          {"unix_ns", failure.unix_nanoseconds},
          {"step", failure.best_step},
          {"by_request", failure.by_request}};
}

Json ToJson(const HelloMessage& message) {
  return {{"type", "hello"}, {"nonce", message.nonce}};
}
Json ToJson(const ChallengeMessage& message) {
  return {{"type", "challenge"}, {"nonce", message.nonce}};
}
Json ToJson(const ProofMessage& message) {
  return {{"type", "proof"}, {"proof", message.proof}};
}
Json ToJson(const JoinMessage& message) {
  Json json = {{"type", "join"},
               {"host", Short(message.host_name, kNameLimit)},
               {"ranks", message.ranks},
               {"min_hosts", message.min_nodes},
               {"max_hosts", message.max_nodes}};
  if (message.address) json["address"] = Short(*message.address, kAddressLimit);
  if (message.node_rank) json["node_rank"] = *message.node_rank;
  return json;
}
Json ToJson(const JoinedMessage& message) {
  return {{"type", "joined"}, {"host", Short(message.host_name, kNameLimit)}, {"hosts", message.nodes}};
}
Json ToJson(const RefusedMessage& message) {
  return {{"type", "refused"}, {"reason", Short(message.reason, kTextLimit)}};
}
Json ToJson(const WaitingMessage& message) {
  return {{"type", "waiting"}, {"text", Short(message.text, kTextLimit)}};
}
Json ToJson(const StartMessage& message) {
  const AttemptStart& start = message.start;
  Json members = Json::array();
  for (const GroupMember& member : start.members) {
    members.push_back(
        Json::array({Short(member.host_name, kNameLimit), Short(member.address, kAddressLimit), member.ranks}));
  }
  return {{"type", "start"},
          {"attempt", start.attempt},
          {"group_rank", start.group_rank},
          {"master_addr", Short(start.master_addr, kAddressLimit)},
          {"master_port", start.master_port},
          {"members", members}};
}
Json ToJson(const StopMessage& message) {
  return {{"type", "stop"}, {"attempt", message.attempt}, {"failure", ToJson(message.failure)}};
}
Json ToJson(const RestartMessage& message) {
  return {{"type", "again"},
          {"attempt", message.attempt},
          {"failure", ToJson(message.failure)},
          {"delay_ms", message.delay_ms}};
}
Json ToJson(const FinishedMessage& message) {
  Json json = {{"type", "over"}};
  if (message.failure) json["failure"] = ToJson(*message.failure);
  return json;
}
Json ToJson(const GaveUpMessage& message) {
  return {{"type", "gave_up"}, {"reason", Short(message.reason, kTextLimit)}};
}
Json ToJson(const FailedMessage& message) {
  return {{"type", "failed"},
          {"attempt", message.attempt},
          {"failure", ToJson(message.failure)},
          {"age_ns", message.age_ns}};
}
Json ToJson(const StoppedMessage& message) {
  return {{"type", "stopped"}, {"attempt", message.attempt}};
}
Json ToJson(const SucceededMessage& message) {
  return {{"type", "succeeded"}, {"attempt", message.attempt}};
}
Json ToJson(const HeartbeatMessage& message) {
  return {{"type", "beat"},
          {"n", message.count},
          {"echo", message.echo},
          {"held_ns", message.held_ns},
          {"step", message.best_step}};
}

// Decoding. A reader keeps the first error and returns harmless values after it.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  std::int64_t Integer(const char* key, std::int64_t least, std::int64_t most) {
    const Json* value = Find(key);
    if (value == nullptr || !value->is_number_integer()) return Wrong(key, least);
    // A number above the signed range is parsed as unsigned.
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      return Wrong(key, least);
    }
    const auto number = value->get<std::int64_t>();
    return number < least || number > most ? Wrong(key, least) : number;
  }
  int Int(const char* key, std::int64_t least, std::int64_t most) {
    return static_cast<int>(Integer(key, least, most));
  }

  std::uint64_t Unsigned(const char* key, std::uint64_t most = UINT64_MAX) {
    const Json* value = Find(key);
    if (value == nullptr || !value->is_number_unsigned()) return Wrong(key, std::uint64_t{0});
    const auto number = value->get<std::uint64_t>();
    return number > most ? Wrong(key, std::uint64_t{0}) : number;
  }

  bool Bool(const char* key) {
    const Json* value = Find(key);
    return value != nullptr && value->is_boolean() ? value->get<bool>() : Wrong(key, false);
  }

  std::string Text(const char* key, std::size_t limit) {
    const Json* value = Find(key);
    return value != nullptr ? TextOf(*value, key, limit) : Wrong(key, std::string());
  }

  std::string TextOf(const Json& value, const char* key, std::size_t limit) {
    if (!value.is_string()) return Wrong(key, std::string());
    const auto& text = value.get_ref<const std::string&>();
    return text.size() > limit ? Wrong(key, std::string()) : base::Printable(text);
  }

  std::string Hex(const char* key) {
    std::string text = Text(key, 64);
    const bool is_hex = text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
    return is_hex ? text : Wrong(key, std::string());
  }

  NodeFailure Failure(const char* key) {
    NodeFailure failure;
    const Json* value = Find(key);
    if (value == nullptr || !value->is_object()) return Wrong(key, failure);
    Reader inner(*value);
    failure.group_rank = inner.Int("group_rank", -1, kMaxNodes - 1);
    failure.host_name = inner.Text("host", kNameLimit);
    failure.summary = inner.Text("summary", kTextLimit);
    failure.exit_code = inner.Int("exit_code", 0, 255);
    failure.unix_nanoseconds = inner.Integer("unix_ns", INT64_MIN, INT64_MAX);
    failure.best_step = inner.Unsigned("step");
    failure.by_request = inner.Bool("by_request");
    if (wrong_.empty()) wrong_ = inner.wrong_;
    return failure;
  }

  std::vector<GroupMember> Members(const char* key) {
    std::vector<GroupMember> members;
    const Json* value = Find(key);
    if (value == nullptr || !value->is_array() || value->empty() || value->size() > kMaxNodes)
      return Wrong(key, members);
    int first_rank = 0;
    for (const Json& entry : *value) {
      if (!entry.is_array() || entry.size() != 3 || !entry[2].is_number_unsigned()) return Wrong(key, members);
      const auto ranks = entry[2].get<std::uint64_t>();
      if (ranks < 1 || ranks > static_cast<std::uint64_t>(kMaxRanksPerNode)) return Wrong(key, members);
      members.push_back({TextOf(entry[0], key, kNameLimit), TextOf(entry[1], key, kAddressLimit), first_rank,
                         static_cast<int>(ranks)});
      first_rank += static_cast<int>(ranks);
    }
    return members;
  }

  bool Has(const char* key) const { return object_.contains(key); }
  const std::string& wrong() const { return wrong_; }

  template <typename T>
  T Wrong(const char* key, T harmless) {
    if (wrong_.empty()) wrong_ = key;
    return harmless;
  }

 private:
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() ? &*found : nullptr;
  }

  const Json& object_;
  std::string wrong_;
};
static_assert(kMaxRanks <= INT32_MAX);

JoinMessage ReadJoin(Reader& reader) {
  JoinMessage join;
  join.host_name = reader.Text("host", kNameLimit);
  join.ranks = reader.Int("ranks", 1, kMaxRanksPerNode);
  join.min_nodes = reader.Int("min_hosts", 1, kMaxNodes);
  join.max_nodes = reader.Int("max_hosts", 1, kMaxNodes);
  if (reader.Has("address")) join.address = reader.Text("address", kAddressLimit);
  if (reader.Has("node_rank")) join.node_rank = reader.Int("node_rank", 0, INT32_MAX);
  return join;
}

StartMessage ReadStart(Reader& reader) {
  AttemptStart start;
  start.attempt = reader.Int("attempt", 0, kMaxAttempts);
  start.master_addr = reader.Text("master_addr", kAddressLimit);
  start.master_port = reader.Int("master_port", 1, 65535);
  start.members = reader.Members("members");
  start.group_world_size = static_cast<int>(start.members.size());
  start.group_rank = reader.Int("group_rank", 0, std::max(start.group_world_size - 1, 0));
  if (!start.members.empty()) {
    start.first_rank = start.members[static_cast<std::size_t>(start.group_rank)].first_rank;
    start.world_size = start.members.back().first_rank + start.members.back().ranks;
  }
  return {std::move(start)};
}

std::optional<NodeMessage> ReadMessage(const std::string& type, Reader& reader) {
  if (type == "hello") return HelloMessage{reader.Hex("nonce")};
  if (type == "challenge") return ChallengeMessage{reader.Hex("nonce")};
  if (type == "proof") return ProofMessage{reader.Hex("proof")};
  if (type == "join") return ReadJoin(reader);
  if (type == "joined") return JoinedMessage{reader.Text("host", kNameLimit), reader.Int("hosts", 1, kMaxNodes)};
  if (type == "refused") return RefusedMessage{reader.Text("reason", kTextLimit)};
  if (type == "waiting") return WaitingMessage{reader.Text("text", kTextLimit)};
  if (type == "start") return ReadStart(reader);
  if (type == "stop") return StopMessage{reader.Int("attempt", 0, kMaxAttempts), reader.Failure("failure")};
  if (type == "again") {
    return RestartMessage{reader.Int("attempt", 0, kMaxAttempts), reader.Failure("failure"),
                          reader.Unsigned("delay_ms", kMaxNanoseconds / 1'000'000)};
  }
  if (type == "over") {
    return FinishedMessage{reader.Has("failure") ? std::optional(reader.Failure("failure")) : std::nullopt};
  }
  if (type == "gave_up") return GaveUpMessage{reader.Text("reason", kTextLimit)};
  if (type == "failed") {
    return FailedMessage{reader.Int("attempt", -1, kMaxAttempts), reader.Failure("failure"),
                         reader.Unsigned("age_ns", kMaxNanoseconds)};
  }
  if (type == "stopped") return StoppedMessage{reader.Int("attempt", 0, kMaxAttempts)};
  if (type == "succeeded") return SucceededMessage{reader.Int("attempt", 0, kMaxAttempts)};
  if (type == "beat") {
    return HeartbeatMessage{reader.Unsigned("n"), reader.Unsigned("echo"), reader.Unsigned("held_ns", kMaxNanoseconds),
                            reader.Unsigned("step")};
  }
  return std::nullopt;
}

}  // namespace

std::string EncodeNodeMessage(const NodeMessage& message) {
  const Json json = std::visit([](const auto& held) { return ToJson(held); }, message);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

base::Result<NodeMessage> DecodeNodeMessage(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return base::Error{"a message that is not a JSON object"};
  Reader reader(json);
  const std::string type = reader.Text("type", 16);
  auto message = ReadMessage(type, reader);
  if (!message) return base::Error{"a message of the unknown type '" + type + "'"};
  if (!reader.wrong().empty()) {
    return base::Error{"a message '" + type + "' whose '" + reader.wrong() + "' is missing or cannot be"};
  }
  return std::move(*message);
}

}  // namespace fulldeck::nodes
