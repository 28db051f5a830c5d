#include "doctor/cards/card_proof.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/python_start.h"
#include "base/text.h"
#include "device/vendor.h"
#include "doctor/cards/card_cuda.h"
#include "doctor/cards/card_simulated.h"
#include "doctor/probe_process.h"
#include "doctor/python_scripts.h"

namespace fulldeck::doctor {
namespace {

using Json = nlohmann::json;
using Outcome = CardProof::Outcome;

// Telemetry averages over up to a second.
constexpr double kBusySeconds = 1.5;
constexpr double kBusySecondsSimulated = 0.8;
// The time to load torch depends on the disk and the machine, not on the card.
constexpr base::Duration kTimeToLoadTorch = std::chrono::seconds(60);
constexpr double kMemoryShareAlone = 0.8;
constexpr double kMemoryShareAmongOthers = 0.3;

enum class Way { kCuda, kTorch, kSimulated };

// One process and the cards that it probes.
struct Probe {
  Way way;
  std::vector<std::size_t> cards;
};

bool Exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

// The Python package of this build or release, which has the simulated device for torch.
std::string PackageBeside(const std::string& program) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(program.c_str(), nullptr), &std::free);
  if (!real) return "";
  std::string path = real.get();
  for (int up = 0; up < 2; ++up) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return "";
    path.resize(slash);
  }
  return Exists(path + "/lib/python/fulldeck/simulator.py") ? path + "/lib/python" : "";
}

std::string Line(const Json& request) {
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Candidate torch names of the card: they depend on the generation, which is not always known.
Json DeviceNames(const device::Card& card) {
  if (card.torch_device) return Json::array({*card.torch_device});
  Json names = Json::array({card.kind + ":" + std::to_string(card.index)});
  if (card.vendor == "enflame") names.push_back("xla:" + std::to_string(card.index));
  return names;
}

class Proving {
 public:
  explicit Proving(const MachineUnderTest& machine)
      : machine_(machine), cards_(machine.inventory.Cards()), proofs_(cards_.size()) {}

  std::vector<CardProof> All() {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < cards_.size(); ++i) {
      if (!cards_[i]->present) {
        proofs_[i].message = "it is not there";
      } else if (!cards_[i]->visible) {
        proofs_[i].message = "it is hidden by the visible-device list";
      } else {
        chosen.push_back(i);
      }
    }
    Prove(chosen, 1);
    MeasureTheSlowAgain();
    return std::move(proofs_);
  }

 private:
  void Prove(const std::vector<std::size_t>& chosen, double busy_factor) {
    busy_factor_ = busy_factor;
    std::vector<Probe> probes;
    Probe simulated_in_torch{Way::kTorch, {}};
    for (const std::size_t i : chosen) {
      const device::Card& card = *cards_[i];
      if (card.simulated) {
        // One process loads torch and forks: simulated cards allow that, and it takes a quarter of the time.
        if (!machine_.python.empty() && card.torch_type && card.notes.empty()) {
          simulated_in_torch.cards.push_back(i);
        } else {
          probes.push_back({Way::kSimulated, {i}});
        }
      } else if (card.vendor == "nvidia") {
        probes.push_back({Way::kCuda, {i}});
      } else if (!machine_.python.empty()) {
        probes.push_back({Way::kTorch, {i}});
      } else {
        proofs_[i].message = "there is no Python, and without the user's torch this vendor's cards cannot be used";
      }
    }
    if (!simulated_in_torch.cards.empty()) probes.push_back(simulated_in_torch);
    const std::vector<Probe> refused = Run(probes);

    std::vector<Probe> second;
    for (const Probe& probe : refused) {
      for (const std::size_t i : probe.cards) {
        if (cards_[i]->simulated && probe.way == Way::kTorch) {
          second.push_back({Way::kSimulated, {i}});
        } else if (probe.way == Way::kCuda && !machine_.python.empty()) {
          second.push_back({Way::kTorch, {i}});
        }
      }
    }
    if (!second.empty()) Run(second);
  }

  // Returns the probes whose method is not available.
  std::vector<Probe> Run(const std::vector<Probe>& probes) {
    std::vector<ProbeProcess> processes;
    for (const Probe& probe : probes) processes.push_back(ProcessFor(probe));
    const ProbeTimeouts timeout{std::max(machine_.timeout, kTimeToLoadTorch), machine_.timeout};
    device::InventoryReader telemetry({machine_.root, machine_.environment, device::kDefaultTimeout, machine_.program});
    const auto results = RunProbes(processes, timeout, [&](const std::vector<ProbeResult>& so_far) {
      if (busy_factor_ > 0) WatchUtilization(so_far, telemetry);
    });
    std::vector<Probe> not_open;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      if (!Understand(probes[i], results[i])) not_open.push_back(probes[i]);
    }
    return not_open;
  }

  ProbeProcess ProcessFor(const Probe& probe) {
    const device::Card& card = *cards_[probe.cards.front()];
    Json request = Json::object();
    request["busy"] = busy_factor_ * (card.simulated ? kBusySecondsSimulated : kBusySeconds);
    if (probe.way == Way::kTorch) {
      request["module"] = card.torch_module;
      request["simulated"] = card.simulated;
      request["package"] = card.simulated ? PackageBeside(machine_.program) : "";
      request["cards"] = Json::array();
      for (const std::size_t i : probe.cards) {
        request["cards"].push_back(Json::object({{"card", i}, {"devices", DeviceNames(*cards_[i])}}));
      }
      base::PythonStart start =
          base::StartPythonScript(machine_.python, kCardProbeScript, {Line(request)}, machine_.environment);
      return {std::move(start.arguments), std::move(start.environment)};
    }
    request["card"] = probe.cards.front();
    request["index"] = card.index;
    if (probe.way == Way::kCuda) {
      request["way"] = "cuda";
      request["pci"] = card.pci_address.value_or("");
      const std::string name = card.torch_device.value_or("");
      request["ordinal"] =
          base::ParseInteger<int>(std::string_view(name).substr(name.find(':') + 1)).value_or(card.index);
      const std::vector<std::string> folders = {
          "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",      "/usr/lib",
          "/usr/local/nvidia/lib64",   "/usr/local/nvidia/lib",      "/usr/lib/wsl/lib"};
      request["libraries"] = device::LibraryCandidates(machine_.root, {"libcuda.so.1"}, folders);
      request["management"] = device::LibraryCandidates(machine_.root, {"libnvidia-ml.so.1"}, folders);
      const bool shared = card.telemetry.holders && !card.telemetry.holders->empty();
      request["memory_share"] = shared ? kMemoryShareAmongOthers : kMemoryShareAlone;
    } else {
      request["way"] = "simulated";
    }
    return {{machine_.program, "probe-card", Line(request)}, machine_.environment};
  }

  // Returns false if this method is not available on this machine.
  bool Understand(const Probe& probe, const ProbeResult& result) {
    std::string unavailable;
    for (const std::string& text : result.lines) {
      const Json line = Json::parse(text, nullptr, false);
      if (!line.is_object()) continue;
      if (line.contains("unavailable") && line["unavailable"].is_string()) {
        unavailable = base::Printable(line["unavailable"].get<std::string>());
        continue;
      }
      if (!line.contains("card") || !line["card"].is_number_unsigned()) continue;
      const auto number = line["card"].get<std::size_t>();
      if (std::find(probe.cards.begin(), probe.cards.end(), number) != probe.cards.end()) Read(line, proofs_[number]);
    }
    bool open = true;
    for (const std::size_t i : probe.cards) {
      CardProof& proof = proofs_[i];
      if (finished_.contains(i)) continue;
      if (!unavailable.empty()) {
        proof.outcome = Outcome::kNotDone;
        proof.message = unavailable;
        open = false;
      } else if (!result.not_started.empty()) {
        proof.outcome = Outcome::kNotDone;
        proof.message = "the process that would use it " + result.DescribeEnd(machine_.timeout);
      } else if (result.silent) {
        proof.outcome = proof.step.empty() ? Outcome::kNotDone : Outcome::kSilent;
        proof.message = proof.step.empty() ? "the process that would use it " +
                                                 result.DescribeEnd(std::max(machine_.timeout, kTimeToLoadTorch))
                                           : result.DescribeEnd(machine_.timeout);
      } else {
        proof.outcome = Outcome::kDied;
        proof.message = "the process that used it " + result.DescribeEnd(machine_.timeout);
        if (const std::string message = result.LastLine(); !message.empty()) proof.message += ": " + message;
      }
    }
    finished_.clear();
    return open;
  }

  void Read(const Json& line, CardProof& proof) {
    const auto text = [&](const char* key) {
      return line.contains(key) && line[key].is_string() ? base::Printable(line[key].get<std::string>().substr(0, 600))
                                                         : std::string();
    };
    const auto number = [&](const char* key, std::optional<double>& value) {
      if (line.contains(key) && line[key].is_number() && line[key].get<double>() > 0) value = line[key].get<double>();
    };
    if (const std::string step = text("step"); !step.empty()) {
      proof.step = step;
      if (step == "busy") proof.was_busy = true;
    }
    if (const std::string way = text("way"); !way.empty()) proof.way = way;
    const std::size_t card = line["card"].get<std::size_t>();
    if (line.contains("wrong")) {
      proof.outcome = Outcome::kWrong;
      proof.message = text("wrong");
      finished_[card] = true;
    } else if (line.contains("refused")) {
      proof.outcome = Outcome::kRefused;
      proof.message = text("refused");
      finished_[card] = true;
    } else if (line.contains("died")) {
      proof.outcome = Outcome::kDied;
      proof.message = "the process that used it died";
      finished_[card] = true;
    } else if (line.contains("sound")) {
      proof.outcome = Outcome::kSound;
      finished_[card] = true;
      number("to_card", proof.to_card_bytes_per_second);
      number("from_card", proof.from_card_bytes_per_second);
      number("memory", proof.memory_bytes_per_second);
      number("pace", proof.pace_seconds);
      const auto count = [&](const char* key, std::optional<std::uint64_t>& value) {
        if (line.contains(key) && line[key].is_number_unsigned()) value = line[key].get<std::uint64_t>();
      };
      const auto flag = [&](const char* key, std::optional<bool>& value) {
        if (line.contains(key) && line[key].is_boolean()) value = line[key].get<bool>();
      };
      count("memory_proved", proof.memory_proved_bytes);
      count("ecc_uncorrected", proof.ecc_uncorrected);
      flag("ecc", proof.ecc);
      flag("rows_pending", proof.rows_pending);
      flag("rows_failed", proof.rows_failed);
      if (const std::string uuid = text("uuid"); !uuid.empty()) proof.uuid = uuid;
    }
  }

  void WatchUtilization(const std::vector<ProbeResult>& so_far, device::InventoryReader& telemetry) {
    bool any_busy = false;
    for (const ProbeResult& result : so_far) {
      for (const std::string& line : result.lines) any_busy = any_busy || line.find("\"busy\"") != std::string::npos;
    }
    if (!any_busy) return;
    const auto now = telemetry.Read();
    if (!now) return;
    for (const device::Card* seen : now->Cards()) {
      for (std::size_t i = 0; i < cards_.size(); ++i) {
        if (cards_[i]->vendor != seen->vendor || cards_[i]->index != seen->index ||
            !seen->telemetry.utilization_percent) {
          continue;
        }
        auto& highest = proofs_[i].highest_utilization_percent;
        highest = std::max(highest.value_or(0), *seen->telemetry.utilization_percent);
      }
    }
  }

  // Cards that are probed at the same time slow each other down. A card is slow only if it is also slow next to few
  // others.
  void MeasureTheSlowAgain() {
    std::vector<std::string> models;
    for (const device::Card* card : cards_) models.push_back(ModelOf(*card));
    const std::vector<SlowFigure> suspects = FindSlow(models, proofs_);
    if (suspects.empty()) return;
    std::map<std::size_t, bool> again;
    for (const SlowFigure& suspect : suspects) again[suspect.card] = true;
    for (const auto& [suspect, unused] : std::map<std::size_t, bool>(again)) {
      int companions = 0;
      for (std::size_t i = 0; i < cards_.size() && companions < 2; ++i) {
        if (again.contains(i) || proofs_[i].outcome != Outcome::kSound || models[i] != models[suspect]) continue;
        again[i] = true;
        ++companions;
      }
    }
    std::vector<CardProof> before = proofs_;
    std::vector<std::size_t> chosen;
    for (const auto& [card, unused] : again) {
      chosen.push_back(card);
      proofs_[card] = CardProof();
    }
    Prove(chosen, 0);
    for (const std::size_t card : chosen) {
      // Copies are faster with fewer concurrent cards. Companions keep their first measurements, so that all reported
      // values are comparable; a suspect gets the better of both.
      CardProof& proof = proofs_[card];
      if (proof.outcome != Outcome::kSound) continue;
      const CardProof second = proof;
      proof = before[card];
      const auto better = [](std::optional<double>& value, const std::optional<double>& other, bool more) {
        if (other && (!value || (more ? *other > *value : *other < *value))) value = other;
      };
      const bool suspected =
          std::any_of(suspects.begin(), suspects.end(), [&](const SlowFigure& s) { return s.card == card; });
      if (!suspected) continue;
      better(proof.to_card_bytes_per_second, second.to_card_bytes_per_second, true);
      better(proof.from_card_bytes_per_second, second.from_card_bytes_per_second, true);
      better(proof.memory_bytes_per_second, second.memory_bytes_per_second, true);
      better(proof.pace_seconds, second.pace_seconds, false);
    }
  }

  const MachineUnderTest& machine_;
  const std::vector<const device::Card*> cards_;
  std::vector<CardProof> proofs_;
  std::map<std::size_t, bool> finished_;
  double busy_factor_ = 1;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

std::string ModelOf(const device::Card& card) {
  return (card.simulated ? std::string(kSimulatedModel) : "") + card.vendor + "/" + card.model.value_or("");
}

std::vector<CardProof> ProveCards(const MachineUnderTest& machine) {
  return Proving(machine).All();
}

std::shared_ptr<const std::vector<CardProof>> ProofsOf(const MachineUnderTest& machine) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const std::vector<CardProof>>> kept;
  std::string key = machine.root.Path("/") + '\n' + machine.python + '\n' + machine.program + '\n' +
                    std::to_string(machine.timeout.count());
  for (const auto& [name, value] : machine.environment.all()) key += '\n' + name + '=' + value;
  for (const device::Card* card : machine.inventory.Cards()) {
    key +=
        '\n' + ModelOf(*card) + std::to_string(card->index) + (card->present ? "+" : "-") + (card->visible ? "+" : "-");
  }
  const std::lock_guard lock(mutex);
  auto& proofs = kept[key];
  if (!proofs) proofs = std::make_shared<const std::vector<CardProof>>(ProveCards(machine));
  return proofs;
}

std::vector<SlowFigure> FindSlow(const std::vector<std::string>& models, const std::vector<CardProof>& proofs) {
  struct Figure {
    const char* name;
    std::optional<double> CardProof::*value;
    bool more_is_better;
  };
  constexpr Figure kFigures[] = {{"to_card", &CardProof::to_card_bytes_per_second, true},
                                 {"from_card", &CardProof::from_card_bytes_per_second, true},
                                 {"memory", &CardProof::memory_bytes_per_second, true},
                                 {"pace", &CardProof::pace_seconds, false}};
  std::vector<SlowFigure> slow;
  for (const Figure& figure : kFigures) {
    for (std::size_t i = 0; i < proofs.size(); ++i) {
      const std::optional<double>& own = proofs[i].*figure.value;
      if (!own) continue;
      std::vector<double> others;
      for (std::size_t j = 0; j < proofs.size(); ++j) {
        const std::optional<double>& other = proofs[j].*figure.value;
        if (j != i && models[j] == models[i] && other) others.push_back(*other);
      }
      if (others.size() < 2) continue;
      const double median = Median(others);
      const double factor = models[i].starts_with(kSimulatedModel) ? kFarFromTheOthersSimulated : kFarFromTheOthers;
      const bool far = figure.more_is_better ? *own * factor < median : *own > median * factor;
      if (far) slow.push_back({i, figure.name, *own, median});
    }
  }
  return slow;
}

int RunCardProbe(const std::string& text) {
  const Json request = Json::parse(text, nullptr, false);
  const auto whole = [&](const char* key) {
    return request.contains(key) && request[key].is_number_integer() ? request[key].get<int>() : 0;
  };
  const auto real = [&](const char* key, double otherwise) {
    return request.contains(key) && request[key].is_number() ? request[key].get<double>() : otherwise;
  };
  if (!request.is_object() || !request.contains("way")) return 2;
  if (request["way"] == "simulated") return ProveSimulatedCard(whole("card"), whole("index"), real("busy", 0));
  if (request["way"] != "cuda") return 2;
  const auto list = [&](const char* key) {
    std::vector<std::string> paths;
    if (!request.contains(key) || !request[key].is_array()) return paths;
    for (const Json& path : request[key]) {
      if (path.is_string()) paths.push_back(path.get<std::string>());
    }
    return paths;
  };
  CudaRequest cuda;
  cuda.card = whole("card");
  cuda.ordinal = whole("ordinal");
  if (request.contains("pci") && request["pci"].is_string()) cuda.pci_address = request["pci"].get<std::string>();
  cuda.libraries = list("libraries");
  cuda.management = list("management");
  cuda.busy_seconds = real("busy", cuda.busy_seconds);
  cuda.memory_share = real("memory_share", cuda.memory_share);
  return ProveCudaCard(cuda);
}

}  // namespace fulldeck::doctor
