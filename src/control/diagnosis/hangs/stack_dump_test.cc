#include "diagnosis/hangs/stack_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace fulldeck::diagnosis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kDump =
    "fulldeck stacks 1\n"
    "requests: 12 34\n"
    "process: 4058\n"
    "time: 1794736655.612\n"
    "Python stacks:\n"
    "Thread 0x00007fba00000001 (most recent call first):\n"
    "  File \"/opt/x/threading.py\", line 327 in wait\n"
    "\n"
    "Current thread 0x00007fba73ffd280 (most recent call first):\n"
    "  File \"/data/a \"b\", line 3/train.py\", line 9 in backward\n"
    "  File \"<string>\", line 1 in <module>\n"
    "native stacks:\n"
    "thread: 4058 python\n"
    "pthread: 0x7fba73ffd280\n"
    "#0 0x7fba73985ad8 libc.so.6+0x167ad8\n"
    "#1 0x7fba6263eb87 my lib+0x.so+0x5c3eb87 _ZN5torch8autograd6Engine17evaluate_functionEv+0x1017\n"
    "and more frames\n"
    "thread: 4061 pt_autograd_0\n"
    "no stack: it blocks the signal; state S, system call " +
    std::to_string(SYS_futex) +
    ", wait channel futex_wait_queue\n"
    "files:\n"
    "/usr/lib/libc.so.6\n"
    "end of stacks\n";

TEST(StackDump, HasThreadsWithNativeAndPythonFramesPutTogether) {
  const auto dumps = ParseStackDumps(kDump);
  ASSERT_THAT(dumps, SizeIs(1));
  const StackDump& dump = dumps[0];
  EXPECT_TRUE(dump.whole);
  EXPECT_THAT(dump.requests, ElementsAre(12U, 34U));
  EXPECT_TRUE(dump.Answers(34) && !dump.Answers(3));
  EXPECT_EQ(dump.process, 4058);
  EXPECT_DOUBLE_EQ(dump.unix_seconds, 1794736655.612);
  EXPECT_THAT(dump.files, ElementsAre("/usr/lib/libc.so.6"));
  ASSERT_THAT(dump.threads, SizeIs(3));

  const ThreadStack& main = dump.threads[0];
  EXPECT_EQ(main.name, "python");
  EXPECT_TRUE(main.answered && main.is_current);
  ASSERT_THAT(main.native, SizeIs(2));
  EXPECT_EQ(main.native[0].Short(), "libc.so.6+0x167ad8");
  EXPECT_EQ(main.native[1].file, "my lib+0x.so");
  EXPECT_EQ(main.native[1].Short(), "torch::autograd::Engine::evaluate_function (my lib+0x.so)");
  EXPECT_EQ(main.native_note, "and more frames");
  ASSERT_THAT(main.python, SizeIs(2));
  EXPECT_EQ(main.python[0].file, "/data/a \"b\", line 3/train.py");
  EXPECT_EQ(main.python[0].line, 9);
  EXPECT_EQ(main.python[0].Short(), "a \"b\", line 3/train.py:9 in backward");
  EXPECT_EQ(main.python[1].Short(), "<string>:1 in <module>");

  EXPECT_FALSE(dump.threads[1].answered);
  EXPECT_EQ(dump.threads[1].unanswered, "it blocks the signal; state S, in futex, wait channel futex_wait_queue");
  EXPECT_EQ(dump.threads[2].thread, 0);
  EXPECT_EQ(dump.threads[2].python.front().function, "wait");
}

TEST(StackDump, ThatIsCutAnywhereGivesWhatIsThereAndIsNotWhole) {
  for (std::size_t length = 0; length < kDump.size(); ++length) {
    const auto dumps = ParseStackDumps(kDump.substr(0, length));
    ASSERT_LE(dumps.size(), 1U);
    EXPECT_FALSE(!dumps.empty() && dumps[0].whole) << length;
  }
  // The next dump begins in the middle of it and contains nothing of it.
  const auto dumps = ParseStackDumps(kDump.substr(0, 200) + "\n" + kDump + "fulldeck stacks 1\nrequests: 5\n");
  ASSERT_THAT(dumps, SizeIs(3));
  EXPECT_FALSE(dumps[0].whole);
  EXPECT_TRUE(dumps[1].whole);
  EXPECT_THAT(dumps[1].threads, SizeIs(3));
  EXPECT_THAT(dumps[2].requests, ElementsAre(5U));
}

TEST(StackDump, OfStrangeTextIsHarmless) {
  EXPECT_THAT(ParseStackDumps("thread: 1 a\n#0 0x1\nend of stacks\n"), IsEmpty());
  const auto dumps = ParseStackDumps(
      "fulldeck stacks 1\nrequests: x -1 99999999999 7\nprocess: 99999999999999\ntime: nan\n#0 0x1\npthread: "
      "0x1\nthread:\n"
      "thread: -5 \x1b[31mred\nthread: 77\n# 0x\n#0\n#0 zz\n#1 0x12 +0x\n#2 0xffffffffffffffffffff x+0x1\n#3 0x3 f+0x1 "
      "+0x\npthread: 0x\nPython stacks:\nThread 0x (most\n  File \"x\n  File \"x\", line q in y\nThread 0xzz\n");
  ASSERT_THAT(dumps, SizeIs(1));
  EXPECT_THAT(dumps[0].requests, ElementsAre(7U));
  for (const ThreadStack& thread : dumps[0].threads) EXPECT_EQ(thread.name.find('\x1b'), std::string::npos);
  std::string many = "fulldeck stacks 1\n";
  for (int i = 0; i < 3000; ++i) many += "thread: " + std::to_string(i) + " x\n#0 0x1\n";
  for (int i = 0; i < 3000; ++i) many += "#0 0x1\n";
  const auto capped = ParseStackDumps(many);
  EXPECT_LE(capped[0].threads.size(), 1024U);
  std::string dumped;
  for (int i = 0; i < 200; ++i) dumped += "fulldeck stacks 1\nrequests: " + std::to_string(i) + "\n";
  EXPECT_THAT(ParseStackDumps(dumped), SizeIs(64));
  EXPECT_TRUE(ParseStackDumps(dumped).back().Answers(199));
}

TEST(StackDump, ReportsWhyThereAreNone) {
  const auto dumps = ParseStackDumps(
      "fulldeck stacks 1\nno stacks: the program has a handler\nfiles:\nno Python stacks: descriptor 979 is in "
      "use\nend of "
      "stacks\n");
  ASSERT_THAT(dumps, SizeIs(1));
  EXPECT_EQ(dumps[0].note, "the program has a handler");
  EXPECT_EQ(dumps[0].python_note, "descriptor 979 is in use");
}

ThreadStack Standing(std::uint64_t innermost, std::uint64_t caller, int line) {
  ThreadStack thread;
  thread.answered = true;
  thread.native = {{0, "libc.so.6", innermost, ""}, {0, "libx.so", caller, "f"}};
  thread.python = {{"train.py", line, "step"}};
  return thread;
}

TEST(StackKey, IsTheSameWhileAThreadWaitsInPlaceAndAnotherWhenItGoesOn) {
  EXPECT_EQ(Standing(1, 2, 3).Key(), Standing(9, 2, 3).Key());
  EXPECT_NE(Standing(1, 2, 3).Key(), Standing(1, 4, 3).Key());
  EXPECT_NE(Standing(1, 2, 3).Key(), Standing(1, 2, 4).Key());
  EXPECT_EQ(Standing(1, 2, 3).FunctionKey(), Standing(1, 4, 5).FunctionKey());
}

TEST(FunctionName, IsShortWhereItCanBe) {
  const auto shortly = [](const std::string& name) { return Demangled(name, true); };
  EXPECT_EQ(shortly("read"), "read");
  EXPECT_EQ(shortly("_ZN4c10d5Store4waitEv"), "c10d::Store::wait");
  EXPECT_EQ(shortly("void c10::f<int, std::vector<long> >(long, std::function<void (int)>) const"), "c10::f");
  EXPECT_EQ(shortly("a::(anonymous namespace)::g(int)"), "a::(anonymous namespace)::g");
  EXPECT_EQ(shortly("a::f(int)::{lambda(long)#1}::operator()(long) const"), "a::f::lambda::operator()");
  EXPECT_EQ(shortly("std::ostream& a::operator<< <int>(std::ostream&, int)"), "a::operator<< <int>");
  EXPECT_EQ(shortly("_Znot mangled"), "_Znot mangled");
  EXPECT_THAT(shortly("f(" + std::string(5000, '<')), HasSubstr("f"));
}

TEST(SystemCallName, IsAWordOrANumber) {
  EXPECT_EQ(SystemCallName(SYS_futex), "futex");
  EXPECT_EQ(SystemCallName(99999), "system call 99999");
}

}  // namespace
}  // namespace fulldeck::diagnosis
