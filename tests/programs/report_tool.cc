// Writes output of the layer `report`, which tests/vision/test_report.py reads with third-party programs.
//
//   report_tool events DIR PNG            an event file with scalars, a text and an image (8 × 4 pixels), then a second
//                                         one of a run that was resumed after step 2
//   report_tool scores NAME,NAME…         reads classes² counts from stdin, prints the scores, one `name value` per
//   line report_tool report DIR IMAGE TRUTH PREDICTION…   a full report, with these PNG files as examples
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/text.h"
#include "report/event_file.h"
#include "report/palette.h"
#include "report/run_report.h"

namespace {

using namespace fulldeck;  // NOLINT(google-build-using-namespace): a test program

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Complain(const base::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int Events(const std::string& folder, const std::string& png) {
  auto first = report::EventFile::Create(folder);
  if (!first) return Complain(first.error());
  bool done = true;
  for (int step = 1; step <= 4; ++step) done = done && first->Scalar("train/loss", step, 1.0 / step).ok();
  done = done && first->Text("recipe", 0, "train.lr = 0.0001\n中文").ok();
  done = done && first->Png("example/0", 4, 8, 4, Contents(png)).ok() && first->Flush().ok();
  auto second = report::EventFile::Create(folder, 2);
  if (!second) return Complain(second.error());
  for (int step = 3; step <= 5; ++step) done = done && second->Scalar("train/loss", step, 100.0 + step).ok();
  // No Flush: the destructor flushes.
  return done && second->path() != first->path() ? 0 : 1;
}

int Scores(const std::string& names) {
  std::vector<std::string> classes;
  for (const std::string_view name : base::Split(names, ',')) classes.emplace_back(name);
  report::ConfusionMatrix matrix;
  matrix.classes = static_cast<std::int64_t>(classes.size());
  for (std::int64_t count = 0; std::cin >> count;) matrix.counts.push_back(count);
  const report::Scores scores = report::ScoresOf(matrix, classes);
  std::printf("miou %.17g\nmdice %.17g\nmfscore %.17g\naccuracy %.17g\nmean_accuracy %.17g\n", scores.miou,
              scores.mdice, scores.mfscore, scores.accuracy, scores.mean_accuracy);
  for (const report::ClassScores& one : scores.per_class) {
    const auto print = [&](const char* what, const std::optional<double>& value) {
      if (value) std::printf("%s/%s %.17g\n", one.name.c_str(), what, *value);
    };
    print("iou", one.iou);
    print("dice", one.dice);
    print("precision", one.precision);
    print("recall", one.recall);
  }
  return 0;
}

report::RunReport Sample(const std::vector<std::string>& pictures) {
  report::RunReport run;
  run.title = "demo <b>&\"'";
  run.outcome = "finished 300 steps in 1:52";
  run.metric = 0.8312;
  run.facts = {{"cards", "8 × gcu (simulated)"},
               {"global batch", "16"},
               {"model", "dinov3-tiny, linear head"},
               {"parameters", "1,204,231"},
               {"data", "synthetic, 512 + 64 tiles of 64 × 64"},
               {"precision", "float32"},
               {"learning rate", "0.001, poly, warm-up 30"},
               {"seed", "42"}};
  report::Curve loss{"loss", {}};
  report::Curve lr{"lr", {}};
  report::Curve miou{"mIoU", {}};
  report::Curve speed{"samples/s", {}};
  unsigned noise = 1;
  for (int step = 1; step <= 300; ++step) {
    noise = noise * 1664525U + 1013904223U;
    const double wobble = static_cast<double>(noise >> 8) / (1 << 24) - 0.5;
    loss.points.push_back({step, 1.85 * std::exp(-step / 70.0) + 0.14 + 0.16 * wobble});
    lr.points.push_back({step, step < 30 ? 1e-3 * step / 30 : 1e-3 * (300 - step) / 270.0 + 1e-6});
    if (step % 10 == 0) speed.points.push_back({step, 148 + 14 * wobble});
    if (step % 50 == 0) miou.points.push_back({step, 0.85 - 0.7 * std::exp(-step / 80.0)});
  }
  loss.points[80].value = std::nan("");
  run.curves = {loss, lr, miou, speed};
  const std::vector<std::string> classes = {"background", "building", "road",        "water",
                                            "barren",     "forest",   "agricultural"};
  run.legend = report::PaletteOf(classes);
  report::ConfusionMatrix matrix{7, std::vector<std::int64_t>(49, 900)};
  for (int i = 0; i < 7; ++i) matrix.counts[i * 7 + i] = 20000 + 9000 * i;
  for (int i = 0; i < 7; ++i) matrix.counts[4 * 7 + i] = matrix.counts[i * 7 + 4] = 0;
  run.scores = report::ScoresOf(matrix, classes);
  for (std::size_t i = 0; i + 2 < pictures.size(); i += 3) {
    run.examples.push_back({"val tile " + std::to_string(i / 3), Contents(pictures[i]), Contents(pictures[i + 1]),
                            Contents(pictures[i + 2]), "", ""});
  }
  for (int rank = 0; rank < 8; ++rank) {
    run.ranks.push_back({rank, "gcu:" + std::to_string(rank), 4.1 + rank % 3, 78.3 - rank, 21.0 + rank * 0.6, 3.2, 600,
                         std::optional<std::uint64_t>(700 << 20)});
  }
  run.ranks[7].peak_memory.reset();
  run.samples_per_second = 151.3;
  run.single_card_samples_per_second = 23.4;
  run.verified = {{"parameters equal on all 8 ranks", "hash compared 6 times, last 59a8a2f126edc615"},
                  {"the last checkpoint reads back", "step 300, 9 files, every checksum"},
                  {"no sample in train and val", "512 and 64 tiles, by content"}};
  run.warnings = {"2 files could not be read and were left out: img_dir/train/0007.png <script>alert(1)</script>"};
  return run;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() == 3 && words[0] == "events") return Events(words[1], words[2]);
  if (words.size() == 2 && words[0] == "scores") return Scores(words[1]);
  if (words.size() >= 2 && words[0] == "report") {
    const auto written = report::WriteReport(words[1], Sample({words.begin() + 2, words.end()}));
    return written.ok() ? 0 : Complain(written.error());
  }
  std::fprintf(stderr, "report_tool: events DIR PNG, scores NAMES, or report DIR PNG…\n");
  return 2;
}
