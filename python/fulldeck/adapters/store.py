"""Makes torch's own store of a single-node run listen only on the loopback address: docs/several-hosts.md

In `init_process_group`, rank 0 hosts a TCPStore, which torch opens on every interface without any access control:
anyone who can reach the port can read and change what the ranks agree on. A single-node run has a loopback address, so
rank 0 gives the store a socket that is bound to it."""
import functools
import importlib
import ipaddress
import socket

from fulldeck.adapters import say_once

# Parameters of torch's TCPStore, in order; torch 2.3 and older pass them by position.
PARAMETERS = ("host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers", "multi_tenant", "master_listen_fd", "use_libuv")


def adapt(torch):
    if not torch.distributed.is_available():
        return None
    # torch.distributed has a function with the module's name.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    real = rendezvous.TCPStore

    @functools.wraps(real, updated=())
    def tcp_store(*arguments, **named):
        requested = dict(zip(PARAMETERS, arguments), **named)
        host, port = requested.get("host_name"), requested.get("port")
        if len(arguments) > len(PARAMETERS) or not requested.get("is_master") or not is_loopback(host) or "master_listen_fd" in requested:
            return real(*arguments, **named)
        listener = listen(port)
        if listener is None:  # in use, for example by an earlier store of this process: torch handles or reports it
            return real(*arguments, **named)
        try:
            store = real(master_listen_fd=listener.fileno(), **requested)
        except TypeError:  # a torch whose store does not accept a socket
            listener.close()
            say_once("warning: the store of this torch listens on every interface of this node, port {}, without access control; "
                     "close that port to other nodes".format(port))
            return real(*arguments, **named)
        except Exception:
            listener.close()
            raise
        listener.detach()  # the store closes it
        return store

    rendezvous.TCPStore = tcp_store
    return None


def is_loopback(host):
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(str(host)) in ipaddress.ip_network("127.0.0.0/8")
    except ValueError:
        return False


def listen(port):
    """A socket that listens on that port of 127.0.0.1; None if that fails."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # The launcher reserves the port for this rank with a socket that is bound but does not listen.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
        return listener
    except OSError:
        listener.close()
        return None
