"""The Python package in a real torch: autoload, an extension that does not fit, and the exit of a process.
test_python_package_install.py has its build and installation."""
import json
import os
import shutil
import sys

import pytest

from cluster import launch
from grids import exit_runs
from launching import BUILD, TOP
from python_ranks import PACKAGE, PATIENCE, run_python, run_script

pytestmark = pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")

# A group of one rank, without any server.
ALONE = "torch.distributed.init_process_group('fulldeck', store=torch.distributed.HashStore(), rank=0, world_size=1)\n"


def libraries():
    return [name for name in os.listdir(os.path.join(BUILD, "lib"))
            if name.startswith(("libfulldeck_collectives.", "libfulldeck_torch."))]


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and its libraries that a test may break; the folder for PYTHONPATH."""
    lib = tmp_path / "lib"
    shutil.copytree(PACKAGE, str(lib / "python"))
    for name in libraries():
        shutil.copy(os.path.join(BUILD, "lib", name), str(lib / name), follow_symlinks=False)
    return lib / "python"


def extension(folder):
    found = [path for path in (folder / "fulldeck").iterdir() if path.name.startswith("_C.")]
    assert len(found) == 1, found
    return found[0]


def note(folder, name, value):
    """Changes the recorded build environment."""
    path = folder / "fulldeck" / "_build.py"
    lines = path.read_text().splitlines()
    assert any(line.startswith(name + " = ") for line in lines)
    path.write_text("\n".join("{} = {!r}".format(name, value) if line.startswith(name + " = ") else line for line in lines) + "\n")


# ---- autoload ----


COST = """
import time, importlib.metadata
entry, = [each for each in importlib.metadata.entry_points(group='torch.backends') if each.name == 'fulldeck']
best = 1e9
for _ in range(20):
    torch.distributed.Backend._plugins.pop('FULLDECK', None)
    sys.modules.pop('_fulldeck_autoload', None)
    began = time.thread_time()
    entry.load()()
    best = min(best, time.thread_time() - began)
assert 'FULLDECK' in torch.distributed.Backend._plugins
print(best * 1000)
"""


def test_import_torch_makes_the_backend_known_costs_little_and_loads_nothing():
    script = (
        "import json, sys, torch\n"
        "backend = torch.distributed.Backend\n"
        "print(json.dumps({'known': 'fulldeck' in backend.backend_list,\n"
        "                  'devices': backend.backend_capability.get('fulldeck'),\n"
        "                  'defaults': backend.default_device_backend_map,\n"
        "                  'modules': sorted(name for name in sys.modules if name.split('.')[0] == 'fulldeck'),\n"
        "                  'loaded': 'libfulldeck' in open('/proc/self/maps').read()}))\n")
    ended = run_python(script)
    found = json.loads(ended.out)
    assert ended.err == ""
    assert found["known"] and found["devices"] == ["cpu", "cuda", "privateuseone"]
    assert (found["modules"], found["loaded"]) == ([], False)
    without, cost = run_python(script + COST, TORCH_DEVICE_BACKEND_AUTOLOAD="0", PYTHONDONTWRITEBYTECODE=None).out.splitlines()
    assert not json.loads(without)["known"]
    assert found["defaults"] == json.loads(without)["defaults"], "nobody who names no backend gets ours"
    assert float(cost) < 1.0, "autoload costs less than a millisecond"


def test_two_ranks_of_the_launcher_need_no_import(workspace):
    script = workspace.write("train.py", "import torch, torch.distributed as dist\n"
                                     "dist.init_process_group('fulldeck')\n"
                                     "tensor = torch.full((100,), dist.get_rank() + 1.0)\n"
                                     "dist.all_reduce(tensor)\n"
                                     "print('sum', tensor[7].item(), dist.get_backend())\n"
                                     "dist.destroy_process_group()\n")
    done = workspace.run("--nproc-per-node", 2, script, seconds=PATIENCE)
    assert done.code == 0, done
    assert done.out.count("sum 3.0 fulldeck") == 2, done


# ---- mismatches ----

# Imports torch once, and then tests each broken copy in a child process: first torch's own loader of entry points, then
# a group.
LOOK = r"""
import json, os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
def look(folder):
    sys.path.insert(0, folder)
    try:
        torch._import_device_backends()
    except BaseException as error:
        return "import torch fails: %r, because of %r" % (error, error.__cause__)
    try:
        torch.distributed.init_process_group("fulldeck", store=torch.distributed.HashStore(), rank=0, world_size=1)
    except RuntimeError as error:
        return "RuntimeError: " + str(error)
    except BaseException as error:
        return repr(error)
    return "made"
answers = {}
for name in sys.argv[1:]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, look(name).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        answers[name] = answer.read()
    os.waitpid(child, 0)
print(json.dumps(answers))
"""


def other_torch(folder):
    note(folder, "TORCH", "2.1.0+cu118")


def other_python(folder):
    note(folder, "PYTHON", "cpython-38")


def other_abi(folder):
    note(folder, "CXX11_ABI", False)


def no_torch(folder):
    note(folder, "TORCH", None)


def truncated(folder):
    path = extension(folder)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:len(data) // 2])


def truncated_library(folder):
    for name in libraries():
        path = folder.parent / name
        if name.startswith("libfulldeck_torch") and not path.is_symlink():
            path.write_bytes(path.read_bytes()[:-100])


def empty(folder):
    extension(folder).write_bytes(b"")


def no_extension(folder):
    extension(folder).unlink()


def no_library(folder):
    for name in libraries():
        if name.startswith("libfulldeck_torch"):
            (folder.parent / name).unlink()


def no_note(folder):
    (folder / "fulldeck" / "_build.py").unlink()


def no_package(folder):
    shutil.rmtree(str(folder / "fulldeck"))


def package_that_raises(folder):
    (folder / "fulldeck" / "__init__.py").write_text("raise ImportError('half an installation')\n")


def as_it_is(folder):
    pass


FAULTS = {
    as_it_is: "made",
    other_torch: "RuntimeError: fulldeck: this installation was built for torch 2.1.0+cu118 and runs in torch ",
    other_python: "RuntimeError: fulldeck: this installation was built for cpython-38 and runs in cpython-",
    other_abi: "with the old C++ ABI",
    no_torch: "built where there was no torch",
    truncated: " was cut short: ",
    truncated_library: " was cut short: ",
    empty: " is no library: ",
    no_extension: "cannot be loaded: there is no extension for cpython-",
    no_library: "cannot be loaded: libfulldeck_torch.so",
    no_note: "holds the package's sources and no build of it",
    no_package: "is damaged: ",
    package_that_raises: "is damaged: half an installation. Install it again.",
}


def test_a_package_that_does_not_fit_never_breaks_import_torch_and_says_why_when_a_group_is_made(copy, tmp_path):
    folders = {}
    for fault in FAULTS:
        folder = tmp_path / fault.__name__ / "python"
        shutil.copytree(str(copy.parent), str(folder.parent), symlinks=True)
        fault(folder)
        folders[str(folder)] = fault
    ended = run_python(LOOK, *folders, PYTHONPATH=None, seconds=300)
    assert ended.code == 0, ended
    answers = json.loads(ended.out)
    for folder, fault in folders.items():
        assert FAULTS[fault] in answers[folder], (fault.__name__, answers[folder])
        if fault not in (as_it_is, no_package, package_that_raises):
            assert "pip install --force-reinstall" in answers[folder], "what to do: " + answers[folder]


def test_a_real_import_of_torch_with_a_package_for_another_torch_works(copy):
    other_torch(copy)
    ended = run_python("import torch\nprint(torch.ones(2).sum().item())\n" + ALONE, PYTHONPATH=str(copy))
    assert ended.out == "2.0\n" and ended.code == 1
    assert "built for torch 2.1.0+cu118 and runs in torch" in ended.err.strip().splitlines()[-1], ended


# Programs that need an imported torch without fulldeck: forks of one Python that imported it.
FORKED = r"""
import json, os, sys, tempfile, traceback
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
answers = {}
for entry in sys.argv[1:]:
    name, code = entry.split("\x01")
    files = [tempfile.TemporaryFile() for _ in range(2)]
    child = os.fork()
    if child == 0:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number + 1)
        status = 0
        try:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitpid(child, 0)[1]
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
    answers[name] = [os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1] + texts
print(json.dumps(answers))
"""


def test_options_names_and_faults_that_a_program_can_meet(copy, tmp_path):
    (tmp_path / "fulldeck.py").write_text("import sys\nprint('runs', __name__)\nimport torch\ntorch._import_device_backends()\n" + ALONE
                                          + "print(torch.distributed.get_backend())\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "fulldeck.py").write_text("")
    loaded = "import torch\ntorch._import_device_backends()\n"
    programs = {
        "an import in place of autoload": "import fulldeck.backend, torch\n" + ALONE + "print(torch.distributed.get_backend())",
        "options of another backend": loaded + ALONE.replace("world_size=1", "world_size=1, pg_options=object()"),
        "the extension in another torch": "import sys, torch\nsys.path.insert(0, {!r})\ntorch.__version__ = '2.1.0'\ntry:\n    import fulldeck._C\n"
                                          "except ImportError as error: print(error)".format(str(copy)),
        "an autoload that fails": "import torch\n"
                                  "def broken(*_, **__): raise ImportError('no such thing')\n"
                                  "torch.distributed.Backend.register_backend = broken\n"
                                  "torch._import_device_backends()\n"
                                  "import _fulldeck_autoload\n"
                                  "print(_fulldeck_autoload.failure)\n"
                                  "torch.distributed.is_available = lambda: False\n"
                                  "torch._import_device_backends()\n"
                                  "print(_fulldeck_autoload.failure)\n",
        "a script that is called fulldeck": "import runpy, sys\nsys.path[0] = {0!r}\nrunpy.run_path({0!r} + '/fulldeck.py', run_name='__main__')".format(
            str(tmp_path)),
        "a module of that name": "import sys, torch\nsys.path.insert(0, {!r})\nimport fulldeck\ntorch._import_device_backends()\n".format(
            str(tmp_path / "empty")) + ALONE,
    }
    ended = run_python(FORKED, *["\x01".join(each) for each in programs.items()])
    assert ended.code == 0, ended
    answers = json.loads(ended.out.splitlines()[-1])
    assert answers["an import in place of autoload"] == [0, "fulldeck\n", ""], answers
    code, _, err = answers["options of another backend"]
    assert code == 1 and "TypeError: fulldeck: pg_options must be a fulldeck.backend.Options, and is a object." in err, err
    code, out, _ = answers["the extension in another torch"]
    assert code == 0 and "cannot be used in torch 2.1.0" in out, answers
    assert answers["an autoload that fails"][:2] == [0, "no such thing\nNone\n"], answers
    assert answers["a script that is called fulldeck"][:2] == [0, "runs __main__\nfulldeck\n"], answers
    code, _, err = answers["a module of that name"]
    assert code == 1 and "fulldeck: the module 'fulldeck' of this program is {}".format(tmp_path / "empty" / "fulldeck.py") in err, err


# ---- the end of a process ----


# All ways, many times: below and in `make package-runs`.
@pytest.mark.parametrize("way", ["callback", "insisting"])
def test_ranks_that_leave_without_goodbye_end_with_code_0(tmp_path, way):
    assert exit_runs.run(way, tmp_path) == []


# The same many times at little cost: torch is imported once, and each rank is a fork that exits as Python does.
FORKS = r"""
import os, sys
import torch
sys.path[:0] = [os.path.join(sys.argv[1], "tests"), os.path.join(sys.argv[1], "tests", "scripts")]
from launching import free_port
from leaves_without_goodbye import WAYS, leave
os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
import gc
gc.freeze()  # what is there now is no rank's to clear up: half of the time
for number in range(int(sys.argv[2])):
    os.environ["MASTER_PORT"] = str(free_port())
    ranks = []
    for rank in range(2):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            os.environ["RANK"] = str(rank)
            leave("fulldeck", WAYS[number % len(WAYS)])
            sys.exit(0)
    for rank, pid in enumerate(ranks):
        status = os.waitpid(pid, 0)[1]
        if status != 0:
            sys.stderr.write("run %d, rank %d: status %d\n" % (number, rank, status))
print("all runs are over")
"""


def test_and_do_so_again_and_again():
    ended = run_python(FORKS, TOP, "8", seconds=300)  # make package-runs: 200
    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.out.endswith("all runs are over\n")


def test_the_paths_and_the_description_of_a_group_can_be_asked_for_and_a_child_made_by_fork_does_no_harm(tmp_path):
    script = (
        "import os, sys, torch, torch.distributed as dist\n"
        "import fulldeck.backend\n"
        "dist.init_process_group('fulldeck', pg_options=fulldeck.backend.Options(check_finite=True))\n"
        "for _ in range(3): dist.all_reduce(torch.ones(5))\n"
        "paths = fulldeck.backend.paths()\n"
        "assert paths.local >= 3 and paths.hierarchical == paths.flat == 0, paths\n"
        "assert '2 ranks' in fulldeck.backend.describe(), fulldeck.backend.describe()\n"
        "assert fulldeck.backend.nonfinite() is None\n"
        "tensor = torch.ones(50)\n"
        "if dist.get_rank() == 1: tensor[30] = float('nan')\n"
        "dist.all_reduce(tensor)\n"
        "found = fulldeck.backend.nonfinite()\n"
        "print(found.rank, found.element, flush=True)\n"
        "dist.all_reduce(torch.ones(10), async_op=True).wait()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "tensor = torch.ones(10)\n"
        "dist.all_reduce(tensor)\n"
        "print(tensor[0].item())\n"
        "dist.destroy_process_group()\n")
    for ended in run_script(2, script, tmp_path):
        assert (ended.code, ended.out, ended.err) == (0, "1 30\n2.0\n", ""), ended


# ---- the ranks' hook ----


def hooked(workspace, python_path, *flags):
    script = workspace.write("show.py", "import os, sys\nimport fulldeck\nprint('package', fulldeck.__file__)\n"
                                    "print('path', os.environ.get('PYTHONPATH'), sys.path[-1])\n")
    return workspace.run("--nproc-per-node", 1, *(list(flags) + [script]), extra={"PYTHONPATH": python_path} if python_path else {})


def test_a_package_of_the_users_own_comes_before_that_of_the_build(workspace, tmp_path):
    done = hooked(workspace, "")
    assert "package {}".format(os.path.join(PACKAGE, "fulldeck", "__init__.py")) in done.out, done
    assert "path None {}".format(PACKAGE) in done.out, "behind everything else, and not for the children: {}".format(done)
    own = tmp_path / "own" / "fulldeck"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("")
    done = hooked(workspace, str(own.parent))
    assert "package {}".format(own / "__init__.py") in done.out, done


def test_without_the_agent_ranks_have_no_package(workspace):
    done = hooked(workspace, "", "--no-agent")
    assert done.code != 0 and "No module named 'fulldeck'" in done.err + workspace.log(0), done


def test_the_version_is_the_same_everywhere():
    sys.path.insert(0, os.path.join(TOP, "python", "build_backend"))
    import fulldeck_wheel

    script = "import fulldeck, importlib.metadata; print(fulldeck.__version__, importlib.metadata.version('fulldeck'))"
    version = fulldeck_wheel.version_of(TOP)
    assert run_python(script).out == "{} {}\n".format(version, version)
