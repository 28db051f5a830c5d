"""One rank on a simulated card: torch is imported late, in a thread and in a forked child, by a program that replaces
functions itself."""
import os
import sys
import threading

assert "torch" not in sys.modules and "fulldeck" not in sys.modules
child = os.fork()
if child == 0:
    import torch

    os._exit(7 if torch.ones(2).cuda().device.type == "gcu" else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("in a forked child")

importer = threading.Thread(target=__import__, args=("torch.nn.functional",))
importer.start()
importer.join()
import torch  # noqa: E402

assert torch.__loader__ is torch.__spec__.loader and type(torch.__loader__).__module__.startswith("_frozen_importlib")
real_to, calls = torch.Tensor.to, []
torch.Tensor.to = lambda self, *arguments, **named: calls.append(arguments) or real_to(self, *arguments, **named)
torch.cuda.is_available = lambda: "mine"
assert torch.cuda.is_available() == "mine"
assert torch.ones(2).to("cuda").device.type == torch.ones(2).cuda().device.type == "gcu" and calls[0] == ("cuda",)
print("with patches of its own")

# The cost of a step: how often it calls the adapters' functions, and the cost of a call.
import time  # noqa: E402

model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3),
                            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, y = torch.randn(16, 3, 32, 32), torch.zeros(16, dtype=torch.long)


def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.cuda()), y.to("cuda")).backward()
    optimizer.step()


def seconds(action, times):
    def once():
        begun = time.thread_time()
        for _ in range(times):
            action()
        return (time.thread_time() - begun) / times

    return min(once() for _ in range(15))


torch.Tensor.to = real_to
step()
ours = []
OURS = os.path.join("fulldeck", "adapters")
sys.setprofile(lambda frame, event, _: event == "call" and OURS in frame.f_code.co_filename and OURS not in frame.f_back.f_code.co_filename
               and ours.append(frame.f_code.co_name))
step()
sys.setprofile(None)
whole = seconds(step, 5)
# The most expensive case: a string that means CUDA, for a tensor that is already there.
one = torch.ones(1, device="cuda")
call = seconds(lambda: one.to("cuda"), 1000) - seconds(lambda: real_to.__wrapped__(one, "gcu"), 1000)
print("overhead {} calls {:.0f} ns step {:.0f} us".format(len(ours), call * 1e9, whole * 1e6))

from fulldeck import adapters  # noqa: E402

print("spent {:.2f} ms".format(adapters.spent["torch"] * 1e3))
