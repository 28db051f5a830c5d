#!/usr/bin/env python3
"""Images per second: fulldeck's pipeline compared with PyTorch's DataLoader with MMSegmentation's usual transforms (OpenCV, numpy).

Both read the same 512 × 512 tiles with the same number of workers, and produce batches of normalized floats and labels. They run
alternately, so that other load on the machine affects both. Needs torch, numpy and OpenCV:

    python3 bench/data_pipeline.py --program build/bench/data_pipeline
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

try:
    import cv2
except ImportError:
    sys.exit("data_pipeline.py: this benchmark needs OpenCV: pip install opencv-python-headless")
import torch
import torch.utils.data

SIZE = 512
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
STD = np.array([58.395, 57.12, 57.375], np.float32)


def make_tiles(root, count, suffix):
    """Synthetic aerial images: noise of all scales, and fields with straight borders."""
    random = np.random.default_rng(0)
    for folder in ("img_dir/train", "ann_dir/train"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    for index in range(count):
        image = np.zeros((SIZE, SIZE, 3), np.float32)
        for level in range(2, 10):
            side = 2 ** level
            part = random.normal(0, 60 / 1.5 ** (level - 2), (side, side, 3)).astype(np.float32)
            image += cv2.resize(part, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
        centers = random.uniform(0, SIZE, (12, 2))
        rows, columns = np.mgrid[:SIZE, :SIZE]
        region = ((rows[..., None] - centers[:, 0]) ** 2 + (columns[..., None] - centers[:, 1]) ** 2).argmin(-1)
        image += random.uniform(60, 190, (12, 3)).astype(np.float32)[region]
        labels = random.integers(0, 7, 12).astype(np.uint8)[region]
        options = [cv2.IMWRITE_JPEG_QUALITY, 90] if suffix == ".jpg" else []
        cv2.imwrite(os.path.join(root, "img_dir/train", "%04d%s" % (index, suffix)), np.clip(image, 0, 255).astype(np.uint8), options)
        cv2.imwrite(os.path.join(root, "ann_dir/train", "%04d.png" % index), labels)


class Tiles(torch.utils.data.Dataset):
    """MMSegmentation's train pipeline: load, RandomResize, RandomCrop, RandomFlip, PhotoMetricDistortion, normalize, pad, pack."""

    def __init__(self, root, suffix, length):
        self.root = root
        self.suffix = suffix
        self.names = sorted(name[:-len(suffix)] for name in os.listdir(os.path.join(root, "img_dir/train")))
        self.length = length

    def __len__(self):
        return self.length

    @staticmethod
    def convert(image, factor=1.0, added=0.0):
        return np.clip(image.astype(np.float32) * factor + added, 0, 255).astype(np.uint8)

    def distort(self, image):
        random = np.random
        if random.randint(2):
            image = self.convert(image, added=random.uniform(-32, 32))
        last = random.randint(2) == 0
        if not last and random.randint(2):
            image = self.convert(image, random.uniform(0.5, 1.5))
        if random.randint(2):
            image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
            image[:, :, 1] = self.convert(image[:, :, 1], random.uniform(0.5, 1.5))
            image = cv2.cvtColor(image, cv2.COLOR_HSV2BGR)
        if random.randint(2):
            image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
            image[:, :, 0] = (image[:, :, 0].astype(int) + random.randint(-18, 18)) % 180
            image = cv2.cvtColor(image, cv2.COLOR_HSV2BGR)
        if last and random.randint(2):
            image = self.convert(image, random.uniform(0.5, 1.5))
        return image

    def __getitem__(self, index):
        name = self.names[index % len(self.names)]
        image = cv2.imread(os.path.join(self.root, "img_dir/train", name + self.suffix), cv2.IMREAD_COLOR)
        mask = cv2.imread(os.path.join(self.root, "ann_dir/train", name + ".png"), cv2.IMREAD_UNCHANGED)
        ratio = np.random.uniform(0.5, 2.0)
        size = (int(image.shape[1] * ratio + 0.5), int(image.shape[0] * ratio + 0.5))
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        mask = cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST)

        def draw():
            return (np.random.randint(0, max(mask.shape[0] - SIZE, 0) + 1), np.random.randint(0, max(mask.shape[1] - SIZE, 0) + 1))

        top, left = draw()
        for _ in range(10):
            labels, counts = np.unique(mask[top:top + SIZE, left:left + SIZE], return_counts=True)
            counts = counts[labels != 255]
            if len(counts) > 1 and np.max(counts) / np.sum(counts) < 0.75:
                break
            top, left = draw()
        image = image[top:top + SIZE, left:left + SIZE]
        mask = mask[top:top + SIZE, left:left + SIZE]
        if np.random.rand() < 0.5:
            image = cv2.flip(image, 1)
            mask = cv2.flip(mask, 1)
        image = self.distort(image)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB).astype(np.float32)
        cv2.subtract(image, np.float64(MEAN.reshape(1, -1)), image)
        cv2.multiply(image, 1 / np.float64(STD.reshape(1, -1)), image)
        below, right = SIZE - image.shape[0], SIZE - image.shape[1]
        if below or right:
            image = cv2.copyMakeBorder(image, 0, below, 0, right, cv2.BORDER_CONSTANT, value=0)
            mask = cv2.copyMakeBorder(mask, 0, below, 0, right, cv2.BORDER_CONSTANT, value=255)
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), torch.from_numpy(mask.astype(np.int64))


def start_worker(_):
    cv2.setNumThreads(0)
    torch.set_num_threads(1)


def loader_rate(root, suffix, workers, batch, seconds):
    loader = torch.utils.data.DataLoader(Tiles(root, suffix, 10 ** 6), batch_size=batch, shuffle=False, num_workers=workers,
                                         prefetch_factor=2, worker_init_fn=start_worker)
    batches = iter(loader)
    for _ in range(2 * workers + 2):
        next(batches)
    samples = 0
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        images, _ = next(batches)
        samples += images.shape[0]
    rate = samples / (time.monotonic() - started)
    del batches
    return rate


def pipeline_rate(program, root, suffix, workers, batch, seconds):
    ran = subprocess.run([program, root, suffix, str(workers), str(batch), str(seconds)], stdout=subprocess.PIPE, check=True)
    return float(ran.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/data_pipeline")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tiles", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--suffix", action="append", choices=[".jpg", ".png"])
    parser.add_argument("--json", help="write the figures to this file")
    chosen = parser.parse_args()
    figures = {}
    root = tempfile.mkdtemp(prefix="fulldeck-bench-")
    try:
        for suffix in chosen.suffix or [".jpg", ".png"]:
            tiles = os.path.join(root, suffix[1:])
            make_tiles(tiles, chosen.tiles, suffix)
            ours, theirs = [], []
            for _ in range(chosen.turns):
                theirs.append(loader_rate(tiles, suffix, chosen.workers, chosen.batch, chosen.seconds))
                ours.append(pipeline_rate(chosen.program, tiles, suffix, chosen.workers, chosen.batch, chosen.seconds))
            ratio = statistics.median(mine / other for mine, other in zip(ours, theirs))
            figures[suffix] = {"fulldeck": statistics.median(ours), "dataloader": statistics.median(theirs), "ratio": ratio}
            print("%s: fulldeck %.1f images/s, DataLoader %.1f images/s, %.2f x (%d workers)" % (
                suffix, figures[suffix]["fulldeck"], figures[suffix]["dataloader"], ratio, chosen.workers), flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
