"""fulldeck.collectives: the C interface from Python, with numpy and without, in real processes. No torch."""
import ctypes
import os
import re
import shutil
import subprocess
import sys

import pytest

from launching import BUILD, FULLDECK, TOP
from python_ranks import PACKAGE, run_python, run_script

numpy = pytest.importorskip("numpy")
sys.path.insert(0, os.path.join(TOP, "python"))
from fulldeck import _library, errors  # noqa: E402
from fulldeck._buffers import DATATYPES  # noqa: E402

HEADER = os.path.join(TOP, "include", "fulldeck", "collectives.h")


def header():
    """Without its comments, on one line."""
    with open(HEADER) as file:
        return " ".join(re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S).split())


def pythons():
    """This Python, the system's, and the oldest supported one, if installed."""
    found = [sys.executable]
    for name in ("/usr/bin/python3", "python3.8"):
        path = shutil.which(name)
        if path and subprocess.call([path, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            found.append(path)
    return found


# ---- the declarations ----

C_TYPES = {"const char*": ctypes.c_char_p, "int": ctypes.c_int, "void": None, "uint64_t": ctypes.c_uint64,
           "const uint64_t*": ctypes.POINTER(ctypes.c_uint64), "fulldeck_group*": ctypes.c_void_p,
           "const void*": ctypes.c_void_p, "void*": ctypes.c_void_p, "void**": ctypes.POINTER(ctypes.c_void_p),
           "fulldeck_group**": ctypes.POINTER(ctypes.c_void_p), "int*": ctypes.POINTER(ctypes.c_int),
           "const fulldeck_group_options*": ctypes.POINTER(_library.GroupOptions),
           "fulldeck_nonfinite_record*": ctypes.POINTER(_library.NonfiniteRecord),
           "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32}


def test_every_function_is_declared_as_in_the_header():
    declared = {}
    for result, name, arguments in re.findall(r"FULLDECK_COLLECTIVES_API ([\w ]+?\*?) ?(fulldeck_\w+)\(([^)]*)\);", header()):
        kinds = [re.sub(r" ?\w+$", "", argument.strip()) for argument in arguments.split(",") if argument.strip() != "void"]
        declared[name] = (C_TYPES[result], [C_TYPES[kind] for kind in kinds])
    assert len(declared) > 15
    assert declared == _library.FUNCTIONS


@pytest.mark.parametrize("structure,name", [(_library.GroupOptions, "fulldeck_group_options"),
                                            (_library.NonfiniteRecord, "fulldeck_nonfinite_record")])
def test_every_structure_is_declared_as_in_the_header(structure, name):
    body = re.search(r"typedef struct %s \{ (.*?) \} %s;" % (name, name), header()).group(1)
    fields = [re.match(r"(.*?) ?(\w+)$", field.strip()).groups() for field in body.split(";") if field.strip()]
    assert [(field, C_TYPES[kind]) for kind, field in fields] == structure._fields_


def test_every_number_is_that_of_the_header():
    numbers = {name: int(value) for name, value in re.findall(r"FULLDECK_([A-Z0-9_]+) = (-?\d+)", header())}
    codes = {name[len("ERROR_"):]: number for name, number in numbers.items() if name.startswith("ERROR_")}
    assert set(codes.values()) == set(errors.BY_CODE)
    assert (numbers["OK"], numbers["ANY_SOURCE"]) == (0, _library.ANY_SOURCE)
    others = {name.lower(): number for name, number in numbers.items()
              if not name.startswith("ERROR_") and name not in ("OK", "ANY_SOURCE")}
    ours = dict(_library.REDUCTIONS, **{name: code for name, (code, _) in DATATYPES.items()})
    assert ours == others


# ---- values ----

# Each rank knows the input of all ranks, and therefore the expected result.
VALUES = r"""
import numpy as np
from fulldeck.collectives import Group

group = Group.from_environment(timeout=60)
rank, size = group.rank, group.size
kinds = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]

def of(r, kind, shape=(3, 5)):
    numbers = np.random.RandomState(r).randint(0, 7, shape)
    return (numbers % 2 if kind == "bool" else numbers).astype(kind)

for kind in kinds:
    everyone = np.stack([of(r, kind) for r in range(size)])
    mine = of(rank, kind)
    total = everyone.any(0) if kind == "bool" else everyone.astype("float64").sum(0).astype(kind)
    array = mine.copy()
    assert group.all_reduce(array) is array and (array == total).all(), kind
    out = np.empty_like(mine)
    assert group.all_reduce(mine, "max", out=out) is out and (out == everyone.max(0)).all(), kind
    assert (mine == of(rank, kind)).all(), kind
    assert (group.all_reduce(mine.copy(), "min") == everyone.min(0)).all(), kind
    if kind[0] != "f":
        assert (group.all_reduce(mine.copy(), "xor") == np.bitwise_xor.reduce(everyone)).all(), kind
    got = group.reduce(mine.copy(), root=1)
    assert (got is None) if rank != 1 else (got == total).all(), kind
    array = mine.copy()
    group.broadcast(array, root=size - 1)
    assert (array == everyone[size - 1]).all(), kind
    assert group.all_gather(mine).dtype == kind
    assert (group.all_gather(mine) == everyone).all(), kind
    got = group.gather(mine, root=0)
    assert (got is None) if rank else (got == everyone).all(), kind
    parts = np.stack([of(100 * rank + r, kind) for r in range(size)])
    want = np.stack([of(100 * r + rank, kind) for r in range(size)])
    want = want.any(0) if kind == "bool" else want.astype("float64").sum(0).astype(kind)
    got = group.reduce_scatter(parts)
    assert got.shape == (3, 5) and (got == want).all(), kind
    got = group.reduce_scatter(parts.reshape(size * 3, 5))
    assert got.shape == (3, 5) and (got == want).all(), kind
    got = group.scatter(parts if rank == 2 else None, root=2, out=np.empty((3, 5), kind))
    assert (got == of(200 + rank, kind)).all(), kind
    assert (group.all_to_all(parts) == np.stack([of(100 * r + rank, kind) for r in range(size)])).all(), kind

# Parts of different sizes: rank r gives rank t (r + 2 t) elements.
given = [rank + 2 * t for t in range(size)]
taken = [r + 2 * rank for r in range(size)]
data = np.concatenate([np.full(count, 10 * rank + t, "int32") for t, count in enumerate(given)])
want = np.concatenate([np.full(count, 10 * r + rank, "int32") for r, count in enumerate(taken)])
assert (group.all_to_all_v(data, given, taken) == want).all()

# In place where the contract allows it.
whole = np.zeros((size, 4), "float32")
whole[rank] = rank + 1
group.all_gather(whole[rank], out=whole)
assert (whole == np.arange(1, size + 1, dtype="float32")[:, None]).all()

# bfloat16 by its bits: 1.5 is 0x3FC0, three of them 4.5: 0x4090.
half = np.full(7, 0x3FC0, "uint16")
group.all_reduce(half, dtype="bfloat16")
assert half.tolist() == [0x4090] * 7 or size != 3, half

group.all_reduce(np.zeros((0, 3)))
group.barrier()

# Round the ring, and from anybody.
received = np.zeros(3)
group.send(np.full(3, rank, float), (rank + 1) % size, tag=5)
assert group.receive(received, (rank - 1) % size, tag=5) == (rank - 1) % size
assert (received == (rank - 1) % size).all()
if rank == 0:
    seen = set()
    for _ in range(size - 1):
        sender = group.receive(received, tag=6)
        assert (received == sender).all()
        seen.add(sender)
    assert seen == set(range(1, size))
else:
    group.send(np.full(3, rank, float), 0, tag=6)
group.close()
print("done")
"""


def test_every_call_gives_the_right_values_for_every_type(tmp_path):
    for ended in run_script(3, VALUES, tmp_path):
        assert (ended.code, ended.out) == (0, "done\n"), ended


@pytest.mark.parametrize("python", pythons())
def test_plain_buffers_need_no_numpy(tmp_path, python):
    script = r"""
import sys
sys.modules["numpy"] = None
import array, ctypes
from fulldeck.collectives import Group

with Group.from_environment(timeout=60) as group:
    numbers = array.array("d", [1.0, group.rank])
    group.all_reduce(numbers)
    assert numbers.tolist() == [2.0, 1.0]
    assert group.all_gather(b"ab" if group.rank else b"xy") == bytearray(b"xyab")
    raw = bytearray(array.array("f", [0.5, 0.5]).tobytes())
    group.all_reduce(raw, dtype="float32")
    assert array.array("f", bytes(raw)).tolist() == [1.0, 1.0]
    out = bytearray(8)
    group.all_reduce(array.array("i", [group.rank, 7]), "max", out=out)
    assert array.array("i", bytes(out)).tolist() == [1, 7]
    field = (ctypes.c_int64 * 2)(group.rank, 1)
    group.broadcast(field, root=1)
    assert list(field) == [1, 1]
    group.all_reduce(memoryview(field)[1:])
    assert list(field) == [1, 2]
    try:
        group.allocate(3)
    except ImportError:
        print("done")
"""
    for ended in run_script(2, script, tmp_path, python=python):
        assert (ended.code, ended.out) == (0, "done\n"), ended


def test_ranks_of_the_launcher_find_the_package_with_no_path_of_the_users(workspace):
    script = workspace.write("train.py", "import numpy, os\n"
                                     "from fulldeck.collectives import Group\n"
                                     "with Group.from_environment(timeout=60) as group:\n"
                                     "    print('sum', int(group.all_reduce(numpy.array([group.rank + 1]))[0]),"
                                     " os.environ.get('PYTHONPATH'))\n")
    done = workspace.run("--nproc-per-node", 3, script)
    assert done.code == 0, done
    assert done.out.count("sum 6 None") == 3, done


# ---- shared memory ----


def test_shared_memory_outlives_the_group_as_long_as_an_array_needs_it(tmp_path):
    script = r"""
import numpy as np
from fulldeck.collectives import Group

with Group.from_environment(timeout=60) as group:
    array = group.allocate((1000, 3))
    assert array.dtype == "float32" and array.flags.writeable and array.ctypes.data % 64 == 0
    array[:] = group.rank + 1
    group.all_reduce(array)
    assert (array == 3).all()
    half = group.allocate(10, "bfloat16")
    assert half.dtype == "uint16"
    for _ in range(50):  # given back each time
        group.allocate(1 << 20, "uint8")[:] = 1
    assert group.allocate((2, 0)).shape == (2, 0)
    row = array[10]
    del array
assert group.closed and (row == 3).all()
row[:] = 5
assert row.sum() == 15
print("done")
"""
    for ended in run_script(2, script, tmp_path):
        assert (ended.code, ended.out) == (0, "done\n"), ended


# ---- failures ----


def attempt(what):
    """Runs `what` and prints the class and the text of its exception."""
    return """
from fulldeck.collectives import *
import numpy as np, os, sys, threading, time
rank = int(os.environ["RANK"])
began = time.monotonic()
try:
{}
except Error as error:
    print(type(error).__name__, error.code, "%.3f" % (time.monotonic() - began), str(error).replace("\\n", " | "))
else:
    print("nothing was raised")
""".format("\n".join("    " + line for line in what.strip().splitlines()))


def reported(ended):
    assert ended.code == 0, ended
    kind, code, seconds, text = ended.out.strip().split(" ", 3)
    return kind, int(code), float(seconds), text


def test_the_death_of_a_member_is_reported_long_before_the_time_limit_and_names_it(tmp_path):
    ended = run_script(3, attempt("""
group = Group.from_environment(timeout=60)
group.barrier()
if rank == 1:
    os._exit(3)
began = time.monotonic()
group.all_reduce(np.ones(1000))
"""), tmp_path)
    assert ended[1].code == 3
    for rank in (0, 2):
        kind, code, seconds, text = reported(ended[rank])
        assert (kind, code) == ("PeerLost", -3) and "rank 1" in text, text
        # Not by the group's own limit of 60 s. `make promises` measures how fast it is.
        assert seconds < 50


def test_a_member_that_does_not_come_is_a_timeout_that_names_it(tmp_path):
    ended = run_script(2, attempt("""
group = Group.from_environment(timeout=60)
group.barrier()
group.set_timeout(0.5)
if rank == 1:
    while True:
        group.check()
        time.sleep(0.01)
began = time.monotonic()
group.all_reduce(np.ones(10))
"""), tmp_path)
    kind, code, seconds, text = reported(ended[0])
    assert (kind, code) == ("TimedOut", -4) and "rank 1" in text, text
    assert seconds > 0.4
    assert reported(ended[1])[0] in ("TimedOut", "PeerLost"), ended


def test_calls_that_do_not_match_are_reported_on_all_members(tmp_path):
    for ended in run_script(2, attempt("""
group = Group.from_environment(timeout=60)
group.all_reduce(np.ones(10 + rank))
"""), tmp_path):
        kind, code, _, text = reported(ended)
        assert (kind, code) == ("Mismatch", -5) and "10" in text and "11" in text, text


def test_an_abort_ends_the_others_waiting_and_stays(tmp_path):
    ended = run_script(2, attempt("""
group = Group.from_environment(timeout=60)
group.barrier()
if rank == 0:
    group.abort("enough of it")
    try:
        group.barrier()
    except Aborted:
        pass
group.barrier()
"""), tmp_path)
    for each in ended:
        kind, code, _, text = reported(each)
        assert (kind, code) == ("Aborted", -6) and "enough of it" in text, text


def test_a_group_that_is_closed_while_a_thread_waits_in_it_ends_that_call(tmp_path):
    script = r"""
from fulldeck.collectives import *
import os, threading, time
rank = int(os.environ["RANK"])
group = Group.from_environment(timeout=60)
group.barrier()
if rank == 0:
    raised = []
    def wait():
        try:
            group.barrier()
        except Error as error:
            raised.append(type(error).__name__)
    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 30
    while group._calls == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    group.close()
    thread.join(30)
    print(raised, thread.is_alive())
    try:
        group.barrier()
    except ArgumentError as error:
        print(error)
else:
    try:
        while True:
            group.check()
            time.sleep(0.001)
    except Error:
        pass
"""
    ended = run_script(2, script, tmp_path)
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].out == "['Aborted'] False\nthe group 'world' was closed\n", ended


def test_a_child_made_by_fork_has_no_group_and_does_no_harm(tmp_path):
    script = r"""
import numpy, os, sys
from fulldeck.collectives import *
group = Group.from_environment(timeout=60)
array = group.allocate(4)
child = os.fork()
if child == 0:
    try:
        group.barrier()
    except ArgumentError as error:
        print("child:", error, flush=True)
    sys.exit(0)  # as a program ends: with its atexit handlers and destructors
assert os.waitpid(child, 0)[1] == 0
array[:] = 1
group.all_reduce(array)
print("parent:", array.tolist(), flush=True)
"""
    for ended in run_script(2, script, tmp_path):
        assert ended.code == 0, ended
        assert ended.out.startswith("child: the group 'world' is of the process that this one was forked from"), ended
        assert ended.out.endswith("parent: [2.0, 2.0, 2.0, 2.0]\n"), ended


def test_a_program_that_leaves_without_closing_ends_well(tmp_path):
    script = ("import numpy\nfrom fulldeck.collectives import Group\n"
              "group = Group.from_environment(timeout=60)\nother = Group.from_environment(name='other', timeout=60)\n"
              "kept = group.allocate(100)\nkept[:] = 1\ngroup.all_reduce(kept)\nother.all_reduce(numpy.ones(5))\nother.barrier()\n")
    for _ in range(5):
        for ended in run_script(2, script, tmp_path):
            assert (ended.code, ended.err) == (0, ""), ended


BAD = r"""
import array, numpy as np
from fulldeck.collectives import *
group = Group(0, 1, key="alone", timeout=10)
a = np.ones(8)

def refused(words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ArgumentError as error:
        assert words in str(error), (words, str(error))
        assert str(error)
    else:
        raise AssertionError("%s was accepted" % words)

refused("not C-contiguous", group.all_reduce, np.ones((4, 4))[:, 1])
refused("complex numbers", group.all_reduce, np.ones(2, "complex64"))
refused("another machine", group.all_reduce, np.ones(2, ">f4"))
refused("writable", group.all_reduce, b"abcd")
read_only = np.ones(3)
read_only.flags.writeable = False
refused("writable", group.all_reduce, read_only)
refused("writable", group.all_gather, a, out=b"x" * 64)
refused("list", group.all_reduce, [1, 2])
refused("NoneType", group.all_reduce, None)
refused("'mean' is not a reduction", group.all_reduce, a, "mean")
refused("is not a reduction", group.all_reduce, a, ["sum"])
refused("'out' has 3 elements, and 8 are needed", group.all_reduce, a, out=np.ones(3))
refused("holds float64, the other float32", group.all_reduce, a, out=np.ones(8, "float32"))
refused("cannot be read as float32", group.all_reduce, bytearray(3), dtype="float32")
refused("cannot be read as float32", group.all_reduce, a, dtype="float32")
refused("'float8' is not a type", group.all_reduce, a, dtype="float8")
refused("there is no such type", group.all_reduce, np.zeros(2, [("a", "i4"), ("b", "f4")]))
refused("there is no such type", group.all_reduce, np.ones(2, "longdouble"))
refused("overlap", group.all_reduce, a[:4], out=a[2:6])
refused("overlap", group.all_to_all, a, out=a)
refused("needs 'out'", group.scatter, None, root=1)
refused("input_counts must hold 1 numbers", group.all_to_all_v, a, [4, 4], [8])
refused("input_counts must hold 1 numbers", group.all_to_all_v, a, [-1], [8])
refused("'array' has 8 elements, and 7 are needed", group.all_to_all_v, a, [7], [7])
refused("root is 1099511627776", group.broadcast, a, root=2**40)
refused("tag is -1", group.send, a, 0, tag=-1)
refused("shape (-1,)", group.allocate, (-1,))
refused("64 bits", group.allocate, (2**40, 2**40))
for timeout in (0, -1, float("nan"), float("inf")):
    refused("time-out", group.set_timeout, timeout)
refused("zero byte", Group, 0, 1, name="a\0b", key="k")
refused("", Group, 1, 1, key="k")
refused("", Group, 0, 0, key="k")
refused("", Group, 0, 1000, key="k")
refused("32 bits", Group, 2**40, 2**41, key="k")
refused("RANK is not in the environment", Group.from_environment)
group.all_reduce(a)  # the group is as it was
assert a.tolist() == [1] * 8
print("done")
"""


def test_impossible_arguments_are_refused_and_leave_the_group_as_it_was():
    ended = run_python(BAD)
    assert (ended.code, ended.out) == (0, "done\n"), ended


@pytest.mark.parametrize("variables,words", [
    ({"RANK": "0"}, "WORLD_SIZE is not in the environment"),
    ({"RANK": "first", "WORLD_SIZE": "2"}, "RANK is 'first' in the environment"),
    ({"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, "4 of the 8 ranks run on this host"),
])
def test_an_environment_that_makes_no_group_is_reported(variables, words):
    script = "from fulldeck.collectives import *\ntry: Group.from_environment()\nexcept ArgumentError as error: print(error)"
    ended = run_python(script, **variables)
    assert ended.code == 0 and words in ended.out, ended


def test_the_first_rank_and_element_that_are_not_finite_are_reported(tmp_path):
    script = r"""
import numpy as np
from fulldeck.collectives import Group
with Group.from_environment(timeout=60, check_finite=True) as group:
    group.all_reduce(np.ones(100))
    assert group.nonfinite() is None
    array = np.ones(100, "float32")
    if group.rank == 1:
        array[[40, 70]] = np.inf, np.nan
    group.all_reduce(array)
    found = group.nonfinite()
    print(found.rank, found.element)
"""
    for ended in run_script(2, script, tmp_path):
        assert (ended.code, ended.out) == (0, "1 40\n"), ended


def test_a_library_that_is_not_there_or_no_library_is_reported(tmp_path):
    folder = tmp_path / "python" / "fulldeck"
    folder.mkdir(parents=True)
    for name in os.listdir(os.path.join(PACKAGE, "fulldeck")):
        if name.endswith(".py"):
            with open(os.path.join(PACKAGE, "fulldeck", name)) as file:
                (folder / name).write_text(file.read())
    script = "from fulldeck.collectives import Group\ntry: Group(0, 1, key='k')\nexcept OSError as error: print(error)"
    ended = run_python(script, PYTHONPATH=str(tmp_path / "python"))
    assert ended.code == 0 and "libfulldeck_collectives.so.0 is in none of" in ended.out, ended
    with open(os.path.join(BUILD, "lib", "libfulldeck_collectives.so"), "rb") as file:
        whole = file.read()
    for data, words in ((b"\x7fELF and no more", "is no library"), (whole[:len(whole) // 2], "was cut short"),
                        (whole[:-1], "was cut short")):
        (folder / "libfulldeck_collectives.so.0").write_bytes(data)
        ended = run_python(script, PYTHONPATH=str(tmp_path / "python"))
        assert ended.code == 0 and "libfulldeck_collectives.so.0 cannot be used" in ended.out and words in ended.out, ended


def test_importing_the_package_loads_nothing():
    script = ("import sys; before = set(sys.modules); import fulldeck; print(sorted(set(sys.modules) - before));"
              "import fulldeck.collectives; print('libfulldeck' in open('/proc/self/maps').read(), 'numpy' in sys.modules)")
    assert run_python(script).out == "['fulldeck']\nFalse False\n"


def test_it_runs_where_there_is_no_torch_at_all():
    assert os.path.exists(FULLDECK)
    script = ("import sys\nsys.modules['torch'] = None\nimport fulldeck.collectives as c\n"
              "g = c.Group(0, 1, key='k')\ng.barrier()\nprint(g)")
    assert run_python(script).out == "<fulldeck group 'world': rank 0 of 1>\n"
