"""The settings that `accelerate launch` would have given the script: read from --accelerate-config FILE, or from
Accelerate's default file, by Accelerate's own reader and launcher code, so that every key keeps its meaning. Ignored
settings are reported."""
import os

from fulldeck.adapters import card, say

VARIABLE = "FULLDECK_ACCELERATE_CONFIG"

# Settings of a launcher, which fulldeck sets: rendezvous endpoint, cards, threads.
LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "KMP_AFFINITY",
             "KMP_BLOCKTIME", "KMP_HW_SUBSET", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "MLU_VISIBLE_DEVICES",
             "SDAA_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES",
             "NEURON_RT_VISIBLE_CORES", "ACCELERATE_USE_CPU", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")


def apply(accelerate):
    """What was done, as text for the line about Accelerate."""
    path, by_default = find()
    if path is None:
        return []
    from accelerate.commands.config.config_args import load_config_from_file

    shown = "{} (Accelerate's default file)".format(path) if by_default else path
    try:
        settings = load_config_from_file(path)
        wanted = variables(path, settings) if settings.compute_environment.value == "LOCAL_MACHINE" else {}
    except Exception as error:
        if by_default:
            say("warning: {} is left out: {}: {}".format(shown, type(error).__name__, error))
            return []
        # Training silently without the requested settings would look correct.
        raise SystemExit("fulldeck: --accelerate-config {}: {}: {}".format(shown, type(error).__name__, error))
    if settings.compute_environment.value != "LOCAL_MACHINE":
        say("warning: {} is for {}, and is left out".format(shown, settings.compute_environment.value))
        return []
    if os.environ.get("LOCAL_RANK", "0") == "0":  # the same in all ranks
        for line in what_is_not_followed(settings, shown):
            say(line)
    kept = []
    given = 0
    for name, value in sorted(wanted.items()):
        if os.environ.get(name, value) != value:
            kept.append("{}={} (the file: {})".format(name, os.environ[name], value))
            continue
        os.environ[name] = value
        given += 1
    if kept:
        say("variables that were set already win over {}: {}".format(shown, ", ".join(kept)))
    return ["{}: {}".format(shown, summary(settings))] if given else []


def find():
    path = os.environ.get(VARIABLE)
    if path:
        return path, False
    # `accelerate launch` has set everything already.
    if os.environ.get("ACCELERATE_MIXED_PRECISION") is not None:
        return None, False
    from accelerate.commands.config.config_args import default_config_file

    return (default_config_file, True) if os.path.isfile(default_config_file) else (None, False)


def variables(path, settings):
    """The environment that Accelerate's launcher derives from the file, without the launcher's own settings."""
    from accelerate.commands import launch
    from accelerate.utils import launch as prepare

    arguments = launch.launch_command_parser().parse_args(["--config_file", path, "--main_process_port", "0", "script"])
    if getattr(settings, "num_processes", 1) == -1:
        arguments.num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    before = dict(os.environ)
    try:
        arguments = launch._validate_launch_command(arguments)[0]
        arguments.num_machines = 1  # fulldeck's ranks have already completed the rendezvous
        arguments.mpirun_hostfile = None
        kind = settings.distributed_type.value
        if kind == "DEEPSPEED":
            launcher_environment = prepare.prepare_deepspeed_cmd_env(arguments)[1]
        elif kind in ("NO", "MULTI_CPU", "XLA"):
            launcher_environment = prepare.prepare_simple_launcher_cmd_env(arguments)[1]
        else:
            launcher_environment = prepare.prepare_multi_gpu_env(arguments)
    finally:
        for name in set(os.environ) - set(before):  # _validate_launch_command writes some into the environment
            del os.environ[name]
        os.environ.update(before)
    return {name: value for name, value in launcher_environment.items() if name not in LAUNCHERS and before.get(name) != value}


def summary(settings):
    parts = ["mixed_precision {}".format(settings.mixed_precision or "no")]
    for name in ("dynamo_config", "fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config", "fp8_config"):
        value = getattr(settings, name, None)
        if value:
            parts.append("{} {}".format(name, ", ".join("{}={}".format(key, value[key]) for key in sorted(value))))
    if getattr(settings, "debug", False):
        parts.append("debug")
    return "; ".join(parts)


def what_is_not_followed(settings, shown):
    """One line for each setting of the file that contradicts this run: the launcher decides them."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    hosts = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    if getattr(settings, "num_processes", -1) not in (-1, ranks):
        yield "{} says num_processes: {}; this run has {} ranks, and that counts".format(shown, settings.num_processes, ranks)
    if getattr(settings, "num_machines", 1) not in (None, hosts):
        yield "{} says num_machines: {}; this run has {}, and that counts".format(shown, settings.num_machines, hosts)
    if settings.use_cpu and card.name():
        yield ("warning: {} says use_cpu: true, and this rank has {}, which is used. For the processors: fulldeck run --devices cpu"
               .format(shown, card.name()))
    if not settings.use_cpu and not card.name() and settings.distributed_type.value not in ("NO", "MULTI_CPU"):
        yield "warning: {} says {}, and this run has no card: the ranks are on the processors".format(
            shown, settings.distributed_type.value)
    if getattr(settings, "gpu_ids", None) not in (None, "all", ""):
        yield "{} says gpu_ids: {}; the cards are chosen by the launcher (--devices)".format(shown, settings.gpu_ids)
    for name in ("main_process_ip", "main_process_port"):
        if getattr(settings, name, None) and hosts == 1:
            yield "{} says {}: {}; where the ranks meet is the launcher's affair".format(shown, name, getattr(settings, name))
    if settings.distributed_type.value in ("DEEPSPEED", "MEGATRON_LM", "XLA") and card.is_foreign():
        yield "warning: {} says {}, which is not known to work on {}".format(shown, settings.distributed_type.value, card.kind())
    for name in ("mpirun_config", "tpu_name", "tpu_zone", "commands", "command_file"):
        if getattr(settings, name, None):
            yield "{} says {}, which fulldeck run does not do".format(shown, name)
