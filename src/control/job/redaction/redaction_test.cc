#include "job/redaction/redaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

namespace fulldeck::job {
namespace {

using ::testing::AllOf;
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

// One line per form in which programs print secrets.
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
           "os.environ['HF_TOKEN'] = 'S3cr3tPlanted'",
           R"(    os.environ["HF_TOKEN"] = f"S3cr3tPlanted")",
           R"("source": "os.environ[\"HF_TOKEN\"]=\"S3cr3tPlanted\"")",
           "config['db']['password'] = S3cr3tPlanted",
           "os.environ.get('HF_TOKEN', 'S3cr3tPlanted')",
           R"(os.environ.setdefault("WANDB_API_KEY", "S3cr3tPlanted"))",
           "[('user', 'me'), ('token', 'S3cr3tPlanted')]",
           R"((\"token\", \"S3cr3tPlanted\"))",
           "(b'authorization', b'S3cr3tPlanted')",
           "['train.py', '--hf_token', 'S3cr3tPlanted']",
           "API key: S3cr3tPlanted",
           "your api key = S3cr3tPlanted",
           "secret access key: S3cr3tPlanted",
           R"("API key": "S3cr3tPlanted")",
           "Access Key=S3cr3tPlanted",
           "ak=AKLTxxxxxxxx, sk=S3cr3tPlanted",
           "{'ak': 'x', 'sk': 'S3cr3tPlanted=='}",
           "AK/SK: S3cr3tPlanted",
           "VOLC_SK=S3cr3tPlanted",
           "prog --sk S3cr3tPlanted",
           "prog --wandb.api_key S3cr3tPlanted",
           "sent Bearer S3cr3tPlanted to the host",
           "'bearer S3cr3tPlanted'",
           "Bearer planted-S3cr3tPlanted.x_y==",
           "<password>S3cr3tPlanted</password>",
           "<api_key>two S3cr3tPlanted</api_key>",
           "password is S3cr3tPlanted",
           "the password is 'S3cr3tPlanted', try again",
           "Your token is: S3cr3tPlanted",
           "your API key is S3cr3tPlanted.",
           "密码 S3cr3tPlanted",
           "密码（S3cr3tPlanted）",
           "密码(S3cr3tPlanted)已重置",
           "密碼：S3cr3tPlanted",
           "秘钥：S3cr3tPlanted",
           "密鑰＝S3cr3tPlanted",
           "凭证: S3cr3tPlanted",
           "憑證 S3cr3tPlanted，已更新",
           "授权码为：S3cr3tPlanted",
           "('密码', 'S3cr3tPlanted')",
           "docker login -u u -p S3cr3tPlanted",
           "docker login -pS3cr3tPlanted registry.example.org",
           "Command '['docker', 'login', '-u', 'u', '-p', 'S3cr3tPlanted']' returned non-zero exit status 1.",
           "/usr/bin/podman login reg -u u -p S3cr3tPlanted",
           "redis-cli -h node1 -a S3cr3tPlanted ping",
           "sh -c 'redis-cli -a S3cr3tPlanted'",
           "mongosh -u me -p S3cr3tPlanted",
           "https://hooks.slack.com/services/T0/B0/S3cr3tPlanted",
           "https://open.feishu.cn/open-apis/bot/v2/hook/S3cr3tPlanted",
           "https://open.larksuite.com/open-apis/bot/v2/hook/S3cr3tPlanted",
           "https://oapi.dingtalk.com/robot/send?access_token=S3cr3tPlanted",
           "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=S3cr3tPlanted",
           "https://discord.com/api/webhooks/1/S3cr3tPlanted",
           "https://api.telegram.org/bot1:S3cr3tPlanted/sendMessage",
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
                           "secondary_key_count",
                           "password is required",
                           "password is wrong, or the user is",
                           "password is None",
                           "token is None",
                           "token is 4096",
                           "the next token is 'hello'",
                           "unknown token is <unk1234>",
                           "token is tensor([101, 2023])",
                           "API key is missing",
                           "tokens: 4096",
                           "tokens = 1024, sk = 16",
                           "ask=3, task=train_8_cards, disk=/dev/nvme0n1, mask=0x7fffffffff",
                           "sk=0.5",
                           "sk: linear",
                           "sk = socket_of_rank(7)",
                           "import sklearn as sk",
                           "bearer of",
                           "the bearer of bad tidings, the bearer certificate",
                           "Bearer authentication is not supported",
                           "WWW-Authenticate: Bearer realm=\"registry1\"",
                           "Bearer {value1}",
                           "key: value",
                           "  key: value\n  other key: value",
                           "primary key: name, foreign key: run_id, public key: abc",
                           "the key is layer1.weight",
                           "('token', 12)",
                           "tokenizer('token', return_tensors='pt')",
                           "('tokenizer', 'bert-base')",
                           "['id', 'tokens', 'pos_tags', 'ner_tags']",
                           "parser.add_argument('--token', '-t', help='of the hub')",
                           "parser.add_argument(\"--token\", type=str, default=None)",
                           "x = batch['tokens'].cuda()",
                           "batch['tokens'] = batch['input_ids'].cuda()",
                           "os.environ['TOKENIZERS_PARALLELISM'] = 'false'",
                           "os.environ['HF_TOKEN']",
                           "os.environ.get('HF_TOKEN', None)",
                           "KeyError: 'token', in line 3",
                           "the meaning of a cookie is: seek to it",
                           "passwords behind `redis-cli -a`, `docker login -p`, and so on",
                           "--lr.max 0.1 --model.name bert --num.tokens 4096",
                           "usage: login <password> <host>",
                           "<pad_token>[PAD]</pad_token>",
                           "<token> is not closed",
                           "密码 错误",
                           "密码 error",
                           "密码（必填）",
                           "密码（至少8位）",
                           "密钥（AccessKey）",
                           "令牌数: 4096",
                           "令牌 4096",
                           "令牌：4096",
                           "凭证无效",
                           "docker run -p 8080:80 image",
                           "docker login reg && docker run -p 8080:80 image",
                           "redis-cli ping && ls -a folder",
                           "mongo -p --host node1",
                           "https://hooks.slack.com/services/ cannot be reached",
                           "https://open.feishu.cn/document/bot",
                           "docker.io/library/python:3.11"}) {
    EXPECT_EQ(redaction_.Text(text), text);
  }
}

TEST_F(RedactedText, DoesNotRevealWhoseMachineItIs) {
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
  for (const char* text :
       {R"({"command": ["train.py", "--sk", "PLANTED"]})",
        R"({"command": ["docker", "login", "-u", "u", "-p", "PLANTED"]})",
        R"({"command": ["redis-cli", "-a", "PLANTED"]})", R"({"command": ["train.py", "--wandb.api_key", "PLANTED"]})",
        R"({"sk": "PLANTED"})", R"({"密碼": "PLANTED"})", R"({"凭证": "PLANTED"})"}) {
    EXPECT_THAT(redaction_.JsonText(text), Not(HasSubstr("PLANTED"))) << text;
  }
  EXPECT_THAT(redaction_.JsonText(R"({"command": ["docker", "run", "-p", "80:80", "--mask", "0x1"], "sk": 16})"),
              AllOf(HasSubstr("80:80"), HasSubstr("0x1"), HasSubstr("16")));
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

TEST_F(RedactedText, KeepsWhatStandsAroundASecret) {
  EXPECT_EQ(redaction_.Text("os.environ['HF_TOKEN'] = 'a1b2c3'  # x"), "os.environ['HF_TOKEN'] = '(removed)'  # x");
  EXPECT_EQ(redaction_.Text("'-p', 'x'] 'docker', 'login', '-p', 'a1b2c3']"),
            "'-p', 'x'] 'docker', 'login', '-p', '(removed)']");
  EXPECT_EQ(redaction_.Text("密码（a1b2c3），rank 3"), "密码（(removed)），rank 3");
  EXPECT_EQ(redaction_.Text("密码：a1b2c3，rank 3"), "密码：(removed)，rank 3");
  EXPECT_EQ(redaction_.Text("see (https://hooks.slack.com/services/T/B/x), rank 3"),
            "see (https://hooks.slack.com/services/(removed)), rank 3");
  EXPECT_EQ(redaction_.Text("token is a1b2c3d4. rank 3"), "token is (removed). rank 3");
}

// Each of them begins with a possible name and continues to the end of the line without a secret.
TEST_F(RedactedText, TakesAsLongForNamesThatHaveNoSecretAsForOtherWords) {
  for (const std::string name : {"pwd:/",         "pass: [",     "sk/",
                                 "sk=sk=(",       "'token']=(",  "('token',",
                                 "<token>",       "bearer ",     "bearer=",
                                 "password is a", "token is 'a", "密码=，",
                                 "密码（",        "密码a",       "密码 a",
                                 "密码是，",      "tokens=[1\n", "token=a ",
                                 "--token.",      "api key ",    "https://hooks.slack.com/services/ "}) {
    std::string line;
    while (line.size() < 400'000) line += name;
    // CPU time, so that a busy machine does not matter.
    const std::clock_t begin = std::clock();
    redaction_.Text(line);
    EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC) << name;
  }
}

// Files of a run folder may be untrusted: none may take hours or overflow the stack.
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
