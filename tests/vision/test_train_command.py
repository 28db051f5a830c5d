"""`fulldeck train` and `fulldeck predict` up to the programs that they start, with a stand-in for those: what is
rejected before a rank starts, what the ranks receive, what the job folder contains afterwards. No torch is needed."""
import glob
import json
import os
import re
import shutil
import subprocess

import pytest

from launching import BUILD, FULLDECK, TOP, read, wait_until

DEMO = "demo.toml"  # in the workspace of each test
RECIPE = """
name = "demo"
steps = 300
[data]
kind = "synthetic"
size = 64
workers = 1
[model]
backbone = "dinov3-tiny"
[train]
global_batch = 32
batch = 4
lr = 2e-3
warmup = 20
[validation]
every = 100
[checkpoint]
every = 100
"""
CONFIGS = sorted(glob.glob(os.path.join(TOP, "configs", "*.toml")))

# A rank that prints its arguments, and creates a checkpoint as the real one would.
TRAINER = """#!/bin/sh
test "$RANK" = 0 && mkdir -p work_dirs/demo/checkpoints/step-000000300
echo "rank $RANK of $WORLD_SIZE on $FULLDECK_DEVICE: $*"
test -z "$FAIL_ONCE" || test "$TORCHELASTIC_RESTART_COUNT" != 0 || exit 7
while test -e "$HOLD"; do sleep 0.05; done
exit 0
"""

PREDICTOR = """#!/bin/sh
for word in "$@"; do printf '%s|' "$word"; done
exit 5
"""


@pytest.fixture
def train(workspace):
    """Calls `fulldeck train`, or another command, of a fulldeck whose fulldeck-train is the stand-in."""
    programs = os.path.join(workspace.folder, "installed", "bin")
    os.makedirs(programs)
    shutil.copy(FULLDECK, programs)
    os.symlink(os.path.join(BUILD, "lib"), os.path.join(workspace.folder, "installed", "lib"))
    for name, text in (("fulldeck-train", TRAINER), ("fulldeck-predict", PREDICTOR)):
        workspace.write(os.path.join("installed", "bin", name), text, 0o755)
    workspace.write(DEMO, RECIPE)
    workspace.simulate("gcu:8")

    def start(*arguments, **options):
        command = options.pop("command", "train")
        return workspace.start_program([os.path.join(programs, "fulldeck"), command] + [str(each) for each in arguments], **options)

    def call(*arguments, **options):
        return start(*arguments, **options).wait()

    call.start = start
    call.workspace = workspace
    call.folder = os.path.join(workspace.folder, "work_dirs", "demo")
    call.programs = programs
    return call


def refused(done, code, *texts):
    assert done.code == code, done
    for text in texts:
        assert text in done.err, done
    return done


# ---- the config


@pytest.mark.parametrize("config", CONFIGS, ids=os.path.basename)
def test_every_config_of_the_project_is_understood(train, config):
    """Its folders do not exist here; that is the only problem reported."""
    done = train(config, "--dry-run")
    if "kind = \"synthetic\"" in read(config):
        assert done.code == 0, done
        return
    assert done.code == 2, done
    lines = done.err.splitlines()
    assert [line for line in lines if not re.search(r"error: (data\.root|model\.weights) = ", line)] == []
    # With those, it has a plan.
    root = os.path.join(train.workspace.folder, "data")
    weights = os.path.join(train.workspace.folder, "model.safetensors")
    with open(weights, "wb") as file:
        file.write(b"\x02\0\0\0\0\0\0\0{}")
    for part in ("Train/Rural", "Val/Urban"):
        for kind in ("images_png", "masks_png"):
            os.makedirs(os.path.join(root, part, kind))
    os.makedirs(os.path.join(root, "classification/NWPU-RESISC45/train/farm"))
    os.makedirs(os.path.join(root, "classification/NWPU-RESISC45/test/farm"))
    for number in range(64):
        train.workspace.write("data/Train/Rural/images_png/%d.png" % number, "")
        train.workspace.write("data/classification/NWPU-RESISC45/train/farm/%d.jpg" % number, "")
    done = train(config, "--dry-run", "--json", "--set", "data.root=" + root, "--set", "model.weights=" + weights)
    plan = json.loads(done.out)
    assert (plan["ranks"], plan["global_batch"], plan["lr"], plan["steps"], plan["steps_of_epoch"]) == (8, 16, 1e-4, 40000, 4)


def test_mistakes_are_reported_all_at_once_and_no_rank_starts(train):
    config = train.workspace.write("bad.toml", "name = \"demo\"\nstepz = 10\n\n[train]\nlr = \"fast\"\n  batch = 0\nlerning = 3\n")
    done = refused(train(config), 2)
    assert [line[len("fulldeck: error: ") + len(config):] for line in done.err.splitlines()] == [
        ":2:1: there is no key \"stepz\"; did you mean \"steps\"?",
        ":5:1: train.lr must be a number, not the text \"fast\"",
        ":6:3: train.batch must be within 1 … 65536, not 0",
        ":7:1: there is no key \"train.lerning\"; see docs/recipes.md",
    ]
    assert not os.path.exists(train.folder)


@pytest.mark.parametrize("arguments, code, text", [
    (["configs/demo.toml"], 2, "cannot read configs/demo.toml: No such file or directory"),
    (["dmeo.toml"], 2, "did you mean demo.toml?"),
    ([DEMO, "--set", "epochs"], 2, "write it as KEY=VALUE"),
    ([DEMO, "--set", "epoch=3"], 2, "did you mean \"epochs\"?"),
    ([DEMO, "--set", "data.size=100"], 2, "--set data.size=100: data.size = 100 is no multiple of 16"),
    ([DEMO, "--set", "data.kind=mmrs1m", "--set", "data.root=/"], 2, "needs masks, and data of kind mmrs1m has none"),
    ([DEMO, "--set", "data.kind=folders", "--set", "data.task=classification", "--set", "data.root=nowhere"], 2,
     "data.root = \"nowhere\": there is no such folder"),
    ([DEMO, "--set", "model.weights=nowhere"], 2, "model.weights = \"nowhere\": there is no such file"),
    ([DEMO, "--set", "train.global_batch=36"], 2, "train.global_batch = 36 cannot be shared evenly by 8 ranks"),
    ([DEMO, "--devices", "9"], 83, "To run 9 ranks on the cards that there are: --devices 9 --share-cards"),
    ([DEMO, "--devices", "guc"], 2, "did you mean gcu?"),
    ([DEMO, "--resume"], 2, "there is nothing to resume: there is no folder work_dirs/demo"),
    ([DEMO, "--resume", "--fresh"], 2, "give one of the two"),
    ([DEMO, "--json"], 2, "give --dry-run with it"),
    ([DEMO, "--set", "model.backbone=dinov3-vitl16", "--set", "data.size=4096", "--set", "train.batch=32"], 88,
     "of a card's memory, and a card has 48 GiB"),
    ([DEMO, "--set", "work_dirs=/proc"], 88, "/proc"),
    ([], 2, "CONFIG is required"),
])
def test_what_is_wrong_is_refused_before_a_rank_starts(train, arguments, code, text):
    done = refused(train(*arguments), code, text)
    assert "rank 0" not in done.out
    assert not os.path.exists(train.folder)


def test_a_fulldeck_without_torch_says_so(train):
    os.remove(os.path.join(train.programs, "fulldeck-train"))
    refused(train(DEMO), 88, "fulldeck-train is not in ", "docs/install.md")
    assert train(DEMO, "--dry-run").code == 0


def test_a_machine_without_cards_trains_on_the_processors(train):
    del train.workspace.variables["FULLDECK_SIMULATE"]
    done = train(DEMO, "--devices", "cpu", "--dry-run")
    assert done.code == 0 and "1, on the processors: no card is used" in done.out, done


# ---- the plan


def test_a_dry_run_shows_the_plan_and_starts_nothing(train):
    done = train(DEMO, "--dry-run", "--devices", "4", "--set", "epochs=50")
    assert done.code == 0, done
    for text in ("ranks          4 on 4 gcu cards (S60), simulated\n", "global batch   32 = 4 ranks × 2 parts of 4\n",
                 "800 steps = 50.0 epochs of 16 (512 training images)\n", "card memory    about ", "host memory    about ",
                 "loaders        4 threads (1 a rank) on ", "disk           up to ", "folder         work_dirs/demo\n"):
        assert text in done.out, done
    assert "--set epochs replaces steps = " in done.err
    assert not os.path.exists(os.path.join(train.workspace.folder, "work_dirs"))


# ---- a run


def test_a_run_has_a_rank_on_every_card_and_a_folder_of_its_own(train):
    done = train(DEMO)
    assert done.code == 0, done
    for rank in range(8):
        assert "rank %d of 8 on gcu:%d: --recipe work_dirs/demo/recipe.resolved" % (rank, rank) in done.out, done
    assert "demo: 8 ranks on 8 gcu cards (simulated), global batch 32, " in done.err
    assert read(os.path.join(train.folder, "config.toml")) == RECIPE
    resolved = read(os.path.join(train.folder, "recipe.resolved"))
    assert "\nmodel.backbone = \"dinov3-tiny\"\n" in resolved and "\ntrain.betas = [0.9, 0.999]\n" in resolved
    assert read(os.path.join(train.folder, "logs", "train.log")).count("--recipe work_dirs/demo/recipe.resolved") == 8
    # `fulldeck logs` accepts the run folder and the job folder.
    runs = [path for path in glob.glob(os.path.join(train.folder, "logs", "*")) if os.path.isdir(path)]
    assert len(runs) == 1 and os.path.exists(os.path.join(runs[0], "attempt_0", "7", "stdout.log"))
    assert "rank 5 of 8" in train("work_dirs/demo", command="logs").out
    alone = train("work_dirs/demo", "--rank", "5", command="logs")
    assert "rank 5 of 8" in alone.out and "rank 4" not in alone.out, alone


def test_an_earlier_run_is_never_mixed_with_a_new_one(train):
    assert train(DEMO).code == 0
    refused(train(DEMO), 2, "work_dirs/demo has checkpoints of an earlier run (the newest is step-000000300)", "--resume",
            "--fresh", "--set name=OTHER")
    assert "it would not start: work_dirs/demo has checkpoints" in train(DEMO, "--dry-run").err

    resumed = train(DEMO, "--resume", "--devices", "2", "--set", "train.lr=1e-3")
    assert resumed.code == 0, resumed
    assert "resumes from work_dirs/demo/checkpoints/step-000000300" in resumed.err
    assert "resumed with another setting: train.lr was 0.002 and is now 0.001" in resumed.err
    assert "rank 1 of 2 on gcu:1: --recipe work_dirs/demo/recipe.resolved --resume" in resumed.out
    # The log is that of the last start; the first one's still exists.
    assert read(os.path.join(train.folder, "logs", "train.log")).count("--recipe") == 2
    assert len(glob.glob(os.path.join(train.folder, "logs", "*", "logs", "train.log"))) == 2

    done = refused(train(DEMO, "--resume", "--set", "model.backbone=dinov3-vits16", "--set", "model.ema=0.9"), 2)
    assert "the checkpoints in work_dirs/demo do not fit this recipe: model.backbone was \"dinov3-tiny\" and is now " \
           "\"dinov3-vits16\"; model.ema was 0 and is now 0.9. Set it back to resume them" in done.err

    os.rename(os.path.join(train.folder, "recipe.resolved"), os.path.join(train.folder, "kept"))
    refused(train(DEMO, "--resume"), 2, "it says with which settings the checkpoints of work_dirs/demo were made")
    os.rename(os.path.join(train.folder, "kept"), os.path.join(train.folder, "recipe.resolved"))

    fresh = train(DEMO, "--fresh")
    assert fresh.code == 0 and "the earlier work_dirs/demo is now work_dirs/demo.old-1" in fresh.err, fresh
    assert os.path.isdir(train.folder + ".old-1/checkpoints/step-000000300")
    assert len(glob.glob(os.path.join(train.folder, "logs", "*", "logs", "train.log"))) == 1


def test_a_folder_without_checkpoints_may_be_resumed_from_the_start(train):
    os.makedirs(train.folder)
    done = train(DEMO, "--resume", "--devices", "1")
    assert done.code == 0 and "work_dirs/demo has no checkpoint yet: the training starts at the beginning" in done.err, done


def test_a_job_that_runs_keeps_others_out(train):
    hold = train.workspace.write("hold", "")
    running = train.start(DEMO, "--devices", "1", extra={"HOLD": hold})
    wait_until(lambda: "rank 0 of 1" in running.out, "the first job's rank")
    shutil.rmtree(os.path.join(train.folder, "checkpoints"))
    for more in ([], ["--fresh"], ["--resume"]):
        refused(train(DEMO, "--devices", "gcu:3,", *more), 88, "another fulldeck train is running in work_dirs/demo")
    # A job with a different name does not train on fewer cards than planned either.
    refused(train(DEMO, "--set", "name=other"), 83, "8 cards were asked for and 7 are free: gcu 0 is used by run ")
    following = train.start("work_dirs/demo", "-f", command="logs")
    wait_until(lambda: "rank 0 of 1" in following.out, "the line that is there already")
    os.remove(hold)
    assert running.wait().code == 0
    assert "has ended" in following.wait().err
    assert train(DEMO, "--devices", "1").code == 0


def test_a_rank_that_fails_is_started_again_and_its_code_is_returned(train):
    done = train(DEMO, "--devices", "2", "--max-restarts", "1", extra={"FAIL_ONCE": "yes"})
    assert done.code == 0, done
    shutil.rmtree(train.folder)
    assert train(DEMO, "--devices", "2", extra={"FAIL_ONCE": "yes"}).code == 7


def test_ranks_may_share_cards(train):
    train.workspace.simulate("gcu:2")
    done = train(DEMO, "--devices", "4", "--share-cards")
    assert done.code == 0 and "demo: 4 ranks on 2 gcu cards" in done.err, done
    assert sorted(re.findall(r"rank (\d) of 4", done.out)) == ["0", "1", "2", "3"]


# ---- predict


def test_predict_hands_its_arguments_on(train):
    os.makedirs(os.path.join(train.workspace.folder, "job"))
    for name in ("a b.png", "c.tif"):
        train.workspace.write(name, "")
    done = train("job", "a b.png", "c.tif", "-o", "out", "--flips", "--window", "64", "--stride", "32", "--device", "cpu", "--newest",
                 "--json", command="predict")
    assert done.code == 5, done
    assert done.out == "--checkpoint=job|--output=out|--flips|--newest|--json|--window=64|--stride=32|--device=cpu|--|a b.png|c.tif|"


def test_predict_takes_files_whose_names_begin_with_a_dash(train):
    os.makedirs(os.path.join(train.workspace.folder, "-job"))
    train.workspace.write("-x.png", "")
    done = train("--output=-out", "--", "-job", "-x.png", command="predict")
    assert done.code == 5, done
    assert done.out == "--checkpoint=-job|--output=-out|--|-x.png|"


@pytest.mark.parametrize("arguments, text", [
    (["--window", "100"], "--window: 100 is not a multiple of 16 from 16 to 16384"),
    (["--window", "0"], "--window: 0 is not a multiple of 16 from 16 to 16384"),
    (["--stride", "1e3"], "--stride: 1e3 is not a whole number from 1 to 16384"),
])
def test_predict_refuses_a_bad_window_before_any_program_starts(train, arguments, text):
    os.makedirs(os.path.join(train.workspace.folder, "job"))
    train.workspace.write("a.png", "")
    done = refused(train("job", "a.png", *arguments, command="predict"), 2, text + ". See: fulldeck predict --help")
    assert done.out == "", done


@pytest.mark.parametrize("arguments, text", [
    (["nowhere", "a.png"], "there is no checkpoint nowhere"),
    (["a.png", "a.png"], "a.png is a file; a checkpoint is a folder"),
    (["job", "b.png"], "there is no image b.png"),
    (["job", "job"], "job is a folder: name the images in it, such as job/*.png"),
    (["job", "a.png", "--window", "64", "--stride", "65"], "--stride 65 is more than the window of 64 pixels"),
    (["job"], "IMAGE is required"),
])
def test_predict_looks_for_its_files_first(train, arguments, text):
    os.makedirs(os.path.join(train.workspace.folder, "job"))
    train.workspace.write("a.png", "")
    refused(train(*arguments, command="predict"), 2, text)


def test_predict_of_a_fulldeck_without_torch_says_so(train):
    os.remove(os.path.join(train.programs, "fulldeck-predict"))
    os.makedirs(os.path.join(train.workspace.folder, "job"))
    train.workspace.write("a.png", "")
    refused(train("job", "a.png", command="predict"), 88, "fulldeck-predict is not in ")


# ---- documents


def test_the_reference_of_the_recipe_is_what_the_program_knows():
    printed = subprocess.run([FULLDECK, "help", "recipe"], check=True, stdout=subprocess.PIPE, universal_newlines=True,
                             timeout=60).stdout
    assert printed in read(os.path.join(TOP, "docs", "recipes.md"))


def test_every_name_in_the_configs_comments_is_a_config():
    for config in CONFIGS:
        for named in re.findall(r"configs/(\w+\.toml)", read(config)):
            assert os.path.exists(os.path.join(TOP, "configs", named)), (config, named)
