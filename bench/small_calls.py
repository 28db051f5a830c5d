"""Shows where the time of a single small all_reduce through torch in Python goes: 8 ranks, 64 KiB, a barrier before each call, as a
typical benchmark does it. Prints for `fulldeck` and Gloo, interleaved: the median call of the slowest rank; what a pair of barrier
and call costs each rank in CPU time and context switches; and the time that the CPU time of all ranks takes on this machine's
cores. If the pair takes that long, the cores are busy all the time, and only less work could make it faster. A run with one rank
shows how much of it is Python and torch.

small_calls.py [--ranks 8] [--bytes 65536] [--calls 400] [--repeats 5]"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FULLDECK = os.path.join(os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build")), "bin", "fulldeck")
WARM_UP = 20


def used():
    """CPU seconds, and the voluntary and involuntary context switches of this thread."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw + usage.ru_nivcsw


def rank(backend, size, calls, output):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    tensor = torch.zeros(size // 4)
    times = []
    for number in range(WARM_UP + calls):
        if number == WARM_UP:
            cpu, switches = used()
            began = time.perf_counter()
        dist.barrier()
        before = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - before)
    pair = (time.perf_counter() - began) / calls
    figures = [statistics.median(times[WARM_UP:]), pair] + [(after - at) / calls for after, at in zip(used(), (cpu, switches))]
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, figures)
    if dist.get_rank() == 0:
        with open(output, "w") as file:
            json.dump(everybody, file)
    dist.destroy_process_group()


def measure(backend, ranks, size, calls):
    """Returns (slowest rank's median call, pair, mean CPU seconds per rank and pair, mean switches per rank and pair)."""
    with tempfile.TemporaryDirectory(prefix="small-calls-") as folder:
        output = os.path.join(folder, "figures.json")
        subprocess.run([FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", str(ranks), "--log-dir", folder, os.path.abspath(__file__), "--rank", backend,
                        "--bytes", str(size), "--calls", str(calls), "--output", output], check=True, cwd=folder, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable))
        with open(output) as file:
            everybody = json.load(file)
    return (max(one[0] for one in everybody),) + tuple(statistics.mean(one[number] for one in everybody) for number in (1, 2, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=65536)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rank", metavar="BACKEND", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank(given.rank, given.bytes, given.calls, given.output)
        return
    cores = len(os.sched_getaffinity(0))
    print("{} ranks, {} cores, {} bytes, {} calls, {} repeats".format(given.ranks, cores, given.bytes, given.calls, given.repeats))
    print("| backend, ranks | call, µs | barrier + call, µs | CPU time per rank, µs | CPU time of all ranks / cores, µs | switches per rank |")
    print("|---|---|---|---|---|---|", flush=True)
    cells = [("fulldeck", given.ranks), ("gloo", given.ranks), ("fulldeck", 1)]
    found = {cell: [] for cell in cells}
    for _ in range(given.repeats):
        for backend, ranks in cells:
            found[backend, ranks].append(measure(backend, ranks, given.bytes, max(20, given.calls // 8) if backend == "gloo" else given.calls))
    for backend, ranks in cells:
        call, pair, cpu, switches = (statistics.median(one[number] for one in found[backend, ranks]) for number in range(4))
        print("| {}, {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |".format(backend, ranks, 1e6 * call, 1e6 * pair, 1e6 * cpu,
                                                                            1e6 * cpu * ranks / min(cores, ranks), switches))
    ratios = sorted(peer[0] / ours[0] for ours, peer in zip(found["fulldeck", given.ranks], found["gloo", given.ranks]))
    print("Gloo's call takes {:.0f} × ours in the median of the pairs ({:.0f} to {:.0f})".format(statistics.median(ratios), ratios[0], ratios[-1]))


if __name__ == "__main__":
    main()
