#include "base/check.h"
#include "diagnosis/known_failures/explain.h"
#include "fuzz_target.h"

// A log in one chunk and the same log in chunks of three bytes give the same explanation.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::diagnosis;
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  const std::vector<Finding> whole = ExplainLog(text);
  LogExplainer explainer;
  for (std::size_t i = 0; i < text.size(); i += 3) explainer.Feed(text.substr(i, 3));
  const std::vector<Finding> chunks = explainer.Finish();
  FULLDECK_CHECK(whole.size() == chunks.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    FULLDECK_CHECK(whole[i].entry == chunks[i].entry && whole[i].times == chunks[i].times);
    FULLDECK_CHECK(whole[i].excerpt == chunks[i].excerpt && whole[i].excerpt.find('\x1b') == std::string::npos);
  }
  return 0;
}
