"""`import torch_gcu` on simulated cards: a module of that name, labelled as simulated, with the functions that programs written for
Enflame's cards call. Never where the vendor's own is installed."""
import os

from fulldeck.adapters import say_once

NAME = "torch_gcu"
FUNCTIONS = ("is_available", "device_count", "current_device", "set_device", "synchronize", "empty_cache")


def is_meant():
    """Whether the launcher gave this rank a simulated card of that kind. torch may not be there yet."""
    return (os.environ.get("FULLDECK_SIMULATE", "").partition(":")[0] == "gcu"
            and os.environ.get("FULLDECK_DEVICE", "").partition(":")[0] == "gcu")


class Simulated:
    """Loads the module. The attribute tells fulldeck.simulator that this is no vendor's."""

    fulldeck_simulated = True

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__doc__ = "Simulated by fulldeck (docs/simulated-accelerator.md): torch.gcu under the name of the vendor's module."
        module.__version__ = "0+simulated"
        module.__fulldeck_simulated__ = True
        import torch  # only now: the simulated cards, which come with it, must not take this module for the vendor's

        cards = torch.gcu
        for name in FUNCTIONS:
            setattr(module, name, getattr(cards, name))
        say_once("torch_gcu is not installed here: the program gets the module of the simulated cards")


def find():
    """A spec where nobody else has one."""
    if not is_meant():
        return None
    from importlib.machinery import ModuleSpec

    return ModuleSpec(NAME, Simulated(), origin="fulldeck")
