"""What python/fulldeck/adapters/recorder.py reports to the board from torch's record, with fake records and a fake
board."""
import json
import os
import types

import pytest

from launching import BUILD


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(BUILD, "lib", "python"))
    from fulldeck.adapters import recorder
    clock = [100.0]
    monkeypatch.setattr(recorder, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(recorder, "clock", clock, raising=False)
    monkeypatch.setattr(recorder, "board", types.SimpleNamespace(ours=Board))
    return recorder


class Board:
    def __init__(self):
        self.reported, self.slots = [], []

    def heartbeat(self):
        pass

    def group_join(self, number, name, size, rank):
        self.slots.append((name, size, rank))
        return len(self.slots) - 1

    def group_leave(self, slot):
        self.reported.append(("leave", slot))

    def collective_begin(self, slot, operation, datatype, count, size, sequence, fingerprint):
        self.reported.append(("begin", slot, operation, datatype, count, sequence))

    def collective_end(self, slot, sequence):
        self.reported.append(("end", slot, sequence))

    def set_failure(self, kind, culprit, text):
        self.reported.append(("failure", kind, culprit))

    def news(self):
        reported, self.reported = self.reported, []
        return reported


class Program:
    """A program with torch's record: groups by key, [name, calls started, calls completed]."""

    def __init__(self, recorder):
        self.groups, self.entries = {}, []
        self.world = types.SimpleNamespace(pg_names={}, pg_group_ranks={})
        c10d = types.SimpleNamespace(_world=self.world, get_rank=lambda: 1, GroupMember=types.SimpleNamespace(WORLD="group 0"))
        self.recorder = recorder.Recorder(c10d, types.SimpleNamespace(_dump_fr_trace_json=self.dump))
        self.board = self.recorder.board
        self.clock = recorder.clock

    def dump(self, entries, stacks):
        assert not stacks
        record = {"pg_status": {str(key): {"last_completed_collective": str(ended), "last_enqueued_collective": str(began)}
                                for key, (_, began, ended) in self.groups.items()}}
        if entries:
            record["entries"] = self.entries
        return json.dumps(record, separators=(",", ":")).encode()

    def make(self, key, name, ranks=(0, 1, 2)):
        self.groups[key] = [name, 0, 0]
        self.world.pg_names["group %s" % name] = name
        self.world.pg_group_ranks["group %s" % name] = {rank: i for i, rank in enumerate(ranks)}

    def call(self, key, began, ended, name="gloo:all_reduce"):
        self.groups[key][1:] = [began, ended]
        self.entries.append({"pg_id": key, "process_group": [self.groups[key][0], "desc"], "collective_seq_id": began, "profiling_name": name,
                             "input_dtypes": ["Float"], "input_sizes": [[10, 100]]})

    def look(self, after=0.05):
        self.clock[0] += after
        self.recorder.look()
        return self.board.news()


@pytest.mark.parametrize("form", ["as torch writes it", "another"])
def test_calls_are_reported_by_number_and_looked_up_when_one_lasts(recorder, form, monkeypatch):
    if form == "another":
        monkeypatch.setattr(recorder, "STATUS", recorder.re.compile(b"not found"))
    program = Program(recorder)
    program.make(0, "0")
    assert program.look() == [] and program.board.slots == []
    program.call(0, 3, 2)
    assert program.look() == [("begin", 0, "other", "other", 0, 3), ("end", 0, 2)]
    assert program.board.slots == [("c10d world", 3, 1)]
    assert program.look() == []
    assert program.look(1.0) == [("begin", 0, "all_reduce", "float32", 1000, 3), ("end", 0, 2)]
    assert program.look(1.0) == []
    program.call(0, 3, 3)
    assert program.look() == [("end", 0, 3)]


def test_a_group_that_is_made_later_stays_and_leaves_when_it_is_destroyed(recorder):
    program = Program(recorder)
    program.make(0, "0")
    program.call(0, 1, 1)
    program.look()
    program.make(5, "part", ranks=(1, 2))
    program.call(5, 2, 1)
    assert program.look() == [("begin", 1, "other", "other", 0, 2), ("end", 1, 1)]
    assert program.board.slots[1] == ("c10d part", 2, 0)
    assert program.look() == [] and program.look() == []
    del program.world.pg_names["group part"]
    assert program.look(1.1) == [("leave", 1)]
    assert program.look(1.1) == []


def test_a_group_without_a_name_in_the_record_is_not_reported(recorder):
    program = Program(recorder)
    program.make(0, "0")
    program.groups[0][1:] = [4, 3]
    for _ in range(2 * recorder.MAX_NAME_LOOKUPS):
        assert program.look(0.01) == []
    assert program.board.slots == []


def test_a_group_that_was_used_and_destroyed_between_two_looks_was_left(recorder):
    program = Program(recorder)
    program.make(1, "0")
    program.call(1, 3, 3)
    program.recorder.leave(None)
    assert program.board.news() == [("begin", 0, "other", "other", 0, 3), ("end", 0, 3), ("leave", 0)]
    program.world.pg_names.clear()
    assert program.look(after=2) == []


def test_a_rank_that_cleans_up_after_a_failed_call_reports_the_failure_and_does_not_leave(recorder):
    program = Program(recorder)
    program.make(1, "0")
    program.call(1, 3, 2)
    try:
        try:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
        except RuntimeError as error:
            raise SystemExit(3) from error
    except SystemExit:
        program.recorder.leave(None)
    assert program.board.news()[-1] == ("failure", "peer-lost", None)
    program.world.pg_names.clear()
    assert ("leave", 0) not in program.look(after=2)


def test_the_end_waits_for_threads_of_gloo_that_still_run(recorder, monkeypatch):
    def sleep(seconds):
        recorder.clock[0] += seconds

    recorder.time.sleep = sleep
    states = [["R", "S"], ["S", "S"], ["D"], ["S"], ["S"], ["S"], ["S"]]
    monkeypatch.setattr(recorder, "states_of_gloo_threads", lambda: states.pop(0))
    recorder.wait_for_gloo(60)
    assert states == [["S"]], "three looks in a row"
    states[:] = [[], ["R"]]
    recorder.wait_for_gloo(60)
    assert states == [["R"]], "no thread of Gloo: nothing to wait for"
    monkeypatch.setattr(recorder, "states_of_gloo_threads", lambda: ["R"])
    recorder.wait_for_gloo(0.02)  # a group that is never idle does not block forever
