"""One rank of a RankSet (ranks.py): rank.py SOCKET RANK SIZE BACKEND. Receives jobs as lines of JSON from the socket:

  {"do": "torch test", "name": …}                                a method of torch's DistributedTest._DistTestBase
  {"do": "call", "file": …, "function": …, "arguments": {…}}     function(place, **arguments) of a Python file; its
                                                                 result is the job's value. "group": false: no default
                                                                 group

Every job also has "folder", a private one that all ranks share. ranks.py describes the steps and responses."""
import datetime
import faulthandler
import gc
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
import unittest

CALL_TIMEOUT_SECONDS = 60


class Place:
    """The context of a called function."""

    def __init__(self, rank, size, backend, folder):
        self.rank, self.size, self.backend, self.folder = rank, size, backend, folder

    @property
    def init_method(self):
        return "file://" + os.path.join(self.folder, "init_dir", "world")


class Call:
    """A function of a file, run with a default group."""

    def __init__(self, place, job):
        self._place, self._job = place, job

    def begin(self):
        import torch.distributed as dist
        self._dist = dist
        if self._job.get("group", True):
            dist.init_process_group(self._place.backend, init_method=self._place.init_method, rank=self._place.rank,
                                    world_size=self._place.size,
                                    timeout=datetime.timedelta(seconds=self._job.get("timeout", CALL_TIMEOUT_SECONDS)))

    def run(self):
        specification = importlib.util.spec_from_file_location("job_of_a_rank", self._job["file"])
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return getattr(module, self._job["function"])(self._place, **self._job.get("arguments", {}))

    def end(self):
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def run_jobs(channel, place_of, make_job):
    lines = channel.makefile("r")

    def say(step, **more):
        channel.sendall(json.dumps(dict(more, step=step)).encode() + b"\n")

    def heard(what):
        line = lines.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)["do"] == what

    while True:
        line = lines.readline()
        if not line:
            return
        described = json.loads(line)
        environment = dict(os.environ)
        try:
            job = make_job(place_of(described["folder"]), described)
            job.begin()
            say("ready")
            heard("go")
        except Exception:
            say("ready", kind="failed", text=traceback.format_exc())
            continue
        try:
            say("done", kind="passed", value=job.run())
        except unittest.SkipTest as skip:
            say("done", kind="skipped", text=str(skip))
        except SystemExit as end:
            say("done", **job.exit(end.code) if hasattr(job, "exit") else {"kind": "failed", "text": "exit code %s" % end.code})
        except BaseException:
            say("done", kind="failed", text=traceback.format_exc())
        heard("finish")
        try:
            job.end()
            job = None
            gc.collect()
            os.environ.clear()
            os.environ.update(environment)
            say("finished")
        except Exception:
            say("finished", kind="failed", text=traceback.format_exc())


def main():
    descriptor, rank, size, backend = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel = socket.socket(fileno=descriptor)
    os.environ["RANK"] = str(rank)

    def place_of(folder):
        return Place(rank, size, backend, folder)

    def make_job(place, described):
        if described["do"] == "torch test":
            import tests_of_torch
            return tests_of_torch.TorchTest(place, described["name"])
        if described["do"] == "torch tests":
            import tests_of_torch
            return tests_of_torch.Names(place)
        return Call(place, described)

    import torch  # noqa: F401 — here, so that it counts as starting
    channel.sendall(b'{"step": "started"}\n')
    run_jobs(channel, place_of, make_job)


if __name__ == "__main__":
    main()
