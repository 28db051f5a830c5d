"""Measures what fulldeck's hook and adapters cost a Python rank, at startup and per step. `make bench-adapters`

Startup: runs Python with and without the hook alternately, so that load on the machine affects both, and compares the medians
of the CPU time of the whole process. The limit is 20 ms per rank. Also prints the startup time that the adapters report.
Step: runs one training script for CUDA on a simulated card with the adapters, and the same script for that card without them,
alternately, and compares the medians of each process's best steps. This comparison is only meaningful on an idle machine.
Also prints a value that does not depend on the load: fulldeck's calls per step times the cost of the most expensive of them.
The limit of that value is 0.5 %.

FULLDECK_BUILD_DIR names the build (default: build). The exit code is 1 if a limit is exceeded."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build")))
HOOK, PACKAGE = os.path.join(BUILD, "lib", "fulldeck_hook"), os.path.join(BUILD, "lib", "python")
START_LIMIT_MS, STEP_LIMIT = 20, 0.005

SPENT = "import sys, torch\nfound = sys.modules.get('fulldeck.adapters')\nprint(found.spent['torch'] * 1e3 if found else 0)\n"

STEP = """
import json, os, sys, time
adapted = os.environ.get("FULLDECK_ADAPT") != "0"
import torch
card = "cuda" if adapted else "gcu"
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3),
                            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)).to(card)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, y = torch.randn(16, 3, 32, 32), torch.zeros(16, dtype=torch.long)

def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.to(card)), y.to(card)).backward()
    optimizer.step()

def timed(action, times, rounds):
    found = []
    for _ in range(rounds):
        begun = time.thread_time()
        for _ in range(times):
            action()
        found.append((time.thread_time() - begun) / times)
    return min(found)

step()
answer = {"step": timed(step, 5, 40)}
if adapted:
    ours, folder = [], os.path.join("fulldeck", "adapters")
    sys.setprofile(lambda frame, event, _: event == "call" and folder in frame.f_code.co_filename and
                   folder not in frame.f_back.f_code.co_filename and ours.append(1))
    step()
    sys.setprofile(None)
    one = torch.ones(1, device=card)
    real = torch.Tensor.to.__wrapped__
    answer["calls"] = len(ours)
    answer["call"] = timed(lambda: one.to(card), 1000, 20) - timed(lambda: real(one, "gcu"), 1000, 20)
print(json.dumps(answer))
"""


def variables(hooked, **more):
    """The environment of a rank, without the hook of any other process. The package is on its path, as for a user."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("FULLDECK_", "PYTHON", "TORCH_"))}
    found.update(OMP_NUM_THREADS="1", **more)
    if hooked is not None:
        found["PYTHONPATH"] = HOOK if hooked else PACKAGE
    return found


def run(script, environment):
    """Returns (CPU seconds of the whole process, its output). The hook checks the rank's number."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["sh", "-c", 'FULLDECK_RANK_PID=$$ exec "$0" -c "$1"', sys.executable, script], env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=600)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError("a measured Python ended with code {}: is {} built?".format(done.returncode, BUILD))
    return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime, done.stdout


def start(script, runs, base, hooked):
    """Medians of both in milliseconds, and the median of the values that the second printed."""
    times, said = ([], []), []
    run(script, base), run(script, hooked)  # warm up: Python caches the bytecode
    for _ in range(runs):
        for place, environment in enumerate((base, hooked)):
            spent, text = run(script, environment)
            times[place].append(spent * 1e3)
            if place == 1 and text:
                said.append(float(text))
    return [statistics.median(each) for each in times] + [statistics.median(said) if said else None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="pairs of starts (default: 20)")
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    given = parser.parse_args()
    simulated = {"FULLDECK_SIMULATE": "gcu:1", "FULLDECK_SIMULATE_DIR": os.path.join(BUILD, "bench-simulated")}
    os.makedirs(simulated["FULLDECK_SIMULATE_DIR"], mode=0o700, exist_ok=True)
    card = dict(simulated, FULLDECK_DEVICE="gcu:0")
    rows = {
        "python -c pass": start("pass", given.runs, variables(None), variables(True)),
        "import torch, on the processors": start(SPENT, given.runs, variables(False), variables(True)),
        "import torch, on a card": start(SPENT, given.runs, variables(False, **simulated), variables(True, **card)),
    }
    with_adapters, without = [], []
    for _ in range(max(3, given.runs // 4)):
        with_adapters.append(json.loads(run(STEP, variables(True, **card))[1]))
        without.append(json.loads(run(STEP, variables(True, FULLDECK_ADAPT="0", **card))[1]))
    step = statistics.median(each["step"] for each in without)
    share = statistics.median(each["step"] for each in with_adapters) / step - 1
    calls, call = with_adapters[0]["calls"], statistics.median(each["call"] for each in with_adapters)
    counted = calls * call / step
    if given.json:
        print(json.dumps({"start_ms": rows, "step_us": step * 1e6, "share": share, "calls": calls, "call_ns": call * 1e9, "counted": counted}))
    else:
        print("start, ms of processor time, medians of {} pairs".format(given.runs))
        for name, (base, hooked, said) in rows.items():
            print("  {:34} without {:8.1f}   with {:8.1f}   difference {:6.1f}{}".format(
                name, base, hooked, hooked - base, "   of which adapters {:.1f}".format(said) if said else ""))
        print("step of {:.0f} us: {:+.2f} % measured; {} calls of ours, {:.0f} ns the dearest: {:.2f} %".format(
            step * 1e6, share * 100, calls, call * 1e9, counted * 100))
    too_long = [name for name, (base, hooked, said) in rows.items() if (said if said else hooked - base) > START_LIMIT_MS]
    if too_long or counted > STEP_LIMIT:
        print("fulldeck bench: error: {} above the limit ({} ms a start, {:.1f} % of a step)".format(
            ", ".join(too_long) or "the step", START_LIMIT_MS, STEP_LIMIT * 100), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
