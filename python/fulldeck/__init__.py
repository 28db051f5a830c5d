"""The Python package of fulldeck: the backend "fulldeck" of torch.distributed, and the collectives without torch.

    import torch.distributed
    torch.distributed.init_process_group("fulldeck")        # needs no import of fulldeck

    from fulldeck.collectives import Group                  # numpy arrays and plain buffers, no torch
    with Group.from_environment() as group:
        group.all_reduce(array)

Importing this package loads no library and no other module. docs/python-package.md
"""

__version__ = "0.1.0"
