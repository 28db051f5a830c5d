"""The build and installation of the package: the wheel, pip, and the build's errors. The wheel here contains what `make
build` compiled; `make package-runs` compiles one as a user's pip does (tests/grids/wheel_runs.py)."""
import base64
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from cluster import launch
from launching import BUILD, TOP
from python_ranks import PATIENCE, clean_environment, run_python

BACKEND = os.path.join(TOP, "python", "build_backend")
sys.path.insert(0, BACKEND)
import fulldeck_build  # noqa: E402
import fulldeck_wheel  # noqa: E402

needs_torch = pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")
needs_pip = pytest.mark.skipif(not launch.has_module("pip"), reason="this Python has no pip")


def call(expression, *arguments, **variables):
    """Calls a hook of the backend as pip does, in a separate process."""
    script = "import sys, json\nsys.path.insert(0, {!r})\nimport fulldeck_build as backend\nprint(json.dumps({}))"
    return run_python(script.format(BACKEND, expression), *arguments, PYTHONPATH=None, seconds=300, **variables)


def error_of(ended):
    """The single line with which the backend failed."""
    assert ended.code == 1, ended
    lines = [line for line in ended.err.splitlines() if line.startswith("fulldeck build: error: ")]
    assert len(lines) == 1 and "Traceback" not in ended.err, ended
    return lines[0]


def make_venv(folder):
    """A fresh environment that sees this Python's torch, and no fulldeck."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE)
    python = os.path.join(str(folder), "bin", "python")
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, timeout=PATIENCE,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    ours = subprocess.run([sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                          timeout=PATIENCE, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    with open(os.path.join(site, "torch_of_another.pth"), "w") as file:
        file.write(ours + "\n")
    return python, site


def pip(python, *arguments):
    """pip of this Python, working on a different one, without a network."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--no-input"] + list(arguments)
    done = subprocess.run(command, env=clean_environment(PYTHONPATH=None, PIP_NO_INDEX="1"), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=3600,
                          cwd=os.path.dirname(python))
    return done.returncode, done.stdout


# ---- the wheel ----


def info_name():
    return fulldeck_wheel.dist_info_name(TOP)


def check_record(archive):
    """Exactly the files of the wheel are in RECORD, each with its hash and size."""
    names = archive.namelist()
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    assert sorted(row[0] for row in rows) == sorted(names)
    for path, digest, size in rows:
        if path == record:
            assert (digest, size) == ("", "")
            continue
        data = archive.read(path)
        want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, size) == ("sha256=" + want, str(len(data))), path


@needs_torch
def test_a_wheel_of_what_was_built_holds_everything_and_no_path_of_this_machine(tmp_path):
    ended = call("backend.build_wheel(sys.argv[1], {'built': sys.argv[2]})", str(tmp_path), BUILD)
    assert ended.code == 0, ended
    name = json.loads(ended.out)
    python = "cp{}{}".format(*sys.version_info)
    assert re.match(r"fulldeck-[\d.]+-{0}-{0}-linux_\w+\.whl$".format(python), name)
    with zipfile.ZipFile(str(tmp_path / name)) as archive:
        check_record(archive)
        names = archive.namelist()
        data = info_name()[:-len(".dist-info")] + ".data/"
        for wanted in ("_fulldeck_autoload.py", "fulldeck/__init__.py", "fulldeck/_build.py", "fulldeck/backend.py",
                       "fulldeck/collectives.py", "fulldeck/board.py", "fulldeck/adapters/t20.py", "fulldeck/libfulldeck_collectives.so.0",
                       "fulldeck/libfulldeck_board.so.0", "fulldeck/libfulldeck_torch.so", "fulldeck/libfulldeck_sim.so", data + "scripts/fulldeck",
                       data + "data/lib/libfulldeck_agent.so", data + "data/lib/fulldeck_hook/sitecustomize.py"):
            assert wanted in names
        assert archive.getinfo(data + "scripts/fulldeck").external_attr >> 16 == 0o100755
        assert any(name.startswith("fulldeck/_C.") for name in names)
        info = info_name()
        assert archive.read(info + "/entry_points.txt").decode() == "[torch.backends]\nfulldeck = _fulldeck_autoload:register\n"
        assert "Tag: {0}-{0}-linux_".format(python) in archive.read(info + "/WHEEL").decode()
        assert archive.read(info + "/LICENSE")
        archive.extractall(str(tmp_path / "out"))
    for library in [path for path in (tmp_path / "out" / "fulldeck").iterdir() if ".so" in path.name]:
        shown = subprocess.run(["readelf", "--wide", "--dynamic", str(library)], check=True, stdout=subprocess.PIPE,
                               universal_newlines=True, timeout=60).stdout
        for path in re.findall(r"\((?:RPATH|RUNPATH)\)\s+Library r\w+path: \[(.*?)\]", shown):
            assert all(part.startswith("$ORIGIN") for part in path.split(":") if part), (library.name, path)


def test_the_same_contents_make_the_same_wheel(tmp_path):
    (tmp_path / "module.py").write_text("x = 1\n")
    (tmp_path / "link.so").symlink_to(tmp_path / "module.py")
    files = {"fulldeck/module.py": str(tmp_path / "module.py"), "fulldeck/library.so": str(tmp_path / "link.so")}
    wheels = []
    for folder in ("a", "b"):
        name = fulldeck_wheel.write(TOP, str(tmp_path / folder), files, "py3-none-linux_x86_64")
        assert name == "fulldeck-{}-py3-none-linux_x86_64.whl".format(fulldeck_wheel.version_of(TOP))
        wheels.append((tmp_path / folder / name).read_bytes())
        os.utime(str(tmp_path / "module.py"), (1e9, 1e9))
    assert wheels[0] == wheels[1]
    with zipfile.ZipFile(io.BytesIO(wheels[0])) as archive:
        check_record(archive)
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert modes["fulldeck/module.py"] == 0o100644 and modes["fulldeck/library.so"] == 0o100755


@pytest.mark.parametrize("found,tag", [
    ({"torch": "2.13.0", "name": "cpython", "version": [3, 11]}, "cp311-cp311-linux_"),
    ({"torch": "2.6.0", "name": "cpython", "version": [3, 9]}, "cp39-cp39-linux_"),
    ({"torch": None, "name": "cpython", "version": [3, 8]}, "py3-none-linux_"),
])
def test_the_tag_says_for_whom_the_wheel_is(found, tag):
    assert fulldeck_wheel.tag(found).startswith(tag)
    assert fulldeck_wheel.tag(found, "manylinux_2_27_x86_64").endswith("-manylinux_2_27_x86_64")


def test_metadata_are_there_without_a_build(tmp_path):
    ended = call("backend.prepare_metadata_for_build_wheel(sys.argv[1])", str(tmp_path), PATH="/nowhere")
    assert ended.code == 0, ended
    folder = tmp_path / json.loads(ended.out)
    text = (folder / "METADATA").read_text()
    assert "\nName: fulldeck\nVersion: {}\n".format(fulldeck_wheel.version_of(TOP)) in text and "@" not in text
    assert "Requires-Dist" not in text, "no install may bring another torch along"
    assert (folder / "entry_points.txt").exists()


# ---- pip ----


@needs_torch
@needs_pip
def test_pip_installs_it_and_a_group_is_made_with_no_import_of_ours(tmp_path):
    python, site = make_venv(tmp_path / "venv")
    code, text = pip(python, "install", "--no-deps", "--config-settings", "built=" + BUILD, TOP)
    assert code == 0 and "Successfully installed fulldeck-" in text, text
    script = ("import torch, torch.distributed as dist\n"
              "dist.init_process_group('fulldeck', store=dist.HashStore(), rank=0, world_size=1)\n"
              "tensor = torch.ones(3)\ndist.all_reduce(tensor)\nprint(tensor.tolist())\n"
              "import fulldeck.collectives\nprint(fulldeck.__file__)\nprint(fulldeck.collectives._library.find())\n")
    ended = run_python(script, python=python, PYTHONPATH=None, folder=tmp_path)
    assert ended.code == 0, ended
    assert ended.out.splitlines() == ["[1.0, 1.0, 1.0]", os.path.join(site, "fulldeck", "__init__.py"),
                                      os.path.join(site, "fulldeck", "libfulldeck_collectives.so.0")]
    code, text = pip(python, "uninstall", "--yes", "fulldeck")
    assert code == 0, text
    left = [path for path in os.listdir(site) if "fulldeck" in path]
    assert left == [], "nothing is left that `import torch` would stumble over"


def files_in(folder):
    return sorted(os.path.relpath(os.path.join(base, name), str(folder)) for base, _, names in os.walk(str(folder)) for name in names)


SHOWS = """
import array, os, sys
import fulldeck, fulldeck.collectives
numbers = array.array("f", [1, 2])
with fulldeck.collectives.Group.from_environment(timeout=60) as group:
    group.all_reduce(numbers)
print(numbers.tolist(), os.path.dirname(fulldeck.__file__), type(sys.meta_path[0]).__name__)
"""


@needs_pip
def test_a_wheel_without_torch_brings_the_command_and_takes_everything_away_again(tmp_path):
    ended = call("backend.build_wheel(sys.argv[1], {'built': sys.argv[2], 'torch': 'no'})", str(tmp_path / "wheel"), BUILD)
    assert ended.code == 0, ended
    name = json.loads(ended.out)
    assert re.match(r"fulldeck-[\d.]+-py3-none-linux_\w+\.whl$", name)
    assert (tmp_path / "wheel" / name).stat().st_size < 20 << 20
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=PATIENCE)
    python = str(venv / "bin" / "python")
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, timeout=PATIENCE,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    with open(os.path.join(site, "of_another_package.py"), "w"):
        pass
    before = files_in(venv)
    code, text = pip(python, "install", "--no-deps", str(tmp_path / "wheel" / name))
    assert code == 0, text

    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "state").mkdir(mode=0o700)
    variables = clean_environment(PYTHONPATH=None, PYTHONDONTWRITEBYTECODE=None, PATH=str(venv / "bin") + os.pathsep + os.environ["PATH"],
                                  **{"FULLDECK_{}_DIR".format(which): str(tmp_path / "state") for which in ("RUNTIME", "LEASE", "SIMULATE")})

    def fulldeck(*arguments, **more):
        done = subprocess.run(["fulldeck"] + list(arguments), env=dict(variables, **more), cwd=str(tmp_path), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE)
        assert done.returncode == 0, done
        return done

    assert fulldeck("--version").stdout == "fulldeck {}\n".format(fulldeck_wheel.version_of(TOP))
    assert "SIM-gcu-0001" in fulldeck("devices", FULLDECK_SIMULATE="gcu:2").stdout
    run = fulldeck("run", "--devices", "cpu", "--nproc-per-node", "2", "shows.py")
    for rank in range(2):
        assert "[{}] [2.0, 4.0] {}/fulldeck ImportWatcher\n".format(rank, site) in run.stdout, run
    assert "beside fulldeck" not in run.stderr, run.stderr
    run = fulldeck("run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "env")
    assert "[1] LOCAL_RANK=1\n" in run.stdout and "[0] FULLDECK_AGENT={}/lib/libfulldeck_agent.so\n".format(venv.resolve()) in run.stdout, run.stdout

    code, text = pip(python, "uninstall", "--yes", "fulldeck")
    assert code == 0, text
    assert files_in(venv) == before


@needs_pip
def test_an_editable_install_is_refused_with_the_reason(tmp_path):
    python, _ = make_venv(tmp_path / "venv")
    code, text = pip(python, "install", "--no-deps", "-e", TOP)
    assert code != 0
    assert "fulldeck build: error: the package has compiled parts and cannot be installed in editable mode." in text, text


# ---- failing builds ----


def test_settings_that_make_no_sense_are_refused():
    assert "there is no setting 'biuld-dir'" in error_of(call("backend.build_wheel('x', {'biuld-dir': 'y'})"))
    assert "'torch' is yes or no, and not 'maybe'" in error_of(call("backend.build_wheel('x', {'torch': 'maybe'})"))
    assert "'platform' is a tag such as" in error_of(call("backend.build_wheel('x', {'platform': 'a b'})"))
    assert "needs one value" in error_of(call("backend.build_wheel('x', {'torch': ['yes', 'no']})"))
    assert "no source distribution" in error_of(call("backend.build_sdist('x')"))


def test_a_python_that_does_not_answer_is_reported(tmp_path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    for python in (str(silent), str(tmp_path / "nowhere")):
        assert "{} does not answer".format(python) in error_of(call("backend.build_wheel('x', {'python': sys.argv[1]})", python))


def fake_torch(folder, text):
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(text)
    return str(folder)


def with_path(folder):
    """A Python that sees only this folder, and none of the installed packages."""
    program = os.path.join(folder, "python")
    with open(program, "w") as file:
        file.write('#!/bin/sh\nPYTHONPATH="{}" exec "{}" -S "$@"\n'.format(folder, sys.executable))
    os.chmod(program, 0o755)
    return program


def test_a_torch_that_cannot_be_imported_is_reported(tmp_path):
    python = with_path(fake_torch(tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')\n"))
    line = error_of(call("backend.build_wheel('x', {'python': sys.argv[1]})", python))
    assert "cannot be imported: ImportError: libcudart.so.12" in line and "torch=no" in line


def test_a_torch_that_is_asked_for_and_not_there_is_reported(tmp_path):
    python = with_path(str(tmp_path))
    assert "has no torch" in error_of(call("backend.build_wheel('x', {'python': sys.argv[1], 'torch': 'yes'})", python))


def test_tools_that_are_missing_are_named(tmp_path):
    for names, missing in (([], "cmake"), (["cmake"], "ninja or make"), (["cmake", "make"], "c++ or g++ or clang++")):
        folder = tmp_path / missing.replace(" ", "_")
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        line = error_of(call("backend.build_wheel(sys.argv[1], {'torch': 'no'})", str(tmp_path), PATH=str(folder), CXX=None))
        assert "there is no {} on PATH".format(missing) in line and "apt-get install" in line


def test_a_build_that_fails_is_reported_and_leaves_nothing(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("cmake", "make", "g++"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 'the disk is full' >&2\nexit 4\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "tmp").mkdir()
    ended = call("backend.build_wheel(sys.argv[1], {'torch': 'no'})", str(tmp_path), PATH=str(tmp_path / "bin"), CXX=None,
                 TMPDIR=str(tmp_path / "tmp"))
    assert "ended with code 4; the reason stands above" in error_of(ended) and "the disk is full" in ended.err
    assert os.listdir(str(tmp_path / "tmp")) == []


def test_a_build_for_another_torch_is_not_taken(tmp_path):
    def refusal():
        return error_of(call("backend.build_wheel('x', {'built': sys.argv[1], 'python': sys.argv[2]})", str(tmp_path),
                             with_path(str(tmp_path))))

    assert "holds no build of the package" in refusal()
    (tmp_path / "_build.py").write_text("TORCH = '2.1.0'\nPYTHON = 'cpython-38'\nCXX11_ABI = True\n")
    (tmp_path / "python_package.txt").write_text("fulldeck/_build.py={}\n".format(tmp_path / "_build.py"))
    assert "was built for torch 2.1.0 of cpython-38" in refusal()
    (tmp_path / "python_package.txt").write_text("fulldeck/_build.py={}\n".format(tmp_path / "gone"))
    assert "is not complete" in refusal()


# ---- past pip's isolation ----


@pytest.mark.parametrize("before,after", [
    ({}, {}),
    ({"PYTHONPATH": "/tmp/pip-build-env-x1/site", "PYTHONNOUSERSITE": "1"}, {}),
    ({"PYTHONPATH": "/tmp/pip-build-env-x1/site:/own", "PYTHONNOUSERSITE": "1"}, {"PYTHONPATH": "/own"}),
    ({"PYTHONPATH": "/own:/second", "PYTHONNOUSERSITE": "1"}, {"PYTHONPATH": "/own:/second", "PYTHONNOUSERSITE": "1"}),
])
def test_what_pip_hides_is_seen(before, after):
    assert fulldeck_build.outer_environment(dict(before, HOME="/h")) == dict(after, HOME="/h")


def test_an_environment_that_is_active_is_asked_where_the_build_has_one_of_its_own(tmp_path, monkeypatch):
    asked = []

    def ask(python):
        asked.append(python)
        torch = None if python == sys.executable else "2.13.0"
        return {"torch": torch, "failure": "", "cache_tag": "cpython-311", "include": str(tmp_path), "version": [3, 11]}

    (tmp_path / "Python.h").write_text("")
    active = tmp_path / "bin" / "python"
    active.parent.mkdir()
    active.write_text("#!/bin/sh\n")
    active.chmod(0o755)
    monkeypatch.setattr(fulldeck_build, "ask", ask)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert fulldeck_build.find_torch({})[0] == str(active)
    monkeypatch.delenv("VIRTUAL_ENV")
    assert fulldeck_build.find_torch({})[1]["torch"] is None
    assert asked == [sys.executable, str(active), sys.executable]


def test_headers_of_python_that_are_missing_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fulldeck_build, "ask", lambda python: {"torch": "2.13.0", "failure": "", "cache_tag": "cpython-311",
                                                               "include": str(tmp_path), "version": [3, 11]})
    with pytest.raises(SystemExit):
        fulldeck_build.find_torch({})
    assert "apt-get install python3.11-dev" in capsys.readouterr().err
