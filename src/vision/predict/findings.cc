#include "predict/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "base/text_table.h"

namespace fulldeck::predict {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Findings& findings) {
  Json object = {{"image", findings.image}};
  if (!findings.failure.empty()) {
    object["error"] = findings.failure;
    return object;
  }
  object["width"] = findings.width;
  object["height"] = findings.height;
  if (findings.files) {
    object["mask"] = findings.files->mask;
    object["overlay"] = findings.files->overlay;
    if (findings.files->tiff) object["mask_tiff"] = *findings.files->tiff;
    Json& classes = object["classes"] = Json::array();
    for (const ClassShare& one : findings.shares)
      classes.push_back({{"name", one.name}, {"pixels", one.pixels}, {"share", one.share}});
  } else {
    Json& top_classes = object["categories"] = Json::array();
    for (const ClassProbability& top_class : findings.top_classes)
      top_classes.push_back({{"name", top_class.name}, {"probability", top_class.probability}});
  }
  return object;
}

}  // namespace

std::vector<ClassShare> SharesOf(const imagery::Mask& mask, const std::vector<std::string>& classes) {
  std::array<std::uint64_t, 256> counts{};
  for (const std::uint8_t value : mask.values) ++counts[value];
  std::vector<ClassShare> shares;
  for (std::size_t i = 0; i < classes.size() && i < counts.size(); ++i) {
    shares.push_back({classes[i], counts[i], static_cast<double>(counts[i]) / static_cast<double>(mask.values.size())});
  }
  return shares;
}

std::vector<ClassProbability> TopK(const std::vector<float>& probabilities, const std::vector<std::string>& classes,
                                   std::size_t most) {
  FULLDECK_CHECK(probabilities.size() == classes.size());
  std::vector<std::size_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return probabilities[a] > probabilities[b]; });
  order.resize(std::min(order.size(), most));
  std::vector<ClassProbability> top_classes;
  for (const std::size_t i : order) top_classes.push_back({classes[i], probabilities[i]});
  return top_classes;
}

std::string FindingsText(const Findings& findings) {
  if (!findings.failure.empty()) return base::Printable(findings.image) + ": " + findings.failure + "\n";
  std::string text = fmt::format("{} ({} × {})\n", base::Printable(findings.image), findings.width, findings.height);
  if (findings.files) {
    base::TextTable table({"  class", "%", "pixels"});
    std::vector<ClassShare> shares = findings.shares;
    std::stable_sort(shares.begin(), shares.end(),
                     [](const ClassShare& a, const ClassShare& b) { return a.pixels > b.pixels; });
    for (const ClassShare& one : shares) {
      if (one.pixels > 0)
        table.AddRow({"  " + one.name, fmt::format("{:.2f}", 100 * one.share), std::to_string(one.pixels)});
    }
    text += table.Render();
    text += "  -> " + base::Printable(findings.files->mask) + "\n";
    text += "  -> " + base::Printable(findings.files->overlay) + "\n";
    if (findings.files->tiff) text += "  -> " + base::Printable(*findings.files->tiff) + "\n";
  } else {
    base::TextTable table({"  category", "%"});
    for (const ClassProbability& top_class : findings.top_classes)
      table.AddRow({"  " + top_class.name, fmt::format("{:.2f}", 100 * top_class.probability)});
    text += table.Render();
  }
  return text;
}

std::string FindingsJson(const TrainedModel& model, const std::vector<Findings>& all) {
  Json object = {{"checkpoint", model.folder}, {"step", model.step}, {"weights", model.is_ema ? "averaged" : "last"}};
  Json& images = object["images"] = Json::array();
  for (const Findings& one : all) images.push_back(ToJson(one));
  // File names need not be UTF-8.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fulldeck::predict
