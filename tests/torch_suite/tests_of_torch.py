"""Inside a rank: one test of torch's DistributedTest._DistTestBase, as torch's own runner would run it
(TestDistBackend._run), but without starting processes.

When torch's module is imported, decorators select the tests by the name of the backend. It is imported as for Gloo, and
then fulldeck replaces Gloo:

- BACKEND becomes the chosen backend's name, which also equals "gloo" for tests that compare it in their body;
- the tables of backends whose collectives a profiler shows get its name;
- torch.distributed.monitored_barrier rejects every name but "gloo"; that check is disabled, and the backend decides;
- DDP's log calls every backend that is not torch's own "custom"; it is read as the backend's name;
- tests of all_to_all on CPU tensors that torch reserves for MPI run with every backend, including Gloo (MPI_ONLY)."""
import datetime
import os
import re
import unittest
from unittest import mock

from torch.testing._internal import common_utils

MPI_ONLY = re.compile(r"Only MPI supports")
# Tests wait for each other through files; torch's 10 s are too short for 8 ranks on 2 busy cores.
FILE_BARRIER_SECONDS = 60


class StandsInForGloo(str):
    """The name of a backend, equal to itself and to "gloo"."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def _import_tests(backend, folder):
    os.environ["BACKEND"] = "gloo"
    # As in torch's runner: the decorators check how the group will be created.
    os.environ["INIT_METHOD"] = "file://" + os.path.join(folder, "init_dir", "shared_init_file")
    os.environ.setdefault("MASTER_ADDR", "localhost")
    skip_if = common_utils.skip_but_pass_in_sandcastle_if
    kept_for_mpi = []

    def skip_unless_mpi_only(condition, reason):
        if condition and MPI_ONLY.match(reason):
            def mark(test):
                kept_for_mpi.append(test.__name__)
                return test
            return mark
        return skip_if(condition, reason)

    with mock.patch.object(common_utils, "skip_but_pass_in_sandcastle_if", skip_unless_mpi_only):
        from torch.testing._internal.distributed import distributed_test
    distributed_test.Barrier.sync.__func__.__defaults__ = (None, FILE_BARRIER_SECONDS)
    if backend != "gloo":
        _put_in_place(backend, distributed_test)
    return distributed_test, kept_for_mpi


def _put_in_place(backend, distributed_test):
    import torch.distributed as dist
    distributed_test.BACKEND = StandsInForGloo(backend)
    for table in (distributed_test.PROFILING_SUPPORTED_BACKENDS, distributed_test.CUDA_PROFILING_SUPPORTED_BACKENDS,
                  distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        table.append(backend)
    barrier = dist.monitored_barrier

    def monitored_barrier(*arguments, **named):
        with mock.patch.object(dist.distributed_c10d, "get_backend", lambda group=None: dist.Backend.GLOO):
            return barrier(*arguments, **named)

    dist.monitored_barrier = monitored_barrier
    ddp = distributed_test.DistributedDataParallel
    logged = ddp._get_ddp_logging_data

    def get_ddp_logging_data(self):
        data = logged(self)
        return dict(data, backend_name=backend) if data.get("backend_name") == "custom" else data

    ddp._get_ddp_logging_data = get_ddp_logging_data


_imported = None


def _tests(place):
    global _imported
    if _imported is None:
        _imported = _import_tests(place.backend, place.folder)
    return _imported


class Names:
    """A job that returns the list of tests: [name, whether torch reserves it for MPI]."""

    def __init__(self, place):
        self._place = place

    def begin(self):
        pass

    def run(self):
        module, kept_for_mpi = _tests(self._place)
        names = sorted(name for name in dir(module.DistributedTest._DistTestBase) if name.startswith("test"))
        return [[name, name in kept_for_mpi] for name in names]

    def end(self):
        pass


class TorchTest:
    def __init__(self, place, name):
        self._place, self._name = place, name
        self._module, _ = _tests(place)

    def begin(self):
        import torch.distributed as dist
        self._dist = dist
        folder = self._place.folder
        os.environ["TEMP_DIR"] = folder
        os.environ["BACKEND"] = str(self._module.BACKEND)
        os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"
        os.environ["INIT_METHOD"] = self._module.INIT_METHOD = "file://" + os.path.join(folder, "init_dir", "shared_init_file")
        dist.set_debug_level_from_env()
        self._module.Barrier.barrier_id = 0

        class Test(self._module.TestDistBackend, self._module.DistributedTest._DistTestBase):
            pass

        self._test = Test(self._name)
        self._test.rank = self._place.rank
        self._test.file_name = os.path.join(folder, "init_dir", "world")
        seconds = self._module.CUSTOM_PG_TIMEOUT.get(self._name, self._module.default_pg_timeout)
        dist.init_process_group(init_method=self._test.init_method, backend=self._module.BACKEND, world_size=self._place.size,
                                rank=self._place.rank, timeout=datetime.timedelta(seconds=seconds))

    def run(self):
        # Some of the decorators only leave these marks, for a runner that checks them before it starts processes.
        method = getattr(type(self._test), self._name)
        if getattr(method, "__unittest_skip__", False):
            raise unittest.SkipTest(method.__unittest_skip_why__)
        common_utils.set_rng_seed()
        getattr(self._test, self._name)()

    def exit(self, code):
        for skip in self._module.TEST_SKIPS.values():
            if skip.exit_code == code:
                return {"kind": "skipped", "text": skip.message}
        return {"kind": "passed"} if code == 0 else {"kind": "failed", "text": "the test ended with exit code {}".format(code)}

    def end(self):
        self._test = None
        if self._dist.is_initialized():
            self._dist.destroy_process_group()
