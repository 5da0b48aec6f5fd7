#!/usr/bin/env python3
"""The link of a node of cluster.sh, delayed: forwards Ethernet frames between two devices, and holds each that leaves the node.

    scripts/cluster/delay.py PORT PID MICROSECONDS READY

Creates the tap device PORT here, and eth0 in the network of the process PID. A frame from eth0 reaches PORT after MICROSECONDS, in
order; one in the other direction passes at once. When both devices exist, the file READY is created. Runs until it is killed.
For kernels without netem. Frames may be as large as 64 KiB, as between two ends of a veth (Linux: tuntap.rst, virtio_net.h).
"""

import ctypes
import fcntl
import os
import select
import struct
import sys
from collections import deque
from pathlib import Path
from time import monotonic_ns

# <linux/if_tun.h>, <sched.h>, <linux/prctl.h>
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 = 1, 2, 4
CLONE_NEWNET, PR_SET_TIMERSLACK = 0x40000000, 29
LARGEST_FRAME = 10 + 14 + 65535  # the headers of virtio and Ethernet, and an IP packet
FRAMES_IN_TURN = 32
MOST_HELD = 256 << 20  # bytes; more than a second at 1 Gb/s


def tap(name: str) -> int:
    """The descriptor of a new tap device, which accepts segments that no hardware has cut and no checksum was computed for."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(descriptor, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)
    return descriptor


def enter_network(libc: ctypes.CDLL, pid: str) -> None:
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network of process {pid}")


def frames(descriptor: int):
    """The frames that have arrived, at most FRAMES_IN_TURN."""
    for _ in range(FRAMES_IN_TURN):
        try:
            yield os.read(descriptor, LARGEST_FRAME)
        except OSError:  # no more, or the device is down
            return


def pass_on(descriptor: int, frame: bytes) -> None:
    try:
        os.write(descriptor, frame)
    except OSError:  # the device is down, or its queue is full: as on a real link, the frame is lost
        pass


def forward(node: int, port: int, delay_ns: int) -> None:
    held: deque[tuple[int, bytes]] = deque()  # with the time at which a frame is due
    held_bytes = 0
    while True:
        wait = max(0, held[0][0] - monotonic_ns()) / 1e9 if held else None
        readable, _, _ = select.select([node, port], [], [], wait)
        if node in readable:
            due = monotonic_ns() + delay_ns
            for frame in frames(node):
                if held_bytes < MOST_HELD:
                    held.append((due, frame))
                    held_bytes += len(frame)
        if port in readable:
            for frame in frames(port):
                pass_on(node, frame)
        while held and held[0][0] <= monotonic_ns():
            frame = held.popleft()[1]
            held_bytes -= len(frame)
            pass_on(port, frame)


def main() -> None:
    name, pid, microseconds, ready = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # else select() may wait 50 µs longer than told
    port = tap(name)
    enter_network(libc, pid)
    node = tap("eth0")
    Path(ready).touch()
    forward(node, port, round(1000 * float(microseconds)))


if __name__ == "__main__":
    main()
