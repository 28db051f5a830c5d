#!/usr/bin/env python3
"""Measures `fulldeck run` compared with torchrun and mpirun, alternately, in one run on one machine, and prints Markdown tables.

launch_bench.py [options]      --help lists them; scripts/bench calls it

Launchers that are not installed are skipped and reported. Python 3.8, standard library only.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANKS = 8

# A rank that reports that it has started and then waits, or works. A file, because torchrun would change the dollar signs of
# an argument.
READY = 'echo $$ >"$1/$RANK.new" && mv "$1/$RANK.new" "$1/$RANK"\n'
SLEEPING = READY + "exec sleep 1000\n"
BUSY = READY + "while :; do :; done\n"

# A rank that writes numbered lines, in chunks that end in the middle of a line. Arguments: bytes, bytes per line.
WRITER = r"""
import os, sys
total, width = int(sys.argv[1]), int(sys.argv[2])
lines, rest, number = total // width, b"", 0
while number < lines:
    count = min(4096, lines - number)
    block = rest + b"".join(b"%010d %s\n" % (i, b"x" * (width - 12)) for i in range(number, number + count))
    number += count
    cut = len(block) if number == lines else len(block) - len(block) % 60000
    for begin in range(0, cut, 60000):
        piece = memoryview(block)[begin:min(begin + 60000, cut)]
        while piece:
            piece = piece[os.write(1, piece):]
    rest = block[cut:]
"""


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(seconds):
    if seconds >= 1:
        return "{:.2f} s".format(seconds)
    return ("{:.1f} ms" if seconds > 0.001 else "{:.2f} ms").format(1000 * seconds)


def say(text=""):
    print(text, flush=True)


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.variables = {name: value for name, value in os.environ.items()
                          if not name.startswith(("SLURM", "OMPI_", "PMI", "PET_", "TORCHELASTIC_", "FULLDECK_"))}
        if shutil.which("ssh") is None:
            self.variables["OMPI_MCA_plm_rsh_agent"] = "/bin/sh"  # mpirun requires one, even for its own node
        for name in ("runtime", "leases"):
            os.makedirs(os.path.join(folder, name), mode=0o700)
        self.variables.update(FULLDECK_RUNTIME_DIR=os.path.join(folder, "runtime"),
                              FULLDECK_LEASE_DIR=os.path.join(folder, "leases"), OMP_NUM_THREADS="1", PYTHON_EXEC=options.python)
        os.chdir(folder)

    # The launchers, each as a function from a rank's command to a command line; None if it is not installed.

    def fulldeck(self, command, ranks=RANKS, *more):
        return [self.options.fulldeck, "run", "--nproc-per-node", str(ranks), "--devices", "cpu", "--no-python", *more] + command

    def torchrun(self, command):
        return [self.options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
                "--no-python"] + command

    def mpirun(self, command):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # Set RANK as the other launchers do.
        with_rank = ["sh", "-c", 'RANK=$OMPI_COMM_WORLD_RANK exec "$@"', "sh"] if command[0] == "/bin/sh" else []
        return ["mpirun", "-np", str(RANKS), "--oversubscribe"] + root + with_rank + command

    def peers(self):
        """The installed launchers: name, command, number of runs per run of fulldeck."""
        found = [("fulldeck run", self.fulldeck, 1.0)]
        if shutil.which("mpirun"):
            found.append(("mpirun", self.mpirun, 1.0))
        else:
            say("mpirun is not installed: left out.")
        looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if subprocess.run([self.options.python, "-c", looks]).returncode == 0:
            found.append(("torchrun", self.torchrun, self.options.slow_share))
        else:
            say("{} has no torch: torchrun is left out.".format(self.options.python))
        return [peer for peer in found if self.works(*peer[:2])]

    def works(self, name, make_command):
        out = os.path.join(self.folder, "first.txt")
        _, status = os.waitpid(self.spawn(make_command(["/bin/true"]), out), 0)
        with open(out, errors="replace") as file:
            said = file.read().strip()
        os.unlink(out)
        assert status == 0 or name != "fulldeck run", said
        if status != 0:
            say("{} does not work here and is left out: {}".format(name, said[-300:]))
        return status == 0

    def spawn(self, command, out=os.devnull):
        """Uses posix_spawn, because it adds less to the measured time than subprocess does."""
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
        return os.posix_spawn(shutil.which(command[0]) or command[0], command, self.variables, file_actions=actions)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def in_turns(self, peers, runs, one):
        """Calls one(name, make_command) for each peer alternately, `runs` times, slow ones less often."""
        times = {name: [] for name, _, _ in peers}
        for turn in range(runs):
            for name, make_command, share in peers:
                wanted = max(self.options.slow_runs, int(share * runs)) if share < 1 else runs
                if len(times[name]) < wanted and turn * wanted >= len(times[name]) * runs:
                    times[name].append(one(name, make_command))
        return times

    def table(self, title, times):
        say("\n{}\n".format(title))
        say("| launcher | median | 95th percentile | slowest | runs | beside fulldeck |\n|---|---|---|---|---|---|")
        ours = percentile(times["fulldeck run"], 0.5)
        for name, values in times.items():
            if values:
                say("| {} | {} | {} | {} | {} | {} |".format(
                    name, milliseconds(percentile(values, 0.5)), milliseconds(percentile(values, 0.95)), milliseconds(max(values)),
                    len(values), "" if name == "fulldeck run" else "{:.1f} ×".format(percentile(values, 0.5) / ours)))

    def start_and_stop(self, peers):
        def one(name, make_command):
            command = make_command(["/bin/true"])
            began = time.perf_counter()
            _, status = os.waitpid(self.spawn(command), 0)
            taken = time.perf_counter() - began
            assert status == 0, "{} ended with status {}".format(command, status)
            return taken

        for name, make_command, _ in peers:
            one(name, make_command)  # warm up: the first run reads from disk
        self.table("Start and stop of {} × /bin/true".format(RANKS), self.in_turns(peers, self.options.runs, one))

    def ready(self, ranks_at, count=RANKS):
        deadline = time.monotonic() + 120
        while True:
            names = [name for name in os.listdir(ranks_at) if name.isdigit()]
            if len(names) == count:
                return [int(open(os.path.join(ranks_at, str(rank))).read()) for rank in range(count)]
            assert time.monotonic() < deadline, "the ranks did not start"
            time.sleep(0.005)

    def deaths(self, peers):
        count = [0]

        def one(name, make_command):
            count[0] += 1
            ranks_at = os.path.join(self.folder, "death{}".format(count[0]))
            os.mkdir(ranks_at)
            launcher = self.spawn(make_command(["/bin/sh", self.file("sleeping.sh", SLEEPING), ranks_at]))
            pids = self.ready(ranks_at)
            began = time.perf_counter()
            os.kill(pids[count[0] % RANKS], signal.SIGKILL)
            os.waitpid(launcher, 0)
            taken = time.perf_counter() - began
            left = [pid for pid in pids if is_alive(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            if left:
                say("{}: {} ranks were still there when it had exited".format(name, len(left)))
            return taken

        self.table("A rank is killed → the launcher has exited ({} sleeping ranks)".format(RANKS),
                   self.in_turns(peers, self.options.deaths, one))

    def stops(self):
        say("\nSIGSTOP of a rank → named by fulldeck\n")
        say("| the other ranks | median | 99th percentile | slowest | stops |\n|---|---|---|---|---|")
        for words, program in (("sleep", SLEEPING), ("keep the processors busy", BUSY)):
            ranks_at = os.path.join(self.folder, "stop-" + words.replace(" ", "-"))
            os.mkdir(ranks_at)
            read_end, write_end = os.pipe()
            os.set_inheritable(write_end, True)
            rank_command = ["/bin/sh", self.file("stopped.sh", program), ranks_at]
            launcher = self.spawn(self.fulldeck(rank_command), out="/proc/self/fd/{}".format(write_end))
            os.close(write_end)
            said = os.fdopen(read_end, errors="replace")
            pids = self.ready(ranks_at)
            times = []
            for turn in range(self.options.stops):
                rank = turn % RANKS
                for number, wanted in ((signal.SIGSTOP, "was stopped"), (signal.SIGCONT, "runs again")):
                    began = time.perf_counter()
                    os.kill(pids[rank], number)
                    for line in said:
                        if line.startswith("fulldeck:") and "rank {} ".format(rank) in line and wanted in line:
                            break
                    else:
                        raise AssertionError("the launcher ended")
                    if number == signal.SIGSTOP:
                        times.append(time.perf_counter() - began)
            os.kill(launcher, signal.SIGTERM)
            os.waitpid(launcher, 0)
            said.close()
            say("| {} | {} | {} | {} | {} |".format(words, milliseconds(percentile(times, 0.5)),
                                                    milliseconds(percentile(times, 0.99)), milliseconds(max(times)), len(times)))

    def flood(self):
        ranks, width = self.options.log_ranks, 100
        megabytes = self.options.log_megabytes
        room = shutil.disk_usage(self.folder).free // 1000000
        if 2.2 * ranks * megabytes > room:
            megabytes = int(room / 2.2 / ranks)
            say("\nThe disk has room for {} MB a rank only.".format(megabytes))
        total = megabytes * 1000000 // width * width
        writer = self.file("writer.py", WRITER)
        logs = os.path.join(self.folder, "logs")
        began = time.perf_counter()
        rank = [self.options.python, "-S", "-E", writer, str(total), str(width)]
        launcher = self.spawn(self.fulldeck(rank, ranks, "--log-dir", logs, "--no-agent"))
        peaks = {}
        while True:
            for pid in [launcher] + children(launcher)[:1]:
                peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
            done, status = os.waitpid(launcher, os.WNOHANG)
            if done:
                break
            time.sleep(0.05)
        taken = time.perf_counter() - began
        assert status == 0, "the launcher ended with status {}".format(status)

        run_at = os.path.join(logs, os.listdir(logs)[0])
        expected = total // width
        filler = b" " + b"x" * (width - 12) + b"\n"
        torn = lost = 0
        files = [open(os.path.join(run_at, "attempt_0", str(rank), "stdout.log"), "rb", buffering=0) for rank in range(ranks)]
        for begin in range(0, expected, 4096):
            block = b"".join(b"%010d%s" % (i, filler) for i in range(begin, min(begin + 4096, expected)))
            for file in files:
                found = file.read(len(block))
                lost += (len(block) - len(found)) // width
                torn += found != block[:len(found)]
        for file in files:
            torn += file.read(1) != b""
            file.close()
        merged_torn = foreign = 0
        following = [0] * ranks
        with open(os.path.join(run_at, "logs", "train.log"), "rb", buffering=1 << 20) as file:
            for line in file:
                if line[:1] != b"[":
                    foreign += not line.startswith(b"fulldeck: ")
                    continue
                prefix, _, text = line.partition(b"] ")
                if text.startswith(b"fulldeck: "):
                    continue  # the rank's first line shows where it runs
                rank = int(prefix[1:])
                merged_torn += text[10:] != filler or int(text[:10]) != following[rank]
                following[rank] += 1
        merged_lost = sum(expected - number for number in following)
        size = total * ranks / 1e6
        say("\n{} ranks × {} MB of log lines\n".format(ranks, megabytes))
        say("| | |\n|---|---|")
        say("| lines in all | {} of {} bytes |".format(expected * ranks, width))
        say("| blocks of 4096 lines that are not as written, lines lost in the ranks' files | {}, {} |".format(torn, lost))
        say("| torn or out of order, lost in the merged log | {}, {} |".format(merged_torn + foreign, merged_lost))
        say("| time until the launcher had exited | {:.1f} s, {:.0f} MB/s |".format(taken, size / taken))
        memory = " + ".join("{:.1f} MB".format(peak * 1024 / 1e6) for peak in peaks.values())
        say("| peak memory of the launcher's two processes | {} |".format(memory))
        shutil.rmtree(logs)
        return torn + lost + merged_torn + foreign + merged_lost == 0


def children(pid):
    try:
        with open("/proc/{0}/task/{0}/children".format(pid)) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def is_alive(pid):
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def peak_memory(pid):
    """In KiB."""
    try:
        with open("/proc/{}/status".format(pid)) as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fulldeck", default=os.path.join(TOP, "build", "bin", "fulldeck"), help="default: build/bin/fulldeck")
    parser.add_argument("--python", default=sys.executable, help="the Python whose torchrun is measured")
    parser.add_argument("--runs", type=int, default=20, help="starts and stops of each launcher (default: 20)")
    parser.add_argument("--deaths", type=int, default=20, help="deaths of a rank under each launcher (default: 20)")
    parser.add_argument("--stops", type=int, default=100, help="SIGSTOPs of a rank (default: 100)")
    parser.add_argument("--slow-runs", type=int, default=3, help="the least number of runs of torchrun (default: 3)")
    parser.add_argument("--slow-share", type=float, default=0.15, help="runs of torchrun for each of ours (default: 0.15)")
    parser.add_argument("--log-ranks", type=int, default=64, help="ranks that flood the logs (default: 64)")
    parser.add_argument("--log-megabytes", type=int, default=100, help="MB that each of them writes (default: 100)")
    parser.add_argument("--parts", default="start,deaths,stops,flood", help="which ones (default: start,deaths,stops,flood)")
    options = parser.parse_args()
    options.fulldeck = os.path.abspath(options.fulldeck)
    if not os.access(options.fulldeck, os.X_OK):
        parser.error("{} is not there; build it first: make build".format(options.fulldeck))
    parts = options.parts.split(",")
    unknown = set(parts) - {"start", "deaths", "stops", "flood"}
    if unknown:
        parser.error("no such part: {}".format(", ".join(sorted(unknown))))

    folder = tempfile.mkdtemp(prefix="fulldeck-bench-")
    try:
        bench = Bench(options, folder)
        say("Launchers side by side. Load before: {}; processors: {}".format(open("/proc/loadavg").read().rsplit(" ", 2)[0],
                                                                            len(os.sched_getaffinity(0))))
        peers = bench.peers()
        if "start" in parts:
            bench.start_and_stop(peers)
        if "deaths" in parts:
            bench.deaths(peers)
        if "stops" in parts:
            bench.stops()
        whole = bench.flood() if "flood" in parts else True
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
