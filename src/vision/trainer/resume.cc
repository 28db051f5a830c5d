#include "trainer/resume.h"

#include <map>
#include <string_view>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"

namespace fulldeck::trainer {
namespace {

using Lines = std::map<std::string, std::string>;

Lines LinesOf(const std::string& text) {
  Lines lines;
  for (const std::string_view line : base::Split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    lines.emplace(base::Trim(line.substr(0, equals)), base::Printable(base::Trim(line.substr(equals + 1))));
  }
  return lines;
}

std::string ValueOf(const Lines& lines, const std::string& key) {
  const auto found = lines.find(key);
  return found == lines.end() ? "" : found->second;
}

}  // namespace

std::string TrainedWith(const std::vector<std::string>& classes, int cards, std::int64_t global_batch) {
  return "number of classes = " + std::to_string(classes.size()) + "\nclasses = " + base::Join(classes, ", ") +
         "\ncards = " + std::to_string(cards) + "\nglobal batch = " + std::to_string(global_batch) + "\n";
}

Changes CompareForResume(const std::string& saved, const std::string& now) {
  const Lines before = LinesOf(saved);
  const Lines after = LinesOf(now);
  Changes changes;
  const std::string was = ValueOf(before, "number of classes");
  const std::string is = ValueOf(after, "number of classes");
  if (!was.empty() && was != is) {
    changes.refusal = "the checkpoints were made with " + was + " classes (" + ValueOf(before, "classes") +
                      "), and now there are " + is + " (" + ValueOf(after, "classes") +
                      "). A head for other classes cannot go on from there: resume with the old ones in data.classes, "
                      "or begin a new job under another name, with model.weights for the backbone.";
    return changes;
  }
  for (const char* const key : {"classes", "cards", "global batch"}) {
    const std::string old_value = ValueOf(before, key);
    const std::string new_value = ValueOf(after, key);
    if (old_value.empty() || old_value == new_value) continue;
    changes.changed.push_back(std::string(key) + ": " + old_value + " before, " + new_value + " now");
  }
  return changes;
}

}  // namespace fulldeck::trainer
