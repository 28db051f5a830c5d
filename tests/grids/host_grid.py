#!/usr/bin/env python3
"""The long fault grid of two nodes (make host-grid): every cell, repeatedly. Prints a table, then the numbers of passed
and failed cells; exit code 0 only if none failed. Needs root, for network namespaces.

host_grid.py [--repeats N] [--cell WORDS] [--keep FOLDER]
"""
import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile

from cluster import host_cells, hosts, launch

PORT = 29512


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="of each cell (default: 20)")
    parser.add_argument("--cell", default="", help="only cells whose name holds these words")
    parser.add_argument("--keep", help="folder for the files of failed repeats")
    options = parser.parse_args()
    reason = hosts.why_not()
    if reason:
        print("fulldeck host-grid: error: {}".format(reason), file=sys.stderr)
        return 1

    def row(cell, by_node_rank):
        name = cell.name if by_node_rank else cell.name + ", c10d"
        return name, cell.seconds, lambda two, folder: host_cells.try_cell(cell, two, folder, PORT, by_node_rank=by_node_rank)

    rows = [row(cell, True) for cell in host_cells.cells()]
    rows += [row(cell, False) for cell in host_cells.cells() if cell.name.startswith(("rank", "link"))]
    rows.append(("5 % of the packets lost for 20 s", None,
                 lambda two, folder: host_cells.try_losses(two, folder, PORT, seconds=20)))
    rows = [row for row in rows if options.cell in row[0]]

    print("{} with {}; {} repeats of each; seconds from the fault until both launchers have ended".format(
        launch.FULLDECK, "{} cores".format(os.cpu_count()), options.repeats))
    print("\n| fault | passed | median | longest | promised | longest until all ranks had met |")
    print("|---|---|---|---|---|---|", flush=True)
    passed = failed = 0
    stories = []
    for name, promised, try_it in rows:
        def repeat_once(repeat):
            folder = tempfile.mkdtemp(prefix="fulldeck-grid-")
            two_hosts = hosts.TwoHosts()
            try:
                outcome = try_it(two_hosts, folder)
            finally:
                two_hosts.remove()
            if outcome.troubles:
                stories.append("{}, repeat {}: {}".format(name, repeat, "\n".join(outcome.troubles)))
                if options.keep:
                    shutil.copytree(folder, os.path.join(options.keep, "{}-{}".format(name.replace(" ", "-"), repeat)))
            shutil.rmtree(folder, ignore_errors=True)
            return outcome

        # Cells with a failing link mostly wait, so several run at the same time, each on its own nodes.
        waits = promised is None or promised > host_cells.SILENCE
        with concurrent.futures.ThreadPoolExecutor(4 if waits else 1) as pool:
            outcomes = list(pool.map(repeat_once, range(options.repeats)))
        good = sum(not outcome.troubles for outcome in outcomes)
        passed, failed = passed + good, failed + len(outcomes) - good
        times = [outcome.seconds for outcome in outcomes if outcome.seconds is not None and promised]
        figures = ["{:.2f}".format(value) for value in (percentile(times, 0.5), max(times))] if times else ["–", "–"]
        rendezvous_seconds = [outcome.until_met for outcome in outcomes if outcome.until_met is not None]
        print("| {} | {} of {} | {} | {} | {} | {} |".format(
            name, good, len(outcomes), figures[0], figures[1], "{:.0f}".format(promised) if promised else "no alarm",
            "{:.2f}".format(max(rendezvous_seconds)) if rendezvous_seconds else "–"), flush=True)
    for story in stories[:10]:
        print("\n" + story)
    print("\n{} passed, {} failed".format(passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
