#include <algorithm>
#include <array>

#include "lint/script_traps.h"

namespace fulldeck::lint {
namespace {

// Calls that raise without CUDA. Others (is_available, device_count, empty_cache, manual_seed …) do nothing.
constexpr std::array<std::string_view, 24> kCudaCalls = {"set_device",
                                                         "synchronize",
                                                         "current_device",
                                                         "get_device_name",
                                                         "get_device_properties",
                                                         "get_device_capability",
                                                         "Stream",
                                                         "Event",
                                                         "current_stream",
                                                         "default_stream",
                                                         "stream",
                                                         "mem_get_info",
                                                         "device",
                                                         "get_rng_state",
                                                         "set_rng_state",
                                                         "FloatTensor",
                                                         "HalfTensor",
                                                         "LongTensor",
                                                         "IntTensor",
                                                         "ByteTensor",
                                                         "BoolTensor",
                                                         "DoubleTensor",
                                                         "comm",
                                                         "CUDAGraph"};

bool NamesDevice(const Script& script, Range range, std::string_view type) {
  if (range.empty()) return false;
  const Token& first = script.tokens()[range.begin];
  if (first.kind != TokenKind::kString || !first.content.starts_with(type)) return false;
  return first.content.size() == type.size() || first.content[type.size()] == ':';
}

int LineOf(const Script& script, Range range) {
  return script.tokens()[range.begin].line;
}

void FindNccl(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    if (call.method == "add_argument") {
      const Argument* otherwise = Script::Find(call, "default", std::nullopt);
      if (otherwise != nullptr && script.Text(otherwise->value) == "nccl") {
        reading.Hit("hard-coded-nccl", LineOf(script, otherwise->value));
      }
      continue;
    }
    if (call.method != "init_process_group" && call.method != "init_dist") continue;
    const Argument* backend = Script::Find(call, "backend", call.method == "init_dist" ? 1 : 0);
    if (backend == nullptr || reading.OnlyWithCuda(call.statement)) continue;
    if (script.Text(backend->value) == "nccl") reading.Hit("hard-coded-nccl", LineOf(script, backend->value));
    if (backend->value.end != backend->value.begin + 1) continue;
    const auto values = reading.ValuesOf(script.tokens()[backend->value.begin].text);
    const bool always = std::all_of(values.begin(), values.end(), [&](const Assignment* value) {
      return script.Text(value->value) == "nccl" && !reading.OnlyWithCuda(value->statement);
    });
    if (always && !values.empty()) reading.Hit("hard-coded-nccl", LineOf(script, values.front()->value));
  }
}

void FindCuda(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    bool cuda = false;
    if (call.callee.starts_with("torch.cuda.")) {
      const std::string_view rest = std::string_view(call.callee).substr(11);
      cuda = std::find(kCudaCalls.begin(), kCudaCalls.end(), rest.substr(0, rest.find('.'))) != kCudaCalls.end();
    } else if (call.method == "cuda" && call.callee.find('.') != std::string::npos && call.callee != "torch.cuda") {
      cuda = true;
    } else if (call.method == "to" || call.callee == "torch.device") {
      const Argument* device = Script::Find(call, "device", 0);
      cuda = device != nullptr && NamesDevice(script, device->value, "cuda") && !script.Has(device->value, "if");
    } else if (const Argument* device = Script::Find(call, "device", std::nullopt)) {
      cuda = NamesDevice(script, device->value, "cuda") && !script.Has(device->value, "if");
    }
    // A class that implements cuda() itself.
    if (cuda && script.NameOfFunction(script.FunctionOf(call.statement)) == "cuda") continue;
    if (cuda && !reading.OnlyWithCuda(call.statement)) reading.Hit("cuda-call", call.line);
  }
}

void FindWrapperArguments(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    if (call.method == "convert_sync_batchnorm" || call.callee == "torch.nn.SyncBatchNorm") {
      const std::string_view function = script.NameOfFunction(script.FunctionOf(call.statement));
      const bool converts = function.find("sync") != std::string_view::npos;  // converts layer by layer itself
      if (!converts && !reading.OnlyWithCuda(call.statement)) reading.Hit("sync-batchnorm", call.line);
    }
    if (call.method != "DistributedDataParallel") continue;
    const Argument* ids = Script::Find(call, "device_ids", 1);
    if (ids == nullptr || reading.OnlyWithCuda(call.statement) || script.Has(ids->value, "if")) continue;
    const auto is_list = [&](Range range) {
      return range.end > range.begin + 2 && script.tokens()[range.begin].Is("[");
    };
    if (is_list(ids->value)) {
      reading.Hit("device-ids", LineOf(script, ids->value));
    } else if (ids->value.end == ids->value.begin + 1) {
      const auto values = reading.ValuesOf(script.tokens()[ids->value.begin].text);
      const bool always = std::all_of(values.begin(), values.end(), [&](const Assignment* value) {
        return is_list(value->value) && !reading.OnlyWithCuda(value->statement);
      });
      if (always && !values.empty()) reading.Hit("device-ids", LineOf(script, ids->value));
    }
  }
}

std::string TextOf(const Script& script, const Argument* argument) {
  std::string text;
  for (std::size_t i = argument->value.begin; i < argument->value.end; ++i) text += script.tokens()[i].text;
  return text;
}

// `torch.save(model, path)` with a load of the same path. A name is a model if it is used as one elsewhere.
void FindWholeModels(ScriptReading& reading) {
  const Script& script = reading.script;
  const auto is_load = [](const Call& call) { return call.callee == "torch.load"; };
  if (std::none_of(script.calls().begin(), script.calls().end(), is_load)) return;
  for (const Call& call : script.calls()) {
    const Argument* what = call.callee == "torch.save" ? Script::Find(call, "obj", 0) : nullptr;
    const Argument* where = call.callee == "torch.save" ? Script::Find(call, "f", 1) : nullptr;
    if (what == nullptr || where == nullptr || what->value.end != what->value.begin + 1) continue;
    const std::string_view name = script.tokens()[what->value.begin].text;
    const bool is_model = std::any_of(script.calls().begin(), script.calls().end(), [&](const Call& used) {
      const bool of_it = !used.callee_tokens.empty() && script.tokens()[used.callee_tokens.begin].text == name;
      const bool beside = script.FunctionOf(used.statement) == script.FunctionOf(call.statement);
      return of_it && beside && (used.method == "parameters" || used.method == "train" || used.method == "eval");
    });
    if (!is_model) continue;
    for (const Call& load : script.calls()) {
      if (load.callee != "torch.load" || Script::HasStars(load)) continue;
      if (Script::Find(load, "weights_only", std::nullopt) != nullptr) continue;
      const Argument* from = Script::Find(load, "f", 0);
      if (from != nullptr && TextOf(script, from) == TextOf(script, where)) reading.Hit("load-whole-model", call.line);
    }
  }
}

void FindLoads(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    if (call.callee != "torch.load" || Script::HasStars(call)) continue;
    const Argument* where = Script::Find(call, "map_location", 1);
    if (!reading.distributed || reading.OnlyWithCuda(call.statement)) continue;
    if (where == nullptr) {
      // A load on a single rank is harmless.
      if (!reading.OnlyOnOneRank(call.statement)) reading.Hit("load-without-map", call.line);
      continue;
    }
    if (script.Has(where->value, "if")) continue;
    if (const auto text = script.Text(where->value); text == "cuda:0") {
      reading.Hit("map-location-card-0", LineOf(script, where->value));
    } else if (script.tokens()[where->value.begin].Is("{") &&
               std::any_of(script.tokens().begin() + static_cast<std::ptrdiff_t>(where->value.begin),
                           script.tokens().begin() + static_cast<std::ptrdiff_t>(where->value.end),
                           [](const Token& token) {
                             return token.kind == TokenKind::kString && token.content.starts_with("cuda");
                           })) {
      reading.Hit("map-location-cuda-names", LineOf(script, where->value));
    }
  }
}

void FindGuessesOfGcu(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Statement& statement : script.statements()) {
    const auto& tokens = script.tokens();
    const bool imports = statement.word == "import" || statement.word == "from";
    if (imports && statement.tokens.end > statement.tokens.begin + 1 && tokens[statement.tokens.begin + 1].Is("eccl")) {
      reading.Hit("eccl-module", statement.line);
    }
  }
  const bool imported = script.Imports("torch_gcu") || script.Imports("ptex") || script.Imports("fulldeck");
  for (const Call& call : script.calls()) {
    if (call.method == "gcu" && call.callee != "torch.gcu" && call.callee.find('.') != std::string::npos) {
      reading.Hit("gcu-guess", call.line);
    }
    if (call.method.starts_with("Gcu") && call.method.ends_with("Tensor")) reading.Hit("gcu-guess", call.line);
    if (imported) continue;
    if (call.method == "init_process_group") {
      const Argument* backend = Script::Find(call, "backend", 0);
      if (backend != nullptr && script.Text(backend->value) == "eccl") reading.Hit("eccl-backend", call.line);
    }
    const Argument* device =
        call.method == "to" || call.callee == "torch.device" ? Script::Find(call, "device", 0) : nullptr;
    if (call.callee.starts_with("torch.gcu.") || (device != nullptr && NamesDevice(script, device->value, "gcu"))) {
      reading.Hit("gcu-not-imported", call.line);
    }
  }
}

}  // namespace

void FindDeviceTraps(ScriptReading& reading) {
  FindNccl(reading);
  FindCuda(reading);
  FindWrapperArguments(reading);
  FindLoads(reading);
  FindWholeModels(reading);
  FindGuessesOfGcu(reading);
}

}  // namespace fulldeck::lint
