#!/usr/bin/env python3
"""A client written from proto/README.md alone: hello, one message, one turn of the rings.

Runs against the daemon in $KVPOOL_DIR, a real one or tests/client-lib/fake_kvpoold. No library of
ours, of ZeroMQ or of protobuf: what is said here is what the page says.
"""

import mmap
import os
import select
import socket
import struct

DIRECTORY = os.environ["KVPOOL_DIR"]


def hello(session):
    """Section 2. Returns (session id, token, boot id, endpoint, staging, daemon's and own eventfd)."""
    session.connect(DIRECTORY + "/session.sock")
    session.send(struct.pack("<IHHIIQQ16s", 0x4B565048, 1, 0, 0, 0, 1 << 20, 0, bytes(16)))
    packet, descriptors, _, _ = socket.recv_fds(session, 512, 3)
    (magic,) = struct.unpack_from("<I", packet)
    if magic == 0x4B565052:
        status, message = struct.unpack("<I256s", packet[8:268])
        raise SystemExit(f"refused: {status} {message.rstrip(bytes(1)).decode()}")
    assert magic == 0x4B565057 and len(packet) == 184 and len(descriptors) == 3
    boot_id, token, identity, staging_bytes, endpoint = struct.unpack("<16s16sQQ128s", packet[8:])
    staging = mmap.mmap(descriptors[0], staging_bytes)
    endpoint = endpoint.split(bytes(1))[0].decode()
    return identity, token, boot_id, endpoint, staging, descriptors[1], descriptors[2]


class Dealer:
    """ZMTP 3.0, mechanism NULL: what a ZeroMQ library would do."""

    def __init__(self, endpoint):
        assert endpoint.startswith("ipc://")
        self.stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.settimeout(10)
        self.stream.connect(endpoint[len("ipc://"):])
        greeting = bytes([0xFF]) + bytes(8) + bytes([0x7F, 3, 0]) + b"NULL".ljust(20, bytes(1))
        self.stream.sendall(greeting.ljust(64, bytes(1)))
        self.receive(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        self.stream.sendall(bytes([4, len(ready)]) + ready)
        flags, _ = self.frame()
        assert flags & 4

    def receive(self, count):
        data = b""
        while len(data) < count:
            piece = self.stream.recv(count - len(data))
            assert piece, "the daemon closed"
            data += piece
        return data

    def frame(self):
        (flags,) = self.receive(1)
        length = struct.unpack(">Q", self.receive(8))[0] if flags & 2 else self.receive(1)[0]
        return flags, self.receive(length)

    def ask(self, batch):
        self.stream.sendall(bytes([2]) + struct.pack(">Q", len(batch)) + batch)
        flags, body = self.frame()
        assert not flags & 1
        return body


def fields(message):
    """Protobuf, as much as replies need: yields (field number, value)."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 1:
            at += 8
            yield tag >> 3, struct.unpack_from("<Q", message, at - 8)[0]
        elif kind == 2:
            length = varint()
            at += length
            yield tag >> 3, message[at - length:at]
        else:
            raise ValueError(kind)


def messages(identity, token, boot_id, endpoint):
    """Sections 3 and 12: Match of the worked example, and Stats (field 29), in one batch."""
    match = bytes.fromhex("2a1d 090100000000000000 10e807 ca010e 0a0c 0801 1208 0500000007000000")
    stats = bytes.fromhex("2a0c 090200000000000000 ea0100")
    head = bytes.fromhex("0801 19") + struct.pack("<Q", identity) + bytes([0x22, 16]) + token
    dealer, waiting = Dealer(endpoint), {1, 2}
    batch = head + match + stats
    while waiting:
        body = dealer.ask(batch) if batch else dealer.frame()[1]
        batch = None
        for number, value in fields(body):
            if number == 1:
                assert value == boot_id
            if number != 4:
                continue
            reply = dict(fields(value))
            waiting.remove(reply[1])
            if reply[1] == 1:
                assert reply.get(2, 0) in (0, 1), reply  # 1: there is no model 1 yet
            else:
                assert reply.get(2, 0) == 0, reply
                assert dict(fields(reply[16]))[1].startswith(b"{")


def rings(staging, daemon_event, own_event):
    """Section 6: ends step 404, which there is not."""
    magic, version = struct.unpack_from("<II", staging)
    submissions, completions, _, _ = struct.unpack_from("<QQQQ", staging, 8)
    assert (magic, version) == (0x4B565347, 1)
    entry = struct.pack("<QIIQ", 77, 3, 4, 404).ljust(128, bytes(1))
    staging[submissions:submissions + 128] = entry
    struct.pack_into("<I", staging, 256 + 128, 1)  # armed: wake us
    struct.pack_into("<Q", staging, 64, 1)  # tail; of one thread and on x86 this is a release
    if struct.unpack_from("<I", staging, 64 + 128)[0]:
        struct.pack_into("<I", staging, 64 + 128, 0)
        os.write(daemon_event, struct.pack("<Q", 1))
    while struct.unpack_from("<Q", staging, 256)[0] == 0:
        assert select.select([own_event], [], [], 10)[0], "no completion"
    identity, status = struct.unpack_from("<QI", staging, completions)
    assert (identity, status) == (77, 1), (identity, status)
    struct.pack_into("<Q", staging, 256 + 64, 1)


def main():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        session.settimeout(10)
        identity, token, boot_id, endpoint, staging, daemon_event, own_event = hello(session)
        messages(identity, token, boot_id, endpoint)
        rings(staging, daemon_event, own_event)
    print("understood")


if __name__ == "__main__":
    main()
