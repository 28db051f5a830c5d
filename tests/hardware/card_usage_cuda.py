#!/usr/bin/env python3
"""Card usage on a machine with an NVIDIA card: the verdicts of `fulldeck run --idle-card require` on runs that use the
card and on runs that only seem to.

Usage: card_usage_cuda.py [FULLDECK]     (default: build/bin/fulldeck)

Prints one JSON object, case -> {ok, code, verdict events}; exits with code 1 if a case failed. Not part of `make test`:
CI has no card.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.abspath(__file__)
FULLDECK = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("--") else os.path.abspath("build/bin/fulldeck")


# ---- code of a rank: card_usage_cuda.py --rank CASE

def train(device, seconds):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("gloo")
    width = 4096 if device == "cuda" else 256
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(256, width, device=device)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


CASES = {  # case: (device, seconds, expected exit codes, expected verdicts)
    "trains on the card, 20 s": ("cuda", 20, (0,), ("busy",)),
    "trains on the card, 2 s": ("cuda", 2, (0, 86), ("busy", "unknown")),
    "probes the card, then trains on the CPU, 20 s": ("cpu", 20, (86,), ("idle",)),
    "probes the card, then trains on the CPU, 2 s": ("cpu", 2, (86,), ("idle", "unknown")),
}


def main():
    report, failed = {}, 0
    for name, (_, _, codes, verdicts) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            events = os.path.join(folder, "events.jsonl")
            environment = dict(os.environ, FULLDECK_EVENTS=events, NO_COLOR="1", PYTHON_EXEC=sys.executable)
            done = subprocess.run([FULLDECK, "run", "--nproc-per-node", "1", "--idle-card", "require", "--log-dir", folder, HERE, "--rank", name],
                                  env=environment, timeout=200, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True)
            with open(events) as file:
                found = [json.loads(line) for line in file]
        usage = [{key: event[key] for key in ("when", "busy", "idle", "unknown", "reasons")} for event in found if event["id"] == "card-usage"]
        verdict = next((kind for kind in ("busy", "idle", "unknown") if usage and usage[-1][kind]), None)
        # "unknown" is correct for a run of two seconds, but not with exit code 0: --idle-card require demands
        # certainty.
        ok = done.returncode in codes and verdict in verdicts and (verdict == "busy") == (done.returncode == 0)
        failed += not ok
        report[name] = {"ok": ok, "code": done.returncode, "verdict": verdict, "card-usage": usage}
        if not ok:
            report[name]["output"] = done.stdout[-3000:]
    print(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    if "--rank" in sys.argv:
        train(*CASES[sys.argv[sys.argv.index("--rank") + 1]][:2])
    else:
        sys.exit(main())
