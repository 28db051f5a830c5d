"""Runs several Python processes as the ranks of a group, without the launcher. Shared by the tests of the Python
package."""
import os
import subprocess
import sys
import time
import uuid

from launching import BUILD, FOREIGN, free_port

PACKAGE = os.path.join(BUILD, "lib", "python")
# Far more than anything here takes on an idle machine; a loaded one is slow.
PATIENCE = 120


def clean_environment(**more):
    """The environment without the variables of a surrounding launcher or shell, and with the built package on the
    path."""
    variables = {name: value for name, value in os.environ.items() if not FOREIGN.match(name) and not name.startswith("PYTHON")}
    variables.update({"PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"})
    variables.update(more)
    return {name: value for name, value in variables.items() if value is not None}


class Ended:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return "exit code {}\n--- stdout\n{}\n--- stderr\n{}".format(self.code, self.out[-3000:], self.err[-3000:])


def run_python(script, *arguments, python=sys.executable, folder=None, seconds=PATIENCE, **variables):
    """Runs one Python process to its end."""
    done = subprocess.run([python, "-c", script] + list(arguments), env=clean_environment(**variables), cwd=folder and str(folder),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          timeout=seconds)
    return Ended(done.returncode, done.stdout, done.stderr)


def run_ranks(size, command, folder, seconds=PATIENCE, **variables):
    """`size` processes of one command, each with its RANK; all have exited when this returns, killed after
    `seconds`."""
    together = clean_environment(WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                                 MASTER_PORT=str(free_port()), FULLDECK_RUN_ID="test-" + uuid.uuid4().hex[:8], **variables)
    files, ranks = [], []
    try:
        for rank in range(size):
            streams = [open(os.path.join(str(folder), "{}.{}".format(name, rank)), "w+b") for name in ("out", "err")]
            files.append(streams)
            ranks.append(subprocess.Popen(command, env=dict(together, RANK=str(rank), LOCAL_RANK=str(rank)), cwd=str(folder),
                                          stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1]))
        deadline = time.monotonic() + seconds
        for rank in ranks:
            rank.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        late = [number for number, rank in enumerate(ranks) if rank.poll() is None]
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    ended = []
    for rank, streams in zip(ranks, files):
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
            stream.close()
        ended.append(Ended(rank.returncode, *texts))
    assert not late, "rank {} still ran after {} s: {}".format(late, seconds, ended)
    return ended


def run_script(size, script, folder, python=sys.executable, **options):
    return run_ranks(size, [python, "-c", script], folder, **options)
