"""Runs that look as if every card worked, and runs that look as if none did: each trick with its expected verdict and
exit code. `make card-tricks` runs each of them TRICK_REPEATS (20) times and prints the table of docs/card-usage.md;
test_card_usage.py runs each once. Usage: card_tricks.py [--repeats N] [--only NAME]"""
import argparse
import json
import os
import sys
import tempfile

from launching import BUILD, FULLDECK, HERE, PROGRAMS, Workspace, read, wait_until

SECONDS = 240
RANK = os.path.join(HERE, "scripts", "card_rank.py")
SIMULATED_RANK = os.path.join(BUILD, "examples", "simulated_rank")
USE_CARD = os.path.join(PROGRAMS, "use_simulated_card")

# Joins a group on the cards, which probes them, and then trains on the CPU.
ON_THE_CPU = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + 2.5
while time.monotonic() < end:
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""

# Measures its steps like a script for cards, and has a tensor there, so that nothing shows that its model is on the
# CPU.
SYNCHRONIZE = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
kept = torch.zeros(1 << 20, device="cuda")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(18):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
    torch.cuda.synchronize()
dist.destroy_process_group()
"""

# Only the loss, which is logged every fifth step, is on the card.
LOSS = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        logged = loss.detach().cuda()
        dist.all_reduce(logged)
    time.sleep(0.01)
dist.destroy_process_group()
"""

# Its probe comes so late that the rank, which reports no steps, has been observed for a long time.
INFERENCE = """
import time
import torch
import torch.distributed as dist
time.sleep(6)
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64)
end = time.monotonic() + 4
with torch.no_grad():
    while time.monotonic() < end:
        model(torch.randn(32, 64))
        time.sleep(0.02)
"""

JOB = """
name = "job"
steps = 40
[data]
kind = "synthetic"
size = 32
scale = [1.0, 1.0]
cat_max_ratio = 1.0
workers = 1
[data.synthetic]
train = 32
val = 4
size = 32
[model]
backbone = "dinov3-tiny"
head_channels = 32
[train]
global_batch = 4
batch = 4
[validation]
every = 40
[log]
every = 1
[environment]
threads = 1
"""


class Seen:
    """The result of a run: exit code, verdict by card, events, and the run itself."""

    def __init__(self, done, events):
        self.done, self.code, self.events = done, done.code, events
        ends = [event for event in events if event["id"] == "card-usage" and event["when"] == "end"]
        assert len(ends) == 1, "%d verdicts\n%r" % (len(ends), done)
        self.end = ends[0]
        self.usage = {card: usage for usage in ("busy", "idle", "unknown") for card in self.end[usage]}
        self.idle = {event["card"]: event for event in events if event["id"] == "card-idle"}
        self.reasons = dict(line.split(": ") for line in self.end["reasons"])


def events_of(path):
    return [json.loads(line) for line in read(path).splitlines()]


def look(workspace, start):
    """`start`, with the events recorded in a separate file."""
    path = os.path.join(workspace.folder, "events.jsonl")
    workspace.variables.update({"FULLDECK_EVENTS": path, "FULLDECK_TEST_LIB": os.path.join(BUILD, "lib")})
    if os.path.exists(path):
        os.unlink(path)
    done = start().wait(SECONDS)
    return Seen(done, events_of(path))


def ranks(where, steps=12, milliseconds=100, cards="gcu:2", policy="fail"):
    def trick(workspace):
        workspace.simulate(cards)
        return look(workspace, lambda: workspace.start("--idle-card", policy, RANK, where, steps, milliseconds))
    return trick


def in_c(cards, steps=20, milliseconds=100, policy="fail"):
    def trick(workspace):
        workspace.simulate(cards)
        return look(workspace, lambda: workspace.start("--idle-card", policy, "--no-python", SIMULATED_RANK, steps, milliseconds))
    return trick


def script(text, cards="gcu:2"):
    def trick(workspace):
        workspace.simulate(cards)
        return look(workspace, lambda: workspace.start("--idle-card", "fail", workspace.write("trick.py", text)))
    return trick


def foreign(workspace):
    workspace.simulate("gcu:2")
    other = workspace.start_program([USE_CARD, "1", "1048576"])
    wait_until(lambda: "busy" in other.out, "the foreign process")
    try:
        seen = ranks("first")(workspace)
        seen.foreign = other.pid
        return seen
    finally:
        other.process.kill()
        other.wait()


def train(cards):
    def trick(workspace):
        workspace.simulate(cards)
        config = workspace.write("job.toml", JOB)
        seen = look(workspace, lambda: workspace.start_program([FULLDECK, "train", config, "--fresh", "--idle-card", "fail"]))
        lines = [json.loads(line) for line in read(os.path.join(workspace.folder, "work_dirs", "job", "metrics.jsonl")).splitlines()]
        seen.cards_busy = [line["cards_busy"] for line in lines if "loss" in line]
        return seen
    return trick


class Trick:
    def __init__(self, name, what, run, code, usage, reason="", needs_torch=False, quick=False):
        self.name, self.what, self.run, self.code, self.usage, self.reason = name, what, run, code, usage, reason
        self.needs_torch = needs_torch
        self.quick = quick  # for every `make test`

    def wrong(self, workspace):
        """Empty if verdict, reason and exit code are as expected."""
        seen = self.run(workspace)
        self.seen = seen
        if seen.code != self.code:
            return "exit code %d and not %d: %r %r" % (seen.code, self.code, seen.reasons, seen.done)
        if seen.usage != self.usage:
            return "%r and not %r: %r" % (seen.usage, self.usage, seen.reasons)
        for card, usage in self.usage.items():
            if usage != "busy" and seen.reasons[card] not in self.reason.split(" or "):
                return "%s: %s and not %s" % (card, seen.reasons[card], self.reason)
            if (usage == "idle") != (card in seen.idle):
                return "%s: its event is missing, or one too many" % card
        return ""


BUSY = {"gcu 0": "busy", "gcu 1": "busy"}
SECOND_IDLE = {"gcu 0": "busy", "gcu 1": "idle"}
ONE_IDLE = {"gcu 0": "idle"}
BOTH_IDLE = {"gcu 0": "idle", "gcu 1": "idle"}

TRICKS = [
    Trick("own", "every rank works on its own card", ranks("own"), 0, BUSY),
    Trick("cpu", "the cards are probed, and the training runs on the CPU", script(ON_THE_CPU), 86, BOTH_IDLE, "model-on-cpu", needs_torch=True,
          quick=True),
    Trick("synchronize", "the training runs on the CPU and waits for the card after each step", script(SYNCHRONIZE, "gcu:1"), 86, ONE_IDLE, "no-work or burst",
          needs_torch=True, quick=True),
    Trick("loss", "the training runs on the CPU, and its loss is reduced on the card", script(LOSS, "gcu:1"), 86, ONE_IDLE, "model-on-cpu",
          needs_torch=True, quick=True),
    Trick("inference", "the card is probed after six seconds, and the inference runs on the CPU", script(INFERENCE, "gcu:1"), 86, ONE_IDLE, "no-work",
          needs_torch=True),
    Trick("all", "rank 0 works on all cards", ranks("all"), 86, SECOND_IDLE, "other-rank", quick=True),
    Trick("swapped", "two ranks work on each other's card", ranks("swapped"), 86, BOTH_IDLE, "other-rank", quick=True),
    Trick("foreign", "a process that is not of the run keeps a card busy", foreign, 86, SECOND_IDLE, "foreign-process", quick=True),
    Trick("short", "a run of two seconds on good cards", in_c("gcu:2"), 0, BUSY),
    Trick("short-idle", "a run of two seconds, one card reports no work", in_c("gcu:2,idle=1"), 86, SECOND_IDLE, "no-work", quick=True),
    Trick("train", "`fulldeck train` on good cards", train("gcu:2"), 0, BUSY, needs_torch=True),
    Trick("train-idle", "`fulldeck train`, one card reports no work", train("gcu:2,idle=1"), 86, SECOND_IDLE, "no-work", needs_torch=True,
          quick=True),
    Trick("burst", "the first steps on the cards, the rest on the CPU", ranks("burst", 60, 50), 86, BOTH_IDLE, "burst"),
    Trick("warmup", "the cards work only before the first step", ranks("warmup"), 86, BOTH_IDLE, "no-work or burst"),
    Trick("stray", "a detached process of rank 0 keeps rank 1's card busy", ranks("stray"), 86, SECOND_IDLE, "other-rank"),
    Trick("child", "a detached process of each rank works on the rank's card", ranks("child"), 0, BUSY),
    Trick("too-short", "a program that ends at once, `--idle-card require`", in_c("gcu:2", 0, 0, "require"), 86,
          {"gcu 0": "unknown", "gcu 1": "unknown"}, "run-too-short", quick=True),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only")
    given = parser.parse_args()
    failed = 0
    print("| trick | what happens | verdict | exit code | right |\n|---|---|---|---|---|")
    for trick in TRICKS:
        if given.only and trick.name != given.only:
            continue
        right = 0
        for _ in range(given.repeats):
            with tempfile.TemporaryDirectory() as folder:
                workspace = Workspace(folder)
                try:
                    wrong = trick.wrong(workspace)
                    workspace.assert_nothing_left()
                finally:
                    workspace.clean_up()
            right += not wrong
            if wrong:
                print("%s: %s" % (trick.name, wrong), file=sys.stderr)
        failed += given.repeats - right
        verdict = ", ".join("%s %s" % (card, usage) for card, usage in trick.usage.items()) + (" (%s)" % trick.reason if trick.reason else "")
        print("| %s | %s | %s | %d | %d of %d |" % (trick.name, trick.what, verdict, trick.code, right, given.repeats), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
