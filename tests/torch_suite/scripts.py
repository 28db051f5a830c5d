"""Runs a script for torchrun on several ranks without a launcher: in new processes, or in those of a RankSet, which
have already imported torch."""
import os
import subprocess
import sys
import time

from launching import free_port

from . import ranks


def run_script(path, size, arguments, folder, seconds=180, **variables):
    """The outputs of all ranks, by rank. A rank that fails ends the others, and raises AssertionError with its
    output."""
    port = free_port()
    processes, outputs = [], []
    try:
        for rank in range(size):
            outputs.append(os.path.join(str(folder), "rank{}.out".format(rank)))
            place = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            with open(outputs[rank], "w") as output:
                processes.append(subprocess.Popen([sys.executable, path] + [str(word) for word in arguments],
                                                  env=ranks.environment(**dict(place, **variables)), stdin=subprocess.DEVNULL,
                                                  stdout=output, stderr=subprocess.STDOUT, cwd=str(folder)))
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in processes):
            if time.monotonic() > deadline or any(process.poll() for process in processes):
                break
            time.sleep(0.02)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = []
    for path_of_output in outputs:
        with open(path_of_output, errors="replace") as file:
            texts.append(file.read())
    assert codes == [0] * size, "exit codes {} (None: ended by us)\n{}".format(
        codes, "\n".join("--- rank {}\n{}".format(rank, text[-4000:]) for rank, text in enumerate(texts)))
    return texts


def run_script_in(rank_set, path, arguments, seconds=90):
    """The outputs of all ranks, by rank. Gloo's ranks sometimes hang when a script ends; they get a second try."""
    outcome = None
    for _ in range(2 if rank_set.backend == "gloo" else 1):
        if outcome is None or outcome.kind != "passed":
            outcome = one_run_of(rank_set, path, arguments, seconds)
    assert outcome.kind == "passed", outcome
    return outcome.values


def one_run_of(rank_set, path, arguments, seconds):
    return rank_set.run({"do": "call", "file": os.path.join(ranks.HERE, "jobs.py"), "function": "run_script", "group": False,
                         "arguments": {"path": path, "arguments": list(arguments), "port": free_port()}}, seconds)
