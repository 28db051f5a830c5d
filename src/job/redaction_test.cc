#include "job/redaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RedactedText : public ::testing::Test {
 protected:
  Redaction redaction_{"/home/erika", "erika"};
};

TEST_F(RedactedText, HasNoSecretUnderAnyOfItsNames) {
  for (const char* text :
       {"API_KEY=abc123def", "export WANDB_API_KEY='abc123def'", R"({"password": "abc123def"})", "--token abc123def",
        "--auth-token=abc123def", "Authorization: Bearer abc123def", "secret: abc123def",
        "aws_secret_access_key = abc123def", "url?x=1&api_key=abc123def&y=2", R"(\"token\": \"abc123def\")",
        "https://me:abc123def@host/x", "redis://:abc123def@host:6379", "MY-PASSWORD:abc123def,"}) {
    EXPECT_THAT(redaction_.Text(text), Not(HasSubstr("abc123def"))) << text;
    EXPECT_THAT(redaction_.Text(text), HasSubstr(kRemoved)) << text;
  }
}

TEST_F(RedactedText, HasNothingThatLooksLikeAKey) {
  for (const char* text : {"hf_AbCdEfGhIjKlMnOpQr", "using sk-proj-abcdefghijklmn", "ghp_0123456789abcdefghij",
                           "AKIAIOSFODNN7EXAMPLE", "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"}) {
    EXPECT_THAT(redaction_.Text(text), HasSubstr(kRemoved)) << text;
  }
  const std::string key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJB\n-----END RSA PRIVATE KEY-----\nb";
  EXPECT_EQ(redaction_.Text(key), "a\n(removed)\nb");
  EXPECT_EQ(redaction_.Text("-----BEGIN PRIVATE KEY-----\nMIIBOg"), kRemoved);
}

TEST_F(RedactedText, KeepsWhatHelps) {
  for (const char* text :
       {"rank 3 (gcu:3): SIGSEGV in all_reduce #418", "KeyError: 'backbone.conv1.weight'", "missing key: encoder.layer",
        "tokens: 4096, num_tokens=512", "step 12 loss 0.4312", "#5 0x7fba6263eb87 libtorch_cpu.so+0x5c3eb87",
        "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEE", "http://127.0.0.1:29500/x",
        "20261115-091500-k3fq", "ProcessGroupNCCLHeartbeatMonitorThread", "root cause: rank 1"}) {
    EXPECT_EQ(redaction_.Text(text), text);
  }
}

TEST_F(RedactedText, SaysNotWhoseMachineItIs) {
  EXPECT_EQ(redaction_.Text("/home/erika/work/train.py"), "~/work/train.py");
  EXPECT_EQ(redaction_.Text("HOME=/home/erika"), "HOME=~");
  EXPECT_EQ(redaction_.Text("/home/erikas/x, /home/otto.k/y"), "/home/user/x, /home/user/y");
  EXPECT_EQ(redaction_.Text("run of erika on host7; erikawork"), "run of user on host7; erikawork");
  const Redaction root("/root", "root");
  EXPECT_EQ(root.Text("/root/x /rootfs root cause"), "~/x /rootfs root cause");
}

TEST_F(RedactedText, HasNoneOfTheSecretsThatTheEnvironmentHolds) {
  redaction_.Learn({{"VENDOR_TOKEN", "plain words here"}, {"DB_PASSWORD", "x"}, {"PATH", "/usr/bin"}});
  EXPECT_EQ(redaction_.Text("told: plain words here."), "told: (removed).");
  EXPECT_EQ(redaction_.Text("/usr/bin/x"), "/usr/bin/x");
}

TEST_F(RedactedText, HasNoneOfTheSecretsThatAreKnownByTheirMarksAlone) {
  const SecretMarks marks =
      MarksOfSecrets({{"VENDOR_TOKEN", "blue.horse=="}, {"DB_PASSWORD", "short"}, {"PATH", "/usr/bin"}});
  ASSERT_EQ(marks.marks.size(), 1U);
  EXPECT_NE(marks.salt, MarksOfSecrets({}).salt);
  EXPECT_THAT(marks.marks[0] + marks.salt, Not(HasSubstr("horse")));
  redaction_.Learn(marks);
  EXPECT_EQ(redaction_.Text("told blue.horse==, and \"blue.horse==\". blue.horse==."),
            "told (removed), and \"(removed)\". (removed).");
  EXPECT_EQ(redaction_.Text("x=blue.horse== y:blue.horse==\nblue.horse"), "x=(removed) y:(removed)\nblue.horse");
}

TEST_F(RedactedText, OfVariablesGoesByTheNameFirst) {
  EXPECT_EQ(redaction_.Variable("MY_KEYS", "a"), kRemoved);
  EXPECT_EQ(redaction_.Variable("credentials_file", "/x"), kRemoved);
  EXPECT_EQ(redaction_.Variable("EMPTY_TOKEN", ""), "");
  EXPECT_EQ(redaction_.Variable("OMP_NUM_THREADS", "4"), "4");
  EXPECT_EQ(redaction_.Variable("HOME", "/home/erika"), "~");
}

TEST_F(RedactedText, OfJsonIsJsonStill) {
  EXPECT_EQ(redaction_.JsonText(R"({"api_key": "x", "list": ["TOKEN=a\"b", 1], "at": "/home/erika/y", "none": null})"),
            "{\n  \"api_key\": \"(removed)\",\n  \"list\": [\n    \"TOKEN=(removed)\\\"b\",\n    1\n  ],\n"
            "  \"at\": \"~/y\",\n  \"none\": null\n}\n");
  EXPECT_EQ(redaction_.JsonText("{cut: TOKEN=a"), "{cut: TOKEN=(removed)");
}

TEST_F(RedactedText, OfACommandLineHasNoValueBehindASecretFlag) {
  EXPECT_THAT(
      redaction_.Arguments({"train.py", "--api-key", "abc", "--lr", "0.1", "token=abc", "--key", "--verbose", "x"}),
      ElementsAre("train.py", "--api-key", kRemoved, "--lr", "0.1", std::string("token=") + kRemoved, "--key",
                  "--verbose", "x"));
}

}  // namespace
}  // namespace fulldeck::job
