"""Called by torch at the end of `import torch` (entry point group `torch.backends`). Registers the name "fulldeck" with
torch.distributed; everything else waits until a group with that name is created. Only if FULLDECK_SIMULATE or
FULLDECK_TORCH_PLUGIN requests a device does it also load the simulated cards or a vendor's library.

An exception here would make `import torch` fail for every user of this environment. So no exception escapes, and
nothing that may be broken is imported: not even the package. The module is outside the package, because a user's script
named fulldeck.py would otherwise be imported instead.
"""
NAME = "fulldeck"
DEVICES = ["cpu", "cuda", "privateuseone"]
# Why the name could not be registered, if so; for debugging only.
failure = None
# The same for the requested devices; fulldeck.simulator.failure has the details.
plugin_failure = None


def register():
    """Called by torch. Never raises."""
    global failure, plugin_failure
    try:
        register_backend()
        failure = None
    except Exception as error:
        failure = error
    try:
        load_plugins()
    except Exception as error:
        plugin_failure = error


def load_plugins():
    """Loads the simulated cards and other plugins that bring torch a device. Imports fulldeck.simulator only if one is
    requested."""
    import os

    if os.environ.get("FULLDECK_SIMULATE") or os.environ.get("FULLDECK_TORCH_PLUGIN"):
        package("fulldeck.simulator").load_plugins()


def register_backend():
    """Does nothing if the name is already registered, or if torch was built without torch.distributed."""
    import torch.distributed

    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    if NAME.upper() in getattr(backend, "_plugins", {}):
        return
    defaults = dict(backend.default_device_backend_map)
    backend.register_backend(NAME, create, extended_api=True, devices=list(DEVICES))
    # torch makes the first backend that names a device its default. Choosing this backend is up to the user.
    for device in DEVICES:
        if device not in defaults and backend.default_device_backend_map.get(device) == NAME:
            del backend.default_device_backend_map[device]


def create(options, group_options=None):
    """Called by torch when a group is created."""
    return package("fulldeck.backend").create(options, group_options)


def package(module):
    """A module of the package next to this module. A user's fulldeck.py earlier on the path is neither executed nor
    mistaken for it."""
    import importlib
    import importlib.util
    import os
    import sys

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fulldeck")
    try:
        found = sys.modules.get("fulldeck")
        if found is None:
            spec = importlib.util.spec_from_file_location("fulldeck", os.path.join(folder, "__init__.py"),
                                                          submodule_search_locations=[folder])
            found = sys.modules["fulldeck"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
        where = getattr(found, "__file__", None) or str(found)
        if os.path.realpath(os.path.dirname(where)) == os.path.realpath(folder):
            return importlib.import_module(module)
    except (ImportError, OSError) as error:
        sys.modules.pop("fulldeck", None)
        raise RuntimeError("fulldeck: the Python package in {} is damaged: {}. Install it again.".format(folder, error)) from error
    raise RuntimeError("fulldeck: the module 'fulldeck' of this program is {}, so that the package in {} cannot be loaded. "
                       "Rename the first one.".format(where, folder))
