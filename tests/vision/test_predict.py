"""fulldeck-predict, as a user runs it: masks of images, through windows and with flips, compared with the model's own
output; GeoTIFF files written and read back by tifffile; invalid input. Needs a build with torch."""
import json
import os
import shutil
import subprocess

import pytest

from launching import BUILD, FULLDECK

PROGRAM = os.path.join(BUILD, "bin", "fulldeck-predict")
MAKER = os.path.join(BUILD, "tests", "predict_model")
pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM) or not os.path.exists(MAKER), reason="this build has no torch")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
tifffile = pytest.importorskip("tifffile")

WIDTH, HEIGHT = 100, 75


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FULLDECK_", "RANK", "WORLD", "MASTER", "LOCAL_"))}
    return dict(kept, OMP_NUM_THREADS="1", **more)


def predict(*arguments, **more):
    done = subprocess.run([PROGRAM] + [str(argument) for argument in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=120, env=environment(**more))
    return done


def picture(seed=0, width=WIDTH, height=HEIGHT, bands=3):
    """Areas of random colors, some larger than a patch and some smaller."""
    random = numpy.random.RandomState(seed)
    image = numpy.zeros((height, width, bands), numpy.uint8)
    for _ in range(40):
        x, y, w, h = random.randint(0, width), random.randint(0, height), random.randint(3, 60), random.randint(3, 60)
        image[y:y + h, x:x + w] = random.randint(0, 256, bands)
    return image


class Jobs:
    """A folder with the models and their predictions for picture(), and some images."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.image = self.save("tile.png", picture())
        self.even = self.save("even.png", picture(3, 96, 64))  # sides that need no padding
        self.small = self.save("small.png", picture(0, 64, 64))
        for name, image in (("tile.raw", picture()), ("small.raw", picture(0, 64, 64))):
            image.tofile(os.path.join(self.folder, name))
        subprocess.run([MAKER, self.folder, os.path.join(self.folder, "tile.raw"), str(WIDTH), str(HEIGHT),
                        os.path.join(self.folder, "small.raw")], check=True, timeout=120, env=environment())

    def save(self, name, image):
        path = os.path.join(self.folder, name)
        Image.fromarray(image).save(path)
        return path

    def __call__(self, kind):
        return os.path.join(self.folder, kind)

    def expected(self, kind):
        return numpy.fromfile(os.path.join(self(kind), "expected.raw"), numpy.uint8).reshape(HEIGHT, WIDTH)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


def mask_of(path):
    image = Image.open(str(path))
    assert image.mode == "P"
    return numpy.array(image), numpy.array(image.getpalette()).reshape(-1, 3)


@pytest.mark.parametrize("kind", ["random", "averaged"])
def test_an_image_in_one_window_is_what_the_model_says(jobs, tmp_path, kind):
    done = predict("--checkpoint", jobs(kind), "--output", tmp_path, "--window", 128, "--device", "cpu", "--json", jobs.image)
    assert done.returncode == 0, done.stderr
    mask, palette = mask_of(tmp_path / "tile_mask.png")
    expected = jobs.expected(kind)
    assert (mask == expected).mean() > 0.999  # a different order of additions
    assert len(numpy.unique(expected)) > 1
    assert tuple(palette[1]) == (220, 40, 40) and palette[3][2] > 200  # building, water
    reported = json.loads(done.stdout)
    assert reported["weights"] == ("averaged" if kind == "averaged" else "last") and reported["step"] == 10
    shares = {one["name"]: one for one in reported["images"][0]["classes"]}
    for number, name in enumerate(["background", "building", "road", "water", "forest"]):
        assert shares[name]["pixels"] == (mask == number).sum()
    assert sum(one["share"] for one in shares.values()) == pytest.approx(1)
    overlay = numpy.array(Image.open(str(tmp_path / "tile_overlay.png"))).astype(int)
    assert numpy.abs(overlay - (picture().astype(int) + palette[mask]) / 2).max() <= 1


def test_windows_change_nothing_that_a_patch_alone_decides(jobs, tmp_path):
    """A patch that attends only to itself has the same prediction in every window; between patches it is interpolated,
    and at a window's edge there is no neighbor to interpolate with."""
    done = predict("--checkpoint", jobs("local"), "--output", tmp_path, "--window", 48, "--stride", 16, "--device", "cpu", jobs.image)
    assert done.returncode == 0, done.stderr
    mask, whole = mask_of(tmp_path / "tile_mask.png")[0], jobs.expected("local")
    assert len(numpy.unique(whole)) > 1
    # The last window of a row is moved to the image's edge, and so cuts different patches.
    assert (mask == whole)[:48, :64].mean() > 0.95


def test_flips_change_nothing_for_a_model_that_knows_no_directions(jobs, tmp_path):
    def mask(kind, *options):
        done = predict("--checkpoint", jobs(kind), "--output", tmp_path, "--window", 96, "--device", "cpu", *(options + (jobs.even,)))
        assert done.returncode == 0, done.stderr
        return mask_of(tmp_path / "even_mask.png")[0]

    assert (mask("symmetric") == mask("symmetric", "--flips")).mean() > 0.999
    assert (mask("random") == mask("random", "--flips")).mean() < 0.999


def test_a_geotiff_keeps_its_place(jobs, tmp_path):
    image = numpy.random.RandomState(1).randint(0, 10000, (4, 80, 96)).astype(numpy.uint16)
    path = str(tmp_path / "scene.tif")
    tags = [(33550, "d", 3, (0.5, 0.5, 0.0), True), (33922, "d", 6, (0.0, 0.0, 0.0, 440720.0, 3751320.0, 0.0), True),
            (34735, "H", 8, (1, 1, 0, 1, 1024, 0, 1, 1), True), (42113, "s", 0, "-9999", True)]
    tifffile.imwrite(path, numpy.moveaxis(image, 0, -1), planarconfig="contig", photometric="minisblack", tile=(32, 32), extratags=tags)
    done = predict("--checkpoint", os.path.join(jobs("bands"), "checkpoints", "step-000000010"), "--output", tmp_path, "--window", "64",
                   "--stride", "32", "--flips", "--device", "cpu", path)
    assert done.returncode == 0, done.stderr
    with tifffile.TiffFile(path) as before, tifffile.TiffFile(str(tmp_path / "scene_mask.tif")) as after:
        for number in (33550, 33922, 34735):
            assert after.pages[0].tags[number].value == before.pages[0].tags[number].value
        assert after.pages[0].tags[42113].value == before.pages[0].tags[42113].value
        mask = after.pages[0].asarray()
    assert mask.shape == (80, 96) and mask.dtype == numpy.uint8 and mask.max() < 5
    assert (mask == mask_of(tmp_path / "scene_mask.png")[0]).all()
    assert "scene.tif (96 × 80)" in done.stdout and "scene_mask.tif" in done.stdout


def test_a_classifier_names_its_categories(jobs):
    job = jobs("classify")
    done = predict("--checkpoint", job, "--device", "cpu", "--json", jobs.small)
    assert done.returncode == 0, done.stderr
    reported = {one["name"]: one["probability"] for one in json.loads(done.stdout)["images"][0]["categories"]}
    with open(os.path.join(job, "expected.raw")) as file:
        expected = [float(line) for line in file]
    for name, probability in zip(["airport", "beach", "forest", "harbor", "river"], expected):
        assert reported[name] == pytest.approx(probability, abs=1e-4)
    assert list(reported.values()) == sorted(reported.values(), reverse=True)


def test_a_bad_image_fails_alone(jobs, tmp_path):
    broken, bands = str(tmp_path / "broken.png"), str(tmp_path / "two.tif")
    with open(jobs.image, "rb") as whole, open(broken, "wb") as half:
        half.write(whole.read()[:200])
    tifffile.imwrite(bands, numpy.zeros((32, 32, 2), numpy.uint8), planarconfig="contig", photometric="minisblack")
    done = predict("--checkpoint", jobs("random"), "--output", tmp_path, "--device", "cpu", broken, bands, tmp_path / "none.png", jobs.image)
    assert done.returncode == 1
    assert broken in done.stderr
    assert "two.tif has 2 bands, and data.bands asks for band 3" in done.stderr
    assert "none.png" in done.stderr and "3 of 4 images could not be done" in done.stderr
    assert os.path.exists(str(tmp_path / "tile_mask.png")) and not os.path.exists(str(tmp_path / "broken_mask.png"))


def test_a_damaged_checkpoint_is_not_used(jobs, tmp_path):
    job = str(tmp_path / "job")
    shutil.copytree(jobs("random"), job)
    weights = os.path.join(job, "checkpoints", "step-000000010", "model.safetensors")
    with open(weights, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"\x55")
    done = predict("--checkpoint", os.path.dirname(weights), "--output", tmp_path, jobs.image)
    assert done.returncode == 1 and "is damaged: its checksum is" in done.stderr, done.stderr
    # A different valid one is used instead.
    shutil.copytree(os.path.join(jobs("random"), "checkpoints", "step-000000010"), os.path.join(job, "checkpoints", "step-000000008"))
    done = predict("--checkpoint", job, "--output", tmp_path, "--device", "cpu", jobs.image)
    assert done.returncode == 0 and "step-000000010 is passed over" in done.stderr, done.stderr


def test_a_card_that_is_too_small_for_one_image_does_the_other_as_the_host_does(jobs, tmp_path):
    large = str(tmp_path / "large.png")
    Image.fromarray(picture(0, 512, 512)).save(large)
    done = predict("--checkpoint", jobs("random"), "--output", tmp_path, "--device", "gcu:0", "--window", 512, large, jobs.image,
                   FULLDECK_SIMULATE="gcu:1,memory=8MiB")
    assert done.returncode == 1, done.stderr
    assert "too small for a window of 512 × 512 pixels" in done.stderr and "Choose a smaller --window" in done.stderr
    assert (mask_of(tmp_path / "tile_mask.png")[0] == jobs.expected("random")).mean() > 0.999


def test_an_image_whose_name_begins_with_a_dash(jobs, tmp_path):
    shutil.copy(jobs.image, str(tmp_path / "-x.png"))
    done = subprocess.run([FULLDECK, "predict", "--window", "128", "--device", "cpu", "--", jobs("random"), "-x.png"], cwd=str(tmp_path),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stderr
    assert (mask_of(tmp_path / "-x_mask.png")[0] == jobs.expected("random")).mean() > 0.999


@pytest.mark.parametrize("arguments,code,words", [
    (("--window", "32", "--stride", "48"), 2, "--stride 48 is more than the window of 32"),
    (("--device", "warp"), 1, "warp"),
    (("--window", "100"), 2, "error: --window: 100 is not a multiple of 16 from 16 to 16384. See: fulldeck-predict --help"),
])
def test_what_cannot_be_is_refused(jobs, arguments, code, words):
    done = predict("--checkpoint", jobs("random"), *(arguments + ("a.png",)))
    assert done.returncode == code and words in done.stderr, done.stderr
