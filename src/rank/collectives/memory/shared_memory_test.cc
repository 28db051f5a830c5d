#include "collectives/memory/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/files/system_root.h"
#include "base/text.h"
#include "collectives/rendezvous/rendezvous_testing.h"

namespace fulldeck::collectives {
namespace {

using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::shared_ptr<SharedMemory> Made(std::uint64_t bytes, const std::string& name = "test") {
  auto memory = SharedMemory::Create(name, bytes);
  EXPECT_TRUE(memory.ok()) << memory.error().message;
  return *std::move(memory);
}

base::UniqueFd Copy(const SharedMemory& memory) {
  return base::UniqueFd(fcntl(memory.descriptor(), F_DUPFD_CLOEXEC, 0));
}

std::uint64_t Backed(int descriptor) {
  struct stat status {};
  EXPECT_EQ(fstat(descriptor, &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

base::UniqueFd Memfd(std::uint64_t bytes, int seals) {
  base::UniqueFd descriptor(static_cast<int>(syscall(SYS_memfd_create, "raw", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  EXPECT_EQ(ftruncate(descriptor.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(descriptor.get(), F_ADD_SEALS, seals), 0);
  return descriptor;
}
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(SharedMemory, IsSealedAndSparseAndReadsAsZero) {
  const auto memory = Made(10000, "a name for\nmaps");
  EXPECT_GE(memory->size(), 10000U);
  EXPECT_EQ(memory->size() % 4096, 0U);
  EXPECT_EQ(fcntl(memory->descriptor(), F_GET_SEALS), kAllSeals);
  EXPECT_NE(ftruncate(memory->descriptor(), 4096), 0);
  EXPECT_NE(fcntl(memory->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(memory->data()[9999], std::byte{0});
  const auto maps = base::SystemRoot().ReadFile("/proc/self/maps");
  EXPECT_THAT(*maps, HasSubstr("/memfd:a name for?maps"));
}

std::uint64_t FourMachines() {
  return 4 * static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(SharedMemory, MayBeMuchLargerThanTheMachine) {
  const auto memory = Made(FourMachines());
  EXPECT_EQ(Backed(memory->descriptor()), 0U);
  memory->data()[FourMachines() - 1] = std::byte{7};
  EXPECT_EQ(memory->data()[FourMachines() - 1], std::byte{7});
  EXPECT_LE(Backed(memory->descriptor()), 4 * kMiB);
}

TEST(SharedMemory, NothingAndTooMuchAreErrors) {
  EXPECT_FALSE(SharedMemory::Create("nothing", 0).ok());
  const auto endless = SharedMemory::Create("endless", ~std::uint64_t{0});
  ASSERT_FALSE(endless.ok());
  EXPECT_THAT(endless.error().message, HasSubstr("shared memory"));
  // More than the address space of a process.
  const int before = OpenDescriptors();
  const auto wide = SharedMemory::Create("wide", std::uint64_t{1} << 58);
  ASSERT_FALSE(wide.ok());
  EXPECT_NE(wide.error().system_error, 0);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(SharedMemory, ALimitOnFilesIsAnErrorAndNoSignal) {
  MemberProcess child([]() -> std::string {
    const rlimit limit{kMiB, kMiB};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto memory = SharedMemory::Create("limited", 2 * kMiB);
    return memory.ok() ? "made" : memory.error().message;
  });
  EXPECT_THAT(child.Report(), HasSubstr("ulimit -f"));
}

TEST(SharedMemory, OpenedInTheSameProcessIsTheSameMapping) {
  const auto memory = Made(3 * kMiB);
  const auto opened = SharedMemory::Open(Copy(*memory), 3 * kMiB);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(*opened, memory);
  const auto other = Made(3 * kMiB);
  EXPECT_NE(other->data(), memory->data());
}

TEST(SharedMemory, OpenedByManyThreadsIsOneMappingAndGoesAwayWithTheLast) {
  auto memory = Made(kMiB);
  base::UniqueFd kept = Copy(*memory);
  memory->data()[5] = std::byte{9};
  for (int round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<SharedMemory>> opened(4);
    std::vector<std::thread> threads;
    for (auto& slot : opened) {
      threads.emplace_back([&] {
        slot = *SharedMemory::Open(base::UniqueFd(fcntl(kept.get(), F_DUPFD_CLOEXEC, 0)), kMiB);
        EXPECT_EQ(slot->data()[5], std::byte{9});
      });
    }
    if (round == 0) memory.reset();
    for (std::thread& thread : threads) thread.join();
    for (const auto& each : opened) EXPECT_EQ(each, opened[0]);
  }
  // It is no longer mapped, and it can be mapped again.
  EXPECT_EQ((*SharedMemory::Open(std::move(kept), kMiB))->data()[5], std::byte{9});
}

TEST(SharedMemory, OfAnotherProcessIsTheSameBytes) {
  const auto memory = Made(kMiB);
  MemberProcess child([&]() -> std::string {
    memory->data()[77] = std::byte{42};
    return "written";
  });
  EXPECT_EQ(child.Report(), "written");
  EXPECT_EQ(memory->data()[77], std::byte{42});
}

TEST(SharedMemory, WhatCouldShrinkIsRefused) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW}) {
    const auto opened = SharedMemory::Open(Memfd(kMiB, seals), kMiB);
    ASSERT_FALSE(opened.ok()) << seals;
    EXPECT_THAT(opened.error().message, HasSubstr("not sealed"));
  }
  EXPECT_TRUE(SharedMemory::Open(Memfd(kMiB, kAllSeals), kMiB).ok());
}

TEST(SharedMemory, WhatIsTooSmallIsRefused) {
  const auto opened = SharedMemory::Open(Memfd(kMiB, kAllSeals), kMiB + 1);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("has 1 MiB"));
  EXPECT_FALSE(SharedMemory::Open(Memfd(0, kAllSeals), 0).ok());
}

TEST(SharedMemory, WhatIsNoMemoryIsRefused) {
  EXPECT_FALSE(SharedMemory::Open(base::UniqueFd(), 1).ok());
  EXPECT_FALSE(SharedMemory::Open(base::UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), 1).ok());
  EXPECT_FALSE(SharedMemory::Open(base::UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 1).ok());
  // Sealed against writing.
  EXPECT_FALSE(SharedMemory::Open(Memfd(kMiB, kAllSeals | F_SEAL_WRITE), kMiB).ok());
}

// With and without a descriptor, and simulating a kernel that supports neither populating a range nor collapsing pages.
class Reserving : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string Prepare(SharedMemory& memory) {
    if (GetParam() == "closed") memory.CloseDescriptor();
    return "";
  }
  // In a child, because simulating an old kernel cannot be undone.
  static std::string InChild(const std::function<std::string()>& body) {
    return MemberProcess([&]() -> std::string {
             if (GetParam() == "old kernel") {
               constexpr auto kAdvice =
                   static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t));
               sock_filter filter[] = {
                   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
                   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kAdvice),
                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 1, 0),
                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 25, 0, 1),
                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
               };
               const sock_fprog program{std::size(filter), filter};
               prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
               if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return "no seccomp";
             }
             return body();
           })
        .Report();
  }
};

TEST_P(Reserving, BacksAStretchAndKeepsWhatLiesThere) {
  EXPECT_EQ(InChild([]() -> std::string {
              const auto memory = Made(64 * kMiB);
              const base::UniqueFd look = Copy(*memory);
              memory->data()[5 * kMiB + 123] = std::byte{17};
              Prepare(*memory);
              const auto reserved = memory->Reserve(3 * kMiB + 5000, 9 * kMiB);
              if (!reserved.ok()) return reserved.error().message;
              if (memory->data()[5 * kMiB + 123] != std::byte{17}) return "the content is gone";
              if (memory->data()[4 * kMiB] != std::byte{0}) return "not zero";
              const std::uint64_t backed = Backed(look.get());
              if (backed < 9 * kMiB || backed > 13 * kMiB + 2 * 65536)
                return std::to_string(backed) + " bytes are backed";
              const auto again = memory->Reserve(3 * kMiB + 5000, 9 * kMiB);
              if (!again.ok() || Backed(look.get()) != backed) return "the second time was different";
              return "ok";
            }),
            "ok");
}

TEST_P(Reserving, ReleaseGivesPagesBackAndReadsAsZero) {
  EXPECT_EQ(InChild([]() -> std::string {
              const auto memory = Made(64 * kMiB);
              const base::UniqueFd look = Copy(*memory);
              Prepare(*memory);
              if (!memory->Reserve(0, 16 * kMiB).ok()) return "cannot reserve";
              std::memset(memory->data(), 0x55, 16 * kMiB);
              // Whole pages only: the pages at the edges stay.
              memory->Release(100, 16 * kMiB - 200);
              // Checked before anything is read there: reading allocates a page, too.
              if (Backed(look.get()) > 4 * kMiB + 65536) return std::to_string(Backed(look.get())) + " stayed";
              if (memory->data()[99] != std::byte{0x55}) return "more than asked for";
              if (memory->data()[16 * kMiB - 1] != std::byte{0x55}) return "more than asked for at the end";
              for (std::uint64_t at = 65536; at < 16 * kMiB - 65536; at += 4096) {
                if (memory->data()[at] != std::byte{0}) return "not zero at " + std::to_string(at);
              }
              memory->Release(0, 64 * kMiB);
              return Backed(look.get()) == 0 ? "ok" : std::to_string(Backed(look.get())) + " stayed";
            }),
            "ok");
}

TEST_P(Reserving, BeyondTheEndIsAnError) {
  EXPECT_EQ(InChild([]() -> std::string {
              const auto memory = Made(4 * kMiB);
              Prepare(*memory);
              if (memory->Reserve(3 * kMiB, 2 * kMiB).ok()) return "beyond the end";
              if (memory->Reserve(~std::uint64_t{0}, 2).ok()) return "beyond everything";
              if (memory->Reserve(1, ~std::uint64_t{0}).ok()) return "more than everything";
              memory->data()[0] = std::byte{1};
              memory->Release(0, 5 * kMiB);
              memory->Release(~std::uint64_t{0}, 2);
              if (memory->data()[0] != std::byte{1}) return "released something";
              return memory->Reserve(0, 4 * kMiB).ok() && memory->Reserve(7, 0).ok() ? "ok" : "the whole failed";
            }),
            "ok");
}

INSTANTIATE_TEST_SUITE_P(Ways, Reserving, ::testing::Values("open", "closed", "old kernel"),
                         [](const auto& way) { return way.param == "old kernel" ? "OldKernel" : way.param; });

TEST(SharedMemory, ClosingTheDescriptorKeepsTheMapping) {
  const int before = OpenDescriptors();
  const auto memory = Made(4 * kMiB);
  EXPECT_EQ(OpenDescriptors(), before + 1);
  memory->CloseDescriptor();
  EXPECT_EQ(memory->descriptor(), -1);
  EXPECT_EQ(OpenDescriptors(), before);
  memory->data()[kMiB] = std::byte{1};
  EXPECT_EQ(memory->data()[kMiB], std::byte{1});
}

TEST(SharedMemory, TakesHugePagesWhereTheSystemLetsIt) {
  const auto memory = Made(64 * kMiB);
  const auto huge = base::SystemRoot().ReadLine("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  if (!huge) GTEST_SKIP() << "this kernel has no huge pages";
  const auto bytes = base::ParseInteger<std::uint64_t>(*huge);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % *bytes, 0U);
  ASSERT_TRUE(memory->Reserve(0, 32 * kMiB).ok());
  const auto smaps = base::SystemRoot().ReadFile("/proc/self/smaps", 8 << 20);
  ASSERT_TRUE(smaps.ok());
  const auto at = smaps->find("/memfd:test");
  ASSERT_NE(at, std::string::npos);
  const auto line = smaps->find("ShmemPmdMapped:", at);
  ASSERT_NE(line, std::string::npos);
  const auto text = base::Trim(std::string_view(*smaps).substr(line + 15, smaps->find(" kB", line) - line - 15));
  const auto taken = base::ParseInteger<std::uint64_t>(text).value_or(0) * 1024;
  if (taken == 0) GTEST_SKIP() << "this system gives no huge pages for shared memory";
  EXPECT_GE(taken, 16 * kMiB);
}

TEST(SharedMemory, ReservingMoreThanTheMachineHasIsAnError) {
  const auto memory = Made(FourMachines());
  const base::UniqueFd look = Copy(*memory);
  memory->CloseDescriptor();
  const auto reserved = memory->Reserve(0, memory->size());
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().system_error, ENOMEM);
  EXPECT_THAT(reserved.error().message, HasSubstr("left"));
  EXPECT_LT(Backed(look.get()), 64 * kMiB);
}

TEST(SharedMemory, ReservingMoreThanTheCgroupMayHaveIsAnError) {
  const bool version_2 = base::SystemRoot().Exists("/sys/fs/cgroup/cgroup.controllers");
  const std::string folder =
      std::string("/sys/fs/cgroup/") + (version_2 ? "" : "memory/") + "fulldeck-test-" + std::to_string(getpid());
  if (mkdir(folder.c_str(), 0755) != 0) GTEST_SKIP() << "a cgroup needs root: " << strerror(errno);
  const auto write = [&](const std::string& file, const std::string& text) {
    std::ofstream stream(folder + "/" + file);
    stream << text << std::flush;
    return stream.good();
  };
  const bool limited = write(version_2 ? "memory.max" : "memory.limit_in_bytes", std::to_string(96 * kMiB));
  std::string report;
  if (limited) {
    report = MemberProcess([&]() -> std::string {
               if (!write("cgroup.procs", std::to_string(getpid()))) return "cannot join";
               const auto memory = Made(kGiB);
               const auto reserved = memory->Reserve(0, 256 * kMiB);
               return reserved.ok() ? "reserved" : reserved.error().message;
             }).Report();
  }
  ::fulldeck::testing::PollUntilTrue([&] { return rmdir(folder.c_str()) == 0 || errno != EBUSY; });
  if (!limited || report == "cannot join") GTEST_SKIP() << "no memory controller for a cgroup here";
  EXPECT_THAT(report, HasSubstr("the cgroup /fulldeck-test-"));
}

}  // namespace
}  // namespace fulldeck::collectives
