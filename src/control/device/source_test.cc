#include "device/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/libraries/vendor_helper.h"
#include "fake_library.h"
#include "temporary_folder.h"

namespace fulldeck::device {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const std::string kFulldeck = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";

Source Nvml(const std::string& variant) {
  Source source;
  source.title = "NVML";
  source.library = LibraryKind::kNvml;
  source.candidates = {testing::FakeLibraryPath(variant, "libnvidia-ml.so.1")};
  return source;
}

Source Efml(const std::string& variant) {
  Source source;
  source.title = "EFML";
  source.library = LibraryKind::kEfml;
  source.candidates = {testing::FakeLibraryPath(variant, "libefml.so")};
  return source;
}

SourceReading OneCardALine(std::string_view text) {
  SourceReading reading;
  reading.source = "tool";
  for (const char letter : text) {
    if (letter == '\n') reading.cards.emplace_back();
  }
  return reading;
}

Source Tool(const std::string& script) {
  Source source;
  source.title = "tool";
  source.command = {"/bin/sh", "-c", script};
  source.parser = OneCardALine;
  return source;
}

base::Duration TimeOf(const std::function<void()>& work) {
  const base::TimePoint begin = base::SteadyClock::Instance().Now();
  work();
  return base::SteadyClock::Instance().Now() - begin;
}

TEST(SourceRunner, ReadsAGoodLibraryAgainAndAgainThroughOneHelper) {
  SourceRunner runner(kFulldeck);
  for (int i = 0; i < 3; ++i) {
    const auto answers = runner.Query({Nvml("good")}, 20s);
    ASSERT_TRUE(answers[0].reading.ok()) << answers[0].reading.error().message;
    EXPECT_EQ(answers[0].reading->cards.size(), 8U);
    EXPECT_THAT(answers[0].reading->source, HasSubstr("NVML"));
  }
}

struct Misbehavior {
  const char* variant;
  const char* expected;
};

void PrintTo(const Misbehavior& misbehavior, std::ostream* out) {
  *out << misbehavior.variant;
}

// A sanitizer in the helper turns the signal into a report and an exit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr char kCrashed[] = "its helper process ended with code";
#else
constexpr char kCrashed[] = "its helper process was killed by signal 11";
#endif

class MisbehavingLibrary : public ::testing::TestWithParam<Misbehavior> {};

// The deadline must end a library that hangs, and the other library's answer must arrive.
TEST_P(MisbehavingLibrary, IsReportedInTimeAndDoesNotSilenceTheOthers) {
  for (const bool nvml_misbehaves : {true, false}) {
    SourceRunner runner(kFulldeck);
    std::vector<Source> sources = {Nvml(nvml_misbehaves ? GetParam().variant : "good"),
                                   Efml(nvml_misbehaves ? "good" : GetParam().variant)};
    std::vector<Answer> answers;
    const base::Duration took = TimeOf([&] { answers = runner.Query(sources, 5s); });
    EXPECT_LT(took, 60s);
    const std::size_t bad = nvml_misbehaves ? 0 : 1;
    ASSERT_FALSE(answers[bad].reading.ok()) << sources[bad].title;
    EXPECT_THAT(answers[bad].reading.error().message, HasSubstr(GetParam().expected)) << sources[bad].title;
    ASSERT_TRUE(answers[1 - bad].reading.ok()) << answers[1 - bad].reading.error().message;
    EXPECT_EQ(answers[1 - bad].reading->cards.size(), 8U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, MisbehavingLibrary,
    ::testing::Values(Misbehavior{"segfault", kCrashed}, Misbehavior{"hang", "did not answer within 5.0 s"},
                      Misbehavior{"exit", "ended with code 0 before it answered"}, Misbehavior{"no_symbol", "symbol"},
                      Misbehavior{"not_elf", "cannot be loaded"}, Misbehavior{"empty", "cannot be loaded"}),
    [](const auto& param_info) { return param_info.param.variant; });

TEST(SourceRunner, ToleratesALibraryThatPrintsOrTakesSignals) {
  SourceRunner runner(kFulldeck);
  for (const char* variant : {"chatty", "signals"}) {
    ::testing::internal::CaptureStdout();
    const auto answers = runner.Query({Nvml(variant), Efml(variant)}, 20s);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    for (const Answer& answer : answers) {
      ASSERT_TRUE(answer.reading.ok()) << variant << ": " << answer.reading.error().message;
      EXPECT_EQ(answer.reading->cards.size(), 8U);
    }
  }
}

TEST(SourceRunner, StartsANewHelperAfterOneThatCrashed) {
  SourceRunner runner(kFulldeck);
  EXPECT_FALSE(runner.Query({Nvml("segfault")}, 20s)[0].reading.ok());
  EXPECT_FALSE(runner.Query({Nvml("segfault")}, 20s)[0].reading.ok());
  EXPECT_TRUE(runner.Query({Nvml("good")}, 20s)[0].reading.ok());
}

TEST(SourceRunner, TreatsALibraryThatIsNowhereAsNoSource) {
  Source source = Nvml("good");
  source.candidates = {"libnvidia-ml-of-nobody.so.1"};
  const auto answers = SourceRunner(kFulldeck).Query({source}, 20s);
  ASSERT_TRUE(answers[0].reading.ok());
  EXPECT_TRUE(answers[0].reading->cards.empty());
  EXPECT_THAT(answers[0].reading->notes.at(0), HasSubstr("is not installed"));
}

TEST(SourceRunner, TakesALibraryOfAKindThatItCannotReadAsANoteAndNotAsAFailure) {
  const auto answers = SourceRunner(kFulldeck).Query({Efml("new_only")}, 20s);
  ASSERT_TRUE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading->notes.at(0), HasSubstr("has only the newer interface"));
}

TEST(SourceRunner, ReportsAHelperThatCannotBeStarted) {
  const auto answers = SourceRunner("/no/such/fulldeck").Query({Nvml("good")}, 5s);
  ASSERT_FALSE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading.error().message, HasSubstr("/no/such/fulldeck"));
}

TEST(SourceRunner, RefusesAHelperThatSpeaksSomethingElse) {
  const auto answers = SourceRunner("/bin/echo").Query({Nvml("good")}, 5s);
  EXPECT_FALSE(answers[0].reading.ok());
}

TEST(SourceRunner, ParsesWhatAToolPrints) {
  const auto answers = SourceRunner(kFulldeck).Query({Tool("echo one; echo two")}, 20s);
  ASSERT_TRUE(answers[0].reading.ok());
  EXPECT_EQ(answers[0].reading->cards.size(), 2U);
}

TEST(SourceRunner, RunsToolsInPlainEnglish) {
  setenv("LANG", "zh_CN.UTF-8", 1);
  const auto answers = SourceRunner(kFulldeck).Query({Tool("test \"$LC_ALL$LANG\" = C && echo plain")}, 20s);
  unsetenv("LANG");
  ASSERT_TRUE(answers[0].reading.ok()) << answers[0].reading.error().message;
  EXPECT_EQ(answers[0].reading->cards.size(), 1U);
}

TEST(SourceRunner, NamesTheCodeOfAToolThatFailed) {
  const auto answers = SourceRunner(kFulldeck).Query({Tool("exit 9")}, 20s);
  ASSERT_FALSE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading.error().message, HasSubstr("ended with code 9"));
}

TEST(SourceRunner, UsesWhatAToolPrintedBeforeItFailedAndNotesIt) {
  const auto answers = SourceRunner(kFulldeck).Query({Tool("echo one; exit 3")}, 20s);
  ASSERT_TRUE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading->notes, ::testing::Contains("tool ended with code 3."));
}

TEST(SourceRunner, KillsAToolThatHangsTogetherWithItsChildren) {
  const testing::TemporaryFolder temporary;
  const std::string pid_file = temporary.string() + "/pid";
  const auto answers = SourceRunner(kFulldeck).Query({Tool("sleep 600 & echo $! > " + pid_file + "; wait")}, 1s);
  ASSERT_FALSE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading.error().message, HasSubstr("did not answer within 1.0 s"));
  std::FILE* file = std::fopen(pid_file.c_str(), "r");
  ASSERT_NE(file, nullptr);
  int pid = 0;
  ASSERT_EQ(std::fscanf(file, "%d", &pid), 1);
  std::fclose(file);
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + 20s;
  const auto runs = [&] {
    std::FILE* stat = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
    char state = 'X';
    if (stat != nullptr) {
      if (std::fscanf(stat, "%*d %*s %c", &state) != 1) state = 'X';
      std::fclose(stat);
    }
    return state != 'X' && state != 'Z';
  };
  while (runs() && base::SteadyClock::Instance().Now() < deadline) sched_yield();
  EXPECT_FALSE(runs()) << "the tool's child lives on";
}

TEST(SourceRunner, StopsAToolThatPrintsForEver) {
  const auto answers = SourceRunner(kFulldeck).Query({Tool("while :; do echo flood flood flood flood; done")}, 30s);
  ASSERT_FALSE(answers[0].reading.ok());
  EXPECT_THAT(answers[0].reading.error().message, HasSubstr("printed more than 1 MiB"));
}

TEST(HelperAnswer, CarriesEveryValueAcrossThePipe) {
  SourceReading reading{"NVML 13", "580.159", {}, {"a note"}};
  CardReading card;
  card.index = 3;
  card.model = "H200";
  card.serial = "S";
  card.uuid = "GPU-1";
  card.pci_address = "0000:3d:00.0";
  card.firmware = "96.00";
  card.memory_total_bytes = ~std::uint64_t{0};
  card.memory_used_bytes = 1;
  card.memory_used_percent = 50;
  card.utilization_percent = 12.5;
  card.power_watts = 75.25;
  card.power_limit_watts = 700;
  card.temperature_celsius = 31;
  card.state = "P0";
  card.processes = {{{7, 100}, {8, std::nullopt}}};
  card.notes = {"hot \x1b[31m"};
  reading.cards = {card, CardReading()};
  const auto decoded = DecodeAnswer(EncodeAnswer(reading));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->source, "NVML 13");
  EXPECT_EQ(decoded->driver_version, "580.159");
  ASSERT_EQ(decoded->cards.size(), 2U);
  const CardReading& back = decoded->cards[0];
  EXPECT_EQ(back.index, 3);
  EXPECT_EQ(back.model, "H200");
  EXPECT_EQ(back.serial, "S");
  EXPECT_EQ(back.uuid, "GPU-1");
  EXPECT_EQ(back.pci_address, "0000:3d:00.0");
  EXPECT_EQ(back.firmware, "96.00");
  EXPECT_EQ(back.memory_total_bytes, ~std::uint64_t{0});
  EXPECT_EQ(back.memory_used_bytes, 1U);
  EXPECT_EQ(back.memory_used_percent, 50);
  EXPECT_EQ(back.utilization_percent, 12.5);
  EXPECT_EQ(back.power_watts, 75.25);
  EXPECT_EQ(back.power_limit_watts, 700);
  EXPECT_EQ(back.temperature_celsius, 31);
  EXPECT_EQ(back.state, "P0");
  ASSERT_TRUE(back.processes.has_value());
  ASSERT_EQ(back.processes->size(), 2U);
  EXPECT_EQ((*back.processes)[0].memory_bytes, 100U);
  EXPECT_FALSE((*back.processes)[1].memory_bytes);
  EXPECT_EQ(back.notes.at(0), "hot ?[31m");
  EXPECT_FALSE(decoded->cards[1].utilization_percent);
  EXPECT_FALSE(decoded->cards[1].processes);
}

TEST(HelperAnswer, ThatIsNotWhatItShouldBeIsAnError) {
  for (const char* text : {"", "[]", "null", "{}", "{\"source\":5}", "\xff\xfe", "{\"source\":\"x\""}) {
    EXPECT_FALSE(DecodeAnswer(text).ok()) << text;
  }
  const auto odd =
      DecodeAnswer(R"({"source":"x","cards":[5,{"index":"three","notes":[7],"processes":[{"pid":"x"},4]}]})");
  ASSERT_TRUE(odd.ok());
  ASSERT_EQ(odd->cards.size(), 1U);
  EXPECT_FALSE(odd->cards[0].index);
}

}  // namespace
}  // namespace fulldeck::device
