"""Probes cards through the user's torch: allocate, compute, compare with the CPU, copy both ways, free. `fulldeck doctor --deep`
runs it; it writes a line of JSON to descriptor 3 for every step. Also runs on Python 3.6 and torch 1.10.

The argument: {"module": "torch_gcu", "package": folder of fulldeck or "", "simulated": false, "busy": seconds,
               "cards": [{"card": 0, "devices": ["gcu:0", "xla:0"]}]}
Several cards get one process each, forked after torch is loaded. Only simulated cards allow that."""
import json
import os
import resource
import sys
import time

SIDE = 256
# For real cards (False) and for simulated ones (True), whose work the CPU does.
PACE_SIDES = {False: 1024, True: 256}
COPY_BYTES = {False: 32 << 20, True: 4 << 20}


def tell(**fields):
    os.write(3, (json.dumps(fields) + "\n").encode())


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:400]


class Times:
    """How long a repeated step takes, as far as the card determines it: excludes times in which this thread lost its CPU."""

    def __init__(self):
        self.all, self.undisturbed = [], []

    def measure(self, step):
        before, begun = preempted(), time.perf_counter()
        step()
        took = time.perf_counter() - begun
        self.all.append(took)
        if preempted() == before:
            self.undisturbed.append(took)

    def enough(self):
        return (len(self.undisturbed) >= 12 and sum(self.all) >= 0.05) or (len(self.all) >= 12 and sum(self.all) >= 1)

    def typical(self):
        """The mean: a card that pauses after its work, every few steps, is slow too."""
        times = self.undisturbed if len(self.undisturbed) >= 3 else self.all
        return max(sum(times) / len(times), 1e-9)


def preempted():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def prepare(request):
    """Returns torch with the card's device, or None and an error message."""
    try:
        import torch
    except Exception as error:
        return None, "torch cannot be imported: " + first_line(error)
    if request["simulated"]:
        if request["package"]:
            sys.path.append(request["package"])
        try:
            from fulldeck import simulator
            simulator.load()
        except Exception as error:
            return None, "the simulated cards are not in torch: " + first_line(error)
    elif request["module"]:
        try:
            __import__(request["module"])
        except Exception as error:
            return None, "{} cannot be imported: {}".format(request["module"], first_line(error))
    torch.set_num_threads(1)
    return torch, ""


class Card:
    def __init__(self, torch, number, device, simulated):
        self.torch = torch
        self.number = number
        self.device = device
        self.last_report = ("", 0)
        self.copy_bytes = COPY_BYTES[simulated]
        self.pace_side = PACE_SIDES[simulated]
        self.namespace = getattr(torch, device.split(":")[0], None)

    def step(self, name):
        """Reports the step; repeats it at most every 0.5 s as a heartbeat."""
        if name != self.last_report[0] or time.perf_counter() - self.last_report[1] > 0.5:
            self.last_report = (name, time.perf_counter())
            tell(card=self.number, step=name)

    def wait(self, value):
        """Waits until `value` is computed. If the device has no synchronize, reads one number instead."""
        synchronize = getattr(self.namespace, "synchronize", None)
        if synchronize is not None:
            try:
                return synchronize(self.device)
            except TypeError:
                return synchronize()
        value.reshape(-1)[:1].cpu()

    def copies(self):
        torch = self.torch
        size = self.copy_bytes
        while True:
            try:
                block = torch.empty(size, dtype=torch.uint8, device=self.device)
                break
            except RuntimeError as error:
                if size <= 1 << 20 or "memory" not in str(error).lower():
                    raise
                size //= 2
        host = torch.arange(size // 4, dtype=torch.int32, device="cpu").mul_(-1640531535).view(torch.uint8)
        block.copy_(host)
        back = block.cpu()
        if not torch.equal(back, host):
            different = int((back != host).sum())
            return {}, "memory does not give back what was written: {} of {} bytes differ".format(different, size)
        there, back_again = Times(), Times()
        while not there.enough() or not back_again.enough():
            self.step("copy")  # a heartbeat: a slow card is not unresponsive
            there.measure(lambda: (block.copy_(host), self.wait(block)))
            back_again.measure(lambda: back.copy_(block))
        return {"to_card": size / there.typical(), "from_card": size / back_again.typical(), "copied": size}, ""

    def compute(self):
        """Computes with integers of absolute value at most 8, so that every sum is exact in any order and format."""
        torch = self.torch
        a = torch.arange(SIDE * SIDE, device="cpu").remainder(17).sub(8).reshape(SIDE, SIDE)
        b = torch.arange(SIDE * SIDE, device="cpu").remainder(13).sub(6).reshape(SIDE, SIDE)
        right = a.double().mm(b.double())
        on_card_a, on_card_b = a.float().to(self.device), b.float().to(self.device)
        product = on_card_a.mm(on_card_b)
        got = product.cpu().double()
        if not torch.equal(got, right):
            bad = (got != right).nonzero()
            row, column = int(bad[0][0]), int(bad[0][1])
            return "a product of two matrices is wrong in {} of {} numbers, the first at [{}, {}]: {:g} and not {:g}".format(
                len(bad), SIDE * SIDE, row, column, float(got[row, column]), float(right[row, column]))
        elementwise = (on_card_a * 3 + on_card_b).relu().cpu().double()
        if not torch.equal(elementwise, (a * 3 + b).relu().double()):
            return "arithmetic on single numbers is wrong"
        total, expected = float(on_card_a.sum().cpu()), float(a.sum())
        if total != expected:
            return "a sum of {} numbers is {:g} and not {:g}".format(SIDE * SIDE, total, expected)
        return ""

    def pace(self):
        torch = self.torch
        a = torch.ones(self.pace_side, self.pace_side, device="cpu").to(self.device)
        a.mm(a)
        times = Times()
        while not times.enough():
            self.step("pace")
            times.measure(lambda: self.wait(a.mm(a)))
        return times.typical()

    def keep_busy(self, seconds):
        a = self.torch.ones(self.pace_side, self.pace_side, device="cpu").to(self.device)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.wait(a.mm(a))

    def free(self):
        release = getattr(self.namespace, "empty_cache", None)
        if release is not None:
            release()


def is_about_torch(error):
    """Whether the error only means that this torch does not support the name or the card."""
    return any(words in str(error) for words in ("device string", "not linked", "not compiled with", "is not registered", "not enabled"))


def usable_device(torch, devices):
    """The first name that torch accepts, or the last one and its error if it accepts none."""
    error = None
    for device in devices:
        try:
            torch.empty(1, device=device)
            return device, None
        except Exception as failure:
            error = failure
            if not is_about_torch(failure):
                return device, failure
    return devices[-1], error


def prove(torch, card, busy, simulated):
    step = "allocate"
    number = card["card"]
    try:
        tell(card=number, step=step)
        device, error = usable_device(torch, card["devices"])
        if error is not None and is_about_torch(error):
            return tell(unavailable="this torch does not know the card: " + first_line(error))
        if error is not None:
            raise error
        with torch.no_grad():
            proved = Card(torch, number, device, simulated)
            step = "copy"
            proved.step(step)
            figures, wrong = proved.copies()
            if not wrong:
                step = "compute"
                proved.step(step)
                wrong = proved.compute()
            if wrong:
                return tell(card=number, wrong=wrong, way="torch " + torch.__version__ + " on " + device)
            step = "pace"
            proved.step(step)
            figures["pace"] = proved.pace()
            step = "busy"
            proved.step(step)
            proved.keep_busy(busy)
            step = "free"
            proved.free()
        tell(card=number, sound=True, way="torch " + torch.__version__ + " on " + device, **figures)
    except Exception as error:
        tell(card=number, refused=first_line(error), step=step, way="torch " + torch.__version__)


def die_with_parent():
    import ctypes

    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def main():
    request = json.loads(sys.argv[1])
    torch, why_not = prepare(request)
    if torch is None:
        return tell(unavailable=why_not)
    tell(ready=True)
    if len(request["cards"]) == 1:
        return prove(torch, request["cards"][0], request["busy"], request["simulated"])
    children = []
    for card in request["cards"]:
        child = os.fork()
        if child == 0:
            try:
                die_with_parent()
                prove(torch, card, request["busy"], request["simulated"])
            finally:
                os._exit(0)
        children.append((child, card["card"]))
    for child, number in children:
        _, status = os.waitpid(child, 0)
        if status != 0:
            tell(card=number, died=status)


main()
