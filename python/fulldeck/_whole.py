"""Checks that a library file is complete. The loader maps a truncated file (a full disk, a failed copy) as if it were
complete, and the process dies silently when it touches the missing part."""
import os
import struct


def check_whole(path):
    """Raises OSError unless `path` is a 64-bit ELF file in this machine's byte order that contains everything its
    headers refer to."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            raise OSError("{} is no library: it has {} bytes and does not begin like one".format(path, size))
        segments_at, sections_at = struct.unpack_from("=QQ", head, 32)
        segment_bytes, segments, section_bytes, sections = struct.unpack_from("=HHHH", head, 54)
        needed = max(segments_at + segment_bytes * segments, sections_at + section_bytes * sections)
        file.seek(segments_at)
        table = file.read(segment_bytes * segments)
    if segment_bytes >= 56 and len(table) == segment_bytes * segments:
        for number in range(segments):
            offset, = struct.unpack_from("=Q", table, number * segment_bytes + 8)
            length, = struct.unpack_from("=Q", table, number * segment_bytes + 32)
            needed = max(needed, offset + length)
    if needed > size:
        raise OSError("{} was cut short: {} of {} bytes are there".format(path, size, needed))
