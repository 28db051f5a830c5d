from torch_gcu.utils import data  # noqa: F401
