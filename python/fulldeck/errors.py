"""Exceptions of fulldeck.collectives: one class for each error code of include/fulldeck/collectives.h."""


class Error(RuntimeError):
    """A call failed. `code` is the number in the C interface; the text says what happened and how to fix it."""

    code = 0


class ArgumentError(Error, ValueError):
    """An invalid argument; nothing was sent, and the group remains usable."""

    code = -1


class NoMemory(Error):
    """Memory or descriptors could not be allocated."""

    code = -2


class PeerLost(Error):
    """A member died or left the group. The group is no longer usable."""

    code = -3


class TimedOut(Error, TimeoutError):
    """A member did not arrive in time; the text names it and where each member is. The group is no longer usable."""

    code = -4


class Mismatch(Error):
    """The members made different calls; the text names the calls. The group is no longer usable."""

    code = -5


class Aborted(Error):
    """The group was aborted, here or on another member. It is no longer usable."""

    code = -6


class Stranger(Error):
    """During rendezvous: a different version, user, node or key."""

    code = -7


BY_CODE = {kind.code: kind for kind in (ArgumentError, NoMemory, PeerLost, TimedOut, Mismatch, Aborted, Stranger)}


def error_for(code, text):
    """The exception for a return code. A code that this version does not know yields an Error."""
    error = BY_CODE.get(code, Error)(text or "a call failed with code {}".format(code))
    error.code = code
    return error
