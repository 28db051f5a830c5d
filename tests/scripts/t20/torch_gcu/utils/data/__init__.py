from torch_gcu.utils.data import distributed  # noqa: F401
