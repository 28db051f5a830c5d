"""The build itself keeps a layer from including what it may not: such a file does not compile."""
import os
import shutil
import subprocess

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
add_library(fulldeck_compile_options INTERFACE)
include(layer.cmake)
add_layer(core/low)
add_layer(control/middle USES low)
add_layer(control/high FOLDERS inner USES middle)
"""
PATHS = {"low": "src/core/low", "middle": "src/control/middle", "high": "src/control/high"}


@pytest.fixture
def tree(tmp_path):
    """Three layers: low, middle (uses low) and high (uses middle, and so not low)."""
    shutil.copy(os.path.join(TOP, "cmake", "layer.cmake"), str(tmp_path))
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "include").mkdir()
    for layer, path in PATHS.items():
        folder = tmp_path / path
        folder.mkdir(parents=True)
        (folder / (layer + ".h")).write_text("#pragma once\nint %s();\n" % layer)
        (folder / (layer + ".cc")).write_text('#include "%s/%s.h"\nint %s() { return 1; }\n' % (layer, layer, layer))
    (tmp_path / PATHS["high"] / "inner").mkdir()
    (tmp_path / PATHS["high"] / "inner" / "detail.h").write_text("#pragma once\n")
    (tmp_path / PATHS["high"] / "inner" / "detail.cc").write_text('#include "high/inner/detail.h"\n#include "middle/middle.h"\n')
    return tmp_path


def build(tree):
    for command in (["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DBUILD_TESTING=OFF"],
                    ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=str(tree), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=300)
        if done.returncode != 0:
            break
    return done


def add_include(tree, layer, header):
    source = tree / PATHS[layer] / (layer + ".cc")
    source.write_text('#include "%s"\n' % header + source.read_text())


def test_a_layer_may_include_itself_and_what_it_uses(tree):
    add_include(tree, "middle", "low/low.h")
    add_include(tree, "high", "middle/middle.h")
    done = build(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("layer,header", [
    ("low", "middle/middle.h"),  # upwards
    ("high", "low/low.h"),  # through another layer
    ("high", "src/core/low/low.h"),  # by the path in the tree
])
def test_a_forbidden_include_does_not_compile(tree, layer, header):
    add_include(tree, layer, header)
    done = build(tree)
    assert done.returncode != 0
    assert header + ": No such file" in done.stdout or "'%s' file not found" % header in done.stdout


def test_a_layer_cannot_use_one_that_is_declared_below_it(tree):
    (tree / "CMakeLists.txt").write_text(PROJECT.replace("add_layer(core/low)", "add_layer(core/low USES middle)"))
    done = build(tree)
    assert done.returncode != 0 and "USES middle, which is not a layer declared above it" in " ".join(done.stdout.split())
