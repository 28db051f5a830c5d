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

// One line for each shape in which programs print their secrets.
TEST_F(RedactedText, HasNoSecretInAnyShape) {
  for (const char* text : {
           "accessKeySecret: S3cr3tPlanted",
           "secretKey: S3cr3tPlanted",
           "dbPassword=S3cr3tPlanted",
           "clientsecret=S3cr3tPlanted",
           R"(password="two S3cr3tPlanted words")",
           R"(password="a \"quoted\" S3cr3tPlanted" next)",
           "password='two S3cr3tPlanted'",
           "password=a,b;c&S3cr3tPlanted",
           "machine example.org login me password S3cr3tPlanted",
           "  password S3cr3tPlanted",
           "DB_PASS=S3cr3tPlanted",
           "MYSQL_PWD=S3cr3tPlanted",
           "jdbc:sqlserver://h;user=a;pwd=S3cr3tPlanted",
           "Server=x;Uid=a;Pwd=S3cr3tPlanted;",
           "proxy me:S3cr3tPlanted@proxy:3128",
           "Authorization: Token S3cr3tPlanted",
           "-H 'Authorization: token S3cr3tPlanted' https://example.org",
           R"({"Authorization": "ApiKey S3cr3tPlanted"})",
           "Cookie: a=1; session=S3cr3tPlanted",
           "https://x.blob.core.windows.net/c?sv=1&sig=S3cr3tPlantedS3cr3tPlanted",
           R"({"tokens": ["S3cr3tPlanted", "other"]})",
           R"(tokens: ["S3cr3tPlanted"])",
           "密码：S3cr3tPlanted",
           "数据库密码: S3cr3tPlanted，已连接",
           "口令=S3cr3tPlanted",
           "令牌是 S3cr3tPlanted",
           "sshpass -p S3cr3tPlanted ssh me@node2",
           "sshpass -pS3cr3tPlanted ssh node2",
           "mysql -u root -pS3cr3tPlanted db",
           "curl -u me:S3cr3tPlanted https://example.org",
           "MY_AUTH=S3cr3tPlanted",
           "SENTRY_DSN=S3cr3tPlanted",
           "AZURE_SAS=S3cr3tPlanted",
           "prog --pass S3cr3tPlanted",
           "prog --auth S3cr3tPlanted",
           "prog -token S3cr3tPlanted",
           "prog --hf_token=S3cr3tPlanted",
           "prog --hf-token 'S3cr3tPlanted'",
           "pass=S3cr3tPlanted",
           "{'token': b'S3cr3tPlanted'}",
           "token => S3cr3tPlanted",
           R"(\"api_key\": \"S3cr3tPlanted\")",
           "db.password=S3cr3tPlanted",
       }) {
    EXPECT_THAT(redaction_.Text(text), Not(HasSubstr("S3cr3tPlanted"))) << text;
    EXPECT_THAT(redaction_.Text(text), HasSubstr(kRemoved)) << text;
  }
  EXPECT_EQ(redaction_.Text(R"({"password": 123456, "lr": 0.1})"), R"({"password": (removed), "lr": 0.1})");
  EXPECT_EQ(redaction_.Text("key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY."), "key (removed).");
  EXPECT_EQ(redaction_.Text("u eyJhbGciOiJIUzI1NiJ9.x"), "u (removed).x");
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
  for (const char* text : {"rank 3 (gcu:3): SIGSEGV in all_reduce #418",
                           "KeyError: 'backbone.conv1.weight'",
                           "missing key: encoder.layer",
                           "tokens: 4096, num_tokens=512",
                           "step 12 loss 0.4312",
                           "#5 0x7fba6263eb87 libtorch_cpu.so+0x5c3eb87",
                           "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEE",
                           "http://127.0.0.1:29500/x",
                           "20261115-091500-k3fq",
                           "ProcessGroupNCCLHeartbeatMonitorThread",
                           "root cause: rank 1",
                           "passed 10 tests, pass: 10, pass=10",
                           "PASS: test_one",
                           "forward_pass: 0.31 s",
                           "author: Li Ming",
                           "bypass=blue",
                           "token_count: 512",
                           "tokenizer: bert-base",
                           "TOKENIZERS_PARALLELISM=false",
                           "max_new_tokens=131072, tokens/s: 5123.4",
                           "pad_token: '[PAD]', eos_token='</s>'",
                           "cls_token: (1, 1, 384)",
                           "input tokens: [101, 2023, 102]",
                           "missing_keys=['head.weight'], unexpected_keys=['neck.bias']",
                           "sorted(names, key=lambda name: name[1])",
                           "PWD=/data/run",
                           "use_auth: true, auth: ok",
                           "password: none",
                           "the password is wrong",
                           "密码错误",
                           "signature: f(x, y)",
                           "12:30:01@node1, cuda:0@node2",
                           "docker run -u 1000:1000",
                           "ssh -p 2222 node1",
                           "git@github.com:x/y.git",
                           "compass: north",
                           "secondary_key_count"}) {
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
            "{\n  \"api_key\": \"(removed)\",\n  \"list\": [\n    \"TOKEN=(removed)\",\n    1\n  ],\n"
            "  \"at\": \"~/y\",\n  \"none\": null\n}\n");
  EXPECT_EQ(redaction_.JsonText("{cut: TOKEN=a"), "{cut: TOKEN=(removed)");
}

TEST_F(RedactedText, OfJsonGoesByNamesAlsoForNumbersListsAndCommands) {
  const std::string shown = redaction_.JsonText(
      R"({"password": 123456, "dbPass": "PLANTED", "tokens": ["PLANTED", "PLANTED"], "max_tokens": 512, "token": 7,
          "credentials": {"user": "me", "value": "PLANTED"}, "steps": [1, 2], "tokenizer": "bert", "auth": "PLANTED",
          "command": ["python3", "t.py", "--api-key", "PLANTED", "--hf_token", "PLANTED", "-token", "PLANTED", "--lr",
                      "0.1"]})");
  EXPECT_THAT(shown, Not(HasSubstr("PLANTED")));
  EXPECT_THAT(shown, Not(HasSubstr("123456")));
  for (const char* kept : {"512", "\"token\": 7", "bert", "t.py", "0.1"}) EXPECT_THAT(shown, HasSubstr(kept));
}

TEST_F(RedactedText, OfACommandLineHasNoValueBehindASecretFlag) {
  EXPECT_THAT(
      redaction_.Arguments({"train.py", "--api-key", "abc", "--lr", "0.1", "token=abc", "--key", "--verbose", "x"}),
      ElementsAre("train.py", "--api-key", kRemoved, "--lr", "0.1", std::string("token=") + kRemoved, "--key",
                  "--verbose", "x"));
  EXPECT_THAT(redaction_.Arguments({"sshpass", "-p", "abc", "ssh", "-p", "22", "--pass", "abc", "--tokens", "abc",
                                    "abc", "--max-tokens", "512", "db.password=abc", "--user", "me:abc"}),
              ElementsAre("sshpass", "-p", kRemoved, "ssh", "-p", "22", "--pass", kRemoved, "--tokens", kRemoved,
                          kRemoved, "--max-tokens", "512", std::string("db.password=") + kRemoved, "--user", kRemoved));
}

TEST_F(RedactedText, OfASecretFlagHasNoTokenThatBeginsWithADash) {
  EXPECT_THAT(
      redaction_.Arguments({"--password", "-Ab3xY9kQ0", "--token", "-v", "--secret", "--verbose", "-Ab3xY9kQ0"}),
      ElementsAre("--password", kRemoved, "--token", "-v", "--secret", "--verbose", "-Ab3xY9kQ0"));
  EXPECT_EQ(redaction_.Text("--password -Ab3xY9kQ0 --token -v"), std::string("--password ") + kRemoved + " --token -v");
}

TEST_F(RedactedText, KeepsItsNumbersWhereTheTokenIsOne) {
  redaction_.LearnSecret("1");
  redaction_.LearnSecret("7777");
  EXPECT_EQ(redaction_.Text("rank 1 of 17777: 7777"), std::string("rank 1 of 17777: ") + kRemoved);
}

// Files of a run folder may be anybody's: none may take hours, or the stack.
TEST_F(RedactedText, IsFoundInOneLineOfManyWordsAndInDeepJson) {
  std::string words;
  std::string urls;
  std::string signs;
  for (int i = 0; i < 400'000; ++i) {
    words += "a ";
    urls += "x://";
    signs += "a@";
  }
  EXPECT_EQ(redaction_.Text(words).size(), words.size());
  EXPECT_EQ(redaction_.Text(urls).size(), urls.size());
  EXPECT_EQ(redaction_.Text(signs).size(), signs.size());
  const std::string deep = std::string(200'000, '[') + "\"password=abc123def\"" + std::string(200'000, ']');
  EXPECT_THAT(redaction_.JsonText(deep), Not(HasSubstr("abc123def")));
}

}  // namespace
}  // namespace fulldeck::job
