#!/usr/bin/env python3
"""Compares `fulldeck devices` with nvidia-smi on a machine that has an NVIDIA card and a Python with torch.

Usage: compare_with_nvidia_smi.py [FULLDECK]     (default: build/bin/fulldeck)

Keeps every card busy with matrix products, reads both, prints both side by side, and exits with code 1 if they differ
by more than the time between the two readings explains. Not part of `make test`: CI has no card.
"""
import json
import os
import subprocess
import sys
import time

FULLDECK = sys.argv[1] if len(sys.argv) > 1 else os.path.join("build", "bin", "fulldeck")
BURNER = """
import torch
shapes = [torch.randn(8192, 8192, device="cuda:%d" % i) for i in range(torch.cuda.device_count())]
print("busy", flush=True)
while True:
    for m in shapes:
        torch.mm(m, m)
    for i in range(torch.cuda.device_count()):
        torch.cuda.synchronize(i)
"""
FIELDS = "index,name,uuid,serial,pci.bus_id,memory.total,memory.used,utilization.gpu,power.draw,power.limit,temperature.gpu,pstate,driver_version"
MIB = 1 << 20


def output(command):
    return subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=True, timeout=120).stdout


def nvidia_smi():
    rows = output(["nvidia-smi", "--query-gpu=" + FIELDS, "--format=csv,noheader,nounits"]).strip().splitlines()
    cards = [dict(zip(FIELDS.split(","), [cell.strip() for cell in row.split(",")])) for row in rows]
    apps = output(["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"])
    for card in cards:
        card["pids"] = sorted(int(row.split(",")[1]) for row in apps.strip().splitlines() if row.startswith(card["uuid"]))
    return cards


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def near(ours, theirs, absolute):
    if ours is None or theirs is None:
        return ours is None and theirs is None
    return abs(ours - theirs) <= absolute


def compare(ours, theirs):
    """Rows of (value, fulldeck's, nvidia-smi's, whether they agree)."""
    bus = theirs["pci.bus_id"].lower()
    serial = theirs["serial"] if number(theirs["serial"]) is not None else None
    pids = sorted(process["pid"] for process in ours["processes"] or [])
    power = number(theirs["power.draw"])
    return [
        ("model", ours["model"], theirs["name"], ours["model"] == theirs["name"]),
        ("uuid", ours["uuid"], theirs["uuid"], ours["uuid"] == theirs["uuid"]),
        ("serial", ours["serial"], serial, ours["serial"] == serial),
        ("PCI address", ours["pci_address"], bus, bus.endswith(ours["pci_address"])),
        ("driver", ours["driver"], theirs["driver_version"], ours["driver"] == theirs["driver_version"]),
        ("memory, MiB", ours["memory_total_bytes"] / MIB, theirs["memory.total"],
         near(ours["memory_total_bytes"] / MIB, number(theirs["memory.total"]), 1)),
        ("memory used, MiB", ours["memory_used_bytes"] / MIB, theirs["memory.used"],
         near(ours["memory_used_bytes"] / MIB, number(theirs["memory.used"]), 1)),
        ("utilisation, %", ours["utilisation_percent"], theirs["utilization.gpu"],
         near(ours["utilisation_percent"], number(theirs["utilization.gpu"]), 5)),
        ("power, W", ours["power_watts"], theirs["power.draw"], near(ours["power_watts"], power, 0.1 * (power or 0))),
        ("power limit, W", ours["power_limit_watts"], theirs["power.limit"],
         near(ours["power_limit_watts"], number(theirs["power.limit"]), 0.1)),
        ("temperature, C", ours["temperature_celsius"], theirs["temperature.gpu"],
         near(ours["temperature_celsius"], number(theirs["temperature.gpu"]), 2)),
        ("state", ours["state"], theirs["pstate"], ours["state"] == theirs["pstate"]),
        ("processes", pids, theirs["pids"], pids == theirs["pids"]),
    ]


def main():
    burner = subprocess.Popen([sys.executable, "-c", BURNER], stdout=subprocess.PIPE, universal_newlines=True)
    try:
        assert burner.stdout.readline() == "busy\n", "the burner did not start"
        time.sleep(3)  # the utilization that the driver reports is an average over up to a second
        inventory = json.loads(output([FULLDECK, "devices", "--json", "--timeout", "20"]))
        theirs = nvidia_smi()
        ours = [card for card in inventory["cards"] if card["vendor"] == "nvidia"]
        agreed = len(ours) == len(theirs)
        print("cards: {} and {}".format(len(ours), len(theirs)))
        for mine, other in zip(ours, theirs):
            for what, a, b, same in compare(mine, other):
                agreed = agreed and same
                print("{:18} {:>42} {:>42}  {}".format(what, str(a), str(b), "same" if same else "DIFFERENT"))
            named = [process for process in mine["processes"] or [] if process["pid"] == burner.pid]
            print("our process: {}".format(named))
            agreed = agreed and bool(named) and "python" in (named[0]["command"] or "")
        print(output([FULLDECK, "devices", "--timeout", "20"]))
        print("equal to nvidia-smi" if agreed else "NOT equal to nvidia-smi")
        return 0 if agreed else 1
    finally:
        burner.kill()
        burner.wait()


if __name__ == "__main__":
    sys.exit(main())
