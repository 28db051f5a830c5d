"""The adapters with CUDA: on a stub of torch.cuda, since the test machine has no card. tests/hardware/adapters_cuda.py
has the tests on a real card."""
import os
import sys

import pytest

from cluster.launch import has_module
from launching import BUILD
from python_ranks import run_python

with_torch = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")
PATIENCE = 200

# Rank 1 of two, on the second of the two cards that the launcher makes visible.
GUARDS = """
import os, sys, types
import torch

chosen = []
torch.cuda._is_compiled = lambda: True
torch.cuda.is_available = lambda: True
torch.cuda.set_device = chosen.append

from fulldeck import adapters
said = []
adapters.say = said.append
adapters.start()
from fulldeck.adapters import card, data_parallel
assert card.has_cuda() and not card.is_foreign() and not card.on_processors()


class On(torch.nn.Module):
    def __init__(self, *devices):
        super().__init__()
        self.places = [(str(number), types.SimpleNamespace(device=torch.device(device), shape=(2,), numel=lambda: 2))
                       for number, device in enumerate(devices)]

    def named_parameters(self, *unused, **unused_too):
        return iter(self.places)


def codes():
    found = [text.split(":")[1].strip() for text in said if text.startswith("WARNING")]
    said.clear()
    adapters._said.clear()
    return found


# B8, by set_device and by the model.
said.clear()
for device in (1, "cuda:1", torch.device("cuda", 1), "cuda"):
    torch.cuda.set_device(device)
assert chosen == [1, "cuda:1", torch.device("cuda", 1), "cuda"] and codes() == []
torch.cuda.set_device(0)
torch.cuda.set_device(0)
assert codes() == ["B8"]
data_parallel.check_place(On("cuda:1", "cuda:1"))
data_parallel.check_place(On("cuda:0", "cuda:1"))  # spread on purpose
data_parallel.check_place(On("cpu", "cuda:1"))     # torch's own refusal
assert codes() == []
data_parallel.check_place(On("cuda:0", "cuda:0"))
assert codes() == ["B8"]

# B6: the wrapper itself.
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
try:
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    raise SystemExit("a model on the CPU was wrapped")
except data_parallel.Refused as error:
    assert "2 of 2 parameters are not on cuda:1" in str(error), error
codes()

# B9: a list of the program's own is fine as long as the rank's card is in it.
os.environ["CUDA_VISIBLE_DEVICES"] = "5"
card.check_visibility()
torch.cuda.set_device(0)
data_parallel.check_place(On("cuda:0"))
assert codes() == []
os.environ["CUDA_VISIBLE_DEVICES"] = "4"
card.check_visibility()
card.check_visibility()
assert codes() == ["B9"]
torch.cuda.set_device(0)
assert codes() == ["B8"]
print("guarded")
"""


@with_torch
def test_the_guards_of_other_cards_hold_on_cuda_cards_too():
    done = run_python(GUARDS, FULLDECK_DEVICE="cuda:1", CUDA_VISIBLE_DEVICES="4,5", FULLDECK_PROBE="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="1",
                      FULLDECK_SIMULATE=None)
    assert done.code == 0 and done.out == "guarded\n", done


# Before the adapters, torch becomes one that was compiled for CUDA, on a machine with NVIDIA's driver.
COMPILED = """
import sys, types
from fulldeck import adapters

stub = types.ModuleType("fulldeck.adapters.stub")
def adapt(torch):
    from fulldeck.adapters import card
    def real(*unused):
        raise SystemExit("the real card was used")
    torch.cuda._is_compiled = lambda: True
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda._lazy_init = torch.cuda.set_device = real
    card.CUDA_FILES = ("/proc/self/status",)
stub.adapt = adapt
sys.modules[stub.__name__] = stub
adapters.TABLE["torch"].insert(0, "stub")
"""
SIMULATED = COMPILED + """
import os, torch
kind = os.environ["FULLDECK_DEVICE"].split(":")[0]
torch.cuda._is_compiled = lambda: False  # torch's own parts would look for what is not compiled into this one
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
model(torch.ones(3, 2, device="cuda")).sum().backward()
print("trained on", next(model.parameters()).device, torch.distributed.get_backend())
"""
PLACED_ONLY = COMPILED + """
import torch
print("available", torch.cuda.is_available(), torch.cuda.device_count())
for use in (lambda: torch.cuda.set_device(0), lambda: torch.zeros(2).cuda(), lambda: torch.distributed.init_process_group("nccl")):
    try:
        use()
    except (RuntimeError, AssertionError) as error:
        print("is simulated" in str(error))
"""


@with_torch
def test_a_rank_on_a_simulated_card_never_computes_on_a_real_one(workspace):
    workspace.simulate("gcu:1")
    done = workspace.run("--nproc-per-node", 1, workspace.write("simulated.py", SIMULATED), seconds=PATIENCE)
    assert done.code == 0 and "trained on gcu:0 fulldeck\n" in done.out, done


@with_torch
def test_a_simulated_cuda_card_refuses_to_compute_on_a_real_one(workspace):
    workspace.simulate("cuda:1")
    done = workspace.run("--nproc-per-node", 1, workspace.write("placed.py", PLACED_ONLY), seconds=PATIENCE)
    assert done.code == 0 and done.out == "available False 0\nTrue\nTrue\nTrue\n", done


# A child of a rank has no adapters, and a driver that exposes the machine's cards only by CUDA_VISIBLE_DEVICES.
CHILD = """
import os, sys
import torch

def visible():
    shown = []
    for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(","):
        if entry.strip() not in ("0", "1"):
            break
        shown.append(int(entry))
    return shown

torch.cuda._is_compiled = lambda: True
torch.cuda.is_available = lambda: bool(visible())
print(sys.argv[1], "cards", torch.cuda.is_available(), visible())
"""
STARTER = """
import os, subprocess, sys
shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
print("rank", len(shown), int(shown[int(os.environ["LOCAL_RANK"])]), flush=True)
for name, environment in (("inherits", None), ("copies", dict(os.environ, MINE="1"))):
    subprocess.run([sys.executable, os.environ["CHILD"], name], check=True, env=environment)
"""


@with_torch
def test_what_a_rank_on_a_simulated_card_starts_sees_no_real_one(workspace):
    workspace.simulate("gcu:2")
    workspace.variables["CHILD"] = workspace.write("child.py", CHILD)
    done = workspace.run("--nproc-per-node", 2, workspace.write("starter.py", STARTER), seconds=PATIENCE)
    lines = [line.split(" ", 1)[1] for line in done.out.splitlines()]
    assert done.code == 0 and sorted(lines) == sorted(2 * ["copies cards False []", "inherits cards False []", "rank 2 -1"]), done
    shell = workspace.write("train.sh", '{} "$CHILD" shell\n'.format(sys.executable))
    workspace.variables["CUDA_VISIBLE_DEVICES"] = "0,1"
    done = workspace.run("--nproc-per-node", 1, "--no-python", "sh", shell, seconds=PATIENCE)
    assert done.code == 0 and done.out == "shell cards False []\n", done
