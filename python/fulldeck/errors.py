"""What calls of fulldeck.collectives raise: one class for each code of include/fulldeck/collectives.h."""


class Error(RuntimeError):
    """A call failed. `code` is the number of the C interface; the text says what happened and what to do."""

    code = 0


class ArgumentError(Error, ValueError):
    """An impossible argument; nothing was sent, and the group is as it was."""

    code = -1


class NoMemory(Error):
    """Memory or descriptors cannot be had."""

    code = -2


class PeerLost(Error):
    """A member died or left the group. The group is of no more use."""

    code = -3


class TimedOut(Error, TimeoutError):
    """A member did not come in time; the text says who, and where each one is. The group is of no more use."""

    code = -4


class Mismatch(Error):
    """The members made different calls; the text says who called what. The group is of no more use."""

    code = -5


class Aborted(Error):
    """The group was aborted, here or on another member. It is of no more use."""

    code = -6


class Stranger(Error):
    """While meeting: another version, user, host or key."""

    code = -7


BY_CODE = {kind.code: kind for kind in (ArgumentError, NoMemory, PeerLost, TimedOut, Mismatch, Aborted, Stranger)}


def error_for(code, text):
    """The exception for what a call returned. A code that this version does not know is an Error."""
    error = BY_CODE.get(code, Error)(text or "a call failed with code {}".format(code))
    error.code = code
    return error
