"""`fulldeck bench collectives`: every measurement with verified values, other libraries for comparison, and no
leftovers."""
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from launching import BUILD, FOREIGN, FULLDECK, TOP, children_of, read, state_of, wait_until

OPERATIONS = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all",
              "send_receive", "barrier"]
DATATYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64"]
TIMEOUT = 300
SHORT = ["--seconds", "0.01"]

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (scripts/setup does)")


@pytest.fixture
def variables():
    """A private environment whose TMPDIR must be empty at the end. Its path is short because it contains sockets."""
    folder = tempfile.mkdtemp(prefix="fd-", dir="/tmp")
    yield dict({name: value for name, value in os.environ.items() if not FOREIGN.match(name)}, TMPDIR=folder)
    left = [name for name in os.listdir(folder) if name.startswith("fulldeck-bench-")]
    shutil.rmtree(folder)
    assert left == [], "the bench left its folder behind"


def bench(variables, *arguments):
    return subprocess.run([FULLDECK, "bench", "collectives"] + [str(word) for word in arguments], env=variables,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          timeout=TIMEOUT)


def bench_json(variables, *arguments):
    done = bench(variables, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def results_of(cell):
    return {result["contender"]: result for result in cell["results"]}


def test_json_holds_every_cell_with_its_figures(variables):
    found = bench_json(variables, "--nproc", "1,2", "--sizes", "4KiB,1MiB", "--peers", "none", "--shared", *SHORT)
    assert found["version"] == 1 and found["datatype"] == "float32" and not found["interrupted"]
    assert found["processors"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes_per_second"] is None, "nothing here is large enough"
    assert (found["wrong_values"], found["failures"]) == ([], [])
    assert [(cell["ranks"], cell["bytes"], cell["count"]) for cell in found["cells"]] == [
        (1, 4096, 1024), (1, 1 << 20, 1 << 18), (2, 4096, 1024), (2, 1 << 20, 1 << 18)]
    for cell in found["cells"]:
        assert cell["operation"] == "all_reduce"
        assert [result["contender"] for result in cell["results"]] == ["fulldeck", "fulldeck-shared"]
        for result in cell["results"]:
            assert 0 < result["min_s"] <= result["median_s"] <= result["p95_s"] < TIMEOUT
            assert 3 <= result["calls"] <= 2000
            # Two more calls are made before, and every element of every rank is checked.
            assert result["values_checked"] == (result["calls"] + 2) * cell["count"] * cell["ranks"]
            assert result["share_of_estimate"] is None, "the caches hold this"
        assert results_of(cell)["fulldeck"]["times_of_first"] == 1


def test_large_buffers_are_compared_with_the_memory_bound(variables):
    found = bench_json(variables, "--nproc", "2", "--sizes", "16MiB", "--peers", "none", "--shared", *SHORT)
    assert found["memory_bytes_per_second"] > 1e7
    speed, results = found["memory_bytes_per_second"], results_of(found["cells"][0])
    for name, factor in (("fulldeck", 5 * 2 - 2), ("fulldeck-shared", 2 * 2)):
        expected = factor * (16 << 20) / speed / results[name]["median_s"]
        assert results[name]["share_of_estimate"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_gives_right_values(variables, ranks):
    found = bench_json(variables, "--nproc", ranks, "--sizes", "4,60KiB", "--operations", ",".join(OPERATIONS), "--peers", "none",
                       *SHORT)
    assert [(cell["operation"], cell["bytes"]) for cell in found["cells"]] == (
        [(name, size) for name in OPERATIONS[:-1] for size in (4, 61440)] + [("barrier", None)])
    for cell in found["cells"]:
        result = results_of(cell)["fulldeck"]
        assert result["median_s"] > 0
        assert (result["values_checked"] > 0) == (cell["operation"] != "barrier")


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_type_gives_right_values(variables, datatype):
    found = bench_json(variables, "--nproc", "3", "--sizes", "24KiB", "--operations", "all_reduce,reduce_scatter,all_to_all",
                       "--peers", "none", "--datatype", datatype, *SHORT)
    assert found["datatype"] == datatype
    assert all(results_of(cell)["fulldeck"]["values_checked"] > 0 for cell in found["cells"])


def test_the_table_names_what_it_shows(variables):
    done = bench(variables, "--nproc", "2", "--sizes", "4KiB,64KiB", "--operations", "all_reduce,barrier", "--peers", "none",
                 "--shared", "--rounds", "2", *SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "all_reduce of float32, sum, 2 ranks"
    assert lines[1].split() == ["SIZE", "FULLDECK", "SHARED"]
    assert [line.split()[:2] for line in lines[2:4]] == [["4", "KiB"], ["64", "KiB"]]
    assert "barrier, 2 ranks" in lines
    assert "were checked, all of them right" in done.stdout


@pytest.mark.parametrize("contender,needed", [
    ("fulldeck", None), ("fulldeck-shared", None), pytest.param("gloo", "--peers", marks=needs_torch),
    pytest.param("openmpi", "--peers", marks=needs_mpi)])
def test_a_wrong_value_fails_the_command_loudly(variables, contender, needed):
    peers = contender if needed else "none"
    done = bench(variables, "--nproc", "2", "--sizes", "4KiB", "--shared", "--peers", peers, "--python", sys.executable,
                 "--spoil", contender, "--json", *SHORT)
    assert done.returncode == 1
    assert "WRONG VALUE: {}: all_reduce of 4 KiB with 2 ranks: rank 1: element 0 of the result is ".format(contender) in done.stderr
    found = json.loads(done.stdout)
    assert len(found["wrong_values"]) == 1
    results = results_of(found["cells"][0])
    assert results[contender]["median_s"] is None and results[contender]["why_not"] == "a wrong value"


def test_peers_that_are_not_here_are_left_out_with_the_reason(variables, tmp_path):
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\nexec "{}" -I -S "$@"\n'.format(sys.executable))
    bare.chmod(0o755)
    variables["PATH"] = str(tmp_path)
    done = bench(variables, "--nproc", "2", "--sizes", "4KiB", "--through-torch", "--python", bare, "--json", *SHORT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    absent = {one["contender"]: one["absent"] for one in found["contenders"]}
    assert absent["fulldeck"] is None
    assert "cannot import torch" in absent["gloo"] and "cannot import torch" in absent["torch"]
    assert absent["openmpi"] == "there is no mpirun in PATH"
    assert "gloo is left out with 2 ranks: " in done.stderr
    results = results_of(found["cells"][0])
    assert results["fulldeck"]["median_s"] > 0
    assert results["gloo"]["median_s"] is None and results["gloo"]["why_not"] == absent["gloo"]


def test_a_python_that_is_not_there_is_said(variables):
    found = bench_json(variables, "--nproc", "2", "--sizes", "4KiB", "--peers", "gloo", "--python", "/no/such/python", *SHORT)
    assert "there is no /no/such/python; name a Python that has torch with --python" in [
        one["absent"] for one in found["contenders"]]


def test_an_mpirun_that_fails_is_left_out_with_its_own_message(variables, tmp_path):
    broken = tmp_path / "mpirun"
    broken.write_text("#!/bin/sh\necho the daemon is on holiday >&2\nexit 3\n")
    broken.chmod(0o755)
    variables["PATH"] = "{}:{}".format(tmp_path, variables["PATH"])
    done = bench(variables, "--nproc", "2", "--sizes", "4KiB", "--peers", "openmpi", *SHORT)
    assert done.returncode == 0
    assert "ended with code 3" in done.stderr and "| the daemon is on holiday" in done.stderr


@needs_mpi
def test_openmpi_is_measured_beside_ours(variables):
    found = bench_json(variables, "--nproc", "3", "--sizes", "60KiB", "--operations", ",".join(OPERATIONS), "--peers", "openmpi",
                       *SHORT)
    assert found["contenders"][1]["about"].startswith("Open MPI v")
    for cell in found["cells"]:
        result = results_of(cell)["openmpi"]
        assert result["median_s"] > 0 and result["times_of_first"] > 0
        assert (result["values_checked"] > 0) == (cell["operation"] != "barrier")
    found = bench_json(variables, "--nproc", "2", "--sizes", "4KiB", "--peers", "openmpi", "--datatype", "bfloat16", *SHORT)
    assert results_of(found["cells"][0])["openmpi"]["why_not"] == "MPI has no bfloat16"


@needs_torch
def test_gloo_is_measured_beside_ours(variables):
    found = bench_json(variables, "--nproc", "2", "--sizes", "60KiB", "--operations", ",".join(OPERATIONS), "--peers", "gloo",
                       "--python", sys.executable, *SHORT)
    import torch

    assert found["contenders"][1]["about"].startswith("torch " + torch.__version__)
    for cell in found["cells"]:
        result = results_of(cell)["gloo"]
        # An old torch has no reduce_scatter for Gloo, which Gloo must report itself.
        assert result["median_s"] or "not support" in result["why_not"], cell
        if result["median_s"] and cell["operation"] != "barrier":
            assert result["values_checked"] > 0


@needs_torch
def test_fulldeck_through_torch_is_measured_or_said_to_be_absent(variables):
    found = bench_json(variables, "--nproc", "2", "--sizes", "4KiB", "--peers", "none", "--through-torch", "--python",
                       sys.executable, *SHORT)
    result = results_of(found["cells"][0])["torch"]
    if os.path.exists(os.path.join(BUILD, "lib", "python", "fulldeck", "__init__.py")):
        assert result["median_s"] > 0 and result["values_checked"] > 0
    else:
        assert "cannot import fulldeck" in result["why_not"]


@needs_torch
def test_tensors_on_cards_are_measured_where_there_are_cards(variables):
    import torch

    done = bench(variables, "--nproc", "2", "--sizes", "64KiB", "--device", "cuda", "--python", sys.executable, "--json", *SHORT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["device"] == "cuda" and [one["contender"] for one in found["contenders"]] == ["torch", "gloo"]
    gloo = results_of(found["cells"][0])["gloo"]
    if torch.cuda.is_available():
        assert gloo["median_s"] > 0 and gloo["values_checked"] > 0
    else:
        assert gloo["why_not"].endswith("sees no CUDA card")


def test_a_timeline_tells_what_each_rank_did(variables):
    found = bench_json(variables, "--nproc", "2", "--sizes", "8MiB", "--peers", "none", "--shared", "--timeline", *SHORT)
    assert [(one["ranks"], one["bytes"], one["shared"]) for one in found["timelines"]] == [(2, 8 << 20, False), (2, 8 << 20, True)]
    for timeline in found["timelines"]:
        assert timeline["group"].startswith("2 ranks")
        assert len(timeline["by_rank"]) == 2
        for rank in timeline["by_rank"]:
            assert rank["events"]
            for event in rank["events"]:
                assert event["stage"] in ("in", "reduce", "out", "wait")
                assert rank["begin_ns"] <= event["begin_ns"] <= event["end_ns"] <= rank["end_ns"]
            reduced = sum(event["end_ns"] - event["begin_ns"] for event in rank["events"] if event["stage"] == "reduce")
            assert rank["sums"]["reduce_s"] == pytest.approx(reduced * 1e-9)
        sums = timeline["sums"]
        assert timeline["work_of_wall"] == pytest.approx((sums["in_s"] + sums["reduce_s"] + sums["out_s"]) / sums["wall_s"])
    stages = {event["stage"] for rank in found["timelines"][0]["by_rank"] for event in rank["events"]}
    assert {"in", "reduce", "out"} <= stages


@pytest.mark.parametrize("arguments,message", [
    (["--nproc", "257"], "--nproc 257: a group has 1 to 256 ranks"),
    (["--nproc", "0"], "--nproc 0"),
    (["--nproc", "two"], "'two' is no number of ranks"),
    (["--sizes", "4097"], "4097 bytes are no whole number of float32 elements"),
    (["--sizes", "4KiB,"], "'' is no size"),
    (["--sizes", "-4KiB"], "-4KiB"),
    (["--operations", "allreduce"], "did you mean 'all_reduce'?"),
    (["--datatype", "fp32"], "there is no 'fp32'"),
    (["--datatype", "float23"], "did you mean 'float32'?"),
    (["--peers", "glo"], "did you mean 'gloo'?"),
    (["--seconds", "0"], "--seconds"),
    (["--rounds", "0"], "--rounds"),
    (["--device", "gpu"], "--device"),
    (["--device", "cuda", "--shared"], "--shared and --timeline are for --device cpu"),
    (["--jsno"], "did you mean --json?"),
    (["extra"], "extra"),
    (["--sizes", "64TiB", "--nproc", "8"], "all_reduce of 64 TiB with 8 ranks needs about "),
])
def test_mistakes_are_explained(variables, arguments, message):
    done = bench(variables, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fulldeck: error: ") and message in done.stderr


def test_a_folder_that_cannot_be_made_is_said(variables):
    variables["TMPDIR"] += "/no/such"
    done = bench(variables, "--nproc", "2", "--sizes", "4KiB", "--peers", "none")
    variables["TMPDIR"] = variables["TMPDIR"][:-len("/no/such")]
    assert done.returncode == 1 and "cannot make a folder" in done.stderr


def own_memory_of(pid):
    """MiB of it that are private."""
    lines = [line.split() for line in read("/proc/%d/status" % pid).splitlines() if line.startswith("RssAnon:")]
    return int(lines[0][1]) >> 10 if lines else 0


class LongBench:
    """A bench that would run for an hour."""

    def __init__(self, variables):
        self.process = subprocess.Popen([FULLDECK, "bench", "collectives", "--nproc", "2", "--sizes", "64MiB", "--peers", "none",
                                         "--seconds", "3600", "--rounds", "100", "--timeout", "86400"], env=variables,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        universal_newlines=True)
        self.ranks = wait_until(lambda: self.find_ranks(), "two ranks that measure", TIMEOUT)

    def find_ranks(self):
        found = [pid for pid in children_of(self.process.pid) if "bench-rank" in read("/proc/%d/cmdline" % pid)]
        # The buffer is filled just before the first call.
        return found if len(found) == 2 and all(own_memory_of(pid) >= 64 for pid in found) else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT)

    def wait_for_end(self):
        out, err = self.process.communicate(timeout=TIMEOUT)
        wait_until(lambda: all(state_of(pid) in ("", "Z") for pid in self.ranks), "the ranks to be gone")
        return self.process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_leaves_nothing(variables, number):
    with LongBench(variables) as running:
        running.process.send_signal(number)
        code, _, err = running.wait_for_end()
    assert code == 1 and "interrupted" in err


def test_ranks_do_not_outlive_a_bench_that_is_killed(variables):
    with LongBench(variables) as running:
        running.process.kill()
        code, _, _ = running.wait_for_end()
    assert code == -signal.SIGKILL
    for name in os.listdir(variables["TMPDIR"]):  # no process was left to remove it
        shutil.rmtree(os.path.join(variables["TMPDIR"], name))


def test_a_rank_that_dies_fails_the_command(variables):
    with LongBench(variables) as running:
        os.kill(running.ranks[1], signal.SIGKILL)
        code, out, err = running.wait_for_end()
    assert code == 1
    assert "fulldeck: error: fulldeck: all_reduce of 64 MiB with 2 ranks: " in err
    assert "WRONG VALUE" not in err


def test_completion_knows_what_can_be_measured(variables):
    done = subprocess.run([FULLDECK, "completion", "bash"], env=variables, stdout=subprocess.PIPE, universal_newlines=True,
                          timeout=TIMEOUT)
    expected_texts = [line for line in done.stdout.splitlines() if line.strip().startswith("bench)")][0]
    assert " collectives" in expected_texts and "--sizes" in expected_texts
    assert "--spoil" not in expected_texts and "bench-rank" not in done.stdout


@needs_torch
def test_a_ddp_step_is_measured_with_its_communication(variables):
    script = os.path.join(TOP, "bench", "ddp_step.py")
    done = subprocess.run([sys.executable, script, "--ranks", "2", "--steps", "3", "--warm-up", "1", "--width", "64", "--depth", "1",
                           "--backend", "gloo,gloo", "--json"], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["results"]
    assert first["backend"] == "gloo" and first["ranks"] == 2 and first["steps"] == 3
    assert 0 < first["step_s"] < TIMEOUT and 0 < first["step_without_sync_s"] < TIMEOUT
    assert first["communication_s"] == pytest.approx(first["step_s"] - first["step_without_sync_s"])
    assert first["losses"] == second["losses"] and len(first["losses"]) == 4
    done = subprocess.run([sys.executable, script, "--ranks", "0"], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=TIMEOUT)
    assert done.returncode == 2 and "--ranks: at least 1" in done.stderr
