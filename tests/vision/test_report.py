"""The reports of a training run, read back by third-party programs: event files by TensorBoard, scores by numpy, the
report by an HTML parser."""
import os
import random
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser

import pytest

from launching import BUILD

TOOL = os.path.join(BUILD, "tests", "report_tool")
pytestmark = pytest.mark.skipif(not os.path.exists(TOOL), reason="this build has no trainer")


def tool(*arguments, **settings):
    done = subprocess.run([TOOL] + [str(argument) for argument in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=60, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def png(path, width=8, height=4):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) & 0xFFFFFFFF)

    rows = b"".join(b"\0" + bytes([40 * y % 256, 20 * x % 256, 200][i] for x in range(width) for i in range(3)) for y in range(height))
    with open(str(path), "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return str(path)


def test_tensorboard_reads_what_was_written_and_drops_what_a_resumed_run_repeats(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    picture = png(tmp_path / "a.png")
    tool("events", tmp_path / "events", picture)
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [(scalar.step, scalar.value) for scalar in events.Scalars("train/loss")] == \
        [(1, 1.0), (2, 0.5), (3, 103.0), (4, 104.0), (5, 105.0)]
    assert events.file_version == 2
    text, = events.Tensors("recipe")
    assert text.tensor_proto.string_val[0].decode() == "train.lr = 0.0001\n中文"
    assert events.SummaryMetadata("recipe").plugin_data.plugin_name == "text"
    assert events.Images("example/0") == []  # of step 4, after the step of the resume
    first = sorted(os.listdir(str(tmp_path / "events")))[0]
    alone = accumulator.EventAccumulator(str(tmp_path / "events" / first))
    alone.Reload()
    image, = alone.Images("example/0")
    with open(picture, "rb") as file:
        assert (image.width, image.height, image.encoded_image_string) == (8, 4, file.read())


def test_scores_are_those_of_numpy():
    numpy = pytest.importorskip("numpy")
    seed = random.randrange(1 << 30)
    generator = numpy.random.RandomState(seed)
    for classes in (1, 2, 7, 45):
        counts = generator.randint(0, 100000, (classes, classes))
        if classes > 2:
            counts[1, :] = counts[:, 1] = 0  # neither in the truth nor predicted
            counts[2, :] = 0  # predicted only
        reported = dict(line.split() for line in
                    tool("scores", ",".join("c%d" % i for i in range(classes)), input=" ".join(map(str, counts.flatten()))).splitlines())
        hit, truth, predicted = numpy.diag(counts).astype(float), counts.sum(1), counts.sum(0)
        with numpy.errstate(invalid="ignore", divide="ignore"):
            iou, dice, recall = hit / (truth + predicted - hit), 2 * hit / (truth + predicted), hit / truth
        expected = {"miou": numpy.nanmean(iou), "mdice": numpy.nanmean(dice), "mfscore": numpy.nanmean(dice),
                    "accuracy": hit.sum() / counts.sum(), "mean_accuracy": numpy.nanmean(recall)}
        for i in range(classes):
            expected.update({"c%d/%s" % (i, name): values[i] for name, values in (("iou", iou), ("dice", dice), ("recall", recall))
                             if not numpy.isnan(values[i])})
            if predicted[i]:
                expected["c%d/precision" % i] = hit[i] / predicted[i]
        assert set(reported) == set(expected), "seed %d" % seed
        for name, value in expected.items():
            assert float(reported[name]) == pytest.approx(value, rel=1e-12), "%s, seed %d" % (name, seed)


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects the text."""
    EMPTY = {"meta", "img", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.expected_texts, self.images = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        for name, value in attributes:
            assert not name.startswith("on") and "http" not in (value or "").replace("http-equiv", ""), (tag, name, value)
        if tag == "img":
            self.images.append(dict(attributes)["src"])
        if tag not in self.EMPTY and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.expected_texts.append(data)


@pytest.fixture
def report(tmp_path):
    picture = png(tmp_path / "a.png", 64, 64)
    tool("report", tmp_path / "run", picture, picture, picture)
    return tmp_path / "run"


def test_the_report_is_one_page_without_scripts_or_anything_from_elsewhere(report):
    with open(str(report / "report.html"), encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert "script" not in page.seen and "link" not in page.seen
    assert page.seen.count("svg") == 4 and len(page.images) == 3
    assert all(image.startswith("data:image/png;base64,") for image in page.images)
    expected_texts = " ".join(page.expected_texts)
    for expected in ("demo <b>&\"'", "0.8312", "8 cards train", "6.47 times", "barren", "gcu:7", "<script>alert(1)</script>",
                     "parameters equal on all 8 ranks", "1 of 300 values are not finite"):
        assert expected in expected_texts, expected
    with open(str(report / "report.txt"), encoding="utf-8") as file:
        assert re.search(r"^mIoU 0\.831200$", file.read(), re.M)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_a_browser_shows_the_report_within_the_width_of_a_phone(report, tmp_path):
    """Chromium's own windows are never narrower than 500 pixels, so a frame simulates the phone."""
    with open(str(report / "frame.html"), "w") as file:
        file.write("<body style='margin:0;background:#f0f'><iframe src='report.html' style='width:360px;height:900px;border:0'></iframe>"
                   "<pre id=out></pre><script>onload=()=>{const d=document.querySelector('iframe').contentDocument;"
                   "const e=d.documentElement;out.textContent='wider by '+(e.scrollWidth-e.clientWidth)+', sections '+"
                   "d.querySelectorAll('section').length+', images '+[...d.images].map(i=>i.naturalWidth)}</script>")
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                           "--user-data-dir=" + str(tmp_path / "profile"), "--window-size=500,900", "--dump-dom",
                           "file://" + str(report / "frame.html")],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=120)
    assert "wider by 0, sections 7, images 64,64,64" in done.stdout, done.stdout[-500:]
