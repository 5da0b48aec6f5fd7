"""A command's own view of the machine: no network, empty temporary directories, and directories that it cannot see.

Linux only. Each part that the kernel refuses (a container without the capability, user namespaces switched off) is left
out, and the answer says so.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38  # <linux/prctl.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000  # <sched.h>
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18  # <sys/mount.h>
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # <linux/sockios.h>, <net/if.h>

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
TEMPORARY_BYTES = 512 << 20  # of each of them

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def separate(cover: list[str], show: list[str]) -> dict[str, bool]:
    """Gives this process a network without devices and its own mounts: temporary directories and those in `cover` are
    empty, except that the directories in `show` stay visible. Answers what the kernel allowed."""
    if os.geteuid() != 0 and not _may_have_a_user_namespace():
        return {"network": False, "files": False}
    if os.geteuid() != 0:
        _enter_user_namespace()
    return {"network": _own_network(), "files": _own_files(cover, show)}


def separate_processes(pipe: int) -> bool:
    """Goes on in a process that sees and reaches only its own descendants, and all of them end with it. Three processes
    take part: this one, which ends as the command does; the first one of the namespace, which reaps orphans; and the
    command, in which the call returns. The first two close `pipe`. False: the kernel does not allow it."""
    if not _unshare(CLONE_NEWPID):
        return False
    status_pipe, status_end = os.pipe()
    first = os.fork()
    if first != 0:
        os.close(pipe)
        os.close(status_end)
        status = os.read(status_pipe, 8)
        os.waitpid(first, 0)
        _end_like(int.from_bytes(status, "little") if status else signal.SIGKILL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    command = os.fork()
    if command != 0:
        os.close(pipe)
        reaped, status = os.wait()
        while reaped != command:
            reaped, status = os.wait()
        os.write(status_end, status.to_bytes(8, "little"))
        os._exit(0)  # ends all processes of the namespace
    return True


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _unshare(what: int) -> bool:
    return _libc.unshare(what) == 0


def _enter_user_namespace() -> None:
    """An ordinary user may separate only what belongs to a user namespace of his own."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(CLONE_NEWUSER))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _may_have_a_user_namespace() -> bool:
    """Tried in another process: where the map of users is refused (AppArmor), the namespace cannot be left."""
    child = os.fork()
    if child == 0:
        try:
            _enter_user_namespace()
            os._exit(0)
        except OSError:
            pass
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _own_network() -> bool:
    if not _unshare(CLONE_NEWNET):
        return False
    try:  # ranks talk over the loopback device
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sh14x", b"lo", 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    except OSError:
        pass
    return True


def _own_files(cover: list[str], show: list[str]) -> bool:
    if not _unshare(CLONE_NEWNS | CLONE_NEWIPC) or not _mount_is_allowed():
        return False
    covered = [os.path.realpath(path) for path in cover if os.path.isdir(path)]
    temporary = [path for path in TEMPORARY if os.path.isdir(path)]
    shown = [(os.open(path, os.O_PATH | os.O_DIRECTORY), os.path.realpath(path)) for path in show]
    for path in temporary:
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"size={TEMPORARY_BYTES},mode=1777")
    for path in covered:
        if os.path.isdir(path):  # otherwise it lies below another one
            _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=755")
    for handle, path in shown:
        if any(os.path.commonpath([path, hidden]) == hidden for hidden in [*temporary, *covered]):
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{handle}", path, None, MS_BIND, None)
        os.close(handle)
    return True


def _mount_is_allowed() -> bool:
    """Keeps the mounts that follow from the rest of the machine."""
    return _libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None) == 0


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    _check(_libc.mount(*[text.encode() if text else None for text in (source, target, kind)], ctypes.c_ulong(flags),
                       data.encode() if data else None))
