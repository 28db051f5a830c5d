"""What torch calls at the end of `import torch` (entry point group `torch.backends`): the name "fulldeck" is made known to
torch.distributed, and nothing else happens until a group of that name is made. Only where FULLDECK_SIMULATE or FULLDECK_TORCH_PLUGIN
asks for a device are the simulated cards, or a vendor's library, loaded too.

An exception here would make `import torch` fail for everybody who shares this environment, so nothing gets out, and nothing
is imported that might be broken: not even the package. The module stands outside of it, because a script of the user's that
is called fulldeck.py would otherwise be imported in its place.
"""
NAME = "fulldeck"
DEVICES = ["cpu", "cuda", "privateuseone"]
# Why the name could not be made known, if it could not; for people who look.
failure = None
# The same of the devices that were asked for; fulldeck.simulator.failure says more.
plugin_failure = None


def register():
    """Called by torch. Returns in every case."""
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
    """The simulated cards, and what else brings torch a device: fulldeck.simulator, which is imported only where it is asked for."""
    import os

    if os.environ.get("FULLDECK_SIMULATE") or os.environ.get("FULLDECK_TORCH_PLUGIN"):
        package("fulldeck.simulator").load_plugins()


def register_backend():
    """Does nothing where it is known already, or where torch was built without torch.distributed."""
    import torch.distributed

    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    if NAME.upper() in getattr(backend, "_plugins", {}):
        return
    defaults = dict(backend.default_device_backend_map)
    backend.register_backend(NAME, create, extended_api=True, devices=list(DEVICES))
    # torch takes the first backend that names a device for its default. It is the user's to choose ours.
    for device in DEVICES:
        if device not in defaults and backend.default_device_backend_map.get(device) == NAME:
            del backend.default_device_backend_map[device]


def create(options, group_options=None):
    """Called by torch when a group is made."""
    return package("fulldeck.backend").create(options, group_options)


def package(module):
    """A module of the package beside this module. A fulldeck.py of the user's further up on the path is neither run
    nor taken for it."""
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
