#include "agent/crash_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fulldeck::agent {
namespace {

using ::testing::HasSubstr;

siginfo_t Info(int signal_number, int code) {
  siginfo_t info{};
  info.si_signo = signal_number;
  info.si_code = code;
  return info;
}

TEST(CrashSignals, NamesTheFiveAndNoOther) {
  EXPECT_TRUE(IsCrashSignal(SIGSEGV));
  EXPECT_TRUE(IsCrashSignal(SIGABRT));
  EXPECT_FALSE(IsCrashSignal(SIGTERM));
  EXPECT_FALSE(IsCrashSignal(0));
  EXPECT_FALSE(IsCrashSignal(-1));
  EXPECT_FALSE(IsCrashSignal(1000));
  for (const int signal_number : kCrashSignals) {
    EXPECT_THAT(std::string(CrashSignalName(signal_number)), HasSubstr("SIG"));
  }
}

TEST(CrashSignals, DistinguishesAFaultFromASignalThatWasSent) {
  EXPECT_TRUE(IsFault(Info(SIGSEGV, SEGV_MAPERR)));
  EXPECT_TRUE(IsFault(Info(SIGFPE, FPE_INTDIV)));
  EXPECT_FALSE(IsFault(Info(SIGSEGV, SI_USER)));
  EXPECT_FALSE(IsFault(Info(SIGSEGV, SI_TKILL)));
  EXPECT_FALSE(IsFault(Info(SIGABRT, SI_TKILL)));
}

TEST(CrashSignals, SaysWhatTheKernelFound) {
  EXPECT_EQ(FaultReason(Info(SIGFPE, FPE_INTDIV)), "integer division by zero");
  EXPECT_THAT(std::string(FaultReason(Info(SIGBUS, BUS_ADRERR))), HasSubstr("/dev/shm is full"));
  EXPECT_EQ(FaultReason(Info(SIGSEGV, SI_USER)), "");
  EXPECT_EQ(FaultReason(Info(SIGBUS, 77)), "");
}

}  // namespace
}  // namespace fulldeck::agent
