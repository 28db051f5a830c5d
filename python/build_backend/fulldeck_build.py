"""Builds the wheel for `pip install .`: a PEP 517 backend that needs nothing but Python, so that nothing is downloaded.

It queries the interpreter that pip runs in, past pip's isolation, for its torch; lets CMake build the program, the
libraries and the extension for that torch; and writes the wheel. Without torch the wheel contains only the parts that
do not need it: the program, its hook and adapters, and fulldeck.collectives.

Settings (pip install . --config-settings NAME=VALUE):
  build-dir=FOLDER  CMake's build folder; kept, so that the next build is fast. Without it: a temporary folder.
  built=FOLDER      compile nothing: use the files in this folder, from `make build` or an earlier build-dir
  python=PATH       query this interpreter for torch, and build for it
  torch=no          build without torch even if it is installed; torch=yes: fail if it is not installed
  command=no        without the program fulldeck, which needs the headers of CLI11, fmt, nlohmann-json and toml++
  platform=TAG      the wheel's platform tag (manylinux_2_27_x86_64); without it linux_MACHINE

Without pip, as in `make wheel`: fulldeck_build.py FOLDER [NAME=VALUE ...] writes the wheel into FOLDER and prints its
path.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import fulldeck_wheel

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SETTINGS = ("build-dir", "built", "python", "torch", "command", "platform")
FACTS = os.path.join(TOP, "python", "build_backend", "torch_facts.py")
FILE_LIST = "python_package.txt"
# Approximate memory of one compiler process that includes torch's headers.
BYTES_PER_JOB = 2 << 30

def fail(text):
    """Ends the build. pip shows stderr."""
    sys.stderr.write("fulldeck build: error: {}\n".format(text))
    sys.stderr.flush()
    raise SystemExit(1)


def log(text):
    sys.stderr.write("fulldeck build: {}\n".format(text))
    sys.stderr.flush()


# ---- the hooks that pip calls ----


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Name, version and entry points; compiles nothing."""
    read_settings(config_settings)
    name = fulldeck_wheel.dist_info_name(TOP)
    for path, data in fulldeck_wheel.metadata_files(TOP).items():
        path = os.path.join(metadata_directory, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = read_settings(config_settings)
    python, found = find_torch(settings)
    tag = fulldeck_wheel.tag(found, settings.get("platform"))
    if settings.get("built"):
        return package_prebuilt(os.path.abspath(settings["built"]), python, found, settings, wheel_directory, tag)
    folder = settings.get("build-dir")
    temporary = None if folder else tempfile.mkdtemp(prefix="fulldeck-wheel-")
    try:
        files = compile_package(os.path.abspath(folder) if folder else temporary, python, found, settings)
        return fulldeck_wheel.write(TOP, wheel_directory, files, tag)
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    fail("the package has compiled parts and cannot be installed in editable mode. Leave -e away (pip install .), or use the "
         "build tree as it is: make build, then PYTHONPATH={}".format(os.path.join(TOP, "build", "lib", "python")))


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_sdist(sdist_directory, config_settings=None):
    fail("there is no source distribution of the package; install it from the source tree (pip install .), or make a wheel "
         "(pip wheel --no-deps .)")


# ---- settings ----


def read_settings(config_settings):
    settings = dict(config_settings or {})
    for name, value in settings.items():
        if name not in SETTINGS:
            fail("there is no setting '{}'; there are {}".format(name, ", ".join(SETTINGS)))
        if not isinstance(value, str) or not value:
            fail("the setting '{}' needs one value".format(name))
    for name in ("torch", "command"):
        if settings.get(name, "yes") not in ("yes", "no"):
            fail("the setting '{}' is yes or no, and not '{}'".format(name, settings[name]))
    if not re.match(r"[A-Za-z0-9_]+$", settings.get("platform", "linux")):
        fail("the setting 'platform' is a tag such as manylinux_2_27_x86_64, and not '{}'".format(settings["platform"]))
    return settings


# ---- which torch ----


def outer_environment(environment):
    """The environment without pip's variables that hide the installed packages from a build, and without relative
    folders: Python is started in the folder for temporary files, where anyone may have put a json.py."""
    outer = dict(environment)
    entries = [entry for entry in outer.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [entry for entry in entries if "pip-build-env-" not in entry]
    if len(kept) != len(entries):
        outer.pop("PYTHONNOUSERSITE", None)
    kept = [entry for entry in kept if os.path.isabs(entry)]
    outer.pop("PYTHONPATH", None)
    if kept:
        outer["PYTHONPATH"] = os.pathsep.join(kept)
    return outer


def ask(python, with_torch=True):
    """The description of an interpreter and its torch: see torch_facts.py."""
    command = [python, FACTS] + ([] if with_torch else ["--without-torch"])
    try:
        done = subprocess.run(command, env=outer_environment(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300, cwd=tempfile.gettempdir())
        return json.loads(done.stdout.decode().strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        fail("{} does not answer when it is asked for its torch: {}".format(python, error))


def find_torch(settings):
    """The interpreter to build for, and its description."""
    python = settings.get("python") or sys.executable
    if settings.get("torch") == "no":
        return python, ask(python, False)
    found = ask(python)
    if not settings.get("python") and found["torch"] is None and not found["failure"]:
        # Some installers build in their own virtual environment and name the target environment here.
        active = os.path.join(os.environ.get("VIRTUAL_ENV") or "", "bin", "python")
        if os.path.isabs(active) and os.access(active, os.X_OK):
            other = ask(active)
            if other["torch"] is not None and other["cache_tag"] == found["cache_tag"]:
                python, found = active, other
    if found["failure"]:
        fail("{} has a torch that cannot be imported: {}. Repair it, or build without it: --config-settings torch=no".format(
            python, found["failure"]))
    elif found["torch"] is None and settings.get("torch") == "yes":
        fail("{} has no torch. Install torch there first, or leave torch=yes away to build what needs none".format(python))
    if found["torch"] is None:
        log("no torch in {}: the wheel will have no backend of torch.distributed".format(python))
    elif not os.path.exists(os.path.join(found["include"], "Python.h")):
        fail("the headers of {} are not installed: there is no {}. On Debian: apt-get install python{}.{}-dev".format(
            python, os.path.join(found["include"], "Python.h"), *found["version"]))
    return python, found


# ---- earlier builds ----


# Files that are compiled for one torch: the backend, and the simulated cards inside torch.
TORCH_ONLY = ("fulldeck/_C.", "fulldeck/libfulldeck_torch.", "fulldeck/libfulldeck_sim", "fulldeck/_build.py")


def package_prebuilt(build, python, found, settings, wheel_directory, tag):
    """Writes a wheel from the files in `build` if they were built for this interpreter and its torch. With torch=no
    they may have been built for any torch, and the parts that need it are omitted."""
    path = os.path.join(build, FILE_LIST)
    if not os.path.exists(path):
        fail("{} holds no build of the package: there is no {}. Build it first: make build".format(build, FILE_LIST))
    files = fulldeck_wheel.read_file_list(path)
    missing = [here for here in files.values() if not os.path.exists(here)]
    if missing:
        fail("the build in {} is not complete: there is no {}".format(build, missing[0]))
    build_constants = {}
    exec(read(files["fulldeck/_build.py"]), build_constants)  # three constants that this build backend wrote
    if settings.get("command") == "no":
        files = {inside: here for inside, here in files.items() if ".data/" not in inside}
    wanted = (found["torch"], found["cache_tag"] if found["torch"] else None)
    if settings.get("torch") == "no" and build_constants["TORCH"] is not None:
        files = {inside: here for inside, here in files.items() if not inside.startswith(TORCH_ONLY)}
        note = re.sub(r"@\w+@", "None", read(os.path.join(TOP, "python", "metadata", "_build.py.in"))).encode()
        return fulldeck_wheel.write(TOP, wheel_directory, files, tag, {"fulldeck/_build.py": note})
    if (build_constants["TORCH"], build_constants["PYTHON"]) != wanted:
        fail("{} was built for torch {} of {}, and {} is {} with torch {}. Leave 'built' away to build for that".format(
            build, build_constants["TORCH"], build_constants["PYTHON"], python, found["cache_tag"], found["torch"]))
    return fulldeck_wheel.write(TOP, wheel_directory, files, tag)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---- compiling ----


def tool(names, why):
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    fail("there is no {} on PATH, {}. On Debian: apt-get install cmake ninja-build g++".format(" or ".join(names), why))


def jobs():
    count = len(os.sched_getaffinity(0))
    try:
        with open("/proc/meminfo") as file:
            available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
        count = min(count, available // BYTES_PER_JOB)
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    return max(1, int(count))


def compile_package(build, python, found, settings):
    """Builds the package in `build`; returns the files of the wheel: {path in it: path here}."""
    cmake = tool(["cmake"], "which drives the build")
    generator = "Ninja" if os.path.basename(tool(["ninja", "make"], "which builds")) == "ninja" else "Unix Makefiles"
    if not os.environ.get("CXX"):
        tool(["c++", "g++", "clang++"], "the C++ compiler")
    environment = outer_environment(os.environ)
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs()))
    log("building for {}, torch {}".format(python, found["torch"] or "none"))
    run([cmake, "-S", TOP, "-B", build, "-G", generator, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF",
         "-DFULLDECK_PACKAGE_ONLY=ON", "-DFULLDECK_PACKAGE_COMMAND={}".format("OFF" if settings.get("command") == "no" else "ON"),
         "-DFULLDECK_TORCH={}".format("ON" if found["torch"] else "OFF"),
         "-DFULLDECK_PYTHON:FILEPATH={}".format(python)], environment)
    run([cmake, "--build", build, "--target", "python_package"], environment)
    return fulldeck_wheel.read_file_list(os.path.join(build, FILE_LIST))


def run(command, environment):
    # pip uses this process's stdout for itself.
    code = subprocess.call(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    if code != 0:
        fail("'{}' ended with code {}; the reason stands above".format(" ".join(command), code))


def main(arguments):
    if not arguments or any("=" not in each for each in arguments[1:]):
        fail("usage: fulldeck_build.py FOLDER [NAME=VALUE ...]")
    print(os.path.join(arguments[0], build_wheel(arguments[0], dict(each.split("=", 1) for each in arguments[1:]))))


if __name__ == "__main__":
    main(sys.argv[1:])
