#include "patch/inserted_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::patch {
namespace {

using testing::HasSubstr;

// The structure of MMEngine's runner: a header over several lines, a docstring that mentions the patterns that are
// searched for, the branch.
constexpr char kRunner[] = R"(class Runner:

    def wrap_model(
            self, model_wrapper_cfg,
            model) -> Union[A, B]:
        """Wrap the model.

        if model_wrapper_cfg is None:
            model = MMDistributedDataParallel(
        """
        model = model.to(get_device())
        # if model_wrapper_cfg is None: a comment
        if model_wrapper_cfg is None:
            model = MMDistributedDataParallel(
                module=model,
                device_ids=[0])
        else:
            model = MODEL_WRAPPERS.build(model_wrapper_cfg)
        return model

    def other(self):
        if model_wrapper_cfg is None:
            pass
)";

TEST(InsertedLines, StandBeforeTheBranchThatChoosesTheWrapper) {
  const auto text = WithLines(kRunner, TraceWhen::kAlways);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("# if model_wrapper_cfg is None: a comment\n        # fulldeck patch mmengine: begin"));
  EXPECT_THAT(*text, HasSubstr("        # fulldeck patch mmengine: end\n        if model_wrapper_cfg is None:\n"));
  EXPECT_THAT(*text, HasSubstr("            _fulldeck_trace.before_wrap(model)\n        except Exception:"));
  EXPECT_EQ(WithoutLines(*text), kRunner);
}

TEST(InsertedLines, WaitForTheVariableUnlessTheyAreToTraceAlways) {
  EXPECT_THAT(*WithLines(kRunner, TraceWhen::kOnRequest), HasSubstr("FULLDECK_TRACE_DDP"));
  EXPECT_THAT(*WithLines(kRunner, TraceWhen::kAlways), testing::Not(HasSubstr("FULLDECK_TRACE_DDP")));
}

TEST(InsertedLines, AreFoundAPlaceByTheWrapperItselfWhereThereIsNoBranch) {
  const std::string source = "def wrap_model(self, model):\n    a()\n    return DistributedDataParallel(model)\n";
  const auto text = WithLines(source, TraceWhen::kAlways);
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text->starts_with("def wrap_model(self, model):\n    a()\n    # fulldeck patch mmengine: begin"));
  EXPECT_TRUE(text->ends_with("end\n    return DistributedDataParallel(model)\n"));
}

TEST(InsertedLines, KeepTheLineEndsAndTheTabsOfTheFile) {
  const std::string source = "def wrap_model(self):\r\n\tif model_wrapper_cfg is None:\r\n\t\tpass";
  const auto text = WithLines(source, TraceWhen::kAlways);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("\r\n\ttry:\r\n\t    from fulldeck"));
  EXPECT_EQ(WithoutLines(*text), source);
}

TEST(InsertedLines, AreRefusedByAFileThatHasNoPlaceForThem) {
  for (const char* source :
       {"", "def other():\n    pass\n", "def wrap_model(self):\n    return model\n",
        "'''\ndef wrap_model(self):\n    if model_wrapper_cfg is None:\n'''\n",
        "def wrap_model(a):\n    if model_wrapper_cfg is None:\n        x\ndef wrap_model(b):\n    y\n"}) {
    EXPECT_FALSE(WithLines(source, TraceWhen::kOnRequest).ok()) << source;
  }
  EXPECT_FALSE(WithLines(std::string_view("def wrap_model(\0", 16), TraceWhen::kOnRequest).ok());
}

TEST(InsertedLines, AreNotPutInTwice) {
  const auto once = WithLines(kRunner, TraceWhen::kOnRequest);
  EXPECT_FALSE(WithLines(*once, TraceWhen::kAlways).ok());
}

TEST(InsertedLines, AreNotTakenOutByHalves) {
  std::string text = *WithLines(kRunner, TraceWhen::kOnRequest);
  EXPECT_EQ(WithoutLines(kRunner), std::nullopt);
  EXPECT_EQ(WithoutLines(text + text), std::nullopt);
  text.erase(text.find("        # fulldeck patch mmengine: end\n"), 39);
  EXPECT_TRUE(HasLines(text));
  EXPECT_EQ(WithoutLines(text), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::patch
