"""`cmake --install`, and an external project that finds the package and builds from the prefix only."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from launching import BUILD, TOP

pytestmark = [pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_runtime.so")), reason="this build has no torch"),
              pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")]

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(somebody LANGUAGES C CXX)
find_package(fulldeck 0.1 CONFIG REQUIRED COMPONENTS collectives runtime)
add_executable(trains train.cc)
target_link_libraries(trains PRIVATE fulldeck::runtime)
add_executable(reduces reduces.c)
target_link_libraries(reduces PRIVATE fulldeck::collectives)
"""

REDUCES = r"""
#include <fulldeck/collectives.h>
#include <stdio.h>
int main(void) {
  fulldeck_group_options options = {.struct_bytes = sizeof options, .name = "outside", .key = "k", .rank = 0, .size = 1};
  fulldeck_group* group = NULL;
  float value = 3;
  if (fulldeck_group_create(&options, &group) != 0 ||
      fulldeck_all_reduce(group, &value, &value, 1, FULLDECK_FLOAT32, FULLDECK_SUM) != 0) {
    puts(fulldeck_error_text());
    return 1;
  }
  fulldeck_group_destroy(group);
  return value == 3 ? 0 : 2;
}
"""


def call(*arguments, **settings):
    done = subprocess.run([str(each) for each in arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          timeout=600, **settings)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    code, text = call("cmake", "--install", BUILD, "--prefix", folder)
    assert code == 0, text
    return folder


def configure(prefix, folder, python=sys.executable):
    # No build type: debug information of torch's headers takes a third of the compile time.
    return call("cmake", "-S", folder, "-B", folder / "build", "-DCMAKE_PREFIX_PATH=%s" % prefix, "-DFULLDECK_PYTHON=%s" % python,
                "-DCMAKE_BUILD_TYPE=")


def test_a_project_outside_the_tree_is_built_from_the_prefix_and_trains(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    shutil.copy(os.path.join(TOP, "examples", "train.cc"), str(tmp_path / "train.cc"))
    (tmp_path / "reduces.c").write_text(REDUCES)
    code, text = configure(prefix, tmp_path)
    assert code == 0, text
    code, text = call("cmake", "--build", tmp_path / "build")
    assert code == 0, text
    code, text = call(prefix / "bin" / "fulldeck", "run", "--devices", "cpu", "--nproc-per-node", 2, "--no-python",
                      tmp_path / "build" / "trains", "--steps", 5, cwd=str(tmp_path))
    assert code == 0 and re.search(r"final loss \d\.\d{9}", text), text
    code, text = call(tmp_path / "build" / "reduces")
    assert code == 0, text
    needed = call("readelf", "-d", tmp_path / "build" / "trains")[1]
    assert "libfulldeck_runtime.so.0" in needed


def test_a_python_without_the_torch_that_it_was_built_for_is_refused_with_the_reason(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "train.cc").write_text("")
    (tmp_path / "reduces.c").write_text("")
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho '{\"torch\": \"2.1.0\", \"torch_folder\": \"/nowhere\"}'\n")
    stand_in.chmod(0o755)
    code, text = configure(prefix, tmp_path, stand_in)
    text = " ".join(text.split())
    assert code != 0 and "it was built for torch 2." in text and "has 2.1.0" in text, text


def test_the_runtime_shows_what_its_headers_declare_and_nothing_else():
    library = os.path.join(BUILD, "lib", "libfulldeck_runtime.so")
    names = call("nm", "-DC", "--defined-only", library)[1].splitlines()
    ours = [line.split(" ", 2)[2] for line in names if line.count(" ") >= 2 and line.split(" ", 2)[1] in "TBDR"]
    foreign_symbols = [name for name in ours if not name.startswith("fulldeck::") and name not in ("__bss_start", "_edata", "_end")]
    inner = [name for name in ours if re.match(r"fulldeck::(runtime|checkpoint|base|wire|collectives|torch_backend)::", name)]
    assert ours and foreign_symbols == [] and inner == []
