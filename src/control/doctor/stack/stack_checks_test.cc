// The stack: every check with a fixture that makes it fail and one that makes it pass. The interpreter is a real one,
// its packages are small trees on PYTHONPATH.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "doctor/check.h"
#include "doctor/machine/fake_machine_for_test.h"
#include "doctor/stack/stack_answers.h"
#include "doctor/stack/stack_library_checks.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {
namespace {

using fulldeck::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const std::vector<Finding>& findings) {
  const char* const verdicts[] = {"ok: ", "warn: ", "fail: ", "cannot tell: "};
  std::string text;
  for (const Finding& finding : findings) {
    text += verdicts[static_cast<int>(finding.verdict)] + finding.evidence.english + " [" + finding.row + "]\n";
    EXPECT_FALSE(finding.evidence.chinese.empty());
    if (finding.verdict != Verdict::kOk) {
      EXPECT_FALSE(finding.fix.english.empty() || finding.fix.chinese.empty()) << text;
    }
  }
  return text;
}

std::string RunCheck(std::string_view id, const MachineUnderTest& machine) {
  for (const Check& check : StackChecks()) {
    if (check.id == id) return Text(check.run(machine));
  }
  ADD_FAILURE() << "there is no check " << id;
  return "";
}

// A machine whose Python finds the packages that the test writes.
class Stack : public ::testing::Test {
 protected:
  Stack() {
    machine_.python = kSystemPython;
    machine_.root = base::SystemRoot(folder_.string() + "/root");
    machine_.program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
    machine_.environment = {
        {"PYTHONPATH", site_}, {"PATH", "/usr/bin:/bin"}, {"HOME", folder_.string()}, {"PYTHONNOUSERSITE", "1"}};
    std::filesystem::create_directories(site_);
  }

  void Package(const std::string& name, const std::string& version, const std::string& record = "",
               const std::string& metadata = "") {
    const std::string folder = "site/" + name + "-" + version + ".dist-info/";
    folder_.Write(folder + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\n" + metadata + "\n");
    folder_.Write(folder + "RECORD", record);
  }

  void Torch(const std::string& version, const std::string& cuda = "None") {
    folder_.Write("site/torch/__init__.py", "from torch import version\n__version__ = version.__version__\n");
    folder_.Write("site/torch/version.py", "__version__ = '" + version + "'\ncuda = " +
                                               (cuda == "None" ? cuda : "'" + cuda + "'") + "\nhip = None\n");
    folder_.Write("site/torch/distributed/__init__.py",
                  "def is_gloo_available(): return True\ndef is_nccl_available(): return False\ndef "
                  "is_mpi_available(): return False\n");
    Package("torch", version);
  }

  device::Card& AddCard(const std::string& vendor, const std::string& module, const std::string& backend,
                        const std::string& type) {
    if (machine_.inventory.vendors.empty() || machine_.inventory.vendors.back().vendor != vendor) {
      device::VendorReport report;
      report.vendor = vendor;
      report.title = vendor;
      machine_.inventory.vendors.push_back(report);
    }
    auto& cards = machine_.inventory.vendors.back().cards;
    device::Card card;
    card.vendor = vendor;
    card.kind = type;
    card.index = static_cast<int>(cards.size());
    card.torch_module = module;
    card.torch_type = type;
    card.torch_device = type + ":" + std::to_string(card.index);
    card.collective_backend = backend;
    card.driver = "580.1";
    cards.push_back(card);
    return cards.back();
  }

  TemporaryFolder folder_;
  const std::string site_ = folder_.string() + "/site";
  MachineUnderTest machine_;
};

TEST_F(Stack, OfASoundEnvironmentIsNotComplainedAbout) {
  Torch("2.5.1");
  Package("torchvision", "0.20.1", "", "Requires-Dist: torch==2.5.1");
  folder_.Write("site/mmengine/__init__.py", "");
  folder_.Write("site/mmengine/version.py", "__version__ = '0.10.7'\n");
  folder_.Write("site/mmengine/runner/runner.py", "def wrap_model():\n    pass\n");
  for (const Check& check : StackChecks()) {
    for (const Finding& finding : check.run(machine_)) {
      EXPECT_TRUE(finding.verdict == Verdict::kOk || finding.verdict == Verdict::kCannotTell)
          << check.id << " " << finding.evidence.english;
    }
  }
  EXPECT_THAT(RunCheck("python-interpreter", machine_), HasSubstr("ok: " + machine_.python + " is Python 3."));
  EXPECT_THAT(RunCheck("torch-import", machine_), HasSubstr("ok: torch 2.5.1 was imported in "));
  EXPECT_THAT(RunCheck("version-pairs", machine_), HasSubstr("ok: 2 pairs of versions fit together"));
  EXPECT_THAT(RunCheck("hand-made-modules", machine_), HasSubstr("ok: None"));
  EXPECT_THAT(RunCheck("stub-libraries", machine_), HasSubstr("ok: No vendor's library"));
  EXPECT_THAT(RunCheck("mmengine-install", machine_),
              AllOf(HasSubstr("ok: MMEngine 0.10.7 in " + site_ + "/mmengine"), HasSubstr("can")));
  EXPECT_THAT(RunCheck("visible-variables", machine_), HasSubstr("ok: No visible-device list is set"));
}

TEST_F(Stack, OddFoldersOnThePathDoNotEndTheQuestions) {
  Torch("2.5.1");
  for (const char* const name : {"gyp.egg-info", "x.dist-info", "-.dist-info", "a-b-c-1.dist-info"}) {
    folder_.Write("site/" + std::string(name) + "/METADATA", "");
  }
  EXPECT_THAT(RunCheck("torch-import", machine_), HasSubstr("ok: torch 2.5.1"));
}

TEST_F(Stack, AnInterpreterThatIsNoneOrPython2IsRefused) {
  machine_.python = "";
  EXPECT_THAT(RunCheck("python-interpreter", machine_), HasSubstr("fail: There is no Python"));
  folder_.Write(
      "two",
      "#!/bin/sh\nprintf '{\"about\": \"python\", \"version\": \"2.7.18\", \"major\": 2, \"minor\": 7}\\n' >&3\n");
  folder_.Write("broken", "#!/bin/sh\necho 'libpython3.8.so.1.0: cannot open shared object file' >&2\nexit 127\n");
  for (const char* const name : {"/two", "/broken"}) chmod((folder_.string() + name).c_str(), 0755);
  machine_.python = folder_.string() + "/two";
  EXPECT_THAT(RunCheck("python-interpreter", machine_), HasSubstr("is Python 2.7.18. [C10]"));
  EXPECT_THAT(RunCheck("torch-import", machine_),
              HasSubstr("cannot tell: The interpreter could not be asked: it is Python 2.7.18"));
  machine_.python = folder_.string() + "/broken";
  EXPECT_THAT(RunCheck("python-interpreter", machine_),
              HasSubstr("does not work: it ended with code 127: libpython3.8.so.1.0: cannot open shared object file"));
}

TEST_F(Stack, ACommandPythonThatIsPython2IsNamed) {
  // Valid JSON that Python's own writer would space in another way.
  folder_.Write("bin/python",
                "#!/bin/sh\nprintf '{\"about\":\"python\",\"version\":\"2.7.18\",\"major\":2,\"minor\":7}\\n' >&3\n");
  chmod((folder_.string() + "/bin/python").c_str(), 0755);
  machine_.root = base::SystemRoot();
  machine_.environment.Set("PATH", folder_.string() + "/bin:/usr/bin:/bin");
  EXPECT_THAT(RunCheck("python-interpreter", machine_),
              HasSubstr("The command python is " + folder_.string() + "/bin/python, which is Python 2.7.18."));
}

TEST_F(Stack, TorchThatIsAbsentBrokenOverwrittenOrOfTheWrongKindIsNamed) {
  EXPECT_THAT(RunCheck("torch-import", machine_), HasSubstr("cannot tell: This Python has no torch"));
  folder_.Write("site/torch/__init__.py", "raise ImportError('libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent')\n");
  machine_.environment.Set("TURN", "1");
  EXPECT_THAT(RunCheck("torch-import", machine_),
              HasSubstr("fail: torch does not import: ImportError: libtorch_cpu.so: undefined symbol"));
  Torch("2.1.0");
  folder_.Write("site/torch/version.py", "__version__ = '2.9.1+cpu'\ncuda = None\n");
  AddCard("nvidia", "", "nccl", "cuda");
  machine_.environment.Set("TURN", "2");
  EXPECT_THAT(RunCheck("torch-import", machine_),
              AllOf(HasSubstr("fail: pip noted torch 2.1.0, and the files are torch 2.9.1+cpu"),
                    HasSubstr("fail: torch 2.9.1+cpu is a build without CUDA, and this machine has NVIDIA cards")));
}

TEST_F(Stack, ATorchWhoseNameLeavesTheLabelOfTheBuildOutIsWhole) {
  Torch("2.9.1");
  folder_.Write("site/torch/version.py", "__version__ = '2.9.1+cpu'\ncuda = None\n");
  EXPECT_THAT(RunCheck("torch-import", machine_), ::testing::Not(HasSubstr("pip noted")));
}

TEST_F(Stack, ATorchThatHangsOrCrashesWhileItIsImportedDoesNotTakeTheAnswersWithIt) {
  machine_.timeout = std::chrono::seconds(3);
  folder_.Write("site/torch/__init__.py", "import time\ntime.sleep(60)\n");
  EXPECT_THAT(
      RunCheck("torch-import", machine_),
      HasSubstr(
          "cannot tell: torch could not be imported: importing torch: the interpreter did not answer within 3 s"));
  EXPECT_THAT(RunCheck("python-interpreter", machine_), HasSubstr("ok: "));
  folder_.Write("site/torch/__init__.py", "import os\nos.abort()\n");
  machine_.environment.Set("TURN", "1");
  machine_.timeout = std::chrono::seconds(20);
  EXPECT_THAT(RunCheck("torch-import", machine_), HasSubstr("importing torch: the interpreter was killed by signal 6"));
}

TEST_F(Stack, TheVendorsModuleIsImportedAndItsCardsAreCounted) {
  Torch("2.6.0");
  AddCard("enflame", "torch_gcu", "eccl", "gcu");
  AddCard("enflame", "torch_gcu", "eccl", "gcu");
  EXPECT_THAT(RunCheck("vendor-module", machine_),
              HasSubstr("fail: torch_gcu is not installed: torch does not know the 2 visible cards here"));
  const std::pair<const char*, const char*> rows[] = {
      {"def is_available(): return True\ndef device_count(): return 2\n__version__ = '2.6.0'\n",
       "ok: torch_gcu 2.6.0 imports and counts 2 cards"},
      {"def is_available(): return True\ndef device_count(): return 8\n",
       "warn: torch_gcu counts 8 cards, the inventory 2 visible. [B9]"},
      {"def is_available(): return False\ndef device_count(): return 0\n",
       "imports and says that no card is available. [B7]"},
      {"raise ImportError('libtorch.so: undefined symbol: _ZN2at')\n",
       "fail: torch_gcu is installed and does not import: ImportError: libtorch.so: undefined symbol"},
      {"import os\nos.abort()\n",
       "fail: torch_gcu could not be imported: importing torch_gcu: the interpreter was killed by signal 6"},
  };
  int turn = 0;
  for (const auto& [source, expected_text] : rows) {
    folder_.Write("site/torch_gcu/__init__.py", source);
    machine_.environment.Set("TURN", std::to_string(++turn));
    EXPECT_THAT(RunCheck("vendor-module", machine_), HasSubstr(expected_text));
  }
}

TEST_F(Stack, DriversThatDifferAreNamed) {
  AddCard("nvidia", "", "nccl", "cuda");
  AddCard("nvidia", "", "nccl", "cuda");
  EXPECT_THAT(RunCheck("driver-version", machine_), HasSubstr("ok: nvidia: driver 580.1"));
  machine_.inventory.vendors[0].cards[1].driver = "570.2";
  EXPECT_THAT(RunCheck("driver-version", machine_), HasSubstr("fail: nvidia: the cards name different drivers"));
  machine_.inventory.vendors[0].cards[1].driver.reset();
  EXPECT_THAT(RunCheck("driver-version", machine_), HasSubstr("cannot tell: nvidia"));
}

TEST_F(Stack, VersionsThatDoNotFitAreNamedWithTheirRow) {
  Torch("2.9.0", "13.0");
  Package("torchvision", "0.20.1", "", "Requires-Dist: torch==2.5.1");
  Package("mmsegmentation", "1.2.2");
  Package("mmcv", "2.2.0");
  Package("torch_gcu", "2.6.0");
  AddCard("nvidia", "", "nccl", "cuda").driver = "550.54.14";
  AddCard("enflame", "torch_gcu", "eccl", "xla");
  const std::string text = RunCheck("version-pairs", machine_);
  EXPECT_THAT(text, HasSubstr("fail: mmsegmentation 1.2.2 needs mmcv >=2.0.0rc4,<2.2.0, and 2.2.0 is here. [E1]"));
  EXPECT_THAT(text, HasSubstr("fail: torch 2.9.0 needs torchvision ==0.24.*, and 0.20.1 is here. [I18]"));
  EXPECT_THAT(text, HasSubstr("fail: torch-cuda 13.0 needs nvidia-driver >=580.65.06, and 550.54.14 is here. [I6]"));
  EXPECT_THAT(text, HasSubstr("fail: torch-gcu 2.6.0 needs torch ==2.6.*, and 2.9.0 is here. [D7]"));
  EXPECT_THAT(text, HasSubstr("fail: this generation of Enflame cards needs torch-gcu <2, and 2.6.0 is here. [D7]"));
  EXPECT_THAT(text, Not(HasSubstr("fail: torchvision"))) << "two packages are named once";
}

TEST_F(Stack, TheCollectiveLibraryThatIsReallyLoadedIsNamedWithItsOwner) {
  EXPECT_EQ(RunCheck("collective-library", machine_), "");
  Torch("2.6.0");
  AddCard("enflame", "torch_gcu", "eccl", "gcu");
  EXPECT_THAT(RunCheck("collective-library", machine_), HasSubstr("fail: libeccl.so is not found by the loader"));
  // Any valid library works: it is loaded, but has no version function.
  folder_.Write("lib/none", "");
  std::filesystem::copy_file(std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/good/libefml.so",
                             folder_.path() / "lib/libeccl.so");
  machine_.environment.Set("LD_LIBRARY_PATH", folder_.string() + "/lib");
  EXPECT_THAT(RunCheck("collective-library", machine_),
              HasSubstr("ok: " + folder_.string() + "/lib/libeccl.so: version unknown, owner not known"));
  folder_.Write("root/var/lib/dpkg/info/base.list", "/.\n/usr/lib/libother.so\n");
  EXPECT_THAT(RunCheck("collective-library", machine_), HasSubstr("is what ranks load, and no package owns it. [D9]"));
  folder_.Write("root/var/lib/dpkg/info/topsrider.list", "/.\n" + folder_.string() + "/lib/libeccl.so\n/x\n");
  EXPECT_THAT(RunCheck("collective-library", machine_), HasSubstr("from topsrider"));
  std::filesystem::remove(folder_.path() / "lib/libeccl.so");
  folder_.Write("lib/libeccl.so", "sixteen bytes ok");
  machine_.environment.Set("TURN", "stub");
  EXPECT_THAT(RunCheck("collective-library", machine_), HasSubstr("[D9]"));
}

TEST_F(Stack, StubsOfLibrariesAreFoundByTheirContent) {
  folder_.Write("root/usr/lib/libeccl.so", "sixteen bytes ok");
  folder_.Write("root/usr/lib/libefml.so.1", "");
  folder_.Write("root/usr/lib/libother.so", "not a vendor's");
  folder_.Write("root/usr/lib64/libnccl.so", "/* GNU ld script */ INPUT(libnccl.so.2)\n");
  const std::string text = RunCheck("stub-libraries", machine_);
  EXPECT_THAT(text, HasSubstr("/usr/lib/libeccl.so (16 B) is not a library at all. [D9]"));
  EXPECT_THAT(text, HasSubstr("/usr/lib/libefml.so.1 (0 B) is empty. [D9]"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("libother")), Not(HasSubstr("libnccl"))));
}

TEST_F(Stack, ALibraryThatWasCutShortIsNoLibrary) {
  const std::string whole = std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/good/libefml.so";
  EXPECT_EQ(ClassifyLibrary(whole), LibraryFile::kSound);
  const std::string cut = folder_.string() + "/libcut.so";
  std::filesystem::copy_file(whole, cut);
  for (const std::uintmax_t length : {std::filesystem::file_size(whole) / 2, std::uintmax_t{100}, std::uintmax_t{10}}) {
    std::filesystem::resize_file(cut, length);
    EXPECT_EQ(ClassifyLibrary(cut), LibraryFile::kCutShort) << length;
  }
  EXPECT_EQ(ClassifyLibrary(folder_.string()), LibraryFile::kNotElf);
  EXPECT_EQ(ClassifyLibrary(folder_.string() + "/nowhere"), LibraryFile::kAbsent);
}

TEST_F(Stack, ModulesThatSomebodyWroteByHandAreFound) {
  folder_.Write("site/eccl.py", "def init(): pass\n");
  folder_.Write("site/torch_gcu/__init__.py", "def is_available(): return True\n");
  const std::string text = RunCheck("hand-made-modules", machine_);
  EXPECT_THAT(text, HasSubstr("fail: " + site_ + "/eccl.py is a module named eccl that somebody wrote"));
  EXPECT_THAT(text, HasSubstr("fail: " + site_ +
                              "/torch_gcu/__init__.py was not installed by pip and has no library of its own"));
  Package("torch_gcu", "2.6.0");
  machine_.environment.Set("TURN", "1");
  EXPECT_THAT(RunCheck("hand-made-modules", machine_), Not(HasSubstr("torch_gcu")));
}

TEST_F(Stack, EditedPackagesAreComparedWithTheirWheels) {
  // Checksums of "one\n" and "two\n".
  const std::string record =
      "mmengine/a.py,sha256=LIsI2lzmA5jh8Zrw5dzMdE3ydLgmq-WF6rpoxSVDSAY,4\n"
      "mmengine/b.py,sha256=J92O1EqD_5TVV_n9BBLtWoy8pp6gSSLYjAEYSgcwClo,4\nmmengine/c.py,,\n"
      "../../bin/x,sha256=0000,9\nmmengine-0.10.7.dist-info/RECORD,,\n";
  folder_.Write("site/mmengine/a.py", "one\n");
  folder_.Write("site/mmengine/b.py", "two\n");
  folder_.Write("site/mmengine/c.py", "anything");
  Package("mmengine", "0.10.7", record);
  EXPECT_THAT(RunCheck("edited-packages", machine_),
              HasSubstr("ok: mmengine: 2 files (8 B) as their wheels brought them"));
  folder_.Write("site/mmengine/a.py", "One\n");
  folder_.Write("site/mmengine/eccl_fix.py", "");
  std::filesystem::remove(folder_.path() / "site/mmengine/b.py");
  machine_.environment.Set("TURN", "1");
  EXPECT_THAT(RunCheck("edited-packages", machine_),
              AllOf(HasSubstr("warn: mmengine-0.10.7.dist-info: 1 file changed since the install: mmengine/a.py. [D9]"),
                    HasSubstr("warn: mmengine-0.10.7.dist-info: 1 file missing: mmengine/b.py. [D7]"),
                    HasSubstr("1 file that no package brought: mmengine/eccl_fix.py. [D9]")));
  std::filesystem::remove(folder_.path() / "site/mmengine/eccl_fix.py");
  folder_.Write("site/mmengine/b.py", "two\n");
  folder_.Write("site/mmengine/a.py.fulldeck-original", "one\n");
  machine_.environment.Set("TURN", "2");
  EXPECT_THAT(
      RunCheck("edited-packages", machine_),
      AllOf(HasSubstr("ok: Changed by fulldeck patch, the original beside it: mmengine/a.py"), Not(HasSubstr("warn"))));
}

TEST_F(Stack, FoldersOfTheLoaderThatAreNotThereAreNamed) {
  EXPECT_THAT(RunCheck("library-path", machine_), HasSubstr("ok: LD_LIBRARY_PATH is not set"));
  folder_.Write("stubs/x", "");
  machine_.environment.Set("LD_LIBRARY_PATH", "/opt/tops-not-here/lib:" + site_);
  EXPECT_THAT(RunCheck("library-path", machine_),
              HasSubstr("warn: LD_LIBRARY_PATH names what is not there: /opt/tops-not-here/lib. [D5]"));
  machine_.environment.Set("LD_LIBRARY_PATH", folder_.string() + "/stubs");
  EXPECT_THAT(RunCheck("library-path", machine_), HasSubstr("has libraries for linking only"));
  machine_.environment.Set("LD_LIBRARY_PATH", site_);
  EXPECT_THAT(RunCheck("library-path", machine_), HasSubstr("ok: Every folder"));
}

TEST_F(Stack, VisibleDeviceVariablesAreExplainedAndContradictionsRefused) {
  AddCard("enflame", "torch_gcu", "eccl", "gcu").visible = false;
  AddCard("enflame", "torch_gcu", "eccl", "gcu").torch_device = "gcu:0";
  machine_.environment.Set("TOPS_VISIBLE_DEVICES", "1");
  EXPECT_THAT(RunCheck("visible-variables", machine_), HasSubstr("ok: TOPS_VISIBLE_DEVICES=1: gcu:0 is card 1."));
  machine_.environment.Set("LOCAL_RANK", "1");
  EXPECT_THAT(RunCheck("visible-variables", machine_),
              HasSubstr("fail: TOPS_VISIBLE_DEVICES=1 leaves 1 card, and LOCAL_RANK=1 asks for number 1"));
  machine_.environment.Remove("TOPS_VISIBLE_DEVICES");
  machine_.environment.Set("CUDA_VISIBLE_DEVICES", "0");
  EXPECT_THAT(RunCheck("visible-variables", machine_),
              HasSubstr("warn: CUDA_VISIBLE_DEVICES=0 is set, and no card here reads it. [B9]"));
  machine_.inventory.vendors.clear();
  AddCard("amd", "", "nccl", "cuda");
  machine_.environment.Set("HIP_VISIBLE_DEVICES", "0");
  machine_.environment.Set("ROCR_VISIBLE_DEVICES", "3");
  EXPECT_THAT(RunCheck("visible-variables", machine_),
              HasSubstr("fail: HIP_VISIBLE_DEVICES=0 and ROCR_VISIBLE_DEVICES=3: both count"));
}

TEST_F(Stack, AnInstallOfMmengineThatIsNotWholeOrWasChangedIsNamed) {
  EXPECT_EQ(RunCheck("mmengine-install", machine_), "");
  folder_.Write("site/mmengine/__init__.py", "");
  machine_.environment.Set("TURN", "1");
  EXPECT_THAT(RunCheck("mmengine-install", machine_),
              HasSubstr("fail: MMEngine of unknown version in " + site_ + "/mmengine: "));
  folder_.Write("site/mmengine/runner/runner.py", "changed\n");
  folder_.Write("site/mmengine/runner/runner.py.fulldeck-original", "def wrap_model(): pass\n");
  folder_.Write("site/mmengine/runner/runner.py.fulldeck-patch", "not the note of this file\n");
  EXPECT_THAT(RunCheck("mmengine-install", machine_), AllOf(Not(HasSubstr("ok: ")), HasSubstr("MMEngine")));
}

}  // namespace
}  // namespace fulldeck::doctor
