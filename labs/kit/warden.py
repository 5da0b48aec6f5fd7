"""The warden: a process that runs one command under limits, kills everything it leaves behind, and reports.

`isolated.py` starts one warden for each command. The request is a JSON object on the standard input (the fields of
`isolated.Limits`, and `command`, `directory`, `environment`, `scratch`, `cover`, `show`), the reply one on the standard
output. A process of its own has three advantages: it adopts orphans of the command, the grader's memory is not
touched by the command's output, and everything ends when the grader does.
"""

import contextlib
import errno
import fcntl
import json
import os
import pwd
import resource
import selectors
import signal
import stat
import sys
import time
from pathlib import Path

from kit import namespaces
from kit.namespaces import PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl

# User ids that neither Debian nor systemd gives to anyone (systemd, "Users, Groups, UIDs and GIDs": 60706 to 61183).
FIRST_UID, LAST_UID = 60800, 60863
LOCKS = Path("/run/stagegpt-grader")
LOOK_SECONDS = 0.1  # between two looks at the memory and the files of the command
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KEPT_BYTES = 32 << 10  # of the output: this much from its beginning and from its end


class OutputKeeper:
    """The beginning and the end of an output of any length, in bounded memory."""

    def __init__(self) -> None:
        self.head, self.tail, self.total = b"", b"", 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = KEPT_BYTES - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-KEPT_BYTES:]

    def text(self) -> str:
        left_out = self.total - len(self.head) - len(self.tail)
        gap = f"\n[... {left_out} bytes are left out ...]\n".encode() if left_out > 0 else b""
        return (self.head + gap + self.tail).decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def claim_uid() -> int | None:
    """A user id that no process has, locked until this process ends; None unless this is root and has several."""
    if os.geteuid() != 0 or not any(
            int(first) <= FIRST_UID and LAST_UID < int(first) + int(count)
            for first, _, count in map(str.split, Path("/proc/self/uid_map").read_text().splitlines())):
        return None
    LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    used = {owner for _, owner in processes()}
    for uid in range(FIRST_UID, LAST_UID + 1):
        with contextlib.suppress(KeyError):
            pwd.getpwuid(uid)
            continue
        lock = os.open(LOCKS / str(uid), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)  # open until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        if uid not in used:
            return uid
        os.close(lock)
    raise RuntimeError(f"all user ids from {FIRST_UID} to {LAST_UID} are in use")


def processes() -> list[tuple[int, int]]:
    """All processes of the machine, as (pid, uid)."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.append((int(entry.name), entry.stat(follow_symlinks=False).st_uid))
    return found


def descendants() -> list[int]:
    """All processes below this one. Orphans are among them, because this process adopts them."""
    children: dict[int, list[int]] = {}
    for pid, _ in processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text()
            children.setdefault(int(fields.rpartition(")")[2].split()[1]), []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def set_limits(request: dict, shares_user: bool) -> None:
    threads = request["processes"]
    if shares_user:  # the kernel counts all of this user's threads, also those outside the command
        threads += sum(len(os.listdir(f"/proc/{pid}/task")) for pid, uid in processes()
                       if uid == os.getuid() and os.path.exists(f"/proc/{pid}/task"))
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: request["memory_bytes"],
              resource.RLIMIT_FSIZE: request["file_bytes"], resource.RLIMIT_NPROC: threads,
              resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_MEMLOCK: 8 << 20}
    for name, limit in limits.items():
        hard = resource.getrlimit(name)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(name, (value, value))


class Case:
    """The command and all processes that it starts."""

    def __init__(self, request: dict):
        self.request = request
        self.scratch = Path(request["scratch"])
        self.output = OutputKeeper()
        self.stopped: str | None = None  # "time", "memory", "output", "disk": why it was killed
        self.peak = 0
        self.status: int | None = None
        self.uid = claim_uid()
        self.began = time.monotonic()

    def start(self) -> None:
        if self.uid is not None:
            os.chown(self.scratch, self.uid, self.uid)
            for path in self.request["own"]:
                hand_over(path, self.uid)
        self.pipe, output_end = os.pipe()
        report, report_end = os.pipe()  # what the child says before exec
        self.pid = os.fork()
        if self.pid == 0:
            self.become_command(output_end, report_end)
        os.close(output_end)
        os.close(report_end)
        with open(report, "rb") as said:
            self.child = json.loads(said.read() or b"{}")

    def become_command(self, output_end: int, report_end: int) -> None:
        """In the child: gives up all rights, then executes the command."""
        said: dict = {}
        try:
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(output_end, 1)
            os.dup2(output_end, 2)
            said |= namespaces.separate(cover=self.request["cover"], show=self.request["show"])
            if self.uid is None:  # otherwise all processes of the user are killed
                said["processes"] = namespaces.separate_processes(report_end)
            set_limits(self.request, self.uid is None)
            if self.uid is not None:
                os.setgroups([])
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.umask(0o022)
            os.chdir(self.request["directory"])
            environment = self.request["environment"] | {"HOME": str(self.scratch)}
            environment["TMPDIR"] = "/tmp" if said["files"] else str(self.scratch)
            os.write(report_end, json.dumps(said).encode())
            os.execvpe(self.request["command"][0], self.request["command"], environment)
        except BaseException as error:  # noqa: BLE001  nothing may return from here
            os.write(2, f"{self.request['command'][0]}: {error}\n".encode())
        finally:
            os._exit(127)

    def watch(self) -> None:
        """Reads the output and looks at memory and files until the command ends or exceeds a limit."""
        watched = selectors.DefaultSelector()
        watched.register(self.pipe, selectors.EVENT_READ)
        handle = os.pidfd_open(self.pid)
        watched.register(handle, selectors.EVENT_READ)
        end = self.began + self.request["seconds"]
        look = self.began
        while not self.stopped:
            ready = {key.fd for key, _ in watched.select(max(0, min(LOOK_SECONDS, end - time.monotonic())))}
            if self.pipe in ready and not self.read():
                watched.unregister(self.pipe)
            if handle in ready:
                return
            if time.monotonic() >= end:
                self.stopped = "time"
            elif time.monotonic() >= look:
                self.look()
                look = time.monotonic() + LOOK_SECONDS

    def read(self) -> bool:
        data = os.read(self.pipe, 1 << 16)
        self.output.add(data)
        if self.output.total > self.request["output_bytes"]:
            self.stopped = "output"
        return bool(data)

    def look(self) -> None:
        used = sum(resident_bytes(pid) for pid in self.members())
        self.peak = max(self.peak, used)
        if used > self.request["memory_bytes"]:
            self.stopped = "memory"
        elif stored_bytes(self.scratch) > self.request["disk_bytes"]:
            self.stopped = "disk"

    def members(self) -> list[int]:
        if self.uid is None:
            return descendants()
        return [pid for pid, uid in processes() if uid == self.uid]

    def kill(self) -> None:
        """Kills all processes of the command, also those that have left its group."""
        self.reap()
        end = time.monotonic() + 10
        while (members := self.members()) and time.monotonic() < end:
            if self.uid is not None:
                kill_all_of(self.uid)
            else:
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self.reap()

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self.status = status

    def drain(self) -> None:
        """Reads what is still in the pipe; nobody writes any more."""
        os.set_blocking(self.pipe, False)
        with contextlib.suppress(BlockingIOError):
            while self.output.total <= self.request["output_bytes"] and self.read():
                pass

    def reply(self) -> dict:
        code = 127 if self.status is None else self.status
        signalled = os.WIFSIGNALED(code)
        return {"exit_code": None if signalled else os.WEXITSTATUS(code),
                "signal": os.WTERMSIG(code) if signalled else None, "stopped": self.stopped,
                "seconds": self.seconds, "output": self.output.text(), "output_bytes": self.output.total,
                "peak_bytes": self.peak,
                "isolation": {"user": self.uid is not None, **self.child}}

    def run(self) -> dict:
        try:
            self.start()
            self.watch()
        finally:
            for number in STOPPING:
                signal.signal(number, signal.SIG_IGN)
            self.seconds = time.monotonic() - self.began
            self.kill()
            if self.uid is not None:
                os.chown(self.scratch, 0, 0)  # the next command may have the same user id
                for path in self.request["own"]:
                    hand_over(path, 0)
        self.drain()
        return self.reply()


def hand_over(path: str, uid: int) -> None:
    """Gives a directory and what is in it to a user, without following links. A file with a second name may lie
    elsewhere too: it is left out."""
    for directory, names, files in os.walk(path):
        os.lchown(directory, uid, uid)
        for name in [*names, *files]:
            entry = os.path.join(directory, name)
            found = os.lstat(entry)
            if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
                os.lchown(entry, uid, uid)


def kill_all_of(uid: int) -> None:
    """Kills all processes of a user at once, so that none can fork in between."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            # Never as another user: it would kill that user's processes.
            if FIRST_UID <= uid <= LAST_UID and os.getresuid() == (uid, uid, uid):
                os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def stored_bytes(directory: Path) -> int:
    """Bytes on the disk below a directory. More than 10,000 files and directories, or deeper ones than a path can name, are
    too many in any case."""
    too_many = 1 << 60
    total = entries = 0
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > 10_000:
                        return too_many
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return too_many
    return total


def main() -> None:
    request = json.load(sys.stdin)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in STOPPING:
        signal.signal(number, lambda *_: sys.exit(1))  # Case.run kills the command on its way out
    if os.getppid() != request["grader"]:
        return  # the grader has ended already
    json.dump(Case(request).run(), sys.stdout)


if __name__ == "__main__":
    main()
