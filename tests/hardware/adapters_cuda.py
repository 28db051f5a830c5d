#!/usr/bin/env python3
"""The adapters on a machine with an NVIDIA card and a torch that was compiled for CUDA.

Usage: adapters_cuda.py [FULLDECK]     (default: build/bin/fulldeck)

One rank over NCCL, 2 to 8 ranks that share the card, the guards B6, B8 and B9, and simulated cards next to the real
one. Prints one JSON object, case -> {ok, …}; exits with code 1 if a case failed. Not part of `make test`: CI has no
card. Two or more cards, and NCCL between them, were never available.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.abspath(__file__)
FULLDECK = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("--") else os.path.abspath("build/bin/fulldeck")
SECONDS = 240


# ---- code of a rank: adapters_cuda.py --rank CASE BACKEND

def train(backend):
    """Losses of ten steps with DistributedDataParallel, as in a program written for CUDA."""
    import torch
    import torch.distributed as dist

    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    local %= torch.cuda.device_count()
    torch.cuda.set_device(local)
    dist.init_process_group(backend)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(100 + rank)
    x, y = torch.randn(32, 64, generator=generator).cuda(), torch.randint(0, 8, (32,), generator=generator).cuda()
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    weights = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    print("RESULT " + json.dumps({"rank": rank, "world": dist.get_world_size(), "backend": dist.get_backend(),
                                  "device": str(next(model.parameters()).device), "losses": losses, "weights": weights}), flush=True)
    dist.destroy_process_group()


def on_the_cpu(backend):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    print("RESULT " + json.dumps({"wrapped": True}), flush=True)


def hides_its_card(backend):
    os.environ["CUDA_VISIBLE_DEVICES"] = "7"
    import torch.distributed as dist

    dist.init_process_group("gloo")


def uses_cuda(backend):
    """On a simulated card: the result of each way to use CUDA."""
    import torch

    found = {"available": torch.cuda.is_available(), "driver_sees": torch._C._cuda_getDeviceCount() if hasattr(torch._C, "_cuda_getDeviceCount") else 0}
    for name, use in (("cuda()", lambda: torch.ones(2).cuda()), ("device=", lambda: torch.ones(2, device="cuda")),
                      ("to", lambda: torch.nn.Linear(2, 2).to("cuda:0").weight), ("set_device", lambda: torch.cuda.set_device(0)),
                      ("raw", lambda: torch.ones(2).to(device=torch.empty(0).device.__class__("cuda:0")))):
        try:
            made = use()
            found[name] = "ok" if made is None else str(made.device)
        except Exception as error:
            found[name] = "{}: {}".format(type(error).__name__, str(error).split("\n")[0][:200])
    print("RESULT " + json.dumps(found), flush=True)


def another_ranks_card(backend):
    """B8 without a second card: the launcher's variable is changed, so that the only card belongs to a different
    rank."""
    os.environ["FULLDECK_DEVICE"] = "cuda:1"
    import torch

    torch.cuda.set_device(0)
    print("RESULT " + json.dumps({"current": torch.cuda.current_device()}), flush=True)


RANKS = {"train": train, "cpu": on_the_cpu, "hidden": hides_its_card, "cuda": uses_cuda, "other": another_ranks_card}


# ---- the cases

def run(case, *flags, backend="nccl", **variables):
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FULLDECK_", "CUDA_VISIBLE"))}
        environment.update(NO_COLOR="1", PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1", **variables)
        for name in ("RUNTIME", "LEASE", "SIMULATE"):
            environment["FULLDECK_{}_DIR".format(name)] = os.path.join(folder, name)
            os.mkdir(os.path.join(folder, name), 0o700)
        begun = time.monotonic()
        try:
            done = subprocess.run([FULLDECK, "run", *flags, HERE, "--rank", case, backend], cwd=folder, env=environment, timeout=SECONDS,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = None, str(late.stdout), str(late.stderr)
    results = [json.loads(text) for text in re.findall(r"RESULT (\{.*\})", out)]
    return {"code": code, "seconds": round(time.monotonic() - begun, 1), "results": results, "err": err}


def trained(done, ranks, backend):
    results = sorted(done["results"], key=lambda each: each["rank"])
    return (done["code"] == 0 and [each["rank"] for each in results] == list(range(ranks))
            and all(each["world"] == ranks and each["backend"] == backend and each["device"] == "cuda:0" for each in results)
            and all(each["losses"] == results[0]["losses"] and each["weights"] == results[0]["weights"] for each in results)
            and results[0]["losses"][-1] < results[0]["losses"][0] and "is not adapted" not in done["err"]
            and not re.search(r"WARNING: B[689]", done["err"]))


def on_no_real_card(done):
    result = done["results"][0] if done["results"] else {}
    return done["code"] == 0 and bool(result) and not any(str(value).startswith("cuda") for value in result.values())


def cases():
    done = run("train", "--nproc-per-node", "1")
    yield "one rank over NCCL", trained(done, 1, "nccl"), done
    for ranks in (2, 4, 8):
        done = run("train", "--nproc-per-node", str(ranks), "--share-cards", backend="gloo")
        yield "{} ranks share the card".format(ranks), trained(done, ranks, "gloo"), done
    done = run("cpu", "--nproc-per-node", "1")
    yield "B6: a model on the CPU is refused", done["code"] not in (0, None) and "DistributedDataParallel is refused" in done["err"], done
    done = run("other", "--nproc-per-node", "1")
    yield "B8: another rank's card is reported", done["code"] == 0 and done["err"].count("WARNING: B8") == 1, done
    done = run("hidden", "--nproc-per-node", "1")
    yield "B9: a list without the rank's card is reported", "WARNING: B9" in done["err"], done
    done = run("cuda", "--nproc-per-node", "1", FULLDECK_SIMULATE="gcu:1")
    yield "simulated gcu next to the card", on_no_real_card(done), done
    done = run("cuda", "--nproc-per-node", "1", "--no-adapt", FULLDECK_SIMULATE="gcu:1")
    yield "simulated gcu next to the card, without adapters", on_no_real_card(done) and done["results"][0]["driver_sees"] == 0, done
    done = run("cuda", "--nproc-per-node", "1", FULLDECK_SIMULATE="cuda:1")
    result = done["results"][0] if done["results"] else {}
    yield ("simulated cuda next to the card", done["code"] == 0 and result.get("available") is False and not any(
        str(value).startswith("cuda:") or value == "ok" for value in result.values()), done)


def main():
    import torch

    report = {"torch": torch.__version__, "cards": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]}
    failed = 0
    for name, ok, done in cases():
        report[name] = {"ok": bool(ok), "code": done["code"], "seconds": done["seconds"], "results": done["results"]}
        if not ok:
            failed += 1
            report[name]["err"] = done["err"][-3000:]
    print(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    if "--rank" in sys.argv:
        RANKS[sys.argv[sys.argv.index("--rank") + 1]](sys.argv[-1])
    else:
        sys.exit(main())
