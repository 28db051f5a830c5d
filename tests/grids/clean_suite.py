"""Correct scripts under `fulldeck run --strict`: none of them may get a warning. tests/clean_scripts has fulldeck's own
(frozen backbones, GAN, accumulation, EMA, self-supervised, evaluation only, LoRA, torch.compile, FSDP2,
IterableDataset, join …); the others are run as the packages from PyPI have them, on datasets that
tests/clean_scripts/inputs.py creates. Prints one line per script and exits with 0 if all passed. `make clean-scripts`;
tests/long/test_clean_scripts.py has one test for each.

clean_suite.py [--only WORD]"""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

from launching import BUILD, FOREIGN, FULLDECK, HERE

OURS = os.path.join(HERE, "clean_scripts")
sys.path.insert(0, OURS)

import inputs  # noqa: E402

NOT_SCRIPTS = ("common.py", "inputs.py")
SECONDS = 300
# Installed into a separate folder, without dependencies, so that no other torch is installed: torch and the rest exist
# already.
EXTRA = ["lightning==2.5.5", "lightning-utilities==0.15.2", "torchmetrics==1.8.2",
         "mmcls==1.0.0rc6", "mmcv-lite==2.0.1", "model-index==0.1.11", "ordered-set==4.1.0",
         "stanza==1.15.0", "emoji==2.16.0", "requests==2.34.2", "urllib3==2.8.0", "certifi==2026.10.18", "charset-normalizer==3.5.2",
         "udtools==0.2.9", "udapi==0.5.2", "orjson==3.13.0",
         "sockeye==3.1.34", "sacrebleu==2.6.0", "portalocker==4.4.2", "tabulate==0.10.0", "colorama==0.4.6",
         "lxml==6.1.3",
         "joeynmt==2.3.0", "importlib-metadata==8.7.0", "zipp==4.1.2", "subword-nmt==0.3.8", "sentencepiece==0.2.3", "mock==5.2.0",
         "supar==1.1.4", "nltk==3.10.4", "pathos==0.3.5", "pox==0.3.7", "ppft==1.7.8", "multiprocess==0.70.19"]
EXTRA_FOLDER = os.path.join(BUILD, "clean-packages")
# Written last: if it is missing or has a different list, the install is repeated.
INSTALLED = os.path.join(EXTRA_FOLDER, "installed.json")

# `program`: the arguments after the flags of `fulldeck run`. `steps`: a run with fewer optimizer steps fails, since it
# proves nothing. `before`: a command of the same package, run once without fulldeck.
Row = collections.namedtuple("Row", "name ranks program steps environment before", defaults=(0, {}, None))
Result = collections.namedtuple("Result", "code warnings disabled steps output")

ACCELERATE = os.path.join(sysconfig.get_path("purelib"), "accelerate", "test_utils", "scripts")
MMCLS = os.path.join(EXTRA_FOLDER, "mmcls", ".mim", "tools")
STANZA = ["--cpu", "--shorthand", "en_test", "--save_dir", "models"]
TREEBANK = ["--train_file", "train.conllu", "--eval_file", "dev.conllu", "--output_file", "out.conllu"]
SOCKEYE = ["--num-layers", "1", "--transformer-model-size", "16", "--transformer-attention-heads", "2", "--transformer-feed-forward-num-hidden", "16",
           "--num-embed", "16", "--batch-type", "sentence", "--batch-size", "8", "--max-updates", "40", "--checkpoint-interval", "20"]


def stanza(name, *arguments):
    return Row("stanza " + name, 1, ["-m", "stanza.models." + name] + STANZA + list(arguments), 20)


def supar(name, kind):
    program = ["-m", "supar.cmds." + name, "train", "--build", "--path", "model", "--conf", "parser.ini", "--device", "-1", "--threads", "1",
               "--feat", "char", "--embed", ""]
    for part in ("train", "dev", "test"):
        program += ["--" + part, part + kind]
    # Its checkpoints contain a class of its own, which torch.load rejects by default.
    return Row("supar " + name, 1, program, 20, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})


# accelerate's test_distributed_data_loop, test_ddp_comm_hook and test_merge_weights are omitted: they need cards (with
# torchrun, too).
PACKAGES = [
    Row("accelerate test_script", 2, [os.path.join(ACCELERATE, "test_script.py")], 20),
    Row("accelerate test_sync", 2, [os.path.join(ACCELERATE, "test_sync.py")], 3),
    Row("accelerate test_ops", 3, [os.path.join(ACCELERATE, "test_ops.py")]),  # collectives; nothing is trained
    Row("mmcls train", 2, [os.path.join(MMCLS, "train.py"), "classifier.py", "--launcher", "pytorch"], 20),
    Row("mmcls kfold-cross-valid", 2, [os.path.join(MMCLS, "kfold-cross-valid.py"), "classifier.py", "--launcher", "pytorch",
                                       "--num-splits", "2"], 12),
    Row("sockeye train", 2, ["-m", "sockeye.train", "--dist", "--use-cpu", "--prepared-data", "prepared", "--shared-vocab", "-vs", "dev.source",
                             "-vt", "dev.target", "-o", "model", "--decode-and-evaluate", "0"] + SOCKEYE, 20, {},
        ["-m", "sockeye.prepare_data", "-s", "train.source", "-t", "train.target", "--shared-vocab", "-o", "prepared", "--max-processes", "1"]),
    Row("joeynmt train", 1, ["-m", "joeynmt", "train", "translation.yaml", "--skip-test"], 20),
    stanza("charlm", "--train_file", "train.txt", "--eval_file", "dev.txt", "--char_hidden_dim", "32", "--epochs", "12", "--batch_size", "10",
           "--bptt_size", "20", "--lr0", "1", "--cutoff", "0"),
    stanza("tagger", "--lang", "en", "--wordvec_file", "vectors.txt", "--max_steps", "40", "--eval_interval", "20", "--batch_size", "200",
           "--hidden_dim", "32", "--char_hidden_dim", "32", "--deep_biaff_hidden_dim", "32", *TREEBANK),
    stanza("lemmatizer", "--num_epoch", "5", "--hidden_dim", "32", *TREEBANK),
    stanza("mwt_expander", "--lang", "en", "--num_epoch", "12", "--batch_size", "10", "--gold_file", "dev.conllu", *TREEBANK),
    stanza("parser", "--lang", "en", "--wordvec_file", "vectors.txt", "--max_steps", "40", "--eval_interval", "20", "--batch_size", "200",
           "--hidden_dim", "32", *TREEBANK),
    stanza("tokenizer", "--lang", "en", "--txt_file", "train.txt", "--label_file", "train.labels", "--dev_txt_file", "dev.txt", "--dev_label_file",
           "dev.labels", "--dev_conll_gold", "dev.conllu", "--mwt_json_file", "multi_word.json", "--steps", "60", "--eval_steps", "20",
           "--conll_file", "out.conllu"),
    stanza("ner_tagger", "--train_file", "train.ner.json", "--eval_file", "dev.ner.json", "--wordvec_file", "vectors.txt", "--max_steps", "40",
           "--eval_interval", "20", "--hidden_dim", "32", "--batch_size", "8"),
    stanza("classifier", "--train_file", "train.classes.json", "--dev_file", "dev.classes.json", "--test_file", "test.classes.json",
           "--max_epochs", "5", "--wordvec_raw_file", "vectors.txt", "--wordvec_pretrain_file", "vectors.pt", "--batch_size", "10"),
    Row("stanza lang_identifier", 1, ["-m", "stanza.models.lang_identifier", "--cpu", "--data_dir", "languages", "--num_epochs", "8",
                                      "--batch_size", "16", "--save_name", "model.pt", "--eval_set", "dev"], 20),
    supar("biaffine_dep", ".conllx"),
    supar("crf_dep", ".conllx"),
    supar("crf2o_dep", ".conllx"),
    supar("vi_dep", ".conllx"),
    supar("crf_con", ".trees"),
    supar("vi_con", ".trees"),
]


def rows():
    names = sorted(name for name in os.listdir(OURS) if name.endswith(".py") and name not in NOT_SCRIPTS)
    return [Row(name[:-3], 2, [os.path.join(OURS, name)]) for name in names] + PACKAGES


def prepare():
    """Once per build: raises if the packages cannot be installed."""
    try:
        with open(INSTALLED) as file:
            if json.load(file) == EXTRA:
                return
    except (OSError, ValueError):
        pass
    shutil.rmtree(EXTRA_FOLDER, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check",
                           "--target", EXTRA_FOLDER] + EXTRA, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError("the packages of the clean suite could not be installed from PyPI: " + done.stdout.decode("utf-8", "replace")[-2000:])
    with open(INSTALLED, "w") as file:
        json.dump(EXTRA, file)


def environment(folder):
    variables = {name: value for name, value in os.environ.items() if not FOREIGN.match(name) and "VISIBLE_DEVICES" not in name}
    variables.update(OMP_NUM_THREADS="1", HF_HOME=os.path.join(folder, "huggingface"), HF_HUB_OFFLINE="1", PYTHON_EXEC=sys.executable,
                     PYTHONPATH=EXTRA_FOLDER, FULLDECK_RUNTIME_DIR=folder, FULLDECK_LEASE_DIR=folder, FULLDECK_SIMULATE_DIR=folder,
                     FULLDECK_EVENTS=os.path.join(folder, "events.jsonl"))
    return variables


def run(row, seconds=SECONDS, strict=True):
    """The Result of a Row. A run that takes longer than `seconds` has the code "timed out"."""
    prepare()
    folder = tempfile.mkdtemp(prefix="fulldeck-clean-")
    try:
        inputs.write(folder)
        variables = dict(environment(folder), **row.environment)
        if row.before:
            subprocess.run([sys.executable] + row.before, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            done = subprocess.run([FULLDECK, "run"] + ["--strict"] * strict + ["--devices", "cpu", "--nproc-per-node", str(row.ranks)] + row.program,
                                  cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            code, output = "timed out", error.stdout or b""
        events = []
        if os.path.exists(variables["FULLDECK_EVENTS"]):
            with open(variables["FULLDECK_EVENTS"]) as lines:
                events = [json.loads(line) for line in lines]
        warnings = ["{} ({}): {}".format(event["code"], event.get("check", ""), event.get("evidence", event["message"])) for event in events
                    if event["id"] == "silent-error" and event["severity"] == "warning"]
        disabled = [event["reason"] for event in events if event["id"] == "check-disabled"]
        steps = sum(event["steps"] for event in events if event["id"] == "run-summary")
        return Result(code, warnings, disabled, steps, output.decode("utf-8", "replace"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complaint(row, result):
    """Why the row has not passed; empty if it has."""
    found = ["exit code {}".format(result.code)] if result.code != 0 else []
    found += result.warnings + result.disabled
    if result.steps < row.steps:
        found.append("{} steps, and {} were expected".format(result.steps, row.steps))
    return "; ".join(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    chosen = [row for row in rows() if only in row.name]
    failed = 0
    for row in chosen:
        begun = time.monotonic()
        result = run(row)
        why = complaint(row, result)
        failed += bool(why)
        print("{} {} ({} rank{}, {} steps, {:.0f} s){}".format("FAIL" if why else "ok  ", row.name, row.ranks, "s" * (row.ranks > 1), result.steps,
                                                             time.monotonic() - begun, ": " + why if why else ""), flush=True)
        if why:
            print(result.output[-3000:], flush=True)
    print("{} of {} sound scripts passed without a warning".format(len(chosen) - failed, len(chosen)))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
