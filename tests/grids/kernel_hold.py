"""A file whose reader the kernel blocks: on SIGKILL it enters state D and stays there, as with a dead network disk or a
driver.

A FUSE file system whose server reads a request and never responds: from then on the caller waits uninterruptibly, on
cgroup v1 and v2, until the server disappears. Needs root and /dev/fuse; does not use libfuse."""
import contextlib
import ctypes
import os
import stat
import struct
import threading

FUSE_LOOKUP, FUSE_GETATTR, FUSE_INIT = 1, 3, 26
HEADER = struct.Struct("<IIQQIIII")   # length, operation, unique, node, uid, gid, pid, padding
ANSWER = struct.Struct("<IiQ")        # length, error, unique
INIT = struct.Struct("<IIIIHHIIHHII")  # of protocol 7.23 and later, followed by 28 bytes of zeros
ENOENT = 2
NAME = b"held"


def why_not():
    """Why no such file can be created here; empty if it can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return "/dev/fuse cannot be opened: %s" % error.strerror
    return None


class Server(threading.Thread):
    """Responds to what a mount needs, and swallows the lookup of NAME."""

    def __init__(self, descriptor):
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self.holding = threading.Event()

    def run(self):
        while True:
            try:
                request = os.read(self._descriptor, 1 << 18)
            except OSError:
                return  # unmounted or aborted
            _, operation, unique, _, _, _, _, _ = HEADER.unpack_from(request)
            body = request[HEADER.size:]
            if operation == FUSE_INIT:
                major, minor = struct.unpack_from("<II", body)
                self._answer(unique, INIT.pack(major, min(minor, 31), 0, 0, 0, 0, 4096, 1, 0, 0, 0, 0)[:36] + bytes(28))
            elif operation == FUSE_GETATTR:
                self._answer(unique, struct.pack("<QII", 1, 0, 0) + self._folder())
            elif operation == FUSE_LOOKUP and body.rstrip(b"\0") == NAME:
                self.holding.set()
            else:
                self._answer(unique, b"", -ENOENT)

    def _answer(self, unique, payload, error=0):
        with contextlib.suppress(OSError):
            os.write(self._descriptor, ANSWER.pack(ANSWER.size + len(payload), error, unique) + payload)

    @staticmethod
    def _folder():
        """struct fuse_attr of the root."""
        return struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 4096, 0)


@contextlib.contextmanager
def held_file(folder):
    """Yields (path, event): a process that opens or stats the path is blocked from the moment the event is set to the
    end of the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % descriptor
    if libc.mount(b"fulldeck-test", os.fsencode(folder), b"fuse", 6, options.encode()) != 0:  # MS_NOSUID | MS_NODEV
        error = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(error, "mount of fuse at " + folder)
    server = Server(descriptor)
    server.start()
    try:
        yield os.path.join(folder, NAME.decode()), server.holding
    finally:
        # MNT_FORCE aborts the connection: blocked processes get an error, and their SIGKILL.
        libc.umount2(os.fsencode(folder), 1 | 2)
        server.join(10)
        os.close(descriptor)
