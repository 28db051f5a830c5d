"""`fulldeck patch mmengine` on installations of three ages (only the relevant shape of the file, written here) and on
the real one if it is installed. src/control/patch/patched_file_test.cc tests interruptions."""
import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

HEAD = '''# Copyright
import os


class Runner:

    def wrap_model(
            self, model_wrapper_cfg: Optional[Dict],
            model: nn.Module) -> Union[DistributedDataParallel, nn.Module]:
        """Wrap the model to :obj:`MMDistributedDataParallel` or other.

        An example::

            if model_wrapper_cfg is None:
        """
        if is_model_wrapper(model):
            return model
'''
# The code of the versions between there and the wrapper.
VERSIONS = {
    "0.1.0": "        model = model.to(get_device())\n",
    "0.7.4": "        model = model.to(get_device())\n\n        if not self.distributed:\n            return revert_sync_batchnorm(model)\n",
    "0.10.7": "        model = model.to(get_device())\n        sync_bn = self.cfg.get('sync_bn', None)\n",
}
TAIL = '''        if model_wrapper_cfg is None:
            model = MMDistributedDataParallel(
                module=model,
                device_ids=[int(os.environ['LOCAL_RANK'])])
        else:
            model = MODEL_WRAPPERS.build(
                model_wrapper_cfg, default_args=default_args)
        return model

    def build_optim_wrapper(self):
        pass
'''


def install(workspace, version, source):
    """A Python that has such an MMEngine, and no other."""
    package = os.path.join(workspace.folder, "site" + version, "mmengine")
    os.makedirs(os.path.join(package, "runner"))
    for name, text in (("__init__.py", "raise SystemExit('it must not be imported')\n"), ("version.py", "__version__ = '%s'\n" % version),
                       ("runner/__init__.py", ""), ("runner/runner.py", source)):
        with open(os.path.join(package, name), "w") as file:
            file.write(text)
    python = workspace.write("python" + version, "#!/bin/sh\nPYTHONPATH='{}' exec '{}' -s \"$@\"\n".format(os.path.dirname(package), sys.executable),
                         0o755)
    return python, os.path.join(package, "runner", "runner.py")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def patch(workspace, python, *options):
    return workspace.fulldeck("patch", "mmengine", "--python", python, *options)


def check_there_and_back(workspace, python, path, version):
    before, facts = digest(path), os.stat(path)
    folder = sorted(os.listdir(os.path.dirname(path)))
    assert "not patched" in patch(workspace, python, "--status").out
    assert patch(workspace, python, "--restore").code == 0 and digest(path) == before
    done = patch(workspace, python, "--trace-ddp")
    assert done.code == 0 and "MMEngine " + version in done.err, done
    with open(path) as file:
        text = file.read()
    ast.parse(text)
    assert text.index("before_wrap(model)") < text.index("model = MMDistributedDataParallel(") and digest(path) != before
    patched = digest(path)
    again = patch(workspace, python, "--trace-ddp")
    assert again.code == 0 and "already" in again.err and digest(path) == patched
    assert "in every run" in patch(workspace, python, "--status").out
    assert patch(workspace, python).code == 0 and "FULLDECK_TRACE_DDP=1" in patch(workspace, python, "--status").out
    done = patch(workspace, python, "--restore")
    assert done.code == 0 and digest(path) == before, done
    after = os.stat(path)
    assert (after.st_mode, after.st_uid, after.st_gid) == (facts.st_mode, facts.st_uid, facts.st_gid)
    assert sorted(os.listdir(os.path.dirname(path))) == folder


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_patch_and_restore_leave_the_file_as_it_was(workspace, version):
    python, path = install(workspace, version, HEAD + VERSIONS[version] + TAIL)
    check_there_and_back(workspace, python, path, version)


@pytest.mark.skipif(importlib.util.find_spec("mmengine") is None, reason="MMEngine is not installed (scripts/python-packages.txt)")
def test_a_copy_of_the_real_one_is_patched_and_restored_too(workspace):
    real = os.path.dirname(importlib.util.find_spec("mmengine").origin)
    python, path = install(workspace, "real", "")
    shutil.copy(os.path.join(real, "runner", "runner.py"), path)
    check_there_and_back(workspace, python, path, "real")


RUN = """
import os, sys, types
class Anything:
    def __getattr__(self, name): return lambda *a, **k: None
source = open(sys.argv[1]).read()
names = dict(__name__="runner", os=os, Optional={None: 0}, Dict=None, Union={(None, None): 0}, DistributedDataParallel=None,
             nn=types.SimpleNamespace(Module=None), is_model_wrapper=lambda m: False, get_device=lambda: "cpu",
             MMDistributedDataParallel=lambda module, device_ids: "wrapped")
exec(compile(source, "runner.py", "exec"), names)
runner = names["Runner"]()
runner.cfg = {}
os.environ["LOCAL_RANK"] = "0"
print(runner.wrap_model(None, types.SimpleNamespace(to=lambda device: "model")))
"""


def test_the_lines_do_nothing_where_fulldeck_is_not_and_tell_the_tracer_where_it_is(workspace):
    python, path = install(workspace, "0.10.7", HEAD + VERSIONS["0.10.7"] + TAIL)
    assert patch(workspace, python).code == 0

    def run(**variables):
        return subprocess.run([sys.executable, "-S", "-c", RUN, path], env=dict(workspace.variables, **variables), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)

    done = run(FULLDECK_TRACE_DDP="1")
    assert (done.stdout, done.stderr) == ("wrapped\n", ""), done
    for name, text in (("__init__.py", ""), ("adapters/__init__.py", ""),
                       ("adapters/trace.py", "def before_wrap(model):\n    print('traced', model)\n    raise ValueError\n")):
        file = os.path.join(workspace.folder, "ours", "fulldeck", name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w") as out:
            out.write(text)
    ours = os.path.join(workspace.folder, "ours")
    assert run(PYTHONPATH=ours).stdout == "wrapped\n"
    done = run(PYTHONPATH=ours, FULLDECK_TRACE_DDP="1")
    assert (done.stdout, done.stderr) == ("traced model\nwrapped\n", ""), done
    assert patch(workspace, python, "--trace-ddp").code == 0
    assert run(PYTHONPATH=ours).stdout == "traced model\nwrapped\n"


def test_what_cannot_be_patched_is_left_alone_and_said(workspace):
    python, path = install(workspace, "9.0", "class Runner:\n    def wrap_model(self, model):\n        return model\n")
    before = digest(path)
    done = patch(workspace, python)
    assert done.code == 1 and "no data-parallel wrapper in a way that is known" in done.err and digest(path) == before, done
    python, path = install(workspace, "0.9", HEAD + VERSIONS["0.7.4"] + TAIL)
    assert patch(workspace, python).code == 0
    with open(path, "a") as file:
        file.write("# changed by hand\n")
    changed = digest(path)
    for options in ([], ["--trace-ddp"], ["--restore"]):
        done = patch(workspace, python, *options)
        assert done.code == 1 and "changed since fulldeck patched it" in done.err and digest(path) == changed, done
    done = patch(workspace, python, "--status")
    assert done.code == 1 and "changed by somebody else" in done.out, done


def test_bad_input_is_refused_with_what_to_do(workspace):
    bare = workspace.write("bare", "#!/bin/sh\nexec '{}' -I -S \"$@\"\n".format(sys.executable), 0o755)
    silent = workspace.write("silent", "#!/bin/sh\nexit 0\n", 0o755)
    for arguments, words in (
            (["mmengine", "--python", bare], "has no package mmengine"), (["mmengine", "--python", silent], "does not work as a Python 3"),
            (["mmengine", "--python", "/nonexistent"], "not a program"), (["mmengine", "--python", "no-such-python"], "on PATH"),
            (["torch"], "torch"), (["mmengine", "--restore", "--status"], "do not go together"), ([], "PACKAGE")):
        done = workspace.fulldeck("patch", *arguments)
        assert done.code != 0 and words in done.err, (arguments, done)
    done = workspace.fulldeck("patch", "mmengine", extra={"VIRTUAL_ENV": "/nonexistent"})
    assert done.code == 1 and "VIRTUAL_ENV is /nonexistent" in done.err, done
