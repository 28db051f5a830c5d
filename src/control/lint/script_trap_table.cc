#include "lint/embedded_texts.h"
#include "lint/script_traps.h"
#include "texts/table.h"

namespace fulldeck::lint {

std::span<const Trap> Traps() {
  static const std::vector<Trap> traps = [] {
    std::vector<Trap> all;
    for (const texts::EmbeddedFile& file : EmbeddedTexts()) {
      texts::Table table(file);
      for (texts::Table& rule : table.TakeTables("rule")) {
        Trap& trap = all.emplace_back();
        trap.id = rule.TakeText("id");
        trap.row = rule.TakeText("failure");
        trap.severity = rule.TakeChoice<Severity>("severity", {{"warn", Severity::kWarn}, {"fail", Severity::kFail}});
        trap.without_cuda = rule.TakeFlag("without_cuda");
        trap.what = rule.TakeBilingualText("what");
        trap.fix = rule.TakeBilingualText("fix");
        rule.Done();
      }
      table.Done();
    }
    return all;
  }();
  return traps;
}

}  // namespace fulldeck::lint
