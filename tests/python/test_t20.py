"""Stacks of the T20 generation (torch 1.10, xla:N, torch_gcu.distributed) on a stand-in of the vendor's module:
docs/python.md. Also checks that the code for these stacks runs on Python 3.8."""
import ast
import json
import os
import re

import pytest

from cluster.launch import has_module, script
from launching import BUILD, TOP, read

with_torch = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")
PATIENCE = 300


def idle_cards(workspace):
    """By the verdict at the end of the run; after a few steps it may still be unknown."""
    events = [json.loads(line) for line in read(os.path.join(workspace.run_folder(), "events.jsonl")).splitlines()]
    verdict, = [event for event in events if event["id"] == "card-usage" and event["when"] == "end"]
    return verdict["idle"]


@with_torch
def test_eight_ranks_of_the_vendors_script_train_through_host_memory_as_one_process(workspace):
    workspace.simulate("xla:8")
    done = workspace.run("--nproc-per-node", 8, script("t20/train.py"), "vendor", seconds=PATIENCE)
    assert done.code == 0, done.err
    for rank in range(8):
        assert re.search(r"^\[{0}\] rank {0} on xla:{0}: as one process, losses \d\.\d+ to \d\.\d+$".format(rank), done.out, re.MULTILINE), done.out
        said = workspace.log(rank)
        assert ("fulldeck: rank {0}/8, backend fulldeck, through host memory (the vendor's cannot be used: init_process_group: RuntimeError: "
                "ProcessGroupECCL is not available), device xla:{0}, card serial SIM-xla-000{0}, host ".format(rank)) in said, said
        assert said.count("bucket_cap_mb=1, gradient_as_bucket_view=True without effect") == 1, said
        assert "fulldeck: warning: torch 2." in said and "is left as it is: versions before " in said
    assert "fulldeck: torch_gcu.distributed.batch_isend_irecv: the vendor's collectives cannot be used in this run, and there is no stand-in" in done.out
    assert "fulldeck: DistributedDataParallel is refused: 9 of 9 parameters are not on xla:0, the device of rank 0." in done.out
    assert idle_cards(workspace) == [], done.err
    assert "inventory and placement only" not in done.err


@with_torch
def test_torchs_own_collectives_take_tensors_of_such_cards_and_all_ranks_take_the_same_collectives(workspace):
    workspace.simulate("xla:8")
    done = workspace.run("--nproc-per-node", 2, "--devices", "3,6", script("t20/train.py"), "torch", seconds=PATIENCE)
    assert done.code == 0, done.err
    for rank in range(2):
        # The list of visible cards maps the server's 3 and 6 to the process's 0 and 1.
        assert "[{0}] rank {0} on xla:{0}: as one process".format(rank) in done.out, done.out
        assert "card serial SIM-xla-000{}".format((3, 6)[rank]) in workspace.log(rank)
        assert "backend gloo, tensors of the card through host memory (the program asks for eccl, and torch " in workspace.log(rank)
        assert "[{0}] rank {0}, one: ours\n".format(rank) in done.out and "[{0}] rank {0}, works: the vendor's\n".format(rank) in done.out
        assert "(the vendor's cannot be used: rank 1: init_process_group: RuntimeError: ProcessGroupECCL is not available)" in workspace.log(rank)
    assert idle_cards(workspace) == [], done.err


# ---- Python 3.8

# Methods and functions that were added later.
LATER = {"removeprefix", "removesuffix", "cache", "pairwise", "bit_count", "lcm", "is_relative_to"}


def test_what_ranks_run_is_python_3_8():
    found = []
    for folder, _, names in os.walk(os.path.join(TOP, "python")):
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    assert len(found) > 20
    for path in found:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path, feature_version=(3, 8))
        for node in ast.walk(tree):
            later = node.attr if isinstance(node, ast.Attribute) else None
            assert later not in LATER, "{}:{}: {} is not in Python 3.8".format(path, node.lineno, later)
            # Annotations are evaluated: int | None and list[int] were added later.
            for annotation in [getattr(node, name, None) for name in ("annotation", "returns")]:
                later = isinstance(annotation, ast.BinOp) or (
                    isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "").islower())
                assert not later, "{}:{}: such an annotation is not in Python 3.8".format(path, node.lineno)
