#!/usr/bin/env python3
"""Measures a training step of the vision job's model in PyTorch eager mode; with --program, also the same step in C++ for comparison.

vit_step.py --batch 2 --program build/bench/vit_step           ViT-L/16, 512 x 512, bfloat16, on the card

The model is transformers' DINOv3ViTModel if that is installed, otherwise an equivalent in this file, with the up-head and the
auxiliary head. AdamW is torch's with its defaults (or --fused). Synchronizes with the device before and after each step, and
reports the median. With --program the two run alternately, --rounds times, and the medians of the rounds are compared. Needs
torch; Python 3.8.
"""
import argparse
import math
import re
import statistics
import subprocess
import sys
import time

# dim, layers, heads, mlp, gated, patch, parameters
BACKBONES = {
    "dinov3-vits16": (384, 12, 6, 1536, False, 16, 21596544),
    "dinov3-vits16plus": (384, 12, 6, 1536, True, 16, 28692864),
    "dinov3-vitb16": (768, 12, 12, 3072, False, 16, 85660416),
    "dinov3-vitl16": (1024, 24, 16, 4096, False, 16, 303129600),
}
CLASSES = 7


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="Example: bench/vit_step.py --batch 2 --program build/bench/vit_step")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--backbone", default="dinov3-vitl16", choices=sorted(BACKBONES))
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--batch", type=int, default=2, help="images (default: 2)")
    parser.add_argument("--size", type=int, default=512, help="pixels a side (default: 512)")
    parser.add_argument("--steps", type=int, default=20, help="measured (default: 20)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before them (default: 5)")
    parser.add_argument("--fused", action="store_true", help="AdamW(fused=True) instead of torch's default")
    parser.add_argument("--twin", action="store_true", help="the twin, even where transformers is installed")
    parser.add_argument("--program", help="build/bench/vit_step, to be measured in turns with this")
    parser.add_argument("--rounds", type=int, default=3, help="of such turns (default: 3)")
    return parser.parse_args()


def make_twin(torch, shape):
    """A short equivalent of DINOv3ViTModel: the same modules, operations and types as transformers', with
    scaled_dot_product_attention."""
    nn, functional = torch.nn, torch.nn.functional
    dim, layers, heads, mlp, gated, patch, _ = shape

    class LayerScale(nn.Module):
        def __init__(self):
            super().__init__()
            self.lambda1 = nn.Parameter(torch.ones(dim))

        def forward(self, tokens):
            return tokens * self.lambda1

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.k_proj = nn.Linear(dim, dim, bias=False)
            self.v_proj, self.q_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

        def forward(self, tokens, cos, sin):
            count, length, _ = tokens.shape

            def by_head(all_heads):
                return all_heads.view(count, length, heads, dim // heads).transpose(1, 2)

            def turned(part):
                first, rest = part.split((length - len(cos), len(cos)), dim=-2)
                left, right = rest.chunk(2, dim=-1)
                return torch.cat((first, rest * cos + torch.cat((-right, left), dim=-1) * sin), dim=-2)

            query, key, value = by_head(self.q_proj(tokens)), by_head(self.k_proj(tokens)), by_head(self.v_proj(tokens))
            mixed = functional.scaled_dot_product_attention(turned(query), turned(key), value)
            return self.o_proj(mixed.transpose(1, 2).reshape(count, length, dim).contiguous())

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            if gated:
                self.gate_proj = nn.Linear(dim, mlp)
            self.up_proj, self.down_proj = nn.Linear(dim, mlp), nn.Linear(mlp, dim)

        def forward(self, tokens):
            if gated:
                return self.down_proj(functional.silu(self.gate_proj(tokens)) * self.up_proj(tokens))
            return self.down_proj(functional.gelu(self.up_proj(tokens)))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-5), nn.LayerNorm(dim, eps=1e-5)
            self.attention, self.mlp = Attention(), Mlp()
            self.layer_scale1, self.layer_scale2 = LayerScale(), LayerScale()

        def forward(self, tokens, cos, sin):
            tokens = self.layer_scale1(self.attention(self.norm1(tokens), cos, sin)) + tokens
            return self.layer_scale2(self.mlp(self.norm2(tokens))) + tokens

    class Twin(nn.Module):
        def __init__(self):
            super().__init__()
            self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
            self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
            self.register_tokens = nn.Parameter(torch.randn(1, 4, dim) * 0.02)
            self.patch_embeddings = nn.Conv2d(3, dim, patch, patch)
            self.layer = nn.ModuleList([Layer() for _ in range(layers)])
            self.norm = nn.LayerNorm(dim, eps=1e-5)
            frequencies = 1 / 100 ** torch.arange(0, 1, 4 * heads / dim, dtype=torch.float32)
            self.register_buffer("frequencies", frequencies, persistent=False)

        def forward(self, images):
            rows, columns = images.shape[2] // patch, images.shape[3] // patch
            centers = [torch.arange(0.5, count, device=images.device) / count for count in (rows, columns)]
            places = 2 * torch.stack(torch.meshgrid(*centers, indexing="ij"), dim=-1).flatten(0, 1) - 1
            angles = (2 * math.pi * places[:, :, None] * self.frequencies).flatten(1, 2).tile(2)
            cos, sin = angles.cos(), angles.sin()
            tokens = self.patch_embeddings(images).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.cls_token.expand(len(images), -1, -1),
                                self.register_tokens.expand(len(images), -1, -1), tokens], dim=1)
            for layer in self.layer:
                tokens = layer(tokens, cos, sin)
            return self.norm(tokens)

    return Twin()


def make_model(torch, options):
    nn = torch.nn
    shape = BACKBONES[options.backbone]
    dim, layers, heads, mlp, gated, patch, parameters = shape
    try:
        transformers = None if options.twin else __import__("transformers")
    except ImportError:
        transformers = None
    if transformers is None:
        name, backbone = "PyTorch twin", make_twin(torch, shape)
    else:
        name = "transformers " + transformers.__version__
        backbone = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(
            hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=mlp, use_gated_mlp=gated,
            hidden_act="silu" if gated else "gelu", num_register_tokens=4, patch_size=patch, layer_norm_eps=1e-5,
            pos_embed_rescale=None))
    found = sum(parameter.numel() for parameter in backbone.parameters())
    if found != parameters:
        sys.exit("vit_step.py: {} has {} parameters and not {}".format(name, found, parameters))

    def block(inside, out):
        return [nn.Conv2d(inside, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = backbone
            self.head = nn.Sequential(nn.Conv2d(dim, 512, 1), *(block(512, 512) + block(512, 512)), nn.Conv2d(512, CLASSES, 1))
            self.auxiliary = nn.Sequential(*(block(dim, dim // 4)), nn.Conv2d(dim // 4, CLASSES, 1))

        def forward(self, images):
            tokens = self.backbone(images)
            tokens = tokens if transformers is None else tokens.last_hidden_state
            rows, columns = images.shape[2] // patch, images.shape[3] // patch
            places = tokens[:, -rows * columns:].transpose(1, 2).reshape(len(images), dim, rows, columns)
            return self.head(places), self.auxiliary(places)

    return name, Model()


def make_optimizer(torch, model, fused):
    groups = {}
    for name, parameter in model.named_parameters():
        if name.endswith("mask_token"):
            parameter.requires_grad_(False)
            continue
        factor = 0.1 if name.startswith("backbone.") else 1
        decay = 0.05 if parameter.dim() > 1 and not name.endswith(("_token", "_tokens")) else 0
        groups.setdefault((factor, decay), []).append(parameter)
    return torch.optim.AdamW([{"params": parameters, "lr": 1e-4 * factor, "weight_decay": decay}
                              for (factor, decay), parameters in groups.items()], fused=True if fused else None)


class Eager:
    def __init__(self, options):
        import torch
        self.torch, self.options = torch, options
        torch.manual_seed(0)
        self.name, model = make_model(torch, options)
        self.model = model.to(options.device).train()
        self.optimizer = make_optimizer(torch, self.model, options.fused)
        self.images = torch.randn(options.batch, 3, options.size, options.size).to(options.device)
        self.labels = torch.randint(0, CLASSES, (options.batch, options.size, options.size)).to(options.device)

    def step(self):
        torch, functional = self.torch, self.torch.nn.functional
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.options.device, torch.bfloat16, enabled=self.options.precision == "bfloat16"):
            losses = [functional.cross_entropy(
                functional.interpolate(logits.float(), size=self.labels.shape[1:], mode="bilinear", align_corners=False),
                self.labels, ignore_index=255) for logits in self.model(self.images)]
            loss = losses[0] + 0.4 * losses[1]
        loss.backward()
        self.optimizer.step()
        return loss

    def measure(self):
        """Median and minimum milliseconds per step, and the last loss."""
        def wait():
            if self.options.device == "cuda":
                self.torch.cuda.synchronize()

        times = []
        for step in range(self.options.warm_up + self.options.steps):
            wait()
            begin = time.perf_counter()
            loss = self.step()
            wait()
            times.append(1000 * (time.perf_counter() - begin))
        times = times[self.options.warm_up:]
        return statistics.median(times), min(times), loss.item()


def measure_program(options):
    ran = subprocess.run([options.program, "--device", options.device, "--backbone", options.backbone, "--precision",
                          options.precision, "--batch", str(options.batch), "--size", str(options.size), "--steps",
                          str(options.steps), "--warm-up", str(options.warm_up)],
                         stdout=subprocess.PIPE, timeout=600, check=True, text=True)
    print(ran.stdout, end="", flush=True)
    return float(re.search(r"([0-9.]+) ms a step", ran.stdout).group(1))


def main():
    options = read_options()
    eager = Eager(options)
    mine, theirs = [], []
    for _ in range(options.rounds if options.program else 1):
        median, least, loss = eager.measure()
        theirs.append(median)
        print("{}  {} {} x {}, batch {}, {}, AdamW {}: {:.2f} samples/s, {:.2f} ms a step (least {:.2f}), loss {:.4f}".format(
            eager.name, options.backbone, options.size, options.size, options.batch, options.precision,
            "fused" if options.fused else "as it comes", 1000 * options.batch / median, median, least, loss), flush=True)
        if options.program:
            mine.append(measure_program(options))
    if mine:
        print("fulldeck {:.2f} samples/s, {} {:.2f}: {:.3f} times".format(
            1000 * options.batch / statistics.median(mine), eager.name, 1000 * options.batch / statistics.median(theirs),
            statistics.median(theirs) / statistics.median(mine)))


if __name__ == "__main__":
    main()
