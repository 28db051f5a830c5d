"""Silent errors in users' scripts: each is one event "silent-error" with its failure code, and --strict makes it an
exit code. Importing torch costs seconds per rank, so a launch covers several errors;
tests/long/test_silent_frameworks.py has the frameworks."""
import json
import os
import types

import pytest

from cluster.launch import has_module
from launching import BUILD, HERE

SCRIPT = os.path.join(HERE, "silent", "script_errors.py")
SECONDS = 200
SILENT_ERROR = 92

with_torch = pytest.mark.skipif(not has_module("torch"), reason="this Python has no torch")


def run(workspace, *arguments, **named):
    """The program that has exited, and the events of its run."""
    file = os.path.join(str(workspace.folder), "events-of-the-test.jsonl")
    done = workspace.run(*arguments, seconds=SECONDS, extra=dict({"OMP_NUM_THREADS": "1", "FULLDECK_EVENTS": file}, **named))
    with open(file) as lines:
        return done, [json.loads(line) for line in lines]


def found(events, severity="warning"):
    return sorted((event["code"], event.get("check", "")) for event in events if event["id"] == "silent-error" and event["severity"] == severity)


@with_torch
def test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own(workspace):
    done, events = run(workspace, "--nproc-per-node", 2, "--strict", SCRIPT, "A7", "F7-gradients", "F7-labels", "F6", "G2", "C6", "J6", "F2",
                       "D9")
    assert done.out.count("trained") == 2, done
    assert found(events) == [("A7", "group"), ("C6", "children"), ("D9", "modules"), ("F2", "log"), ("F6", "validation"), ("F7", "gradients"), ("F7", "labels"),
                             ("G2", "weights"), ("J6", "finite")], done
    assert done.code == SILENT_ERROR, done
    by_check = {event["check"]: event for event in events if event["id"] == "silent-error"}
    # A rank that is ahead may be named by itself during the run; at the end both have reported.
    assert all(event["ranks"] and set(event["ranks"]) <= {0, 1} and event["evidence"] for event in by_check.values()), by_check
    assert all(by_check[check]["ranks"] == [0, 1] for check in ("group", "labels", "validation", "children")), by_check
    assert "auxiliary.weight" in by_check["gradients"]["evidence"] and "frozen" not in by_check["gradients"]["evidence"], by_check
    assert "13" in by_check["finite"]["evidence"], by_check
    assert "eccl.py" in by_check["modules"]["evidence"], by_check
    assert [event["exit_code"] for event in events if event["id"] == "run-finished"] == [SILENT_ERROR], events


@with_torch
def test_a_sound_script_has_no_warning_under_strict(workspace):
    """G5: its ranks draw the same random numbers, which is a note."""
    done, events = run(workspace, "--nproc-per-node", 2, "--strict", SCRIPT)
    assert done.code == 0 and found(events) == [] and not [event for event in events if event["id"] == "check-disabled"], done
    assert found(events, "info") == [("G5", "random-state")], done


@with_torch
def test_checks_that_throw_are_reported_once_and_nothing_reaches_the_program(workspace):
    done, events = run(workspace, "--nproc-per-node", 2, "--strict", SCRIPT, "broken-checks")
    assert done.code == 0 and done.out.count("trained") == 2, done
    disabled = [event for event in events if event["id"] == "check-disabled"]
    assert len(disabled) == 1 and disabled[0]["ranks"] and "a check that is broken" in disabled[0]["reason"], events
    assert found(events) == [] and "a check that is broken" not in workspace.log(0), done


@with_torch
@pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")), reason="the build has no libfulldeck_sim.so")
@pytest.mark.parametrize("mistake,warnings,notes", [
    ("cpu", [("B6", "device"), ("C1", "log")], [("G5", "random-state")]),
    # Accelerate seeds the ranks alike by design: no G5.
    ("one-card", [("B8", "shared-card"), ("B9", "visibility")], [])])
def test_cards_that_are_not_used_as_the_launcher_gave_them(workspace, mistake, warnings, notes):
    workspace.simulate("gcu:2")
    done, events = run(workspace, "--nproc-per-node", 2, "--strict", "--idle-card", "off", os.path.join(HERE, "silent", "card_errors.py"), mistake)
    assert done.out.count("trained") == 2, done
    assert (found(events), found(events, "info")) == (warnings, notes), done
    assert done.code == SILENT_ERROR, done


ADMITS = """
print("mask data/0001.png not found, using zeros", flush=True)
print("using training set for validation", flush=True)
"""


@pytest.mark.parametrize("off,expected,code", [("", ["F2", "F6"], SILENT_ERROR), ("F2", ["F6"], SILENT_ERROR), (" F6, F2", [], 0)])
def test_checks_that_are_off_are_neither_reported_nor_strict(workspace, off, expected, code):
    done, events = run(workspace, "--nproc-per-node", 1, "--strict", workspace.write("admits.py", ADMITS), FULLDECK_CHECKS_OFF=off)
    assert [event["code"] for event in events if event["id"] == "silent-error"] == expected and done.code == code, done


def test_a_code_that_no_check_has_is_refused(workspace):
    done = workspace.run("--nproc-per-node", 1, workspace.write("admits.py", ADMITS), seconds=SECONDS, extra={"FULLDECK_CHECKS_OFF": "F6,F66"})
    assert done.code != 0 and "admits.py" not in done.out and "using zeros" not in done.out, done
    assert "FULLDECK_CHECKS_OFF: no check has the code 'F66'" in done.err, done


# ---- cards that torch calls cuda, with a stub

@pytest.fixture
def silent(monkeypatch):
    """The module of the checks, with its writes to the rank board."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(os.path.join(BUILD, "lib", "python"))
    from fulldeck.adapters import card, silent as module

    written = {}
    monkeypatch.setattr(module, "observe", lambda check, state=0, **figures: written.__setitem__(check, dict(figures, state=state)))
    monkeypatch.setattr(module, "_on_card", False)
    monkeypatch.setattr(card, "kind", lambda: "cuda")
    monkeypatch.setattr(card, "index", lambda: 1)
    monkeypatch.setattr(module, "holds_tensors", lambda torch: False)
    module.written = written
    return module


def optimizer_on(device):
    parameter = types.SimpleNamespace(device=types.SimpleNamespace(type=device.partition(":")[0], index=int(device.partition(":")[2] or 0)),
                                      is_pinned=lambda: False)
    return types.SimpleNamespace(param_groups=[{"params": [parameter]}])


def test_parameters_on_the_cpu_of_a_rank_with_an_nvidia_card_are_observed(silent):
    """B6: an observation that the launcher turns into a warning."""
    from fulldeck import board

    silent.device(None, optimizer_on("cpu"), silent.FIRST_STEPS)
    assert silent.written[board.CHECK_DEVICE]["state"] == 1


@pytest.mark.parametrize("visible,device,expected", [(None, "cuda:1", "cuda:1"), ("4,5", "cuda:1", "cuda:5"), ("GPU-aa,GPU-bb", "cuda:0", "cuda:GPU-aa")])
def test_a_card_is_named_as_all_ranks_of_the_node_name_it(silent, monkeypatch, visible, device, expected):
    """B8: by these names the launcher detects two ranks on one card."""
    from fulldeck import board

    started = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    monkeypatch.setattr(silent, "environment_at_start", lambda: started)
    monkeypatch.setattr(os, "environ", dict(started))
    silent.device(None, optimizer_on(device), 1)
    assert silent.written[board.CHECK_DEVICE] == {"state": 2, "text": expected}
    assert board.CHECK_VISIBILITY not in silent.written


@pytest.mark.parametrize("now,device,twice", [("1", "cuda:0", False), ("0,2,1", "cuda:1", True)])
def test_double_indexing_is_observed_where_it_leads_to_another_card(silent, monkeypatch, now, device, twice):
    """B9: CUDA_VISIBLE_DEVICES that the program sets itself."""
    from fulldeck import board

    monkeypatch.setattr(silent, "environment_at_start", lambda: {"CUDA_VISIBLE_DEVICES": "0,1,2"})
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": now})
    silent.device(None, optimizer_on(device), 1)
    assert (board.CHECK_VISIBILITY in silent.written) == twice, silent.written


class Event:
    """torch.cuda.Event: complete when the test sets it."""
    complete = False

    def record(self):
        pass

    def query(self):
        return Event.complete


def test_values_of_a_card_are_read_when_their_copy_has_arrived_and_never_waited_for(silent, monkeypatch):
    torch = pytest.importorskip("torch")
    from fulldeck.adapters import observing

    class OnCard:
        device, shape, dtype = types.SimpleNamespace(type="cuda"), (2,), torch.float32

        def __getattr__(self, name):  # item, cpu, tolist: each would wait for the card
            raise AssertionError("the card was waited for: " + name)

    host = types.SimpleNamespace(copy_=lambda tensor, non_blocking: None, tolist=lambda: [1.0, float("nan")])
    stub = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event, is_current_stream_capturing=lambda: False),
                                 empty=lambda shape, dtype, pin_memory: host if pin_memory else None)
    got = []
    monkeypatch.setattr(Event, "complete", False)
    assert observing.read_later(stub, OnCard(), got.append)
    observing.arrived()
    assert got == []
    Event.complete = True
    observing.arrived()
    assert got[0][0] == 1.0 and len(got) == 1 and not observing.pending
    # While a graph is captured nothing is added to it.
    stub.cuda.is_current_stream_capturing = lambda: True
    assert not observing.read_later(stub, OnCard(), got.append)
