// Expected verdicts of the checks of the group "stack": one good and one bad case each; stack_checks_test.cc has more.
// The interpreter is a real one, its packages are small trees.
#include <gtest/gtest.h>

#include <filesystem>

#include "doctor/machine/fake_machine_for_test.h"

namespace fulldeck::doctor {
namespace {

// Not in the fake's tree, which may be mounted noexec.
const std::string kLibraries = std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/collectives";

void Package(FakeMachine& fake, const std::string& name, const std::string& version, const std::string& record = "") {
  fake.Write("/site/" + name + "-" + version + ".dist-info/METADATA", "Name: " + name + "\n");
  fake.Write("/site/" + name + "-" + version + ".dist-info/RECORD", record);
}

// A Python with a small torch, a vendor's module, MMEngine, and two cards of that vendor.
void Sound(FakeMachine& fake) {
  fake.machine.python = kSystemPython;
  fake.machine.environment.Set("PYTHONPATH", fake.tree.string() + "/site");
  fake.machine.environment.Set("PYTHONNOUSERSITE", "1");
  fake.machine.environment.Set("LD_LIBRARY_PATH", kLibraries);
  fake.Write("/site/torch/__init__.py", "from torch import version\n__version__ = version.__version__\n");
  fake.Write("/site/torch/version.py", "__version__ = '2.6.0'\ncuda = None\n");
  fake.Write("/site/torch/distributed/__init__.py",
             "def is_gloo_available(): return True\ndef is_nccl_available(): return False\ndef is_mpi_available(): "
             "return False\n");
  Package(fake, "torch", "2.6.0");
  fake.Write("/site/torch_gcu/__init__.py",
             "def is_available(): return True\ndef device_count(): return 2\n__version__ = '2.6.0'\n");
  Package(fake, "torch_gcu", "2.6.0");
  fake.Write("/site/mmengine/__init__.py", "one\n");
  fake.Write("/site/mmengine/version.py", "__version__ = '0.10.7'\n");
  fake.Write("/site/mmengine/runner/runner.py", "def wrap_model():\n    pass\n");
  Package(fake, "mmengine", "0.10.7",
          "mmengine/__init__.py,sha256=LIsI2lzmA5jh8Zrw5dzMdE3ydLgmq-WF6rpoxSVDSAY,4\nmmengine/version.py,,\n");
  fake.Write("/var/lib/dpkg/info/topsrider.list", "/.\n" + kLibraries + "/libeccl.so\n");
  for (int index = 0; index < 2; ++index) {
    device::Card& card = fake.AddCard(index);
    card.torch_module = "torch_gcu";
    card.torch_type = "gcu";
    card.torch_device = "gcu:" + std::to_string(index);
    card.driver = "1.2.0.301";
  }
  fake.Remove("/usr/lib/libefml.so");  // an empty file
  fake.machine.ranks = 2;
}

}  // namespace

std::vector<CheckCase> StackCases() {
  return {
      {"python-interpreter", "one", Verdict::kOk, "", "is Python 3.", Sound},
      {"python-interpreter", "none", Verdict::kFail, "C10", "There is no Python",
       [](FakeMachine& fake) { fake.machine.python.clear(); }},
      {"torch-import", "well", Verdict::kOk, "", "torch 2.6.0 was imported", Sound},
      {"torch-import", "does not import", Verdict::kFail, "D8", "ImportError: libtorch.so",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/site/torch/__init__.py", "raise ImportError('libtorch.so: cannot open shared object file')\n");
       }},
      {"vendor-module", "well", Verdict::kOk, "", "torch_gcu 2.6.0 imports and counts 2 cards", Sound},
      {"vendor-module", "not installed", Verdict::kFail, "D1", "torch does not know the 2 visible cards here",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Remove("/site/torch_gcu");
       }},
      {"driver-version", "one", Verdict::kOk, "", "driver 1.2.0.301", Sound},
      {"driver-version", "two", Verdict::kFail, "I6", "different drivers",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.machine.inventory.vendors.front().cards[1].driver = "1.1";
       }},
      {"version-pairs", "fit", Verdict::kOk, "", "fit together", Sound},
      {"version-pairs", "stock torch over the vendor's", Verdict::kFail, "D7",
       "torch-gcu 2.6.0 needs torch ==2.6.*, and 2.9.1 is here",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/site/torch/version.py", "__version__ = '2.9.1'\ncuda = None\n");
       }},
      {"collective-library", "owned", Verdict::kOk, "", "/libeccl.so: version 2.27.3, from topsrider", Sound},
      {"collective-library", "of 16 bytes", Verdict::kFail, "D9", "libeccl.so",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/lib/libeccl.so", "sixteen bytes ok");
         fake.machine.environment.Set("LD_LIBRARY_PATH", fake.tree.string() + "/lib");
       }},
      {"stub-libraries", "none", Verdict::kOk, "", "1 vendor library file looked at", Sound},
      {"stub-libraries", "of 16 bytes", Verdict::kFail, "D9", "/usr/lib/libeccl.so (16 B) is not a library at all",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/usr/lib/libeccl.so", "sixteen bytes ok");
       }},
      {"hand-made-modules", "none", Verdict::kOk, "", "None", Sound},
      {"hand-made-modules", "eccl.py", Verdict::kFail, "D9", "a module named eccl that somebody wrote",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/site/eccl.py", "");
       }},
      {"edited-packages", "none", Verdict::kOk, "", "as their wheels brought them", Sound},
      {"edited-packages", "one file", Verdict::kWarn, "D9", "1 file changed since the install: mmengine/__init__.py",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Write("/site/mmengine/__init__.py", "two\n");
       }},
      {"library-path", "well", Verdict::kOk, "", "Every folder", Sound},
      {"library-path", "a folder that is not there", Verdict::kWarn, "D5", "/opt/tops-not-here/lib",
       [](FakeMachine& fake) { fake.machine.environment.Set("LD_LIBRARY_PATH", "/opt/tops-not-here/lib"); }},
      {"visible-variables", "none", Verdict::kOk, "", "No visible-device list", Sound},
      {"visible-variables", "hidden and counted", Verdict::kFail, "B9", "LOCAL_RANK=5 asks for number 5",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.machine.environment.Set("TOPS_VISIBLE_DEVICES", "0,1");
         fake.machine.environment.Set("LOCAL_RANK", "5");
       }},
      {"mmengine-install", "well", Verdict::kOk, "", "MMEngine 0.10.7 in ", Sound},
      {"mmengine-install", "not whole", Verdict::kFail, "E3", "MMEngine 0.10.7",
       [](FakeMachine& fake) {
         Sound(fake);
         fake.Remove("/site/mmengine/runner");
       }},
  };
}

}  // namespace fulldeck::doctor
