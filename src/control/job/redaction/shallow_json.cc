#include "job/redaction/shallow_json.h"

namespace fulldeck::job {

using Json = nlohmann::ordered_json;

Json ParseShallow(std::string_view text) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepestJson;
    return !too_deep;
  };
  Json json = Json::parse(text, watch, false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

}  // namespace fulldeck::job
