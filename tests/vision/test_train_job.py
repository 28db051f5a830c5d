"""The vision job as a user runs it: `fulldeck train` on simulated cards and on the CPU, killed, stopped and resumed,
and rejected if it would train incorrectly. Needs a build with torch."""
import base64
import glob
import io
import json
import os
import re
import shutil
import signal
import struct
import zlib

import pytest

from launching import BUILD, FULLDECK, read, wait_until

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "bin", "fulldeck-train")), reason="this build has no torch")

SECONDS = 240

# Contains everything that could make ranks differ: synchronized normalization, drop path, two heads, EMA weights.
RECIPE = """
name = "job"
steps = 60
[data]
kind = "synthetic"
size = 32
scale = [1.0, 1.0]
cat_max_ratio = 1.0
workers = 1
[data.synthetic]
train = 64
val = 11
size = 32
[model]
backbone = "dinov3-tiny"
head = "up"
head_channels = 32
auxiliary_weight = 0.4
drop_path = 0.2
ema = 0.9
[train]
global_batch = 8
batch = 8
lr = 1e-3
backbone_lr = 1.0
warmup = 5
clip_norm = 1.0
hash_every = 10
[validation]
every = 30
[checkpoint]
every = 20
keep_last = 9
[log]
every = 1
[environment]
threads = 1
"""


class Job:
    def __init__(self, workspace, folder="job"):
        self.workspace = workspace
        self.folder = os.path.join(workspace.folder, "work_dirs", folder)
        self.sets = ["--set", "name=" + folder]
        self.config = workspace.write("job.toml", RECIPE)

    def start(self, *arguments):
        return self.workspace.start_program([FULLDECK, "train", self.config] + self.sets + [str(each) for each in arguments])

    def run(self, *arguments):
        return self.start(*arguments).wait(SECONDS)

    def finished(self, *arguments):
        done = self.run(*arguments)
        assert done.code == 0, done
        assert re.search(r"^(\[0\] )?mIoU 0\.\d{6}$", done.out, re.M), done
        return done

    def checkpoints(self):
        return sorted(os.path.basename(os.path.dirname(path))
                      for path in glob.glob(os.path.join(self.folder, "checkpoints", "step-*", "manifest.json")))

    def weights(self, step=60):
        folder = os.path.join(self.folder, "checkpoints", "step-%09d" % step)
        found = {}
        for name in ("model", "optimizer", "ema"):
            with open(os.path.join(folder, name + ".safetensors"), "rb") as file:
                found[name] = file.read()
        return found

    def lines(self):
        return [json.loads(line) for line in read(os.path.join(self.folder, "metrics.jsonl")).splitlines()]

    def losses(self):
        return {line["step"]: line["loss"] for line in self.lines() if "loss" in line}

    def scores(self):
        return {line["step"]: line["mIoU"] for line in self.lines() if "mIoU" in line}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The job on eight cards, from start to end; the other tests compare with it."""
    from launching import Workspace
    workspace = Workspace(tmp_path_factory.mktemp("straight"))
    workspace.simulate("gcu:8")
    job = Job(workspace)
    job.done = job.finished()
    return job


def test_eight_cards_leave_curves_events_checkpoints_and_a_report(straight):
    assert re.search(r"^\[0\] step 60/60 .*loss \d.* samples/s .*cards 8/8 busy", straight.done.out, re.M), straight.done
    assert [line["cards_busy"] for line in straight.lines() if "loss" in line][-1] == 8
    assert straight.checkpoints()[-1] == "step-000000060"
    assert sorted(straight.losses()) == list(range(1, 61))
    assert sorted(straight.scores()) == [30, 60]
    assert all("loss_main" in line and "loss_auxiliary" in line for line in straight.lines() if "loss" in line)
    assert glob.glob(os.path.join(straight.folder, "events", "events.out.tfevents.*"))
    report = read(os.path.join(straight.folder, "report.txt"))
    for expected_texts in ("finished 60 steps", "every rank trains on samples of its own", "every parameter that learns gets a gradient",
                  "the loss moves", "the order of the samples is another one", "same bits on all 8 ranks",
                  "every sample exactly once: 11 samples over 8 ranks"):
        assert expected_texts in report, report
    peaks = re.findall(r"^\s*\d+\s+gcu:\d+ .*?([\d.]+) [KMG]iB\s*$", report, re.M)
    assert len(peaks) == 8 and all(float(peak) > 0 for peak in peaks), report
    assert "mIoU" in read(os.path.join(straight.folder, "report.html"))


def test_a_tile_that_was_never_trained_on_is_predicted_as_the_report_shows(straight, workspace):
    numpy, pictures = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    report = read(os.path.join(straight.folder, "report.html"))
    shown = {what: base64.b64decode(data) for data, what in
             re.findall(r'src="data:image/png;base64,([^"]+)" alt="(image|prediction) of synthetic val tile 0"', report)}
    tile = os.path.join(workspace.folder, "tile.png")
    with open(tile, "wb") as file:
        file.write(shown["image"])
    done = workspace.start_program([FULLDECK, "predict", straight.folder, tile, "-o", workspace.folder, "--newest", "--device", "cpu"]).wait(SECONDS)
    assert done.code == 0 and "tile_mask.png" in done.out and "averaged weights" in done.err, done
    mine = numpy.asarray(pictures.open(os.path.join(workspace.folder, "tile_mask.png")).convert("RGB"))
    theirs = numpy.asarray(pictures.open(io.BytesIO(shown["prediction"])).convert("RGB"))
    assert mine.shape == theirs.shape and (mine == theirs).all(axis=2).mean() > 0.98, (mine.shape, theirs.shape)


def test_one_card_with_the_whole_batch_has_the_same_curve(straight, workspace):
    one = Job(workspace)
    one.finished("--devices", "cpu")
    mine, theirs = one.losses(), straight.losses()
    for step in range(1, 11):
        assert mine[step] == pytest.approx(theirs[step], abs=1e-5), step
    assert one.scores()[60] == pytest.approx(straight.scores()[60], abs=0.05)


def test_a_killed_rank_changes_no_bit_of_the_result(straight, workspace):
    workspace.simulate("gcu:8")
    job = Job(workspace)
    running = job.start("--max-restarts", 1)
    wait_until(job.checkpoints, "a checkpoint", SECONDS)
    os.kill(workspace.ranks()[5], signal.SIGKILL)
    done = running.wait(SECONDS)
    assert done.code == 0 and re.search(r"resumed at step [24]0 from \S+, which 8 ranks saved", done.out), done
    assert job.weights() == straight.weights()
    assert job.losses() == straight.losses() and job.scores() == straight.scores()
    assert [line["step"] for line in job.lines()] == [line["step"] for line in straight.lines()]
    # Detected by the first start, reported by the second.
    assert "labels of the train part are classes" in read(os.path.join(job.folder, "report.txt"))


def test_a_checkpoint_of_eight_cards_goes_on_with_four(straight, workspace):
    workspace.simulate("gcu:4")
    job = Job(workspace)
    shutil.copytree(straight.folder, job.folder)
    shutil.rmtree(os.path.join(job.folder, "checkpoints", "step-000000060"))
    done = job.finished("--resume")
    assert "resumed at step 40 from" in done.out and "cards: 8 before, 4 now" in done.err, done
    mine, theirs = job.losses(), straight.losses()
    assert sorted(mine) == list(range(1, 61))
    for step in range(41, 61):
        assert mine[step] == pytest.approx(theirs[step], abs=1e-3), step
    assert mine[41] == pytest.approx(theirs[41], abs=1e-5)


def test_stopped_by_sigterm_it_saves_and_goes_on_to_the_same_bits(workspace):
    workspace.simulate("gcu:2")
    whole, job = Job(workspace, "whole"), Job(workspace)
    short = ["--set", "steps=24"]
    whole.finished(*short)
    running = job.start(*short)
    wait_until(lambda: len(job.lines()) > 5, "some steps", SECONDS)
    running.signal(signal.SIGTERM)
    stopped = running.wait(SECONDS)
    assert stopped.code == 128 + signal.SIGTERM, stopped
    reached = int(re.search(r"stopped by SIGTERM at step (\d+) of 24; go on with --resume", stopped.out).group(1))
    assert job.checkpoints()[-1] == "step-%09d" % reached
    again = job.run(*short)
    assert again.code == 2 and "--resume" in again.err, again
    resumed = job.finished("--resume", *short)
    assert "resumed at step %d from" % reached in resumed.out, resumed
    assert job.weights(24) == whole.weights(24) and job.losses() == whole.losses()


def test_sigusr1_saves_and_ends_well(workspace):
    job = Job(workspace)
    running = job.start("--devices", "cpu", "--set", "steps=100000")
    wait_until(lambda: len(job.lines()) > 2, "some steps", SECONDS)
    running.signal(signal.SIGUSR1)
    done = running.wait(SECONDS)
    assert done.code == 0 and "stopped by SIGUSR1 at step" in done.out, done
    assert len(job.checkpoints()) > 0


# ---- rejected if it would train incorrectly


def png(path, width, height, bands, value):
    """`value(x, y, band)` returns the bytes."""
    rows = b"".join(b"\0" + bytes(value(x, y, band) & 255 for x in range(width) for band in range(bands)) for y in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[bands], 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def folders(workspace, label=lambda x, y: x // 8 % 3, image=lambda x, y, band, number: x * 7 + y * 13 + band * 5 + number * 31):
    """A dataset with masks in folders, with train/val splits of 8 and 2."""
    root = os.path.join(workspace.folder, "data")
    for part, count, first in (("train", 8, 0), ("val", 2, 100)):
        for number in range(count):
            name = "%03d.png" % (first + number)
            png(os.path.join(root, "img_dir", part, name), 32, 32, 3,
                lambda x, y, band, number=first + number: image(x, y, band, number))
            png(os.path.join(root, "ann_dir", part, name), 32, 32, 1, lambda x, y, band: label(x, y))
    return root


def mmseg(root, *more):
    sets = ["data.kind=mmseg", "data.root=" + root, 'data.classes=["a", "b", "c"]', "train.global_batch=4", "train.batch=4",
            "steps=4", "train.warmup=0"] + list(more)
    return ["--devices", "cpu"] + [word for each in sets for word in ("--set", each)]


def refused(done, *expected_texts):
    assert done.code not in (0, 139, 134), done
    for each in expected_texts:
        assert each in done.err, done
    assert "mIoU" not in done.out, done
    # Once from the rank, and once in the launcher's report.
    assert done.err.count(expected_texts[0]) <= 2, done


def test_labels_are_looked_at_before_the_first_step(workspace):
    """F7: labels that are out of range, or all the same."""
    root = folders(workspace, label=lambda x, y: 3 if x < 4 else x // 8 % 3)
    done = Job(workspace).run(*mmseg(root))
    refused(done, "Labels of 8 samples of train are out of range: 3", "data.kind = \"loveda\" or data.reduce_zero_label = true")
    root = folders(workspace, label=lambda x, y: 0, image=lambda x, y, band, number: 100)
    refused(Job(workspace, "b").run(*mmseg(root)), "8 of 8 samples of train", "have one value in all their pixels")


def test_the_same_files_in_both_parts_are_refused(workspace):
    """F6: validation on the training samples."""
    root = folders(workspace)
    os.remove(os.path.join(root, "img_dir", "val", "100.png"))
    os.remove(os.path.join(root, "ann_dir", "val", "100.png"))
    for kind in ("img_dir", "ann_dir"):
        os.link(os.path.join(root, kind, "train", "003.png"), os.path.join(root, kind, "val", "200.png"))
    refused(Job(workspace).run(*mmseg(root)), "data.overlap_allowed", "200.png")


def test_a_broken_file_is_named_and_counted_and_never_replaced(workspace):
    """F2: no other sample replaces it."""
    root = folders(workspace)
    with open(os.path.join(root, "img_dir", "train", "003.png"), "r+b") as file:
        file.truncate(60)
    refused(Job(workspace).run(*mmseg(root)), "003.png", "data.corrupt_allowed")
    allowed = Job(workspace, "allowed")
    allowed.finished(*mmseg(root, "data.corrupt_allowed=1"))
    assert "003.png" in read(os.path.join(allowed.folder, "report.txt"))


def test_weights_that_do_not_fit_are_refused_with_every_key(workspace):
    """G2: no tensor is skipped silently."""
    header = json.dumps({"norm.weight": {"dtype": "F32", "shape": [96], "data_offsets": [0, 384]}}).encode()
    path = os.path.join(workspace.folder, "weights.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(384))
    done = Job(workspace).run("--devices", "cpu", "--set", "model.weights=" + path)
    refused(done, "layer.0.attention.q_proj.weight", "norm.weight")


def test_a_number_that_is_not_finite_stops_all_ranks_with_one_message(straight, workspace):
    path = os.path.join(workspace.folder, "spoilt.safetensors")
    data = bytearray(straight.weights()["model"])
    size = struct.unpack("<Q", data[:8])[0]
    begin = json.loads(data[8:8 + size].decode())["backbone.norm.weight"]["data_offsets"][0]
    data[8 + size + begin:8 + size + begin + 4] = struct.pack("<f", float("nan"))
    with open(path, "wb") as file:
        file.write(data)
    workspace.simulate("gcu:2")
    done = Job(workspace).run("--set", "model.weights=" + path, "--set", 'model.weights_may_have_more=["head.*", "auxiliary.*"]')
    refused(done, "step 1: rank", "is not finite")


def test_too_little_memory_halves_the_micro_batch_and_keeps_the_curve(workspace):
    """42 MiB hold 8 samples of a rank, not 16."""
    curves = {}
    for folder, cards in (("small", "gcu:2,memory=42MiB"), ("large", "gcu:2")):
        workspace.simulate(cards)
        job = Job(workspace, folder)
        job.sets += ["--set", "steps=6", "--set", "train.global_batch=32", "--set", "train.batch=16", "--set", "train.oom=halve",
                     "--set", "data.size=64", "--set", "data.synthetic.size=64", "--set", "train.hash_every=2", "--set", "model.head=linear",
                     "--set", "model.auxiliary_weight=0"]
        done = job.finished()
        assert ("OUT OF MEMORY in step 1" in done.err + done.out) == (folder == "small"), done
        curves[folder] = job.losses()
    assert sorted(curves["small"]) == list(range(1, 7))
    assert curves["small"] == pytest.approx(curves["large"], rel=1e-5)
    workspace.simulate("gcu:2,memory=42MiB")
    job = Job(workspace, "small")
    job.sets += ["--set", "steps=6", "--set", "train.global_batch=32", "--set", "train.batch=16", "--set", "train.oom=fail",
                 "--set", "data.size=64", "--set", "data.synthetic.size=64", "--set", "model.head=linear", "--set", "model.auxiliary_weight=0"]
    done = job.run("--fresh")
    assert done.code == 1 and "known failure I1" in done.err, done


def test_other_classes_are_refused_on_resume(workspace):
    root = folders(workspace)
    job = Job(workspace)
    job.finished(*mmseg(root))
    refused(job.run("--resume", *mmseg(root, 'data.classes=["a", "b", "c", "d"]', "steps=6")), "data.classes")
