"""The scripts that newcomers and CI call: setup, make, the test runner, lint, .ci/run."""
import os
import shutil
import stat
import subprocess
import sys

import pytest

from launching import TOP

SETUP = os.path.join(TOP, "scripts", "setup")
# Far more than any of these takes; a loaded machine is slow.
TIMEOUT = 300


def run(command, cwd=TOP, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("FULLDECK_", "MAKE", "MFLAGS", "PYTEST_")) and name != "PYTHON"}
    environment.update(variables)
    return subprocess.run([str(word) for word in command], cwd=str(cwd), env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=TIMEOUT)


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


class Machine:
    """A machine as scripts/setup sees it: its package lists, its .venv, and a fake apt-get that only records its
    calls."""

    def __init__(self, folder):
        self.folder = folder
        self.debian = folder / "debian.txt"
        self.python = folder / "python.txt"
        self.notes = folder / "apt-notes"
        self.debian.write_text("bash  # is always there\n")
        self.python.write_text("pytest=={}\n".format(pytest.__version__))
        self.venv_with("")
        write_program(folder / "bin" / "apt-get", '#!/bin/sh\necho "$@" >>"{}"\n'.format(self.notes))
        write_program(folder / "bin" / "sudo", '#!/bin/sh\nexec "$@"\n')

    def venv_with(self, python_path):
        """A .venv whose Python has the packages of this one, and those in python_path."""
        write_program(self.folder / "venv" / "bin" / "python",
                      '#!/bin/sh\nPYTHONPATH="{}" exec "{}" "$@"\n'.format(python_path, sys.executable))

    def setup(self, *options):
        return run([SETUP] + list(options), FULLDECK_DEBIAN_PACKAGES=str(self.debian),
                   FULLDECK_PYTHON_PACKAGES=str(self.python), FULLDECK_VENV=str(self.folder / "venv"),
                   PATH="{}:{}".format(self.folder / "bin", os.environ["PATH"]))

    def apt_calls(self):
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def machine(tmp_path):
    if shutil.which("dpkg-query") is None:
        pytest.skip("not a Debian-like machine")
    if subprocess.run([sys.executable, "-c", "import pip"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this Python has no pip")
    return Machine(tmp_path)


def test_setup_installs_for_train_what_stands_above_the_line(machine):
    machine.debian.write_text("no-such-a  # why\n\n# == The rest is not needed by make train ==\nno-such-b\n")
    machine.python.write_text("pytest=={}\n# == The rest is not needed by make train ==\nno-such-c==1\n".format(pytest.__version__))
    done = machine.setup("--for", "train", "--check")
    assert done.returncode == 1 and "no-such-a" in done.stdout and "no-such-b" not in done.stdout and "no-such-c" not in done.stdout, done
    done = machine.setup("--check")
    assert done.returncode == 1 and all(name in done.stdout for name in ("no-such-a", "no-such-b", "no-such-c==1")), done
    assert machine.setup("--for", "tests").returncode == 2 and machine.setup("--for").returncode == 2



def test_setup_installs_nothing_when_nothing_is_missing(machine):
    done = machine.setup()
    assert (done.returncode, done.stdout) == (0, "fulldeck setup: nothing is missing\n"), done.stderr
    assert machine.apt_calls() == []
    done = machine.setup("--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_setup_check_names_what_is_missing_and_installs_nothing(machine):
    machine.debian.write_text("bash\nfulldeck-no-such-package  # why it is needed\n")
    machine.python.write_text("pytest==0.0.1\nfulldeck-no-such-module==1.0  # why\n")
    done = machine.setup("--check")
    assert done.returncode == 1
    assert "fulldeck setup: missing Debian packages: fulldeck-no-such-package\n" in done.stdout
    assert "pytest==0.0.1 fulldeck-no-such-module==1.0" in done.stdout
    assert machine.apt_calls() == []


def test_setup_check_sees_that_the_environment_is_gone(machine):
    shutil.rmtree(str(machine.folder / "venv"))
    done = machine.setup("--check")
    assert done.returncode == 1 and "missing: a whole" in done.stdout


def test_setup_check_sees_a_python_package_that_was_installed_half_way(machine):
    half = machine.folder / "site" / "half-1.0.dist-info"
    half.mkdir(parents=True)
    (half / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    machine.venv_with(machine.folder / "site")
    machine.python.write_text("half==1.0\n")
    assert machine.setup("--check").returncode == 1
    (half / "RECORD").write_text("")
    assert machine.setup("--check").returncode == 0


def test_setup_names_the_package_that_could_not_be_installed(machine):
    machine.debian.write_text("fulldeck-no-such-package\n")
    done = machine.setup()
    assert done.returncode == 1
    assert "could not be installed: fulldeck-no-such-package." in done.stderr and "run scripts/setup again" in done.stderr
    calls = machine.apt_calls()
    assert len(calls) == 2 and calls[0].endswith("update") and calls[1].endswith("fulldeck-no-such-package")


@pytest.mark.parametrize("script", ["setup", "test", "lint", "portable"])
def test_a_wrong_option_gets_the_usage_and_help_gets_an_example(script):
    path = os.path.join(TOP, "scripts", script)
    done = run([path, "--hlep"])
    assert done.returncode == 2 and "'--hlep'" in done.stderr and "Usage:" in done.stderr
    done = run([path, "--help"])
    assert done.returncode == 0 and "Usage:" in done.stdout and "Example:" in done.stdout


def test_make_alone_lists_every_target():
    targets = ("setup train test build baseline bench lint format portable asan tsan fuzz fault-grid host-grid collectives-soak collectives-grid "
               "collectives-large wheel package-runs torch-suite compat checkpoint-sweep simulator-ops bench-adapters framework-suite hang-grid "
               "hang-quiet slow-ranks card-tricks clean-scripts clean help test-repeat test-long promises chaos cgroup-v2").split()
    for command in (["make"], ["make", "help"]):
        done = run(command)
        assert done.returncode == 0, done.stderr
        listed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")]
        assert sorted(listed) == sorted(targets)


def test_make_with_a_python_without_torch_says_so(tmp_path):
    bare = write_program(tmp_path / "bare", '#!/bin/sh\nexec "{}" -I -S "$@"\n'.format(sys.executable))
    done = run(["make", "PYTHON={}".format(bare), "setup"])
    assert done.returncode != 0 and "has no torch" in done.stderr
    done = run(["make", "PYTHON=no-such-python", "setup"])
    assert done.returncode != 0 and "there is no 'no-such-python'" in done.stderr


def test_make_with_a_python_that_has_torch_installs_nothing(machine):
    torch = machine.folder / "site" / "torch-9.9.dist-info"
    torch.mkdir(parents=True)
    (torch / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    machine.venv_with(machine.folder / "site")
    done = run(["make", "PYTHON={}".format(machine.folder / "venv" / "bin" / "python"), "setup"],
               PATH="{}:{}".format(machine.folder / "bin", os.environ["PATH"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.apt_calls() == []


class TestCounts:
    """scripts/test on a handwritten build folder."""

    @pytest.fixture
    def project(self, tmp_path):
        (tmp_path / "build").mkdir()
        (tmp_path / "tests").mkdir()
        return tmp_path

    def count(self, project, ctest="", python="", options=(), **variables):
        (project / "build" / "CTestTestfile.cmake").write_text(ctest)
        if python:
            (project / "tests" / "test_it.py").write_text(python)
        variables.setdefault("PYTHON", sys.executable)
        done = run([os.path.join(TOP, "scripts", "test")] + list(options) + [project / "build"],
                   FULLDECK_TESTS=str(project / "tests"), **variables)
        return done.returncode, done.stdout.splitlines()[-1], done

    def test_adds_up_both_runners(self, project):
        code, line, _ = self.count(project, "add_test(a true)\nadd_test(b true)\n", "def test_c(): pass\n")
        assert (code, line) == (0, "3 passed, 0 failed")

    def test_shows_what_failed(self, project):
        code, line, done = self.count(project, "add_test(a sh -c \"echo the reason; false\")\n",
                                      "def test_ok(): pass\ndef test_c(): assert 1 == 2\n")
        assert (code, line) == (1, "1 passed, 2 failed")
        assert "the reason" in done.stdout and "assert 1 == 2" in done.stdout

    def test_no_test_at_all_is_a_failure(self, project):
        code, line, done = self.count(project)
        assert (code, line) == (1, "0 passed, 0 failed") and "no test ran" in done.stderr

    def test_only_skipped_tests_are_a_failure(self, project):
        code, line, _ = self.count(project, python="import pytest\ndef test_c(): pytest.skip('no reason')\n")
        assert (code, line) == (1, "0 passed, 0 failed, 1 skipped")

    def test_counts_what_was_skipped(self, project):
        skips = 'add_test(a true)\nadd_test(b sh -c "exit 4")\nset_tests_properties(b PROPERTIES SKIP_RETURN_CODE 4)\n'
        code, line, _ = self.count(project, skips, "import pytest\ndef test_c(): pytest.skip('no reason')\n")
        assert (code, line) == (0, "1 passed, 0 failed, 2 skipped")

    def test_a_test_program_that_was_not_built_is_a_failure(self, project):
        code, line, _ = self.count(project, "add_test(a true)\nadd_test(b /no/such/program)\n")
        assert (code, line) == (1, "1 passed, 1 failed")

    def test_a_python_file_that_does_not_load_is_a_failure(self, project):
        code, line, _ = self.count(project, "add_test(a true)\n", "import no_such_module\n")
        assert (code, line) == (1, "1 passed, 1 failed")

    def test_a_given_python_without_pytest_skips_the_python_tests_loudly(self, project):
        bare = write_program(project / "bare", '#!/bin/sh\nexec "{}" -I -S "$@"\n'.format(sys.executable))
        code, line, done = self.count(project, "add_test(a true)\n", "def test_c(): pass\n", PYTHON=str(bare))
        assert (code, line) == (0, "1 passed, 0 failed, 1 skipped") and "SKIPPED" in done.stderr

    def test_can_leave_the_python_tests_out(self, project):
        code, line, _ = self.count(project, "add_test(a true)\n", "def test_c(): assert False\n", ["--no-python"])
        assert (code, line) == (0, "1 passed, 0 failed")


class TestLint:
    """scripts/lint on a small tree of its own."""

    @pytest.fixture
    def tree(self, tmp_path):
        for tool in ("clang-format", "shellcheck", "git"):
            if shutil.which(tool) is None:
                pytest.skip("there is no " + tool)
        for name in ("scripts", "src", "build"):
            (tmp_path / name).mkdir()
        for name in ("lint", "tidy", "words", "words.txt"):
            shutil.copy(os.path.join(TOP, "scripts", name), str(tmp_path / "scripts"))
        shutil.copy(os.path.join(TOP, ".clang-format"), str(tmp_path))
        (tmp_path / "src" / "a.cc").write_text("int a();\n")
        (tmp_path / "python" / "fulldeck").mkdir(parents=True)
        (tmp_path / "python" / "fulldeck" / "__init__.py").write_text("")
        (tmp_path / ".gitignore").write_text("/build/\n")
        (tmp_path / "build" / "compile_commands.json").write_text("[]")
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        return tmp_path

    def lint(self, tree):
        return run([tree / "scripts" / "lint"], cwd=tree, PYTHON=sys.executable)

    def test_a_clean_tree_passes(self, tree):
        done = self.lint(tree)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.parametrize("path,text,fault", [
        ("src/a.cc", "int   a( );\n", "format"),
        ("src/a.cc", '#include "../b.h"\n', "include"),
        ("src/a.cc", "// Where the ranks meet.\nint a();\n", "use rendezvous"),
        ("new.py", "match 1:\n    case 1:\n        pass\n", "not Python 3.8"),
        ("scripts/new", "#!/usr/bin/env bash\nif true; then\n", "scripts/new"),
        ("python/fulldeck/a.py", "import os\n\nprint(os.no_such_name)\n", "no-member"),
    ])
    def test_a_fault_fails_and_is_named(self, tree, path, text, fault):
        (tree / path).write_text(text)
        done = self.lint(tree)
        assert done.returncode == 1 and fault in done.stdout and done.stdout.count("FAILED") == 1

    def test_fix_formats_in_place(self, tree):
        (tree / "src" / "a.cc").write_text("int   a( );\n")
        assert run([tree / "scripts" / "lint", "--fix"], cwd=tree, PYTHON=sys.executable).returncode == 0
        assert self.lint(tree).returncode == 0


class TestCi:
    """.ci/run with a fake make."""

    def ci(self, folder, test):
        (folder / ".ci").mkdir()
        shutil.copy(os.path.join(TOP, ".ci", "run"), str(folder / ".ci"))
        write_program(folder / "bin" / "make", '#!/bin/sh\n[ "$1" = test ] || exit 9\n{}\n'.format(test))
        done = run(["bash", ".ci/run"], cwd=folder, CI="true", PATH="{}:{}".format(folder / "bin", os.environ["PATH"]))
        return done.returncode, done.stdout.splitlines()[-1]

    def test_the_count_of_the_tests_is_the_last_line(self, tmp_path):
        assert self.ci(tmp_path, "echo 5 passed, 0 failed") == (0, "5 passed, 0 failed")

    def test_a_failed_test_fails_the_run(self, tmp_path):
        assert self.ci(tmp_path, "echo 4 passed, 1 failed; exit 2") == (2, "4 passed, 1 failed")
