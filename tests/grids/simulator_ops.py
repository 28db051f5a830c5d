"""Runs torch's own list of operators (OpInfo, op_db, float32) on a simulated card and on the CPU, forward and backward,
and compares.

    FULLDECK_SIMULATE=gcu:1 python tests/grids/simulator_ops.py                      # a line per failure, and totals
    FULLDECK_SIMULATE=gcu:1 python tests/grids/simulator_ops.py --table docs/simulator-ops.md
    FULLDECK_SIMULATE=gcu:1 python tests/grids/simulator_ops.py --only add,matmul --samples 3

Needs the package on the path (build/lib/python), numpy, and the dependency of torch.testing (expecttest). Exits with 1
if --only was given and one of those failed.
"""
import argparse
import itertools
import os
import signal
import sys
import time
import warnings

# Their values are random or uninitialized: sizes, types and devices are compared, not values.
VALUES_DIFFER = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal",
    "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal",
    "pca_lowrank", "rand_like", "randint", "randint_like", "randn", "randn_like", "svd_lowrank",
    "uniform"}
# Their arguments are CPU tensors on every device.
ARGUMENTS_OF_HOST = {"tensor_split"}
SECONDS_EACH = 60


class TooLong(Exception):
    pass


def too_long(*_):
    raise TooLong("took more than {} s".format(SECONDS_EACH))


def moved_tensor(tensor, device, torch):
    """Copies the whole storage: some operators look beyond a view."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor.to(device)
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).clone().to(device)
    return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def moved(value, device, torch):
    """The same with its tensors on `device`, detached from any graph. Devices named in arguments become that device
    too."""
    if isinstance(value, torch.Tensor):
        return moved_tensor(value.detach(), device, torch).requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or value == "cpu" and isinstance(value, str):
        return torch.device(device)
    if isinstance(value, (list, tuple)):
        made = [moved(each, device, torch) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {name: moved(each, device, torch) for name, each in value.items()}
    return value


def tensors_in(value, torch):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each, torch)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_in(each, torch)]
    return []


def run(op, sample, device, backward, torch):
    """Results and gradients on one device."""
    torch.manual_seed(1)
    first = moved(sample.input, device, torch)
    arguments, options = (moved(part, "cpu" if op.name in ARGUMENTS_OF_HOST else device, torch) for part in (sample.args, sample.kwargs))
    inputs = [tensor for tensor in tensors_in([first, arguments, options], torch) if tensor.requires_grad]
    results = tensors_in(op(first, *arguments, **options), torch)
    gradients = []
    wanted = [result for result in results if result.requires_grad and (result.is_floating_point() or result.is_complex())]
    if backward and inputs and wanted:
        total = sum((result.abs() if result.is_complex() else result).double().sum() for result in wanted)
        gradients = [gradient for gradient in torch.autograd.grad(total, inputs, allow_unused=True) if gradient is not None]
    return [result.detach() for result in results], gradients


def compare(host, card, name, values, torch):
    assert len(host) == len(card), "{} {} on the host, {} on the card".format(len(host), name, len(card))
    for one, other in zip(host, card):
        assert other.device.type != "cpu", "{} on the host".format(name)
        assert one.layout == other.layout, "{} of layout {} and {}".format(name, one.layout, other.layout)
        if values:
            torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert one.shape == other.shape and one.dtype == other.dtype, "{} of another shape or type".format(name)


def try_operator(op, card, samples, torch):
    """("passed" | "failed" | "skipped", reason)."""
    backward = op.supports_autograd
    with_values = op.name not in VALUES_DIFFER
    tried = 0
    try:
        made = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=backward), samples))
    except Exception as error:
        return "skipped", "no samples: " + first_line(error)
    for sample in made:
        try:
            host = run(op, sample, "cpu", backward, torch)
        except TooLong:
            return "skipped", "too slow on the host"
        except Exception as error:
            return "skipped", "the host itself: " + first_line(error)
        try:
            ours = run(op, sample, card, backward, torch)
            compare(host[0], ours[0], "results", with_values, torch)
            compare(host[1], ours[1], "gradients", with_values, torch)
        except Exception as error:
            return "failed", first_line(error)
        tried += 1
    return ("passed", "") if tried else ("skipped", "no samples")


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "{}: {}".format(type(error).__name__, " ".join(lines[:2])[:160] if lines else "")


def try_all(only=None, samples=6, say=None, first=None):
    """[(operator, outcome, reason)] in the order of torch's list."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    card = torch._C._get_privateuse1_backend_name() + ":0"
    signal.signal(signal.SIGALRM, too_long)
    rows = []
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if op.name == first:
            first = None
        if (only is not None and op.name not in only) or first is not None:
            continue
        if torch.float32 not in op.dtypes:
            rows.append((name, "skipped", "the host has no float32 of it"))
            continue
        signal.alarm(SECONDS_EACH)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome, why = try_operator(op, card, samples, torch)
        except TooLong as error:
            outcome, why = "failed", str(error)
        finally:
            signal.alarm(0)
        rows.append((name, outcome, why))
        if say:
            say(name, outcome, why)
    return rows


def table(rows, version, seconds):
    count = {outcome: sum(row[1] == outcome for row in rows) for outcome in ("passed", "failed", "skipped")}
    lines = ["# Operators on a simulated card", "",
             "Written by `tests/grids/simulator_ops.py`: torch's own list of operators (OpInfo, `op_db`), float32, forward and backward, on a",
             "simulated card against the host (relative 1e-4, absolute 1e-5; of random operators shapes and types alone), torch {}.".format(
                 version), "",
             "| passed | failed | skipped |", "|---|---|---|", "| {passed} | {failed} | {skipped} |".format(**count), ""]
    for outcome, title in (("failed", "Failed"), ("skipped", "Skipped")):
        lines += ["## " + title, "", "| operator | why |", "|---|---|"]
        lines += ["| {} | {} |".format(name, why.replace("|", "\\|").replace("<", "&lt;")) for name, got, why in rows if got == outcome]
        lines.append("")
    lines += ["## Passed", "", ", ".join("`{}`".format(name) for name, got, _ in rows if got == "passed"), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of operators, with commas")
    parser.add_argument("--samples", type=int, default=6, help="how many of torch's sample inputs each operator gets")
    parser.add_argument("--table", help="write the table there")
    parser.add_argument("--from", dest="first", help="begin with this operator")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    begun = time.monotonic()

    def say(name, outcome, why):
        if given.verbose or outcome == "failed":
            print("{:8} {:40} {}".format(outcome, name, why), flush=True)

    rows = try_all(set(given.only.split(",")) if given.only else None, given.samples, say, given.first)
    seconds = time.monotonic() - begun
    for outcome in ("passed", "failed", "skipped"):
        print("{}: {}".format(outcome, sum(row[1] == outcome for row in rows)))
    print("{:.0f} s".format(seconds))
    if given.table:
        with open(given.table + ".part", "w") as file:
            file.write(table(rows, torch.__version__, seconds))
        os.rename(given.table + ".part", given.table)
    return 1 if given.only and any(row[1] == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
