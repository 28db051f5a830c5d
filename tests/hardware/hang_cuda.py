#!/usr/bin/env python3
"""Hangs on a machine with an NVIDIA card: rank 0 evaluates by itself for a while, as scripts do between two epochs, and
rank 1 waits in a barrier. Its main thread spins in the driver until kernels end, which is not a hang; one that loops on
the CPU is.

Usage: hang_cuda.py [FULLDECK]     (default: build/bin/fulldeck)

Prints one JSON object, case -> {ok, code, events}; exits with code 1 if a case failed. Not part of `make test`: CI has
no card.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.abspath(__file__)
FULLDECK = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("--") else os.path.abspath("build/bin/fulldeck")
CASES = {  # case: (what rank 0 does, for how many seconds, exit code, evidence of the hangs)
    "long kernels, one wait for each": ("kernels", 15, 0, []),
    "small kernels, a wait for each": ("small", 15, 0, []),
    "a loop on the CPU": ("loop", 600, 90, ["spinning"]),
}


def rank(what, seconds):
    import time

    import torch
    import torch.distributed as dist
    from fulldeck import board

    torch.cuda.set_device(0)
    dist.init_process_group("gloo")
    matrix = torch.randn(8192 if what == "kernels" else 256, 8192 if what == "kernels" else 256, device="cuda")
    matrix /= matrix.norm()
    for step in range(1, 21):  # the first 16 calls have half a minute
        dist.barrier()
        board.ours().step(step)
    end = time.monotonic() + seconds
    while dist.get_rank() == 0 and time.monotonic() < end:
        if what == "loop":
            continue
        for _ in range(200 if what == "kernels" else 1):
            matrix = matrix @ matrix
        torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


def main():
    report = {}
    for name, (what, seconds, code, evidence) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events.jsonl")
            done = subprocess.run([FULLDECK, "run", "--nproc-per-node", "2", "--share-cards", "--on-hang", "fail", "--shutdown-timeout", "2", "--log-dir",
                                   folder, HERE, "--rank", what, str(seconds)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True, timeout=240, env=dict(os.environ, FULLDECK_EVENTS=path, PYTHON_EXEC=sys.executable))
            with open(path) as file:
                events = [event for event in map(json.loads, file) if event["id"] in ("waiting", "hang", "card-usage")]
        found = [event["evidence"] for event in events if event["id"] == "hang"]
        report[name] = {"ok": done.returncode == code and found == evidence, "code": done.returncode, "evidence": found,
                        "waited": [event["waited_seconds"] for event in events if event["id"] != "card-usage"]}
        if not report[name]["ok"]:
            report[name]["output"] = done.stdout[-3000:]
    print(json.dumps(report, indent=1))
    return 0 if all(case["ok"] for case in report.values()) else 1


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(sys.argv[sys.argv.index("--rank") + 1], float(sys.argv[-1]))
    else:
        sys.exit(main())
