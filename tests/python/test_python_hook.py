"""The hook on Python's path, with and without the preloaded library, in the Pythons of this machine."""
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from launching import TOP
from launcher.test_rank_agent import AGENT, TIMEOUT, Ranks

HOOK = os.path.join(TOP, "python", "fulldeck_hook")

# The system's own Python has a sitecustomize of the distribution; the other one usually has none.
PYTHONS = [path for path in (sys.executable, "/usr/bin/python3") if os.access(path, os.X_OK)]
SEGFAULT = "import ctypes\ndef deep_inside():\n    ctypes.string_at(0)\ndeep_inside()\n"
SHOW = "import os, sys; print(repr((os.environ.get('PYTHONPATH'), [p for p in sys.path if 'fulldeck_hook' in p])))"


class Hooked(Ranks):
    """Ranks with the hook, as the launcher sets them up. `path`: the user's own PYTHONPATH; `hook`: a different folder
    of the hook."""

    def python(self, *arguments, python=sys.executable, path=None, hook=HOOK, environment=None, **options):
        variables = {"PYTHONPATH": hook + os.pathsep + path if path else hook, "PYTHONDONTWRITEBYTECODE": "1"}
        variables.update(environment or {})
        return self.run(python, *arguments, environment=variables, **options)


@pytest.fixture
def ranks(tmp_path):
    return Hooked(tmp_path)


def plain(*arguments, python=sys.executable, path=None, cwd=None):
    """The same without the hook."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("FULLDECK_", "PYTHON", "LD_PRELOAD"))}
    variables["PYTHONDONTWRITEBYTECODE"] = "1"
    if path:
        variables["PYTHONPATH"] = path
    return subprocess.run([python] + list(arguments), env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=TIMEOUT, cwd=cwd)


# ---- crashes ----


@pytest.mark.parametrize("python", PYTHONS)
def test_a_segfault_leaves_the_native_stack_and_then_pythons(ranks, python):
    ended = ranks.python("-c", SEGFAULT, python=python)
    assert ended.code == -signal.SIGSEGV
    assert ended.err == ""
    native, _, pythons = ended.crash.partition("end of report\n")
    assert native.startswith("fulldeck crash report 1\nsignal: SIGSEGV")
    assert "ffi_call" in native and "_PyEval_EvalFrameDefault" in native
    assert pythons.startswith("Fatal Python error: Segmentation fault")
    assert " in deep_inside\n" in pythons
    assert "then:" not in ended.crash


def test_pythons_stacks_are_those_of_all_threads(ranks):
    script = ("import ctypes, threading\n"
              "ready, never = threading.Event(), threading.Event()\n"
              "def waits_here():\n    ready.set()\n    never.wait()\n"
              "threading.Thread(target=waits_here, daemon=True).start()\n"
              "ready.wait()\n"
              "thread = threading.Thread(target=ctypes.string_at, args=(0,))\n"
              "thread.start()\n"
              "thread.join()\n")
    ended = ranks.python("-c", script)
    assert ended.code == -signal.SIGSEGV
    assert " in string_at\n" in ended.crash and " in waits_here\n" in ended.crash


@pytest.mark.parametrize("what,code", [
    ("import os; os.abort()", -signal.SIGABRT),
    ("import os, signal; os.kill(os.getpid(), signal.SIGFPE)", -signal.SIGFPE),
    ("import sys; sys.setrecursionlimit(10**7)\nclass A:\n  def __repr__(self): return repr(self)\nrepr(A())", None),
])
def test_other_ends_have_both_stacks_too(ranks, what, code):
    ended = ranks.python("-c", what)
    if code is None and ended.code == 1:
        pytest.skip("this Python stops endless recursion itself")
    assert ended.code == (code or -signal.SIGSEGV)
    assert ended.crash.index("end of report") < ended.crash.index("Fatal Python error")


@pytest.mark.parametrize("python", PYTHONS)
def test_a_faulthandler_of_the_users_stays_where_it_is(ranks, python):
    for arguments, environment in ((["-X", "faulthandler"], {}), ([], {"PYTHONFAULTHANDLER": "1"})):
        ended = ranks.python(*arguments, "-c", SEGFAULT, python=python, environment=environment)
        assert ended.code == -signal.SIGSEGV
        assert "Fatal Python error: Segmentation fault" in ended.err and "deep_inside" in ended.err
        assert ended.crash.startswith("fulldeck crash report 1") and "Fatal Python" not in ended.crash


@pytest.mark.parametrize("calls", ["enable()", "enable(); faulthandler.enable()", "disable(); faulthandler.enable()"])
def test_a_script_that_enables_faulthandler_gets_it_on_stderr(ranks, calls):
    ended = ranks.python("-c", "import faulthandler; faulthandler." + calls + "\n" + SEGFAULT)
    assert ended.code == -signal.SIGSEGV
    assert "deep_inside" in ended.err
    assert ended.crash.count("fulldeck crash report") == 1


def test_a_script_that_disables_faulthandler_keeps_the_native_stack(ranks):
    ended = ranks.python("-c", "import faulthandler; faulthandler.disable()\n" + SEGFAULT)
    assert ended.code == -signal.SIGSEGV
    assert ended.crash.endswith("end of report\n")


def test_a_signal_handler_in_python_runs(ranks):
    script = ("import os, signal\n"
              "signal.signal(signal.SIGFPE, lambda number, frame: print('mine', int(number)))\n"
              "os.kill(os.getpid(), signal.SIGFPE)\n"
              "signal.signal(signal.SIGFPE, signal.SIG_DFL)\n"
              "print('on')\n")
    ended = ranks.python("-c", script)
    assert (ended.code, ended.out, ended.err) == (0, "mine 8\non\n", "")
    assert "then: the program's own handler returned" in ended.crash


def test_a_forked_worker_that_crashes_reports_as_itself(ranks):
    script = ("import ctypes, multiprocessing, os\n"
              "worker = multiprocessing.get_context('fork').Process(target=ctypes.string_at, args=(0,))\n"
              "worker.start(); worker.join()\n"
              "print(os.getpid(), worker.pid, worker.exitcode)\n")
    ended = ranks.python("-c", script)
    rank, worker, code = ended.out.split()
    assert (ended.code, code) == (0, "-11")
    assert "process: {} (forked from the rank, process {})".format(worker, rank) in ended.crash
    assert "in string_at" in ended.crash


def test_an_exception_is_pythons_own_affair(ranks):
    ended = ranks.python("-c", "raise ValueError('mine')")
    without = plain("-c", "raise ValueError('mine')")
    assert (ended.code, ended.err, ended.crash) == (1, without.stderr, "")


def test_the_hook_works_without_the_library(ranks):
    ended = ranks.python("-c", SEGFAULT, environment={"AGENT_PRELOAD": ""})
    assert ended.code == -signal.SIGSEGV
    assert ended.crash.startswith("Fatal Python error: Segmentation fault")


# ---- the path ----


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("path", [None, "/their/own", "/their/own:/second", "relative::/x"])
def test_the_users_path_is_as_it_was(ranks, python, path):
    ended = ranks.python("-c", SHOW, python=python, path=path)
    assert ended.err == ""
    assert ended.out == repr((path, [])) + "\n"


@pytest.mark.parametrize("python", PYTHONS)
def test_sys_path_is_as_without_us(ranks, python, tmp_path):
    (tmp_path / "own").mkdir()
    show = "import sys; print(sys.path)"
    own = str(tmp_path / "own")
    assert ranks.python("-c", show, python=python, path=own).out == plain("-c", show, python=python, path=own).stdout
    (tmp_path / "train.py").write_text(show)
    assert (ranks.python("-m", "train", python=python).out
            == plain("-m", "train", python=python, cwd=str(tmp_path)).stdout)


@pytest.mark.parametrize("flag", ["-S", "-I", "-E", "-s"])
def test_flags_that_leave_the_path_or_site_out_work(ranks, flag):
    ended = ranks.python(flag, "-c", "print('runs')")
    assert (ended.code, ended.out, ended.err) == (0, "runs\n", "")


def test_children_of_a_rank_have_neither_path_nor_preload(ranks):
    script = ("import os, subprocess, sys\n"
              "subprocess.call(['env'])\n"
              "subprocess.call([sys.executable, '-c', 'import faulthandler; print(faulthandler.is_enabled())'])\n")
    ended = ranks.python("-c", script)
    assert not re.search(r"^(PYTHONPATH|LD_PRELOAD|FULLDECK_AGENT)=", ended.out, re.M)
    assert ended.out.endswith("False\n")


def test_a_worker_that_is_spawned_runs_without_us(ranks, tmp_path):
    (tmp_path / "train.py").write_text(
        "import multiprocessing, os, sys\n"
        "def work(pipe):\n"
        "    import faulthandler\n"
        "    pipe.send((os.environ.get('PYTHONPATH'), faulthandler.is_enabled(), [p for p in sys.path if 'hook' in p]))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    ours, its = context.Pipe()\n"
        "    worker = context.Process(target=work, args=(its,))\n"
        "    worker.start(); print(ours.recv()); worker.join()\n")
    assert ranks.python("train.py").out == "(None, False, [])\n"


def test_a_python_that_is_not_the_rank_is_only_cleaned(ranks):
    script = "import faulthandler; print(faulthandler.is_enabled());" + SHOW
    ended = ranks.run("bash", "-c", '"$@"; true', "bash", sys.executable, "-c", script,
                      environment={"PYTHONPATH": HOOK, "PYTHONDONTWRITEBYTECODE": "1"})
    assert ended.out == "False\n" + repr((None, [])) + "\n"
    assert not os.path.exists(ranks.crash_file)


# ---- the next sitecustomize ----

WHICH = ("import sys\n"
         "try:\n    import sitecustomize; print(sitecustomize.__file__, sitecustomize.__name__, sitecustomize.__spec__.origin)\n"
         "except ImportError as error: print('none', error.name)\n"
         "print('sitecustomize' in sys.modules)\n")


@pytest.mark.parametrize("python", PYTHONS)
def test_the_sitecustomize_of_the_machine_runs_and_is_the_one_that_is_imported(ranks, python):
    assert ranks.python("-c", WHICH, python=python).out == plain("-c", WHICH, python=python).stdout


@pytest.mark.parametrize("python", PYTHONS)
def test_a_sitecustomize_of_the_users_runs_as_if_we_were_not_there(ranks, python, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.seen = [__name__, __file__]\nVALUE = 7\n")
    script = "import sys, sitecustomize; print(sys.seen, sitecustomize.VALUE)\n" + WHICH
    ended = ranks.python("-c", script, python=python, path=str(own))
    without = plain("-c", script, python=python, path=str(own))
    assert (ended.out, ended.err) == (without.stdout, without.stderr)
    assert "7" in ended.out


@pytest.mark.parametrize("text", ["raise ValueError('theirs')\n", "import not_there_at_all\n", "this is no Python\n",
                                  "raise SystemExit(9)\n"])
def test_an_error_in_it_is_reported_as_without_us(ranks, tmp_path, text):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(text)
    ended = ranks.python("-c", "print('runs')", path=str(own))
    without = plain("-c", "print('runs')", path=str(own))
    assert (ended.code, ended.out) == (without.returncode, without.stdout)
    assert ended.err.splitlines()[-1:] == without.stderr.splitlines()[-1:]


def test_a_package_of_that_name_works_too(ranks, tmp_path):
    package = tmp_path / "own" / "sitecustomize"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import part\n")
    (package / "part.py").write_text("VALUE = 5\n")
    ended = ranks.python("-c", "import sitecustomize.part; print(sitecustomize.part.VALUE)", path=str(tmp_path / "own"))
    assert (ended.out, ended.err) == ("5\n", "")


def test_usercustomize_runs_after_it(ranks, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.order = ['site']\n")
    (own / "usercustomize.py").write_text("import sys; sys.order.append('user')\n")
    script = "import sys; print(sys.order, sys.flags.no_user_site)"
    assert ranks.python("-c", script, path=str(own)).out == plain("-c", script, path=str(own)).stdout


# ---- errors of the hook ----


def test_a_crash_file_that_cannot_be_opened_is_one_line(ranks):
    ended = ranks.python("-c", "print('runs')", environment={"FULLDECK_CRASH_FILE": "/nowhere/at/all"})
    assert (ended.code, ended.out) == (0, "runs\n")
    assert re.match(r"^fulldeck: warning: no Python stack will be shown if this rank crashes: \w+Error: .*\n$", ended.err)


def test_adapters_start_in_the_rank_and_one_that_fails_is_one_line(ranks, tmp_path):
    hook = tmp_path / "hook"
    hook.mkdir()
    text = open(os.path.join(HOOK, "sitecustomize.py")).read()
    assert "\nADAPTERS = [\"adapters\"]\n" in text
    (hook / "sitecustomize.py").write_text(text.replace("\nADAPTERS = [\"adapters\"]\n", "\nADAPTERS = ['bad', 'absent', 'good']\n"))
    (hook / "good.py").write_text("def start():\n    print('good is here')\n")
    (hook / "bad.py").write_text("def start():\n    raise ValueError('broken')\n")
    ended = ranks.python("-c", "print('runs')", hook=str(hook))
    assert ended.out == "good is here\nruns\n"
    lines = ended.err.splitlines()
    assert lines[0] == "fulldeck: warning: bad does not work in this rank: ValueError: broken"
    assert lines[1].startswith("fulldeck: warning: absent does not work in this rank: ") and len(lines) == 2


def test_a_hook_in_a_folder_that_is_a_link_takes_itself_off_the_path(ranks, tmp_path):
    (tmp_path / "link").symlink_to(HOOK)
    for hook in (str(tmp_path / "link"), HOOK + "/", os.path.join(HOOK, "..", "fulldeck_hook")):
        ended = ranks.python("-c", "import sys, os; print(os.environ.get('PYTHONPATH'), len(sys.path))", hook=hook)
        assert (ended.out, ended.err) == ("None {}\n".format(plain("-c", "import sys; print(len(sys.path))").stdout.strip()), "")


def test_the_hook_is_beside_the_library():
    for name in ("sitecustomize.py", "adapters.py"):
        with open(os.path.join(os.path.dirname(AGENT), "fulldeck_hook", name)) as built:
            assert built.read() == open(os.path.join(HOOK, name)).read()


def test_the_package_beside_the_hook_stands_behind_everything_else(ranks, tmp_path):
    hook = tmp_path / "lib" / "fulldeck_hook"
    hook.mkdir(parents=True)
    for name in ("sitecustomize.py", "adapters.py"):
        shutil.copy(os.path.join(HOOK, name), str(hook))
    show = "import os, sys; print(os.environ.get('PYTHONPATH'), sys.path)"
    without = plain("-c", show).stdout
    assert ranks.python("-c", show, hook=str(hook)).out == without, "there is none"
    package = tmp_path / "lib" / "python" / "fulldeck"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    ended = ranks.python("-c", show, hook=str(hook))
    assert (ended.out, ended.err) == (without.rstrip("]\n") + ", {!r}]\n".format(str(package.parent)), "")
    ended = ranks.python("-c", "import fulldeck; print(fulldeck.__file__)", hook=str(hook))
    assert ended.out == str(package / "__init__.py") + "\n"
    own = tmp_path / "own" / "fulldeck"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("")
    ended = ranks.python("-c", "import fulldeck; print(fulldeck.__file__)", hook=str(hook), path=str(own.parent))
    assert ended.out == str(own / "__init__.py") + "\n", "the user's comes first"


def test_a_virtual_environment_works(ranks, tmp_path):
    folder = str(tmp_path / "venv")
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=TIMEOUT)
    if made.returncode != 0 or not shutil.which(os.path.join(folder, "bin", "python")):
        pytest.skip("this Python cannot make a virtual environment")
    ended = ranks.python("-c", "import sys; print(sys.prefix, flush=True)\n" + SEGFAULT, python=os.path.join(folder, "bin", "python"))
    assert ended.out == folder + "\n"
    assert " in deep_inside\n" in ended.crash
