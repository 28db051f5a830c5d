"""`import torch_gcu` on simulated cards: a module of that name, marked as simulated, with the functions that programs
written for Enflame's cards call. Never used if the vendor's own module is installed."""
import os

from fulldeck.adapters import say_once

NAME = "torch_gcu"
FUNCTIONS = ("is_available", "device_count", "current_device", "set_device", "synchronize", "empty_cache")


def is_meant():
    """Whether the launcher gave this rank a simulated card of that kind. torch may not be imported yet."""
    return (os.environ.get("FULLDECK_SIMULATE", "").partition(":")[0] == "gcu"
            and os.environ.get("FULLDECK_DEVICE", "").partition(":")[0] == "gcu")


class Simulated:
    """Loads the module. The attribute shows fulldeck.simulator that it is not the vendor's."""

    fulldeck_simulated = True

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__doc__ = "Simulated by fulldeck (docs/simulated-accelerator.md): torch.gcu under the name of the vendor's module."
        module.__version__ = "0+simulated"
        module.__fulldeck_simulated__ = True
        import torch  # only now: the simulated cards, which it loads, must not mistake this module for the vendor's

        cards = torch.gcu
        for name in FUNCTIONS:
            setattr(module, name, getattr(cards, name))
        say_once("torch_gcu is not installed here: the program gets the module of the simulated cards")


def find():
    """A spec if no other finder has one."""
    if not is_meant():
        return None
    from importlib.machinery import ModuleSpec

    return ModuleSpec(NAME, Simulated(), origin="fulldeck")
