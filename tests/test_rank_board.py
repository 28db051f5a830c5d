"""The rank board as docs/wire-format.md describes it, made and read here by that document alone, with programs that write to it
through the library."""
import fcntl
import math
import mmap
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build"))
WRITER = os.path.join(BUILD, "tests", "board_writer")
LIBRARY = os.path.join(BUILD, "lib", "libfulldeck_board.so")
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

    def loop(self):
        value = self.read(LOOP, "II6Qd11Q12Q")
        names = ("phase has_loss phase_since_ns step total_steps epoch step_at_ns last_step_ns loss samples data_ns compute_ns "
                 "communication_ns checkpoint_ns memory_bytes memory_peak_bytes batch_fingerprint batch_step "
                 "parameters_fingerprint parameters_step").split()
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


def test_without_fulldeck_the_program_is_told_so_and_goes_on():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FULLDECK_")}
    done = subprocess.run([WRITER, "1", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (0, "step 1\n")
    assert "not started by fulldeck run" in done.stderr


def test_a_program_in_python_can_write_through_the_library(board):
    script = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
board = ctypes.c_void_p()
assert library.fulldeck_board_open(ctypes.byref(board)) == 0
library.fulldeck_board_phase(board, 6)
class Figures(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("has_loss", ctypes.c_uint32), ("step", ctypes.c_uint64),
                ("total_steps", ctypes.c_uint64), ("epoch", ctypes.c_uint64), ("loss", ctypes.c_double)]
figures = Figures(ctypes.sizeof(Figures), 1, 41, 100, 2, float("nan"))
assert library.fulldeck_board_step(board, ctypes.byref(figures)) == 0
library.fulldeck_board_close(board)
"""
    writer = board.start(sys.executable, "-c", script, LIBRARY)
    _, errors = writer.communicate(timeout=TIMEOUT)
    assert writer.returncode == 0, errors
    loop = board.loop()
    assert (loop["phase"], loop["step"], loop["total_steps"], loop["epoch"], loop["samples"]) == (PHASE_COMPUTE, 41, 100, 2, 0)
    assert math.isnan(loop["loss"])
