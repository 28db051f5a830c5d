#!/usr/bin/env python3
"""Compares the speed of two builds, alternately, so that a restructuring can be shown to cost nothing.

compare_builds.py OLD NEW [--rounds 5] [--only NAME,...]     prints a Markdown table: medians, and new / old

OLD and NEW are build folders; checkpoint_bench and data_pipeline must be built in both (ninja torch_benches). Python 3.8."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = sys.executable


def output(*command, **variables):
    environment = dict({name: value for name, value in os.environ.items() if not name.startswith("FULLDECK_")}, **variables)
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=600)
    if done.returncode != 0:
        sys.exit("%s failed with %d:\n%s%s" % (command[0], done.returncode, done.stdout, done.stderr))
    return done.stdout


def launch(build, folder):
    begun = time.monotonic()
    for _ in range(20):
        output(build + "/bin/fulldeck", "run", "--devices", "cpu", "--nproc-per-node", 8, "--log-dir", folder + "/logs", "--no-python", "/bin/true")
    return {"launch of 8 ranks, ms": (time.monotonic() - begun) / 20 * 1000}


def collectives(build, folder):
    found = json.loads(output(build + "/bin/fulldeck", "bench", "collectives", "--nproc", 8, "--sizes", "64KiB,16MiB", "--peers", "none",
                              "--seconds", 1, "--json"))
    return {"all_reduce of %d KiB, 8 ranks, ms" % (cell["bytes"] >> 10): cell["results"][0]["median_s"] * 1000 for cell in found["cells"]}


def ddp_step(build, folder):
    found = json.loads(output(PYTHON, TOP + "/bench/ddp_step.py", "--backend", "fulldeck", "--ranks", 4, "--steps", 10, "--json",
                              PYTHONPATH=build + "/lib/python"))
    return {"DDP step of 4 ranks, ms": found["results"][0]["step_s"] * 1000}


def checkpoint(build, folder):
    lines = output(build + "/bench/checkpoint_bench", folder, 2, 4).splitlines()
    values = {line.rsplit(" ", 2)[0]: float(line.rsplit(" ", 2)[1]) for line in lines if line.count(" ") >= 2}
    return {"checkpoint: " + name: value for name, value in values.items()}


def pipeline(build, folder):
    return {"data pipeline, samples/s": float(output(build + "/bench/data_pipeline", folder + "/images", ".png", 2, 8, 3))}


def make_images(folder):
    output(PYTHON, "-c", """
import os, struct, sys, zlib, random
def png(path, channels):
    raw = b"".join(b"\\0" + bytes(random.randrange(256 if channels == 3 else 7) for _ in range(256 * channels)) for _ in range(256))
    def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    open(path, "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 256, 256, 8, 2 if channels == 3 else 0, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
for name, channels in (("img_dir", 3), ("ann_dir", 1)):
    os.makedirs(os.path.join(sys.argv[1], name, "train"))
    for i in range(64): png(os.path.join(sys.argv[1], name, "train", "%d.png" % i), channels)
""", folder + "/images")


MEASUREMENTS = {"launch": launch, "collectives": collectives, "ddp_step": ddp_step, "checkpoint": checkpoint, "pipeline": pipeline}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASUREMENTS))
    options = parser.parse_args()
    builds = [os.path.abspath(options.old), os.path.abspath(options.new)]
    seen = [{}, {}]
    with tempfile.TemporaryDirectory(prefix="compare-builds-") as folder:
        make_images(folder)
        for name in options.only.split(","):
            for number in range(options.rounds):
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    with tempfile.TemporaryDirectory(dir=folder) as work:
                        os.symlink(folder + "/images", work + "/images")
                        for row, value in MEASUREMENTS[name](builds[which], work).items():
                            seen[which].setdefault(row, []).append(value)
    print("| | old | new | new / old | old, lowest to highest | new, lowest to highest |\n|---|---|---|---|---|---|")
    for row in seen[0]:
        old, new = seen[0][row], seen[1][row]
        print("| %s | %.3g | %.3g | %.3f | %.3g–%.3g | %.3g–%.3g |" % (row, statistics.median(old), statistics.median(new),
              statistics.median(new) / statistics.median(old), min(old), max(old), min(new), max(new)))


if __name__ == "__main__":
    main()
