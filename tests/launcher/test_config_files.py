"""`fulldeck config`: the programs that its output is for can read it."""
import importlib.util
import os
import stat
import subprocess
import sys

import pytest

from launching import FULLDECK


def config(workspace, *arguments, cards=None):
    workspace.variables.pop("FULLDECK_SIMULATE", None)
    if cards:
        workspace.variables["FULLDECK_SIMULATE"] = cards
    done = workspace.fulldeck("config", *arguments)
    assert done.code == 0, done
    return done.out


READ = """
import json, sys
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
seen = []
for path in sys.argv[1:]:
    made = load_config_from_file(path)
    arguments = _validate_launch_command(launch_command_parser().parse_args(["--config_file", path, "script.py"]))[0]
    seen.append([made.distributed_type.value, made.num_processes, made.num_machines, made.use_cpu, arguments.mixed_precision, arguments.multi_gpu])
print(json.dumps(seen))
"""


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="Accelerate is not installed")
def test_accelerate_reads_its_file_back(workspace):
    cases = [  # cards, options, how Accelerate interprets them
        (None, ["--devices", "cpu"], ["NO", 1, 1, True, "no", False]),
        (None, ["--devices", "cpu", "--nproc-per-node", "4"], ["MULTI_CPU", 4, 1, True, "no", False]),
        ("cuda:1", [], ["NO", 1, 1, False, "no", False]),
        ("cuda:8", [], ["MULTI_GPU", 8, 1, False, "no", True]),
        ("gcu:8", [], ["MULTI_GPU", 8, 1, False, "no", True]),
        ("gcu:8", ["--nnodes", "4", "--master-addr", "node0"], ["MULTI_GPU", 32, 4, False, "no", True]),
        ("npu:8", ["--devices", "0-3"], ["MULTI_NPU", 4, 1, False, "no", True]),
        ("mlu:2", [], ["MULTI_MLU", 2, 1, False, "no", True]),
    ]
    paths = []
    for number, (cards, options, _) in enumerate(cases):
        path = os.path.join(workspace.folder, "{}.yaml".format(number))
        config(workspace, "accelerate", "--output", path, *options, cards=cards)
        paths.append(path)
    done = subprocess.run([sys.executable, "-c", READ] + paths, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          env=workspace.variables, timeout=120)
    assert done.returncode == 0, done.stderr
    import json

    assert json.loads(done.stdout.splitlines()[-1]) == [expected for _, _, expected in cases]
    with open(paths[4]) as file:
        assert "fulldeck run --accelerate-config" in file.read()


def test_the_torchrun_line_starts_as_many_ranks_as_there_are_cards(workspace):
    workspace.write("train.py", "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], *__import__('sys').argv[1:])\n")
    script = workspace.write("go.sh", config(workspace, "torchrun", cards="gcu:3"))
    bin_folder = os.path.dirname(FULLDECK)
    done = workspace.start_program(["/bin/sh", script, "--epochs", "2"], extra={"PATH": bin_folder + ":" + os.environ["PATH"]}).wait(60)
    assert done.code == 0, done
    assert sorted(line.split("] ")[-1] for line in done.out.splitlines() if "rank" in line) == [
        "rank {} of 3 --epochs 2".format(rank) for rank in range(3)], done


@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="PyYAML is not installed")
def test_the_objects_for_kubernetes_are_yaml_of_the_shape_that_is_expected(workspace):
    import yaml

    job = yaml.safe_load(config(workspace, "pytorchjob", "--nnodes", "3", "--image", "registry/train:1", "--script", "it's.py", cards="gcu:8"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"], job["spec"]["nprocPerNode"]) == (1, 2, "8")
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["name"] == "pytorch" and container["image"] == "registry/train:1"
    assert container["command"] == ["fulldeck", "run", "it's.py"]
    assert container["resources"]["limits"] == {"enflame.com/gcu": 8}
    jobs = yaml.safe_load(config(workspace, "jobset", "--nnodes", "2", "--name", "seg", cards="cuda:4"))
    spec = jobs["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (jobs["kind"], spec["parallelism"], spec["completions"], spec["completionMode"]) == ("JobSet", 2, 2, "Indexed")
    container = spec["template"]["spec"]["containers"][0]
    assert container["command"] == ["fulldeck", "run", "--nproc-per-node=4", "--nnodes=2", "--master-addr=seg-hosts-0-0.seg",
                                    "--master-port=29500", "train.py"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}


def test_the_slurm_script_is_a_script_that_asks_for_one_task_a_host(workspace):
    text = config(workspace, "slurm", "--nnodes", "2", cards="gcu:8")
    assert "#SBATCH --nodes=2\n" in text and "#SBATCH --ntasks-per-node=1\n" in text and "#SBATCH --gres=gcu:8\n" in text
    # sbatch reads its lines up to the first command.
    assert text.index("#SBATCH --signal") < text.index("set -eu")
    done = subprocess.run(["bash", "-n", workspace.write("job.sh", text)], stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done.stderr


def test_bad_requests_are_refused_and_an_older_file_is_left_alone(workspace):
    workspace.simulate("gcu:2")
    older = workspace.write("older.yaml", "mine\n")
    for arguments, words in (
            (["accelerat"], "accelerate"), (["accelerate", "--nnodes", "0"], "--nnodes"), (["accelerate", "-o", older], "is there already"),
            (["slurm", "--name", "a b"], "is no name for a job"), (["slurm", "--script", ""], "script"),
            (["torchrun", "--nproc-per-node", "3"], "several ranks on a card"), (["torchrun", "--devices", "gcuu"], "gcuu"),
            (["accelerate", "-o", "/nonexistent/x"], "cannot write")):
        done = workspace.fulldeck("config", *arguments)
        assert done.code != 0 and words in done.err, (arguments, done)
    with open(older) as file:
        assert file.read() == "mine\n"
    assert not os.stat(older).st_mode & stat.S_IXUSR
