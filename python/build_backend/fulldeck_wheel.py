"""The wheel as a file: its contents and their encoding (PEP 427). Needs only Python; uses `strip` if it is
installed."""
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile

NAME = "fulldeck"
# The date of every file in the wheel, so that the same contents make the same wheel.
EPOCH = (1980, 1, 1, 0, 0, 0)


def version_of(top):
    """The version is defined only in CMakeLists.txt."""
    with open(os.path.join(top, "CMakeLists.txt"), encoding="utf-8") as file:
        found = re.search(r"^project\(fulldeck VERSION ([0-9.]+)", file.read(), re.M)
    if not found:
        raise ValueError("CMakeLists.txt names no version of fulldeck")
    return found.group(1)


def dist_info_name(top):
    return "{}-{}.dist-info".format(NAME, version_of(top))


def metadata_files(top):
    """The files of the metadata folder that need no build: {path: bytes}."""
    folder = os.path.join(top, "python", "metadata")
    info = dist_info_name(top)
    files = {}
    with open(os.path.join(folder, "METADATA.in"), encoding="utf-8") as file:
        files[info + "/METADATA"] = file.read().replace("@PROJECT_VERSION@", version_of(top)).encode("utf-8")
    for name, path in (("entry_points.txt", os.path.join(folder, "entry_points.txt")), ("LICENSE", os.path.join(top, "LICENSE"))):
        with open(path, "rb") as file:
            files[info + "/" + name] = file.read()
    return files


def tag(found, machine=None):
    """The wheel's tag for a description of an interpreter: cp311-cp311-linux_x86_64 with the extension,
    py3-none-linux_x86_64 without. `machine`: replaces linux_x86_64."""
    machine = machine or "linux_" + platform.machine()
    if found["torch"] is None:
        return "py3-none-" + machine
    python = "{}{}{}".format("cp" if found["name"] == "cpython" else found["name"], *found["version"])
    return "-".join((python, python, machine))


def read_file_list(path):
    """The list that CMake wrote: one "path in the wheel=path here" per line."""
    files = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                inside, _, here = line.rstrip("\n").partition("=")
                files[inside] = here
    return files


def record_row(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "{},sha256={},{}\n".format(path, digest, len(data))


def is_program(path):
    return ".so" in os.path.basename(path) or ".data/scripts/" in path


def without_symbols(path):
    """The bytes of a program or library without debug symbols, which are five sixths of the program."""
    with open(path, "rb") as file:
        data = file.read()
    strip = shutil.which("strip")
    if data[:4] != b"\x7fELF" or strip is None:
        return data
    with tempfile.TemporaryDirectory(prefix="fulldeck-wheel-") as folder:
        small = os.path.join(folder, "small")
        done = subprocess.run([strip, "--strip-unneeded", "-o", small, path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode != 0:  # for a different architecture, for example
            return data
        with open(small, "rb") as file:
            return file.read()


def write(top, folder, files, tags, texts=None):
    """Writes the wheel into `folder` and returns its name. `files`: {path in it: path here}, links are followed;
    `texts`: {path in it: bytes}."""
    info = dist_info_name(top)
    contents = {path: (data, 0o644) for path, data in (texts or {}).items()}
    for path, here in files.items():
        if is_program(path):
            contents[path] = (without_symbols(here), 0o755)
            continue
        with open(here, "rb") as file:
            contents[path] = (file.read(), 0o644)
    for path, data in metadata_files(top).items():
        contents[path] = (data, 0o644)
    wheel = "Wheel-Version: 1.0\nGenerator: fulldeck_build {}\nRoot-Is-Purelib: false\nTag: {}\n".format(version_of(top), tags)
    contents[info + "/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(record_row(path, data) for path, (data, _) in sorted(contents.items()))
    contents[info + "/RECORD"] = ("{}{}/RECORD,,\n".format(record, info).encode(), 0o644)

    name = "{}-{}-{}.whl".format(NAME, version_of(top), tags)
    os.makedirs(folder, exist_ok=True)
    # The metadata comes last, as the format recommends.
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(contents, key=lambda path: (path.startswith(info), path)):
            data, mode = contents[path]
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return name
