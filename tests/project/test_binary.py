"""The libraries that the built binary needs: the C and C++ runtime, and never torch or Python."""
import os
import re
import subprocess

import pytest

from launching import TOP, BUILD

FULLDECK = os.path.join(BUILD, "bin", "fulldeck")

ALLOWED = re.compile(r"^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux\S*)\.so\.\d+$")


def needed(path):
    output = subprocess.run(["readelf", "--wide", "--dynamic", path], check=True, stdout=subprocess.PIPE,
                            universal_newlines=True, env=dict(os.environ, LC_ALL="C"), timeout=60).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", output)


def test_fulldeck_needs_only_the_runtime_of_the_language():
    libraries = needed(FULLDECK)
    assert libraries, "readelf showed no needed library at all"
    assert [name for name in libraries if not ALLOWED.match(name)] == []


@pytest.mark.parametrize("name", ["simulated_card", "board"])
def test_a_library_for_users_shows_its_c_interface_and_nothing_else(name):
    library = os.path.join(BUILD, "lib", "libfulldeck_{}.so".format(name))
    assert [name for name in needed(library) if not ALLOWED.match(name)] == []
    rows = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True, timeout=60).stdout.split("\n")
    symbols = {row.split()[-1] for row in rows if row}
    assert "fulldeck_{}_open".format(name) in symbols
    assert [symbol for symbol in symbols if not symbol.startswith("fulldeck_" + name)] == []


def test_nothing_that_is_loaded_with_it_is_torch_or_python():
    # ldd also lists indirect dependencies.
    loaded = subprocess.run(["ldd", FULLDECK], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=60).stdout
    assert "libc.so" in loaded
    names = re.sub(r"\(0x[0-9a-f]+\)", "", loaded.replace(TOP, ""))  # an address may contain c10
    assert not re.search(r"torch|c10|python", names), names
