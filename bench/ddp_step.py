#!/usr/bin/env python3
"""Measures a DDP step of a ViT-S-sized model (21 M parameters), and how much of it is communication, with one backend of
torch.distributed or with several alternately.

ddp_step.py --backend gloo,fulldeck --ranks 8           --help lists the options

Communication is the median step minus the median step of the same ranks without synchronization (no_sync), measured alternately.
The duration of a step is that of its slowest rank. Losses are printed too: they must not depend on the backend. Needs torch;
Python 3.8.
"""
import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

MINUTE = 60
RATE = 0.01


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="Example: bench/ddp_step.py --backend gloo,fulldeck --ranks 8 --steps 20")
    parser.add_argument("--backend", default="gloo", help="names, separated by commas (default: gloo)")
    parser.add_argument("--ranks", type=int, default=8, help="processes on this host (default: 8)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="cuda: ranks share the cards that there are")
    parser.add_argument("--steps", type=int, default=20, help="measured, of each kind (default: 20)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before them (default: 3)")
    parser.add_argument("--batch", type=int, default=1, help="images a rank (default: 1)")
    parser.add_argument("--image", type=int, default=32, help="pixels a side, a multiple of 16 (default: 32)")
    parser.add_argument("--width", type=int, default=384, help="of the model; 384 is ViT-S")
    parser.add_argument("--depth", type=int, default=12, help="layers of the model; 12 is ViT-S")
    parser.add_argument("--bucket-mb", type=float, default=25, help="DDP's bucket_cap_mb (default: 25)")
    parser.add_argument("--timeout", type=float, default=30 * MINUTE, help="seconds for all ranks of one backend")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--as-rank", nargs=2, metavar=("RANK", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in ("ranks", "steps", "batch", "depth"):
        if getattr(options, name) < 1:
            parser.error("--{}: at least 1".format(name))
    if options.image < 16 or options.image % 16:
        parser.error("--image: a multiple of 16")
    if options.width < 64 or options.width % 64:
        parser.error("--width: a multiple of 64, the width of a head")
    return options


# ---- one rank ----

def make_model(torch, options):
    """A vision transformer of plain layers: patches of 16, heads of 64, ten classes."""
    nn = torch.nn

    class VisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            tokens = (options.image // 16) ** 2 + 1
            self.patches = nn.Conv2d(3, options.width, 16, 16)
            self.token = nn.Parameter(torch.zeros(options.width))
            self.places = nn.Parameter(torch.zeros(tokens, options.width))
            layer = nn.TransformerEncoderLayer(options.width, options.width // 64, 4 * options.width, dropout=0.0,
                                               activation="gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, options.depth, norm=nn.LayerNorm(options.width),
                                                enable_nested_tensor=False)
            self.head = nn.Linear(options.width, 10)

        def forward(self, images):
            tokens = self.patches(images).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(len(images), 1, -1), tokens], 1) + self.places
            return self.head(self.layers(tokens)[:, 0])

    return VisionTransformer()


def run_rank(options):
    import datetime

    import torch
    import torch.distributed as dist

    rank, port = int(options.as_rank[0]), options.as_rank[1]
    torch.set_num_threads(1)
    if options.device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    device = torch.device(options.device)
    dist.init_process_group(options.backend, init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=options.timeout))
    torch.manual_seed(0)
    model = make_model(torch, options).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    torch.manual_seed(1 + rank)
    losses = []

    def finish():
        if options.device == "cuda":
            torch.cuda.synchronize()

    def step(synchronised):
        """Seconds from a common start."""
        images = torch.randn(options.batch, 3, options.image, options.image, device=device)
        labels = torch.randint(10, (options.batch,), device=device)
        # Without synchronization the ranks would diverge; with this setting the optimizer does the same work and changes nothing.
        optimizer.param_groups[0]["lr"] = RATE if synchronised else 0.0
        optimizer.zero_grad(set_to_none=False)
        finish()
        dist.barrier()
        began = time.perf_counter()
        with contextlib.nullcontext() if synchronised else parallel.no_sync():
            loss = torch.nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
        optimizer.step()
        finish()
        took = time.perf_counter() - began
        if synchronised:
            losses.append(loss.detach())
        return took

    for _ in range(options.warm_up):
        step(True)
        step(False)
    times = torch.tensor([[step(True), step(False)] for _ in range(options.steps)], dtype=torch.float64)
    every = [torch.empty_like(times) for _ in range(options.ranks)]
    dist.all_gather(every, times)
    slowest = torch.stack(every).max(0).values
    mean_losses = torch.stack(losses).double().cpu()
    dist.all_reduce(mean_losses)
    if rank == 0:
        print(json.dumps({
            "backend": options.backend, "torch": torch.__version__, "ranks": options.ranks, "device": options.device,
            "parameters": parameters, "steps": options.steps,
            "step_s": float(slowest[:, 0].median()), "step_without_sync_s": float(slowest[:, 1].median()),
            "losses": (mean_losses / options.ranks).tolist()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    # Python up to 3.13 ends a torch thread that acquires the GIL too late with pthread_exit, which aborts the process.
    sys.stdout.flush()
    os._exit(0)


# ---- all ranks ----

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_backend(options, backend):
    variables = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
    variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        variables.pop(name, None)
    port = free_port()
    arguments = [word for word in sys.argv[1:] if word != "--json"] + ["--backend", backend]
    with tempfile.TemporaryFile() as out:
        ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__)] + arguments + ["--as-rank", str(rank), str(port)],
                                  env=variables, stdin=subprocess.DEVNULL, stdout=out if rank == 0 else subprocess.DEVNULL)
                 for rank in range(options.ranks)]
        deadline = time.monotonic() + options.timeout
        try:
            while any(rank.poll() is None for rank in ranks):
                failed = [number for number, rank in enumerate(ranks) if rank.poll() not in (None, 0)]
                if failed:
                    raise SystemExit("ddp_step: {}: rank {} ended with code {}".format(backend, failed[0],
                                                                                      ranks[failed[0]].returncode))
                if time.monotonic() > deadline:
                    raise SystemExit("ddp_step: {}: not done in {:g} s".format(backend, options.timeout))
                time.sleep(0.05)
            failed = [rank.returncode for rank in ranks if rank.returncode != 0]
            if failed:
                raise SystemExit("ddp_step: {}: a rank ended with code {}".format(backend, failed[0]))
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        out.seek(0)
        found = json.loads(out.read().decode().strip().splitlines()[-1])
    found["communication_s"] = found["step_s"] - found["step_without_sync_s"]
    return found


def table(results):
    first = results[0]
    print("DDP step of {:.1f} M parameters, {} ranks on {}, torch {}, median of {} steps' slowest ranks\n".format(
        first["parameters"] / 1e6, first["ranks"], first["device"], first["torch"], first["steps"]))
    print("| backend | step | without synchronising | communication | last loss |\n|---|---|---|---|---|")
    for result in results:
        beside = result["communication_s"] / first["communication_s"] if first["communication_s"] > 0 else float("nan")
        print("| {} | {:.1f} ms | {:.1f} ms | {:.1f} ms{} | {:.6f} |".format(
            result["backend"], 1000 * result["step_s"], 1000 * result["step_without_sync_s"],
            1000 * result["communication_s"], "" if result is first else " ({:.2f} × {})".format(beside, first["backend"]),
            result["losses"][-1]))


def main():
    options = read_options()
    if options.as_rank:
        run_rank(options)
        return
    results = [run_backend(options, backend) for backend in options.backend.split(",")]
    if options.json:
        print(json.dumps({"version": 1, "results": results}, indent=2))
    else:
        table(results)
    for result in results[1:]:
        farthest = max(abs(one - other) for one, other in zip(result["losses"], results[0]["losses"]))
        if farthest > 1e-4:
            raise SystemExit("ddp_step: the losses of {} and {} differ by {:g}".format(results[0]["backend"],
                                                                                     result["backend"], farthest))


if __name__ == "__main__":
    main()
