#include <algorithm>
#include <array>

#include "lint/script_traps.h"

namespace fulldeck::lint {
namespace {

bool ContainsAny(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

bool NamesEvaluation(std::string_view name) {
  return ContainsAny(name, {"val", "test", "eval", "infer", "predict", "generate", "sample"});
}

// Searches the targets of the statement and the call itself.
bool StatementMentions(const Script& script, int statement, const std::function<bool(std::string_view)>& fits) {
  return statement >= 0 && script.Mentions(script.statements()[static_cast<std::size_t>(statement)].tokens, fits);
}

bool IsForEvaluation(const Script& script, int statement) {
  const auto evaluates = [](std::string_view name) { return NamesEvaluation(name) && name != "sampler"; };
  for (const Assignment& assignment : script.assignments()) {
    if (assignment.statement == statement && script.Mentions(assignment.target_tokens, evaluates)) return true;
  }
  return false;
}

// ---- samplers ----

bool SharesOutByItself(const ScriptReading& reading, const Call& call) {
  const Script& script = reading.script;
  const auto shares = [](std::string_view name) {
    return ContainsAny(name, {"rank", "shard", "iterable", "world_size"});
  };
  if (script.Mentions(call.arguments_range, shares)) return true;
  const Argument* dataset = Script::Find(call, "dataset", 0);
  if (dataset == nullptr || dataset->value.end != dataset->value.begin + 1) return false;
  const auto values = reading.ValuesOf(script.tokens()[dataset->value.begin].text);
  return std::any_of(values.begin(), values.end(),
                     [&](const Assignment* value) { return script.Mentions(value->value, shares); });
}

void FindSamplers(ScriptReading& reading) {
  const Script& script = reading.script;
  if (!reading.distributed || reading.in_framework) return;
  if (script.Has({0, script.tokens().size()}, "IterableDataset")) return;
  const auto loaders = std::count_if(script.calls().begin(), script.calls().end(),
                                     [](const Call& call) { return call.method == "DataLoader"; });
  for (const Call& call : script.calls()) {
    if (call.method != "DataLoader" || Script::HasStars(call) || call.arguments.empty()) continue;
    const auto given = [&](const Argument* argument) {
      return argument != nullptr && !script.Has(argument->value, "None");
    };
    if (given(Script::Find(call, "sampler", 3)) || given(Script::Find(call, "batch_sampler", 4))) continue;
    const Argument* sampler = Script::Find(call, "sampler", 3);
    if (sampler != nullptr && sampler->value.end > sampler->value.begin + 1) continue;  // None in one case only
    if (SharesOutByItself(reading, call) || IsForEvaluation(script, call.statement)) continue;
    const auto decides = [](std::string_view name) {
      return ContainsAny(name, {"distributed", "world", "rank", "ddp", "multi", "sampler"});
    };
    const auto conditions = script.ConditionsOf(call.statement);
    if (std::any_of(conditions.begin(), conditions.end(), [&](Range range) { return script.Mentions(range, decides); }))
      continue;
    const Argument* dataset = Script::Find(call, "dataset", 0);
    if (dataset != nullptr && script.Mentions(dataset->value, NamesEvaluation)) continue;
    const Argument* shuffle = Script::Find(call, "shuffle", 2);
    const bool shuffles = shuffle != nullptr && script.Has(shuffle->value, "True");
    const bool trains =
        StatementMentions(script, call.statement, [](std::string_view name) { return ContainsAny(name, {"train"}); });
    if (shuffles || trains || loaders == 1) reading.Hit("no-sampler", call.line);
  }
}

void FindEpochs(ScriptReading& reading) {
  const Script& script = reading.script;
  if (reading.in_framework) return;
  const bool set_elsewhere = std::any_of(script.calls().begin(), script.calls().end(),
                                         [](const Call& call) { return call.method == "set_epoch"; });
  const bool loops =
      std::any_of(script.statements().begin(), script.statements().end(), [&](const Statement& statement) {
        return statement.word == "for" && statement.is_header && script.MentionsSubstring(statement.tokens, "epoch");
      });
  if (set_elsewhere || !loops) return;
  for (const Call& call : script.calls()) {
    if (call.method != "DistributedSampler" || Script::HasStars(call)) continue;
    const Argument* shuffle = Script::Find(call, "shuffle", 3);
    if (shuffle != nullptr && script.Has(shuffle->value, "False")) continue;
    if (IsForEvaluation(script, call.statement)) continue;
    reading.Hit("no-set-epoch", call.line);
  }
}

// ---- the wrapper ----

std::string Dotted(const Script& script, Range range) {
  std::string text;
  for (std::size_t i = range.begin; i < range.end; ++i) text += script.tokens()[i].text;
  return text;
}

bool IsEvaluating(const ScriptReading& reading, int statement) {
  const Script& script = reading.script;
  const auto quiet = [](std::string_view name) {
    return name == "no_grad" || name == "inference_mode" || NamesEvaluation(name);
  };
  for (const Range& condition : script.ConditionsOf(statement)) {
    if (script.Mentions(condition, quiet)) return true;
  }
  for (int function = script.FunctionOf(statement); function >= 0; function = script.FunctionOf(function)) {
    if (NamesEvaluation(script.NameOfFunction(function))) return true;
    for (const Range& decorator : script.DecoratorsOf(function)) {
      if (script.Mentions(decorator, quiet)) return true;
    }
  }
  return reading.OnlyOnOneRank(statement, 0);
}

void FindForwards(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    if (call.callee_tokens.empty() || call.arguments_range.empty()) continue;
    Range owner = call.callee_tokens;
    const auto ends_in = [&](std::string_view word) {
      return owner.end >= owner.begin + 3 && script.tokens()[owner.end - 1].Is(word) &&
             script.tokens()[owner.end - 2].Is(".");
    };
    if (ends_in("forward")) owner.end -= 2;
    if (!ends_in("module")) continue;
    owner.end -= 2;
    const std::string_view name = script.tokens()[owner.end - 1].text;
    const bool wrapped = std::find(reading.wrapped.begin(), reading.wrapped.end(), name) != reading.wrapped.end();
    if (wrapped && !IsEvaluating(reading, call.statement)) reading.Hit("forward-around-wrapper", call.line);
  }
}

// Whether the statements are in different branches of the same if.
bool AreAlternatives(const Script& script, int one, int other) {
  const auto& statements = script.statements();
  for (int at = other; at >= 0; at = statements[static_cast<std::size_t>(at)].parent) {
    for (int partner = statements[static_cast<std::size_t>(at)].partner; partner >= 0;
         partner = statements[static_cast<std::size_t>(partner)].partner) {
      if (script.IsInside(one, partner)) return true;
    }
  }
  return false;
}

// Whether this value is a newly created model or layer.
bool Recreates(const Script& script, Range value) {
  return std::any_of(script.calls().begin(), script.calls().end(), [&](const Call& call) {
    if (call.callee_tokens.empty() || call.callee_tokens.begin != value.begin ||
        call.arguments_range.end + 1 != value.end)
      return false;
    const char first = call.method.empty() ? '\0' : call.method.front();
    const bool is_class = first >= 'A' && first <= 'Z';
    return (is_class && call.method != "DistributedDataParallel") ||
           ContainsAny(call.method, {"build_model", "create_model", "get_model"});
  });
}

void FindReplacements(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& wrap : script.calls()) {
    if (wrap.method != "DistributedDataParallel") continue;
    for (const Assignment& given : script.assignments()) {
      if (given.statement != wrap.statement) continue;
      const std::string name = Dotted(script, given.target_tokens);
      for (const Assignment& later : script.assignments()) {
        if (later.statement <= wrap.statement || !Recreates(script, later.value)) continue;
        if (script.FunctionOf(later.statement) != script.FunctionOf(wrap.statement)) continue;
        const std::string target = Dotted(script, later.target_tokens);
        if (target != name && target != name + ".module" && !target.starts_with(name + ".module.")) continue;
        if (script.Mentions(later.value, [&](std::string_view word) { return word == given.target; })) continue;
        if (AreAlternatives(script, wrap.statement, later.statement)) continue;
        const bool wrapped_again = std::any_of(script.calls().begin(), script.calls().end(), [&](const Call& again) {
          return ContainsAny(again.method, {"DataParallel", "prepare", "wrap", "fully_shard"}) &&
                 again.statement >= later.statement &&
                 StatementMentions(script, again.statement,
                                   [&](std::string_view word) { return word == given.target; });
        });
        if (!wrapped_again) reading.Hit("replaced-after-wrap", script.tokens()[later.target_tokens.begin].line);
      }
    }
  }
}

// ---- seeds and files ----

void FindSeeds(ScriptReading& reading) {
  const Script& script = reading.script;
  if (!reading.distributed || reading.in_framework) return;
  // Whether any statement combines a seed with a rank.
  const auto is_seed = [](std::string_view name) { return ContainsAny(name, {"seed"}); };
  const auto is_rank = [](std::string_view name) { return ContainsAny(name, {"rank", "process_index"}); };
  for (const Statement& statement : script.statements()) {
    if (script.Mentions(statement.tokens, is_seed) && script.Mentions(statement.tokens, is_rank)) return;
  }
  const bool random = std::any_of(script.calls().begin(), script.calls().end(), [](const Call& call) {
    constexpr std::array<std::string_view, 4> kOthers = {"ColorJitter", "AutoAugment", "TrivialAugmentWide",
                                                         "DropPath"};
    const bool crop = call.method.starts_with("Random") && call.method != "RandomSampler" && call.method != "Random" &&
                      call.method != "RandomState";
    return crop || call.method.starts_with("Dropout") ||
           std::find(kOthers.begin(), kOthers.end(), call.method) != kOthers.end();
  });
  if (!random) return;
  for (const Call& call : script.calls()) {
    const bool seeds = call.callee == "torch.manual_seed" || call.callee == "random.seed" ||
                       call.callee == "numpy.random.seed" || call.method == "seed_everything" ||
                       call.method == "set_seed" || call.method == "set_random_seed";
    if (!seeds || call.arguments.empty() || reading.OnlyOnOneRank(call.statement, 0)) continue;
    reading.Hit("same-seed", call.line);
    return;
  }
}

void FindSaves(ScriptReading& reading) {
  const Script& script = reading.script;
  if (!reading.distributed || reading.in_framework) return;
  for (const Call& call : script.calls()) {
    const bool saves =
        call.callee == "torch.save" || call.method == "save_pretrained" || call.callee == "safetensors.torch.save_file";
    if (!saves || reading.OnlyOnOneRank(call.statement)) continue;
    // A buffer is not a file.
    if (const Argument* where = Script::Find(call, "f", 1)) {
      const auto is_buffer = [](std::string_view name) { return ContainsAny(name, {"buf", "bytesio", "stream"}); };
      if (script.Mentions(where->value, is_buffer)) continue;
      const bool plain = where->value.end == where->value.begin + 1;
      const auto values =
          plain ? reading.ValuesOf(script.tokens()[where->value.begin].text) : std::vector<const Assignment*>();
      const auto own = [](std::string_view name) {
        return ContainsAny(name, {"rank", "bytesio", "process_index", "temp", "mkstemp"});
      };
      if (std::any_of(values.begin(), values.end(),
                      [&](const Assignment* value) { return script.Mentions(value->value, own); }))
        continue;
    }
    reading.Hit("every-rank-saves", call.line);
  }
}

}  // namespace

void FindLoopTraps(ScriptReading& reading) {
  FindSamplers(reading);
  FindEpochs(reading);
  FindForwards(reading);
  FindReplacements(reading);
  FindSeeds(reading);
  FindSaves(reading);
}

}  // namespace fulldeck::lint
