#include "job/launch/agent_choice.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cstring>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace fulldeck::job {
namespace {

using ::testing::HasSubstr;

#if defined(__aarch64__)
constexpr int kHere = EM_AARCH64;
constexpr int kElsewhere = EM_X86_64;
#else
constexpr int kHere = EM_X86_64;
constexpr int kElsewhere = EM_AARCH64;
#endif

// A small program file as a linker would create it: headers, loader, names, dynamic section.
struct Program {
  int machine = kHere;
  std::string loader = "/lib64/ld-linux-x86-64.so.2";  // empty: none
  std::vector<std::string> needed = {"libc.so.6"};
  std::string exported = "main";

  std::string Bytes() const {
    std::string names(1, '\0');
    std::vector<Elf64_Dyn> dynamic;
    for (const std::string& library : needed) {
      dynamic.push_back({DT_NEEDED, {names.size()}});
      names += library + '\0';
    }
    names += exported + '\0';
    constexpr std::uint64_t kBase = 0x400000;
    const std::uint64_t loader_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
    const std::uint64_t names_at = loader_at + loader.size() + 1;
    const std::uint64_t dynamic_at = names_at + names.size();
    dynamic.push_back({DT_STRTAB, {kBase + names_at}});
    dynamic.push_back({DT_STRSZ, {names.size()}});
    dynamic.push_back({DT_NULL, {0}});
    const std::uint64_t end = dynamic_at + dynamic.size() * sizeof(Elf64_Dyn);

    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_EXEC;
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 3;
    Elf64_Phdr segments[3] = {};
    segments[0].p_type = PT_LOAD;
    segments[0].p_vaddr = kBase;
    segments[0].p_filesz = end;
    segments[1].p_type = loader.empty() ? PT_NOTE : PT_INTERP;
    segments[1].p_offset = loader_at;
    segments[1].p_filesz = loader.size() + 1;
    segments[2].p_type = PT_DYNAMIC;
    segments[2].p_offset = dynamic_at;
    segments[2].p_filesz = dynamic.size() * sizeof(Elf64_Dyn);

    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(segments), sizeof segments);
    bytes += loader + '\0' + names;
    bytes.append(reinterpret_cast<const char*>(dynamic.data()), dynamic.size() * sizeof(Elf64_Dyn));
    return bytes;
  }
};

class AgentChoice : public ::testing::Test {
 protected:
  std::string Put(const std::string& path, const std::string& bytes, mode_t mode = 0755) {
    folder_.Write(path, bytes);
    EXPECT_EQ(chmod((folder_.path() / path).c_str(), mode), 0);
    return "/" + path;
  }
  AgentVerdict Judge(const std::string& path) { return MayPreload(path, base::SystemRoot(folder_.string())); }
  AgentVerdict JudgeProgram(const Program& program) { return Judge(Put("program", program.Bytes())); }

  fulldeck::testing::TemporaryFolder folder_;
};

TEST_F(AgentChoice, TakesAnOrdinaryProgram) {
  const AgentVerdict verdict = JudgeProgram({});
  EXPECT_TRUE(verdict.may_preload) << verdict.reason;
  EXPECT_EQ(verdict.reason, "");
}

TEST_F(AgentChoice, TakesTheShellOfThisMachine) {
  const AgentVerdict verdict = MayPreload("/bin/sh");
  EXPECT_TRUE(verdict.may_preload) << verdict.reason;
}

TEST_F(AgentChoice, RefusesThisProgramExactlyWhenItIsBuiltWithASanitizer) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_THAT(MayPreload("/proc/self/exe").reason, HasSubstr("sanitizer"));
#else
  const AgentVerdict verdict = MayPreload("/proc/self/exe");
  EXPECT_TRUE(verdict.may_preload) << verdict.reason;
#endif
}

TEST_F(AgentChoice, RefusesAStaticProgram) {
  EXPECT_EQ(JudgeProgram({.loader = ""}).reason, "/program is linked statically");
}

TEST_F(AgentChoice, RefusesAnotherMachine) {
  EXPECT_EQ(JudgeProgram({.machine = kElsewhere}).reason, "/program is built for another machine than this");
}

TEST_F(AgentChoice, RefusesA32BitProgram) {
  std::string bytes = Program().Bytes();
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(Judge(Put("old", bytes)).reason, "/old is not a 64-bit program");
}

TEST_F(AgentChoice, RefusesAProgramOfAnotherCLibrary) {
  EXPECT_THAT(JudgeProgram({.loader = "/lib/ld-musl-x86_64.so.1"}).reason, HasSubstr("ld-musl-x86_64.so.1"));
}

TEST_F(AgentChoice, TakesTheGnuLoaderWhereverItLies) {
  EXPECT_TRUE(JudgeProgram({.loader = "/nix/store/abc-glibc/lib/ld-linux-x86-64.so.2"}).may_preload);
}

TEST_F(AgentChoice, RefusesProgramsWithASanitizer) {
  EXPECT_THAT(JudgeProgram({.needed = {"libm.so.6", "libasan.so.8"}}).reason, HasSubstr("libasan.so.8"));
  EXPECT_FALSE(JudgeProgram({.needed = {"libclang_rt.asan-x86_64.so"}}).may_preload);
  EXPECT_FALSE(JudgeProgram({.needed = {"libtsan.so.2"}}).may_preload);
  EXPECT_THAT(JudgeProgram({.exported = "__asan_init"}).reason, HasSubstr("__asan_init"));
}

TEST_F(AgentChoice, DoesNotTakeALongerNameForASanitizer) {
  EXPECT_TRUE(JudgeProgram({.exported = "__asan_init_not"}).may_preload);
  EXPECT_TRUE(JudgeProgram({.needed = {"libasanas.so.1"}}).may_preload);
}

TEST_F(AgentChoice, RefusesSetuidAndSetgid) {
  EXPECT_THAT(Judge(Put("su", Program().Bytes(), 04755)).reason, HasSubstr("setuid"));
  EXPECT_THAT(Judge(Put("wall", Program().Bytes(), 02755)).reason, HasSubstr("setuid"));
}

TEST_F(AgentChoice, RefusesFileCapabilities) {
  Put("ping", Program().Bytes());
  // Version 2, cap_net_raw permitted and effective.
  const unsigned char capability[20] = {1, 0, 0, 2, 0, 0x20};
  if (setxattr((folder_.path() / "ping").c_str(), "security.capability", capability, sizeof capability, 0) != 0) {
    GTEST_SKIP() << "this user or file system cannot give a file capabilities";
  }
  EXPECT_THAT(Judge("/ping").reason, HasSubstr("capabilities"));
}

TEST_F(AgentChoice, JudgesAScriptByItsInterpreter) {
  Put("bin/static", Program{.loader = ""}.Bytes());
  Put("bin/good", Program().Bytes());
  EXPECT_TRUE(Judge(Put("train", "#! /bin/good -u\nprint()\n")).may_preload);
  EXPECT_EQ(Judge(Put("other", "#!/bin/static\n")).reason, "/bin/static is linked statically");
  EXPECT_THAT(Judge(Put("lost", "#!/bin/nowhere\n")).reason, HasSubstr("/bin/nowhere cannot be read"));
}

TEST_F(AgentChoice, JudgesAScriptOfEnvByWhatEnvFinds) {
  Put("usr/bin/env", Program().Bytes());
  Put("usr/bin/python9", Program{.needed = {"libasan.so.8"}}.Bytes());
  Put("usr/bin/good", Program().Bytes());
  EXPECT_THAT(Judge(Put("a", "#!/usr/bin/env python9\n")).reason, HasSubstr("python9 is built with a sanitizer"));
  EXPECT_THAT(Judge(Put("b", "#!/usr/bin/env -S A=1 python9 -u\n")).reason, HasSubstr("sanitizer"));
  EXPECT_THAT(Judge(Put("c", "#!/usr/bin/env /usr/bin/python9\n")).reason, HasSubstr("sanitizer"));
  EXPECT_TRUE(Judge(Put("d", "#!/usr/bin/env good\n")).may_preload);
  EXPECT_TRUE(Judge(Put("e", "#!/usr/bin/env not-there\n")).may_preload);
}

TEST_F(AgentChoice, RefusesScriptsThatLeadNowhere) {
  EXPECT_FALSE(Judge(Put("loop", "#!/loop\n")).may_preload);
  EXPECT_FALSE(Judge(Put("relative", "#!python\n")).may_preload);
  EXPECT_FALSE(Judge(Put("empty_line", "#!\n")).may_preload);
  EXPECT_FALSE(Judge(Put("endless", "#!" + std::string(100000, ' '))).may_preload);
}

TEST_F(AgentChoice, RefusesWhatIsNoProgram) {
  EXPECT_THAT(Judge(Put("text", "echo hello\n")).reason, HasSubstr("neither a program nor a script"));
  EXPECT_FALSE(Judge(Put("nothing", "")).may_preload);
  EXPECT_THAT(Judge("/absent").reason, HasSubstr("/absent cannot be read: No such file"));
  Put("folder/file", "");
  EXPECT_EQ(Judge("/folder").reason, "/folder is not a file");
}

TEST_F(AgentChoice, ShowsNoControlCharactersOfAName) {
  EXPECT_THAT(Judge("/a\033[2Jb").reason, ::testing::Not(HasSubstr("\033")));
}

TEST_F(AgentChoice, RefusesEveryTruncationOfAProgram) {
  const std::string whole = Program().Bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const AgentVerdict verdict = Judge(Put("cut", whole.substr(0, length)));
    EXPECT_FALSE(verdict.may_preload) << "cut after " << length;
    EXPECT_NE(verdict.reason, "") << "cut after " << length;
  }
}

TEST_F(AgentChoice, SurvivesEveryWrongByteOfTheHeaders) {
  const std::string whole = Program().Bytes();
  const std::size_t headers = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
  for (std::size_t at = 0; at < headers; ++at) {
    for (const char wrong : {'\0', '\x7f', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = wrong;
      const AgentVerdict verdict = Judge(Put("wrong", bytes));
      EXPECT_EQ(verdict.may_preload, verdict.reason.empty()) << "byte " << at;
    }
  }
}

}  // namespace
}  // namespace fulldeck::job
