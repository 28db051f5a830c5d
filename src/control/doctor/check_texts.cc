#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "doctor/check.h"
#include "doctor/embedded_texts.h"
#include "texts/table.h"

namespace fulldeck::doctor {

const std::map<std::string, std::vector<CheckTexts>>& AllCheckTexts() {
  static const std::map<std::string, std::vector<CheckTexts>> groups = [] {
    std::map<std::string, std::vector<CheckTexts>> all;
    for (const texts::EmbeddedFile& file : EmbeddedTexts()) {
      const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
      std::vector<CheckTexts>& group = all[std::string(name.substr(0, name.rfind('.')))];
      texts::Table table(file);
      for (texts::Table& check : table.TakeTables("check")) {
        CheckTexts& one = group.emplace_back();
        one.id = check.TakeText("id");
        one.does = check.TakeBilingualText("does");
        one.proves = check.TakeBilingualText("proves");
        one.rows = base::Join(check.TakeTexts("failures"), ", ");
        check.Done();
      }
      table.Done();
    }
    return all;
  }();
  return groups;
}

const CheckTexts& TextsOf(const Check& check) {
  const auto group = AllCheckTexts().find(std::string(NameOf(check.group)));
  FULLDECK_CHECK(group != AllCheckTexts().end());
  const auto texts = std::find_if(group->second.begin(), group->second.end(),
                                  [&](const CheckTexts& one) { return one.id == check.id; });
  FULLDECK_CHECK(texts != group->second.end());
  return *texts;
}

}  // namespace fulldeck::doctor
