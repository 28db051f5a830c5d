// The lines that a probe process writes about its card, one JSON object each; card_probe.py writes the same.
//   {"card":3,"step":"compute"}           this step begins
//   {"card":3,"sound":true,"way":…,…}     done, with measurements
//   {"card":3,"wrong":"…"}                values differ from the CPU's
//   {"card":3,"refused":"…","step":…}     an error of the driver or of torch
//   {"unavailable":"…"}                   this method is not available on this machine; another may be
#pragma once

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "doctor/probe_process.h"

namespace fulldeck::doctor {

class ProofLines {
 public:
  using Json = nlohmann::json;

  ProofLines(int card, std::string way) : card_(card), way_(std::move(way)) {}

  void Step(const char* name) {
    step_ = name;
    Write(Json::object({{"card", card_}, {"step", step_}}));
  }
  void Sound(Json figures) {
    figures["card"] = card_;
    figures["sound"] = true;
    figures["way"] = way_;
    Write(figures);
  }
  void Wrong(const std::string& message) { Write(Json::object({{"card", card_}, {"wrong", message}, {"way", way_}})); }
  void Refused(const std::string& message) {
    Write(Json::object({{"card", card_}, {"refused", base::Printable(message)}, {"step", step_}, {"way", way_}}));
  }
  static void Unavailable(const std::string& message) {
    Write(Json::object({{"unavailable", base::Printable(message)}}));
  }

  void set_way(std::string way) { way_ = std::move(way); }

 private:
  static void Write(const Json& line) {
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    [[maybe_unused]] const auto written = write(kProbeAnswerFd, text.data(), text.size());
  }

  int card_;
  std::string way_;
  std::string step_;
};

}  // namespace fulldeck::doctor
