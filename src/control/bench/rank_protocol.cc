#include "bench/rank_protocol.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace fulldeck::bench {
namespace {

constexpr std::size_t kLongestText = 4000;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

base::Error Unreadable(const std::string& what) {
  return base::Error{"what a rank of the bench said cannot be understood: " + what};
}

// The fields of one line, and the first invalid one.
class Fields {
 public:
  explicit Fields(const std::string& line) : json_(Json::parse(line, nullptr, false)) {
    if (!json_.is_object()) wrong_ = "'" + base::Printable(line.substr(0, 80)) + "' is no object";
  }

  std::optional<std::string> Text(const char* name) {
    const Json* field = Find(name);
    if (field == nullptr) return std::nullopt;
    if (!field->is_string()) return Wrong(name), std::nullopt;
    const std::string received_text = field->get_ref<const std::string&>().substr(0, kLongestText);
    std::string text;
    // Printable removes newlines, but a peer's message may have several lines.
    for (const std::string_view part : base::Split(received_text, '\n')) {
      if (!text.empty()) text += '\n';
      text += base::Printable(part);
    }
    return text;
  }
  template <typename Number>
  Number NumberOr(const char* name, Number otherwise) {
    const Json* field = Find(name);
    if (field == nullptr) return otherwise;
    if (std::is_integral_v<Number> ? !field->is_number_integer() : !field->is_number()) {
      return Wrong(name), otherwise;
    }
    return field->get<Number>();
  }
  bool Flag(const char* name) {
    const Json* field = Find(name);
    if (field == nullptr) return false;
    if (!field->is_boolean()) return Wrong(name), false;
    return field->get<bool>();
  }
  const Json* List(const char* name) {
    const Json* field = Find(name);
    if (field != nullptr && !field->is_array()) return Wrong(name), nullptr;
    return field;
  }
  void Wrong(const char* name) {
    if (wrong_.empty()) wrong_ = std::string("its field ") + name;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const Json* Find(const char* name) const {
    if (!json_.is_object()) return nullptr;
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  Json json_;
  std::string wrong_;
};

const char* WordOf(Order::Kind kind) {
  return kind == Order::Kind::kMeasure ? "measure" : "timeline";
}

}  // namespace

Json ToJson(const Greeting& greeting) {
  Json json = {{"rank", greeting.rank}};
  if (greeting.absent) {
    json["absent"] = *greeting.absent;
  } else {
    json["about"] = greeting.about;
  }
  return json;
}

Json ToJson(const Cell& cell) {
  return {{"operation", cell.operation->name},
          {"datatype", cell.element->name},
          {"bytes", cell.bytes},
          {"shared", cell.shared},
          {"seconds", cell.seconds},
          {"least_calls", cell.min_calls},
          {"most_calls", cell.max_calls},
          {"device", cell.on_cuda ? "cuda" : "cpu"},
          {"spoil", cell.spoil}};
}

Json ToJson(const Measurement& measurement) {
  Json json = {{"times_ns", measurement.times_ns}, {"checked", measurement.checked}};
  if (measurement.cannot) json["cannot"] = *measurement.cannot;
  if (measurement.failed) json["failed"] = *measurement.failed;
  if (measurement.wrong) json["wrong"] = *measurement.wrong;
  return json;
}

Json ToJson(const RankTimeline& timeline) {
  Json json = {{"about", timeline.about}, {"begin_ns", timeline.begin_ns}, {"end_ns", timeline.end_ns}};
  Json& events = json["events"] = Json::array();
  for (const StageEvent& event : timeline.events) {
    events.push_back({NameOf(event.stage), event.chunk, event.begin_ns, event.end_ns});
  }
  if (timeline.failed) json["failed"] = *timeline.failed;
  return json;
}

base::Result<Greeting> ReadGreeting(const std::string& line) {
  Fields fields(line);
  Greeting greeting;
  greeting.rank = fields.NumberOr<int>("rank", -1);
  greeting.about = fields.Text("about").value_or("");
  greeting.absent = fields.Text("absent");
  if (!fields.wrong().empty()) return Unreadable(fields.wrong());
  return greeting;
}

base::Result<Measurement> ReadMeasurement(const std::string& line) {
  Fields fields(line);
  Measurement measurement;
  if (const Json* times = fields.List("times_ns")) {
    for (const Json& time : *times) {
      if (!time.is_number_unsigned()) {
        fields.Wrong("times_ns");
        break;
      }
      measurement.times_ns.push_back(time.get<std::uint64_t>());
    }
  }
  measurement.checked = fields.NumberOr<std::uint64_t>("checked", 0);
  measurement.cannot = fields.Text("cannot");
  measurement.failed = fields.Text("failed");
  measurement.wrong = fields.Text("wrong");
  if (!fields.wrong().empty()) return Unreadable(fields.wrong());
  return measurement;
}

base::Result<RankTimeline> ReadTimeline(const std::string& line) {
  Fields fields(line);
  RankTimeline timeline;
  timeline.about = fields.Text("about").value_or("");
  timeline.begin_ns = fields.NumberOr<std::uint64_t>("begin_ns", 0);
  timeline.end_ns = fields.NumberOr<std::uint64_t>("end_ns", 0);
  timeline.failed = fields.Text("failed");
  if (const Json* events = fields.List("events")) {
    for (const Json& event : *events) {
      const bool right = event.is_array() && event.size() == 4 && event[0].is_string() &&
                         event[1].is_number_unsigned() && event[2].is_number_unsigned() &&
                         event[3].is_number_unsigned();
      const auto stage = right ? FindStage(event[0].get_ref<const std::string&>()) : std::nullopt;
      if (!stage) {
        fields.Wrong("events");
        break;
      }
      timeline.events.push_back(
          {*stage, event[1].get<std::uint64_t>(), event[2].get<std::uint64_t>(), event[3].get<std::uint64_t>()});
    }
  }
  if (!fields.wrong().empty()) return Unreadable(fields.wrong());
  return timeline;
}

std::string LineOf(Order::Kind kind, const Cell& cell) {
  Json json = {{"do", WordOf(kind)}};
  json.update(ToJson(cell));
  return Dump(json);
}

base::Result<Order> ReadOrder(const std::string& line) {
  Fields fields(line);
  Order order;
  const std::string word = fields.Text("do").value_or("");
  if (word == WordOf(Order::Kind::kTimeline)) {
    order.kind = Order::Kind::kTimeline;
  } else if (word != WordOf(Order::Kind::kMeasure)) {
    fields.Wrong("do");
  }
  order.cell.operation = FindOperation(fields.Text("operation").value_or(""));
  if (order.cell.operation == nullptr) fields.Wrong("operation");
  order.cell.element = FindElement(fields.Text("datatype").value_or(""));
  if (order.cell.element == nullptr) fields.Wrong("datatype");
  order.cell.bytes = fields.NumberOr<std::uint64_t>("bytes", 0);
  order.cell.shared = fields.Flag("shared");
  order.cell.on_cuda = fields.Text("device").value_or("cpu") == "cuda";
  order.cell.seconds = fields.NumberOr<double>("seconds", 0);
  order.cell.min_calls = fields.NumberOr<int>("least_calls", 1);
  order.cell.max_calls = fields.NumberOr<int>("most_calls", 1);
  order.cell.spoil = fields.Flag("spoil");
  if (!fields.wrong().empty()) return Unreadable(fields.wrong());
  return order;
}

base::Result<LineSocket> LineSocket::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return base::Error{"the path of the bench's socket is too long"};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return base::ErrnoError("cannot reach the bench at " + base::Printable(path));
  }
  return LineSocket(std::move(socket));
}

base::Result<void> LineSocket::Send(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t now = send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return base::ErrnoError("cannot write to the bench's socket");
    sent += static_cast<std::size_t>(now);
  }
  return {};
}

std::optional<std::string> LineSocket::Receive() {
  for (;;) {
    const std::size_t end = received_.find('\n');
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    char chunk[4096];
    const ssize_t got = recv(socket_.get(), chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || received_.size() > kLongestLine) return std::nullopt;
    received_.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace fulldeck::bench
