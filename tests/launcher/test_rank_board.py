"""The rank board as docs/wire-format.md describes it, created and read here from that document only, with programs that
write to it through the library."""
import ctypes
import fcntl
import math
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import pytest

from launching import TOP, BUILD

WRITER = os.path.join(BUILD, "tests", "board_writer")
TIMEOUT = 120

PROCESS, LOOP, HEARTBEAT, GROUPS, ERROR = 512, 768, 1280, 1408, 3968
PHASE_COMPUTE, PHASE_FINISHED = 6, 10
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4


class Board:
    def __init__(self, ranks=2, version=1):
        self.fd = os.memfd_create("board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        size = 4096 + ranks * 8192
        os.ftruncate(self.fd, size)
        os.pwrite(self.fd, struct.pack("=8sII6IQ192s", b"FDRBOARD", version, size, 4096, 8192, ranks, 0, ranks, 0, 1, b"run"), 0)
        fcntl.fcntl(self.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
        self.memory = mmap.mmap(self.fd, size, access=mmap.ACCESS_READ)

    @classmethod
    def of_rank(cls, pid, variables):
        """The board that a running rank writes to; it can still be read when the rank has exited."""
        board = cls.__new__(cls)
        board.fd = os.open("/proc/{}/fd/{}".format(pid, variables["FULLDECK_BOARD_FD"]), os.O_RDONLY)
        board.memory = mmap.mmap(board.fd, os.fstat(board.fd).st_size, access=mmap.ACCESS_READ)
        return board

    def close(self):
        self.memory.close()
        os.close(self.fd)

    def start(self, *command, slot=1, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FULLDECK_")}
        environment.update(FULLDECK_BOARD_FD=str(self.fd), FULLDECK_BOARD_SLOT=str(slot), RANK=str(slot), WORLD_SIZE="2")
        return subprocess.Popen(list(command), env=environment, pass_fds=[self.fd], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True, **options)

    def read(self, part, form, rank=1):
        at = 4096 + rank * 8192 + part
        while True:
            count, = struct.unpack_from("=Q", self.memory, at)
            if count == 0:
                return None
            value = struct.unpack_from("=" + form, self.memory, at + 8 + count % 2 * struct.calcsize("=" + form))
            if struct.unpack_from("=Q", self.memory, at)[0] == count:
                return value

    def loop(self, rank=1):
        value = self.read(LOOP, "II6Qd11Q12Q", rank)
        names = ("phase has_loss phase_since_ns step total_steps epoch step_at_ns last_step_ns loss samples data_ns compute_ns "
                 "communication_ns checkpoint_ns memory_bytes memory_peak_bytes batch_fingerprint batch_step "
                 "parameters_fingerprint parameters_step first_batches_reported first_batches reductions unreduced_steps repeated_orders saved_file").split()
        return dict(zip(names, value)) if value else None

    def group(self, slot=0):
        value = self.read(GROUPS + slot * 320, "Q16sIIIIiI10Q3Q")
        names = ("group name size rank operation datatype root owner count bytes sequence completed since_ns ended_ns "
                 "fingerprint history waited_ns waiting_since_ns").split()
        return dict(zip(names, value)) if value else None


@pytest.fixture
def board():
    made = Board()
    yield made
    made.close()


def wait_for(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_program_in_c_writes_what_the_document_says(board):
    writer = board.start(WRITER, "5", "1")
    output, errors = writer.communicate(timeout=TIMEOUT)
    assert (writer.returncode, errors) == (0, "")
    assert output.splitlines() == ["step %d" % step for step in range(1, 6)]

    loop = board.loop()
    assert (loop["phase"], loop["step"], loop["total_steps"], loop["samples"]) == (PHASE_FINISHED, 5, 5, 160)
    assert loop["has_loss"] == 1 and math.isclose(loop["loss"], 0.2)
    assert (loop["memory_bytes"], loop["memory_peak_bytes"], loop["compute_ns"]) == (1 << 30, 3 << 29, 5000000)
    assert (loop["batch_step"], loop["parameters_fingerprint"], loop["parameters_step"]) == (5, 5 * 7919, 5)
    assert loop["last_step_ns"] >= 1000000 and 0 < loop["step_at_ns"] <= time.monotonic_ns()

    pid, loaded, start_ticks, since_ns, program = board.read(PROCESS, "IIQQ64s32x")
    assert (pid, loaded, program.rstrip(b"\0")) == (writer.pid, 4, b"board_writer")
    assert start_ticks > 0 and since_ns > 0
    assert board.read(HEARTBEAT, "QQQ")[0] == 5
    group = board.group()
    assert (group["group"], group["name"].rstrip(b"\0"), group["size"], group["rank"]) == (1, b"world", 2, 1)
    assert (group["operation"], group["datatype"], group["root"], group["count"]) == (3, 10, -1, 1 << 20)
    assert (group["sequence"], group["completed"]) == (5, 5)
    assert board.read(ERROR, "QQQ416s") is None
    assert board.read(LOOP, "248s", rank=0) is None


def mix(a, b):
    mask = (1 << 64) - 1
    mixed = ((a ^ b) + 0x9E3779B97F4A7C15) & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return mixed ^ mixed >> 31


def test_fingerprints_are_made_as_the_document_says(board):
    board.start(WRITER, "2", "0").communicate(timeout=TIMEOUT)
    fingerprint = mix(mix(mix(0, 3 << 32 | 10), 1 << 20), 0xFFFFFFFF)
    assert board.group()["fingerprint"] == fingerprint
    assert board.group()["history"] == mix(mix(0, fingerprint), fingerprint)


def test_what_a_failed_a_hung_and_a_killed_program_wrote_stays(board):
    writer = board.start(WRITER, "3", "0", "fail")
    writer.communicate(timeout=TIMEOUT)
    assert writer.returncode == 3
    assert board.read(ERROR, "QQQ416s")[3].rstrip(b"\0") == b"the data ran out"
    assert board.loop()["phase"] != PHASE_FINISHED

    hung = board.start(WRITER, "3", "0", "hang")
    wait_for(lambda: board.group()["owner"] == hung.pid and board.group()["sequence"] == 4)
    assert board.group()["completed"] == 3 and hung.poll() is None
    hung.kill()
    hung.communicate(timeout=TIMEOUT)

    endless = board.start(WRITER, "0", "0")
    wait_for(lambda: board.read(PROCESS, "II112s")[0] == endless.pid and board.loop()["step"] > 3)
    endless.send_signal(signal.SIGKILL)
    endless.communicate(timeout=TIMEOUT)
    loop = board.loop()
    assert loop["samples"] == loop["step"] * 32 and loop["parameters_fingerprint"] == loop["parameters_step"] * 7919


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused_with_both_numbers_and_the_program_goes_on(version):
    board = Board(version=version)
    writer = board.start(WRITER, "1", "0")
    output, errors = writer.communicate(timeout=TIMEOUT)
    assert (writer.returncode, output) == (0, "step 1\n")
    assert "has version %d, this fulldeck speaks version 1: use the same fulldeck on both sides" % version in errors
    assert board.loop() is None
    board.close()


def test_without_fulldeck_the_program_is_notified_and_continues():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FULLDECK_")}
    done = subprocess.run([WRITER, "1", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (0, "step 1\n")
    assert "not started by fulldeck run" in done.stderr


# ---- fulldeck.board

IN_PYTHON = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from fulldeck import board
mine = board.ours()
assert mine is board.ours() and mine.is_open and mine.why_not == "", mine.why_not
mine.identity(board.HOOK, "ein Prögramm")
mine.phase(board.COMPUTE)
for step in range(38, 42):
    mine.step(step, loss=float("nan"), total_steps=100, epoch=2, batch_fingerprint=7 * step, reductions=2 * step, unreduced_steps=3)
mine.figures.step += 1
mine.figures.parameters_fingerprint = 5
mine.tell()
mine.memory(1, 2)
mine.saved(99)
mine.heartbeat()
slot = mine.group_join(77, "world", 2, 1)
call = mine.collective_begin(slot, "all_reduce", "float32", 1 << 20, 1 << 22)
mine.collective_end(slot, call)
mine.collective_begin(slot, "invented")
assert [mine.group_join(number, None, 2, 1) >= 0 for number in range(1, 9)] == 7 * [True] + [False]
mine.set_error("das Ende: \\0 " + 500 * "ä")
if os.fork() == 0:
    mine.step(1000)
    os._exit(0)
os.wait()
mine.close()
mine.step(2000)
mine.heartbeat()
"""


def test_a_program_in_python_writes_through_the_package(board):
    writer = board.start(sys.executable, "-c", IN_PYTHON, os.path.join(BUILD, "lib", "python"))
    _, errors = writer.communicate(timeout=TIMEOUT)
    assert writer.returncode == 0, errors
    loop = board.loop()
    assert (loop["phase"], loop["step"], loop["total_steps"], loop["epoch"], loop["samples"]) == (PHASE_COMPUTE, 42, 100, 2, 0)
    assert math.isnan(loop["loss"]) and (loop["memory_bytes"], loop["memory_peak_bytes"]) == (1, 2)
    assert (loop["batch_fingerprint"], loop["batch_step"], loop["parameters_fingerprint"], loop["parameters_step"]) == (287, 41, 5, 42)
    first = 0
    for step in (38, 39, 40):
        first = mix(mix(first, step), 7 * step)
    assert (loop["first_batches_reported"], loop["first_batches"]) == (3, first)
    assert (loop["reductions"], loop["unreduced_steps"], loop["repeated_orders"], loop["saved_file"]) == (82, 3, 0, 99)
    assert board.read(PROCESS, "IIQQ64s32x")[1::3] == (2, "ein Prögramm".encode().ljust(64, b"\0"))
    group = board.group()
    assert (group["group"], group["sequence"], group["completed"], group["operation"]) == (77, 2, 1, 12)
    text = board.read(ERROR, "QQQ416s")[3].rstrip(b"\0").decode()
    assert text.startswith("das Ende: ? ää") and len(text.encode()) in (414, 415)


def test_without_a_board_or_its_library_every_call_does_nothing(board, tmp_path):
    script = IN_PYTHON.replace("and mine.is_open and mine.why_not == \"\", mine.why_not", "and not mine.is_open; print(mine.why_not)")
    script = script.replace("7 * [True] + [False]", "8 * [False]")
    package = os.path.join(BUILD, "lib", "python")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FULLDECK_")}
    for variables, words in ((plain, "not started by fulldeck run"),
                             (dict(plain, FULLDECK_BOARD_FD="9", FULLDECK_BOARD_SLOT="0"), "descriptor 9 (FULLDECK_BOARD_FD) is closed")):
        done = subprocess.run([sys.executable, "-c", script, package], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=TIMEOUT)
        assert done.returncode == 0 and words in done.stdout, done
    shutil.copytree(os.path.join(package, "fulldeck"), str(tmp_path / "python" / "fulldeck"))
    for content, words in ((None, "libfulldeck_board.so.0 is in none of"), (b"stub", "is no library")):
        if content is not None:
            (tmp_path / "python" / "fulldeck" / "libfulldeck_board.so.0").write_bytes(content)
        writer = board.start(sys.executable, "-c", script, str(tmp_path / "python"))
        output, errors = writer.communicate(timeout=TIMEOUT)
        assert writer.returncode == 0 and words in output, (output, errors)
    assert board.loop() is None


def test_the_package_declares_what_the_header_does():
    sys.path.insert(0, os.path.join(BUILD, "lib", "python"))
    from fulldeck import board as package

    with open(os.path.join(TOP, "include", "fulldeck", "rank_board.h")) as file:
        header = " ".join(re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S).split())
    kinds = {"int": ctypes.c_int, "void": None, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "const char*": ctypes.c_char_p,
             "int32_t": ctypes.c_int32, "double": ctypes.c_double, "fulldeck_board*": ctypes.c_void_p, "const fulldeck_board*": ctypes.c_void_p,
             "fulldeck_board**": ctypes.POINTER(ctypes.c_void_p), "const fulldeck_board_figures*": ctypes.POINTER(package.Figures),
             "const fulldeck_board_collective*": ctypes.POINTER(package.Collective)}
    declared = {}
    for result, name, arguments in re.findall(r"FULLDECK_BOARD_API ([\w ]+?\*?) ?(fulldeck_board_\w+)\(([^)]*)\);", header):
        declared[name] = (kinds[result], [kinds[re.sub(r" ?\w+$", "", argument.strip())] for argument in arguments.split(",")
                                          if argument.strip() != "void"])
    assert declared == package.FUNCTIONS and len(declared) == 20
    for structure, name in ((package.Figures, "figures"), (package.Collective, "collective")):
        body = re.search(r"struct fulldeck_board_%s \{(.*?)\}" % name, header).group(1)
        assert [(field, kinds[kind]) for kind, field in re.findall(r"(\w+) (\w+);", body)] == structure._fields_
    numbers = {name: int(number) for name, number in re.findall(r"FULLDECK_BOARD_(\w+) = (\d+)[,}]", header)}
    for name in ("STARTING", "DATA", "FINISHED", "OTHER_PHASE"):
        assert getattr(package, name) == numbers[name]
    checks = {name: number for name, number in numbers.items() if name.startswith("CHECK_")}
    assert checks == {name: number for name, number in vars(package).items() if name.startswith("CHECK_")}
    for table, other in ((package.OPERATIONS, "OTHER_OPERATION"), (package.DATATYPES, "OTHER_DATATYPE")):
        for name, number in table.items():
            assert number == numbers[{"other": other, "none": "NO_DATA"}.get(name, name.upper())], name
