"""How long eight ranks take to report their stacks: python tests/grids/stack_times.py [ROUNDS]

One run with a rank of each shape of test_stacks.py, requested ROUNDS times (40). Prints how many responses were
complete within 2 s, and the quantiles of the slowest rank of each round."""
import json
import os
import pathlib
import sys
import tempfile

from launching import Workspace, state_of, wait_until
from launcher.test_rank_agent import compile_program
from test_stacks import CASES, start_shapes, stop


def main(rounds):
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(os.path.join(folder))
        shapes = compile_program(pathlib.Path(folder), "cc", "stack_shapes.c", "-D_GNU_SOURCE", "-rdynamic", "-pthread")
        running = start_shapes(workspace, shapes, CASES)
        try:
            ranks = workspace.ranks()
            wait_until(lambda: state_of(ranks[4]) == "T", "the stopped rank")
            slowest, whole, requested = [], 0, 0
            for _ in range(rounds):
                stacks = json.loads(workspace.fulldeck("stacks", "--json").out)
                requested += len(stacks["ranks"])
                whole += sum(rank["complete"] and rank["milliseconds"] <= 2000 for rank in stacks["ranks"])
                slowest.append(max(rank["milliseconds"] or 2000 for rank in stacks["ranks"]))
            assert workspace.ranks() == ranks, "a rank died of the request"
        finally:
            stop(running)
            workspace.clean_up()
    slowest.sort()
    print("%d of %d answers whole within 2 s; slowest rank of a round: p50 %.0f ms, p95 %.0f ms, most %.0f ms" % (
        whole, requested, slowest[len(slowest) // 2], slowest[int(len(slowest) * 0.95)], slowest[-1]))
    return whole != requested


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
