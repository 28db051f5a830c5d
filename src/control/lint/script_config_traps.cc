#include <algorithm>
#include <array>

#include "lint/script_traps.h"

namespace fulldeck::lint {
namespace {

bool IsConfig(const Script& script) {
  constexpr std::array<std::string_view, 8> kNames = {"_base_",      "env_cfg",         "default_scope",
                                                      "dist_params", "train_cfg",       "optim_wrapper",
                                                      "norm_cfg",    "train_dataloader"};
  return std::any_of(script.assignments().begin(), script.assignments().end(), [&](const Assignment& assignment) {
    const bool at_top = script.statements()[static_cast<std::size_t>(assignment.statement)].parent < 0;
    return at_top && std::find(kNames.begin(), kNames.end(), assignment.target) != kNames.end();
  });
}

// Calls `see` for every `key=text` of dict(…) and `"key": text` of {…}.
void EachEntry(const Script& script, const std::function<void(std::string_view key, Range value)>& see) {
  for (const Call& call : script.calls()) {
    if (call.callee != "dict") continue;
    for (const Argument& argument : call.arguments) {
      if (!argument.keyword.empty()) see(argument.keyword, argument.value);
    }
  }
  const auto& tokens = script.tokens();
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    if (!tokens[i].Is(":") || tokens[i - 1].kind != TokenKind::kString || tokens[i + 1].kind != TokenKind::kString)
      continue;
    see(tokens[i - 1].content, {i + 1, i + 2});
  }
}

}  // namespace

void FindConfigTraps(ScriptReading& reading) {
  const Script& script = reading.script;
  if (!IsConfig(script)) return;
  EachEntry(script, [&](std::string_view key, Range value) {
    const auto text = script.Text(value);
    if (!text) return;
    const int line = script.tokens()[value.begin].line;
    if (key == "backend" && *text == "nccl") reading.Hit("hard-coded-nccl", line);
    if (key == "type" && (*text == "SyncBN" || *text == "SyncBatchNorm" || *text == "MMSyncBN"))
      reading.Hit("sync-batchnorm", line);
    if (key == "type" && *text == "AmpOptimWrapper") reading.Hit("amp-wrapper", line);
  });
  for (const Assignment& assignment : script.assignments()) {
    const auto text = script.Text(assignment.value);
    if (!text || script.statements()[static_cast<std::size_t>(assignment.statement)].parent >= 0) continue;
    const int line = script.tokens()[assignment.target_tokens.begin].line;
    if (assignment.target == "launcher" && *text == "none") reading.Hit("launcher-none", line);
    if (assignment.target == "device" && text->starts_with("cuda")) reading.Hit("cuda-call", line);
  }
}

}  // namespace fulldeck::lint
