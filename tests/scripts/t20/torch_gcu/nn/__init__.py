from torch_gcu.nn import parallel  # noqa: F401
