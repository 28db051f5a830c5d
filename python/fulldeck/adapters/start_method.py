"""The default start method of multiprocessing in a Python rank: fulldeck run --mp-start-method. The program's own
choice wins: only the default is replaced, so a later set_start_method does not find a method already set."""
import os

VARIABLE = "FULLDECK_MP_START_METHOD"


def adapt(multiprocessing):
    requested = os.environ.get(VARIABLE)
    if not requested:
        return None
    if requested not in multiprocessing.get_all_start_methods():
        raise ValueError("{}={}: this Python has {}".format(VARIABLE, requested, ", ".join(multiprocessing.get_all_start_methods())))
    default = multiprocessing.context._default_context
    if default._actual_context is not None:  # the program chose before this was imported
        return None
    default._default_context = multiprocessing.get_context(requested)
    return "children start by {}".format(requested)
