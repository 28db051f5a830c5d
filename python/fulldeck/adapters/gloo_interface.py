"""The network interface that Gloo uses in a multi-node run. By default Gloo uses the address that the host name
resolves to. If that is a loopback address (Debian writes 127.0.1.1 into /etc/hosts) or does not resolve, ranks on other
nodes cannot reach it. Then GLOO_SOCKET_IFNAME is set to the interface that leads to MASTER_ADDR, unless it is already
set. docs/python.md"""
import fcntl
import ipaddress
import os
import socket
import struct

from fulldeck.adapters import say

VARIABLE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915


def choose():
    """Called before a group is created. Changes nothing if Gloo's own choice works, or if no route is known."""
    try:
        if os.environ.get(VARIABLE) or int(os.environ["WORLD_SIZE"]) <= int(os.environ["LOCAL_WORLD_SIZE"]):
            return
        taken = _address_of_own_name()
        if taken is not None and not taken.is_loopback:
            return
        address = _address_towards(os.environ["MASTER_ADDR"])
        name = None if address.is_loopback else _interface_with(address)
    except (KeyError, ValueError, OSError):
        return
    if name is not None:
        os.environ[VARIABLE] = name
        if os.environ.get("LOCAL_RANK") == "0":  # one line per node
            say("Gloo takes the interface {}, which leads to {}: this host's name, {}, leads to {}. {} chooses another".format(
                name, os.environ["MASTER_ADDR"], socket.gethostname(), taken or "no address", VARIABLE))


def _address_of_own_name():
    """As Gloo chooses it: the first address of the name that can be bound."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.bind(address)
                return ipaddress.ip_address(address[0].partition("%")[0])
        except OSError:
            continue
    return None


def _address_towards(host):
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.connect(address)  # a datagram socket: sends nothing
        return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0])


def _interface_with(address):
    if address.version == 6:
        with open("/proc/net/if_inet6") as lines:
            return next((fields[5] for fields in map(str.split, lines) if int(fields[0], 16) == int(address)), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # the interface has no address
                continue
            if answer[20:24] == address.packed:
                return name
    return None
