"""The build itself prevents forbidden includes between layers: such a file does not compile."""
import glob
import os
import re
import shutil
import subprocess

import pytest

from launching import TOP

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


def layers_of_the_build():
    """{"core/wire": {"base"}}: the declarations of add_layer and add_torch_layer."""
    found = {}
    for path in [os.path.join(TOP, "CMakeLists.txt")] + sorted(glob.glob(os.path.join(TOP, "cmake", "*.cmake"))):
        with open(path) as text:
            for call in re.findall(r"^ *(add_(?:torch_)?layer)\(([a-z]+/[a-z_0-9]+)([^)]*)\)", text.read(), re.MULTILINE):
                uses = re.search(r"\bUSES((?:\s+[a-z_0-9]+)*)", call[2])
                found[call[1]] = set(uses.group(1).split()) if uses else set()
                if call[0] == "add_torch_layer":
                    found[call[1]].add("torch")
    return found


def layers_of_the_document():
    found, world = {}, None
    with open(os.path.join(TOP, "docs", "architecture.md")) as text:
        for line in text:
            heading = re.match(r"##+ (?:`src/([a-z]+)`)?", line)
            if heading:
                world = heading.group(1)
            row = re.match(r"\| `([a-z_0-9]+)` \|.*\| ([^|]*) \|$", line)
            if row and world:
                found[world + "/" + row.group(1)] = set() if row.group(2) == "–" else set(row.group(2).split(", "))
    return found


def test_the_architecture_page_has_the_layers_and_edges_of_the_build():
    build = layers_of_the_build()
    build["rank/simulator"] = {"base", "wire", "torch"}  # a separate library, in cmake/simulator.cmake
    assert len(build) > 20
    assert layers_of_the_document() == build


def test_every_folder_of_src_is_a_layer_in_one_of_the_four_worlds():
    worlds = sorted(os.listdir(os.path.join(TOP, "src")))
    assert worlds == ["control", "core", "rank", "vision"]
    folders = {world + "/" + name for world in worlds for name in os.listdir(os.path.join(TOP, "src", world))}
    assert folders == set(layers_of_the_document())


def test_no_folder_has_more_than_45_files():
    for folder, _, names in os.walk(os.path.join(TOP, "src")):
        assert len(names) <= 45, "%s has %d files: sort them by idea" % (os.path.relpath(folder, TOP), len(names))
