"""Image files of other programs (Pillow, tifffile), read as in training; and fulldeck's files, read by those
programs."""
import io
import os
import resource
import subprocess
import zlib

import pytest

from launching import PROGRAMS

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
tifffile = pytest.importorskip("tifffile")

TOOL = os.path.join(PROGRAMS, "image_tool")
if not os.path.exists(TOOL):
    pytest.skip("image_tool was not built", allow_module_level=True)

TYPES = {"u8": np.uint8, "u16": np.uint16, "f32": np.float32}
RANDOM = np.random.default_rng(7)


def tool(*arguments):
    return subprocess.run([TOOL] + [str(argument) for argument in arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60)


def rasters(output):
    """The rasters that image_tool printed."""
    found = []
    while output:
        line, output = output.split(b"\n", 1)
        width, height, bands, kind = line.decode().split()
        shape = (int(height), int(width), int(bands))
        size = shape[0] * shape[1] * shape[2] * TYPES[kind]().itemsize
        found.append(np.frombuffer(output[:size], TYPES[kind]).reshape(shape))
        output = output[size:]
    return found


def read(path, what="image"):
    ran = tool(what, path)
    assert ran.returncode == 0, ran.stderr.decode()
    return rasters(ran.stdout)[0]


def refusal(path, what="image"):
    ran = tool(what, path)
    assert ran.returncode == 1 and not ran.stdout, (ran.returncode, ran.stderr.decode())
    return ran.stderr.decode()


def pixels(height, width, bands, kind=np.uint8):
    """Smooth and noisy areas, so that every filter and predictor is used."""
    ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None] * np.arange(1, bands + 1)
    noise = RANDOM.integers(0, 40, (height, width, bands))
    return ((ramp + noise) * (257 if kind == np.uint16 else 1)).astype(kind)


TIFFS = {
    "strips": dict(shape=(50, 37, 3)),
    "tiles": dict(shape=(70, 45, 3), tile=(16, 32)),
    "tiles of planes": dict(shape=(70, 45, 4), tile=(32, 16), planarconfig="separate"),
    "planes": dict(shape=(50, 37, 3), planarconfig="separate"),
    "16 bits, 4 bands, tiles": dict(shape=(40, 60, 4), kind=np.uint16, tile=(16, 16)),
    "16 bits, big-endian, packed": dict(shape=(40, 61, 3), kind=np.uint16, byteorder=">", compression="zlib"),
    "float": dict(shape=(20, 30, 2), kind=np.float32),
    "double, predictor": dict(shape=(20, 30, 1), kind=np.float64),
    "signed": dict(shape=(20, 30, 1), kind=np.int16),
    "13 bands": dict(shape=(17, 19, 13), compression="zlib", predictor=True),
    "BigTIFF": dict(shape=(33, 31, 3), bigtiff=True, rowsperstrip=7),
}


@pytest.mark.parametrize("name", TIFFS)
def test_reads_tiff_files_of_tifffile(tmp_path, name):
    options = dict(TIFFS[name])
    height, width, bands = options.pop("shape")
    kind = options.pop("kind", np.uint8)
    image = pixels(height, width, bands, kind)
    if kind == np.int16:
        image = image - 100
    stored = np.moveaxis(image, 2, 0) if options.get("planarconfig") == "separate" else image
    if bands == 1:
        stored = image[..., 0]
    photometric = "rgb" if bands in (3, 4) else "minisblack"
    if photometric == "rgb" or options.get("planarconfig"):
        options.setdefault("planarconfig", "contig")
    elif bands > 1:
        options["planarconfig"] = "contig"
    path = tmp_path / "image.png"  # names do not matter
    tifffile.imwrite(path, stored, photometric=photometric, **options)
    seen = read(path)
    assert seen.dtype == (kind if kind in (np.uint8, np.uint16) else np.float32)
    assert np.array_equal(seen, image.astype(seen.dtype))
    head = tool("head", path).stdout.decode().split()
    assert head[:4] == ["TIFF", str(width), str(height), str(bands)]


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg"])
def test_reads_tiff_files_of_pillow(tmp_path, compression):
    image = pixels(61, 43, 3)
    Image.fromarray(image).save(tmp_path / "a.tif", compression=compression)
    if compression == "jpeg":
        image = np.asarray(Image.open(tmp_path / "a.tif"))
        assert np.abs(read(tmp_path / "a.tif").astype(int) - image).max() <= 2
    else:
        assert np.array_equal(read(tmp_path / "a.tif"), image)


def test_reads_tiff_files_with_colour_maps_and_few_bits(tmp_path):
    indices = RANDOM.integers(0, 7, (30, 41)).astype(np.uint8)
    colours = RANDOM.integers(0, 256, (256, 3)).astype(np.uint8)
    picture = Image.fromarray(indices, "P")
    picture.putpalette(colours.tobytes())
    picture.save(tmp_path / "p.tif")
    assert np.array_equal(read(tmp_path / "p.tif", "mask")[..., 0], indices)
    assert np.array_equal(read(tmp_path / "p.tif"), colours[indices])
    bits = RANDOM.integers(0, 2, (9, 13)).astype(bool)
    Image.fromarray(bits).save(tmp_path / "b.tif")
    assert np.array_equal(read(tmp_path / "b.tif")[..., 0], bits * np.uint8(255))
    assert np.array_equal(read(tmp_path / "b.tif", "mask")[..., 0], bits)


def test_reads_png_files_of_every_kind(tmp_path):
    path = tmp_path / "a.png"
    for mode, bands in (("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)):
        image = pixels(40, 33, bands)
        Image.fromarray(image[..., 0] if bands == 1 else image, mode).save(path)
        assert np.array_equal(read(path), image), mode
    wide = pixels(40, 33, 1, np.uint16)[..., 0]
    Image.fromarray(wide).save(path)
    assert np.array_equal(read(path)[..., 0], wide)
    bits = RANDOM.integers(0, 2, (9, 13)).astype(bool)
    Image.fromarray(bits).save(path)
    assert np.array_equal(read(path)[..., 0], bits * np.uint8(255))
    for depth in (8, 4, 2, 1):
        indices = RANDOM.integers(0, min(200, 2 ** depth), (31, 29)).astype(np.uint8)
        colours = RANDOM.integers(0, 256, (2 ** depth, 3)).astype(np.uint8)
        picture = Image.fromarray(indices, "P")
        picture.putpalette(colours.tobytes())
        picture.save(path, bits=depth, transparency=0)
        assert np.array_equal(read(path, "mask")[..., 0], indices), depth
        assert np.array_equal(read(path), colours[indices]), depth


def test_reads_jpeg_files_of_every_kind(tmp_path):
    path = tmp_path / "a.jpg"
    smooth = np.add.outer(np.arange(50), np.arange(70))[..., None] * np.array([1.0, 1.5, 0.5]) % 256
    image = smooth.astype(np.uint8)
    for options in (dict(), dict(progressive=True), dict(subsampling=0, quality=95), dict(restart_marker_rows=1)):
        Image.fromarray(image).save(path, **options)
        difference = np.abs(read(path).astype(int) - np.asarray(Image.open(path)).astype(int))
        assert difference.max() <= 2, options  # Pillow's own libjpeg may round differently
    Image.fromarray(image[..., 0]).save(path)
    assert np.array_equal(read(path), np.asarray(Image.open(path))[..., None])
    Image.fromarray(image).convert("CMYK").save(path, quality=95)
    assert np.abs(read(path).astype(int) - np.asarray(Image.open(path).convert("RGB")).astype(int)).max() <= 3


def encoded(form, image, **options):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, form, **options)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_refuses_damaged_files_by_name(tmp_path, form):
    path = tmp_path / ("cut." + form.lower())
    whole = encoded(form, pixels(64, 64, 3), **(dict(compression="tiff_lzw") if form == "TIFF" else {}))
    for keep in (len(whole) // 2, 20):
        path.write_bytes(whole[:keep])
        said = refusal(path)
        assert f"{path} is a {form} file that cannot be read: " in said, said
    for trial in range(40):  # never a crash; a damaged file may still decode
        damaged = bytearray(whole)
        for place in RANDOM.integers(8, len(whole), 6):
            damaged[place] = RANDOM.integers(0, 256)
        path.write_bytes(bytes(damaged))
        ran = tool("image", path)
        assert ran.returncode in (0, 1), (trial, ran.returncode)


def test_stray_bytes_in_a_jpeg_file_are_no_damage_and_lost_pixels_are(tmp_path):
    path = tmp_path / "a.jpg"
    whole = encoded("JPEG", pixels(64, 64, 3), quality=95)
    path.write_bytes(whole)
    image = read(path)
    after_first_part = 4 + int.from_bytes(whole[4:6], "big")
    path.write_bytes(whole[:after_first_part] + b"\x11\x22\x33" + whole[after_first_part:])
    assert np.array_equal(read(path), image)
    middle = len(whole) // 2
    for damaged in (whole[:middle] + whole[middle + 9:], whole[:-2] + b"\x11\x22\x33" + whole[-2:], whole[:-2]):
        path.write_bytes(damaged)
        assert "It is damaged or cut off." in refusal(path)


def test_refuses_what_is_no_image_with_a_hint(tmp_path):
    path = tmp_path / "a.png"
    for content, said in ((b"", "is empty. Copy or download it again"), (b"hello there", "is neither a PNG nor a JPEG nor a TIFF"),
                          (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (b"<!doctype html>", "web page")):
        path.write_bytes(content)
        assert said in refusal(path)
    assert "none.png: No such file" in refusal(tmp_path / "none.png")
    assert "Is a directory" in refusal(tmp_path)


def test_takes_no_memory_for_what_a_header_only_claims(tmp_path):
    with open(TOOL, "rb") as program:
        sanitized = b"__asan_init" in program.read()  # AddressSanitizer needs far more address space than memory

    def tight():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    tiny = pixels(4, 4, 3)
    png = bytearray(encoded("PNG", tiny))
    png[16:24] = (100000).to_bytes(4, "big") * 2
    png[29:33] = zlib.crc32(bytes(png[12:29])).to_bytes(4, "big")
    (tmp_path / "a.png").write_bytes(bytes(png))
    png[16:24] = (20000).to_bytes(4, "big") * 2
    png[29:33] = zlib.crc32(bytes(png[12:29])).to_bytes(4, "big")
    (tmp_path / "b.png").write_bytes(bytes(png))
    tifffile.imwrite(tmp_path / "a.tif", tiny, photometric="rgb")
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[tag].overwrite(100000)
    jpeg = bytearray(encoded("JPEG", tiny))
    place = jpeg.find(b"\xff\xc0") + 5
    jpeg[place:place + 4] = (60000).to_bytes(2, "big") * 2
    (tmp_path / "a.jpg").write_bytes(bytes(jpeg))
    for name, said in (("a.png", "more than is read"), ("b.png", "cannot be in a file of"), ("a.tif", "more than is read"),
                       ("a.jpg", "more than is read")):
        ran = subprocess.run([TOOL, "image", str(tmp_path / name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=60, preexec_fn=None if sanitized else tight)
        assert ran.returncode == 1 and said in ran.stderr.decode(), (name, ran.returncode, ran.stderr.decode())


def test_refuses_masks_that_are_none(tmp_path):
    Image.fromarray(pixels(8, 8, 3)).save(tmp_path / "rgb.png")
    assert "has 3 bands; a mask has one, with class numbers" in refusal(tmp_path / "rgb.png", "mask")
    Image.fromarray(pixels(8, 8, 1)[..., 0]).save(tmp_path / "a.jpg")
    assert "does not keep class numbers" in refusal(tmp_path / "a.jpg", "mask")
    Image.fromarray(np.full((8, 8), 300, np.uint16)).save(tmp_path / "wide.png")
    assert "has the value 300; class numbers are 0 … 254" in refusal(tmp_path / "wide.png", "mask")
    Image.fromarray(np.full((8, 8), 200, np.uint16)).save(tmp_path / "wide.png")
    assert (read(tmp_path / "wide.png", "mask") == 200).all()
    tifffile.imwrite(tmp_path / "f.tif", np.zeros((8, 8), np.float32))
    assert "not whole numbers" in refusal(tmp_path / "f.tif", "mask")


GEO = [
    (33550, "d", 3, (0.5, 0.5, 0.0)),
    (33922, "d", 6, (0.0, 0.0, 0.0, 440720.123456789, 3751320.0, 0.0)),
    (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32611)),
    (34736, "d", 2, (6378137.0, 298.257223563)),
    (34737, "s", 0, "WGS 84 / UTM zone 11N|"),
    (42112, "s", 0, "<GDALMetadata><Item name=\"a\">1</Item></GDALMetadata>"),
    (42113, "s", 0, "-9999"),
]


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_geographic_tags_outlive_a_copy(tmp_path, bands):
    image = pixels(70, 90, bands)
    tifffile.imwrite(tmp_path / "from.tif", image[..., 0] if bands == 1 else image, extratags=GEO, tile=(32, 32),
                     photometric="rgb" if bands > 1 else "minisblack")
    assert tool("copy", tmp_path / "from.tif", tmp_path / "to.tif").returncode == 0
    with tifffile.TiffFile(tmp_path / "to.tif") as file:
        page = file.pages[0]
        assert np.array_equal(page.asarray().reshape(image.shape), image)
        for number, _, _, value in GEO:
            assert page.tags[number].value == value, number
    assert np.array_equal(read(tmp_path / "to.tif"), image)
    assert list(tmp_path.glob("*writing*")) == []


def test_masks_are_written_with_their_palette(tmp_path):
    labels = RANDOM.integers(0, 4, (33, 21)).astype(np.uint8)
    labels[0, 0] = 255
    tifffile.imwrite(tmp_path / "from.tif", labels, extratags=GEO)
    for name in ("to.png", "to.tif"):
        assert tool("copy-mask", tmp_path / "from.tif", tmp_path / name).returncode == 0
        picture = Image.open(tmp_path / name)
        assert picture.mode == "P" and np.array_equal(np.asarray(picture), labels)
        assert np.array_equal(read(tmp_path / name, "mask")[..., 0], labels)
        assert tuple(read(tmp_path / name)[labels == 3][0]) == (10, 20, 30)
    with tifffile.TiffFile(tmp_path / "to.tif") as file:
        assert file.pages[0].tags[34737].value == "WGS 84 / UTM zone 11N|"
    Image.fromarray(pixels(20, 30, 3)).save(tmp_path / "rgb.png")
    assert tool("copy", tmp_path / "rgb.png", tmp_path / "again.png").returncode == 0
    assert np.array_equal(np.asarray(Image.open(tmp_path / "again.png")), np.asarray(Image.open(tmp_path / "rgb.png")))
    nowhere = tool("copy", tmp_path / "rgb.png", tmp_path / "none" / "a.png")
    assert nowhere.returncode == 1 and b"No such file or directory" in nowhere.stderr


def test_no_colour_tells_the_classes_of_synthetic_tiles_apart():
    def tiles(part, count):
        made = [rasters(tool("tile", 3, part, index, 64).stdout) for index in range(count)]
        return np.stack([tile[0] for tile in made]), np.stack([tile[1][..., 0] for tile in made])

    images, masks = tiles("train", 60)
    assert masks.max() == 6 and masks.shape == (60, 64, 64)
    keys = (images >> 4).astype(int) @ np.array([256, 16, 1])
    counts = np.zeros((4096, 7))
    np.add.at(counts, (keys.ravel(), masks.ravel()), 1)
    # The best that any color table can achieve on the tiles that it was made from.
    guess = counts.argmax(1)[keys]
    ious = [((guess == label) & (masks == label)).sum() / ((guess == label) | (masks == label)).sum() for label in range(7)]
    assert np.mean(ious) < 0.5, ious
    shares = np.bincount(masks.ravel(), minlength=7) / masks.size
    assert shares.min() > 0.05, shares
