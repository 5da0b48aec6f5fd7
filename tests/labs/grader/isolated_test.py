"""Commands that hang, crash, use too much or cheat: how each one ends. No command here can hurt this machine: the fork
bomb stops by itself after 300 forks, memory and output are limited first."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

LABS = Path(__file__).resolve().parents[3] / "labs"
sys.path.insert(0, str(LABS))

from kit import isolated  # noqa: E402
from kit.isolated import MIB, Finished, Limits, Place  # noqa: E402

LIMITS = {"seconds": 5, "memory_bytes": 256 * MIB, "processes": 64}
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
ROOT = os.geteuid() == 0


class IsolatedTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="isolated-test-"))
        self.top.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.scratch = self.top / "scratch"

    def sh(self, script: str, cover: list[Path] = (), **limits) -> Finished:
        return isolated.run(["sh", "-c", script], Place(self.scratch, cover=list(cover)), Limits(**(LIMITS | limits)))

    def python(self, script: str, **limits) -> Finished:
        return isolated.run([PYTHON, "-c", textwrap.dedent(script)], Place(self.scratch), Limits(**(LIMITS | limits)))

    def expect(self, finished: Finished, status: str, message: str) -> None:
        self.assertEqual((finished.status, finished.message), (status, message), finished.output)

    def expect_gone(self, file: str) -> None:
        """The process whose number was written to a file in the scratch directory has ended."""
        command = Path(f"/proc/{(self.scratch / file).read_text().strip()}/cmdline")
        self.assertFalse(command.exists() and b"sleep" in command.read_bytes())

    # How a command ends.

    def test_success(self) -> None:
        finished = self.sh("echo done")
        self.expect(finished, "passed", "")
        self.assertEqual(finished.output, "done\n")

    def test_failure(self) -> None:
        self.expect(self.sh("exit 3"), "failed", "exit code 3")
        self.expect(self.sh("echo one; echo 'ring.cpp: error: two' >&2; exit 1"), "failed", "ring.cpp: error: two")

    def test_failure_that_the_program_explains(self) -> None:
        self.expect(self.sh("echo 'nano: 2 layers'; echo 'sh: --steps: expected a number' >&2; echo bye; exit 2"), "failed",
                    "sh: --steps: expected a number")

    def test_crash_by_a_signal(self) -> None:
        self.expect(self.sh("kill -SEGV $$"), "crashed", "SIGSEGV (Segmentation fault)")
        self.expect(self.sh("echo '    at ring.cpp:12 in sent()'; kill -ABRT $$"), "crashed",
                    "SIGABRT (Aborted); at ring.cpp:12 in sent()")

    def test_crash_of_a_rank(self) -> None:
        self.expect(self.sh("echo 'mpirun noticed that process rank 1 with PID 0 on node a exited on signal 11 (Segmentation "
                            "fault).'; exit 139"), "crashed", "rank 1: SIGSEGV (Segmentation fault)")

    def test_endless_loop(self) -> None:
        self.expect(self.sh("while :; do :; done", seconds=0.5), "hung", "did not end within 0.5 s")

    def test_hang_that_ignores_signals_and_closes_its_output(self) -> None:
        finished = self.sh("trap '' TERM INT HUP; exec >/dev/null 2>&1; while :; do sleep 60; done", seconds=0.5)
        self.expect(finished, "hung", "did not end within 0.5 s")

    def test_hang_that_the_watchdog_reports(self) -> None:
        line = 'stage1_train: rank 2 has been in "gradients" for 20 s (--watchdog-seconds): ending all ranks'
        self.expect(self.sh(f"echo '{line}' >&2; exit 1"), "hung", 'rank 2 has been in "gradients" for 20 s')

    def test_crash_in_a_kernel(self) -> None:
        line = "kernel tree_sum<float, 4>, block (0,0,0), thread (3,0,0): reads part[256], beyond its 256 elements"
        self.expect(self.sh(f"echo '{line}'; kill -ABRT $$"), "crashed", f"SIGABRT (Aborted); {line}")

    # What it leaves behind.

    def test_children_of_a_command_that_has_ended(self) -> None:
        finished = self.sh("sleep 77 & echo $! >child; echo done")
        self.expect(finished, "passed", "")
        self.expect_gone("child")

    def test_double_forked_children_in_another_session(self) -> None:
        finished = self.sh("(setsid sh -c 'echo $$ >child; exec sleep 77' &) ; sleep 60", seconds=0.7)
        self.assertEqual(finished.status, "hung")
        self.expect_gone("child")

    def test_fork_bomb(self) -> None:
        """It stops after 300 forks by itself, and is allowed 40 processes."""
        finished = self.python("""
            import os, time
            forked = refused = 0
            for _ in range(300):
                try:
                    if os.fork() == 0:
                        time.sleep(30)
                        os._exit(0)
                    forked += 1
                except OSError:
                    refused += 1
            print(f"{forked} {refused}", flush=True)
            time.sleep(30)""", processes=40, seconds=2)
        self.assertEqual(finished.status, "hung")
        forked, refused = map(int, finished.output.split())
        self.assertEqual(forked + refused, 300)
        self.assertLess(forked, 60)
        self.assertEqual(subprocess.run(["pgrep", "-fc", "forked = refused = 0"], capture_output=True).stdout.strip(), b"0")

    def test_end_of_the_grader(self) -> None:
        script = (f"import sys; sys.path.insert(0, {str(LABS)!r}); from kit import isolated; from pathlib import Path; "
                  f"isolated.run(['sh', '-c', 'echo $$ >pid; exec sleep 77'], isolated.Place(Path({str(self.scratch)!r})))")
        grader = subprocess.Popen([sys.executable, "-c", script])
        pid = self.scratch / "pid"
        for _ in range(100):
            if pid.exists() and pid.read_text().strip():
                break
            time.sleep(0.05)
        grader.send_signal(signal.SIGKILL)
        grader.wait()
        for _ in range(100):
            if not Path(f"/proc/{pid.read_text().strip()}").exists():
                break
            time.sleep(0.05)
        self.expect_gone("pid")

    # Limits.

    def test_memory_of_one_process(self) -> None:
        finished = self.python("x = bytearray(300 << 20)", memory_bytes=100 * MIB)
        self.expect(finished, "failed", "MemoryError")

    def test_memory_of_several_processes(self) -> None:
        finished = self.python("""
            import os, time
            for _ in range(2):
                if os.fork() == 0:
                    break
            x = bytearray(b"x") * (60 << 20)
            time.sleep(30)""", memory_bytes=100 * MIB)
        self.expect(finished, "crashed", "used more than 100 MiB of memory")

    def test_output_without_end(self) -> None:
        """The grader keeps 64 KiB of it: its own memory stays small."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        finished = self.sh("yes", output_bytes=64 * MIB)
        self.expect(finished, "crashed", "printed more than 64 MiB")
        self.assertLess(len(finished.output), 70 << 10)
        self.assertGreater(finished.output_bytes, 64 * MIB)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 16 << 10)  # KiB

    def test_beginning_and_end_of_the_output_are_kept(self) -> None:
        finished = self.sh("echo first; head -c 200000 /dev/zero; echo last; printf '\\377'")
        self.assertTrue(finished.output.startswith("first\n"))
        self.assertTrue(finished.output.endswith("last\n\N{REPLACEMENT CHARACTER}"))
        self.assertIn("bytes are left out", finished.output)

    def test_a_large_file(self) -> None:
        finished = self.sh("head -c 3000000 /dev/zero >file; exit $?", file_bytes=MIB)
        self.expect(finished, "crashed", "SIGXFSZ (File size limit exceeded); File size limit exceeded"
                    if "; File" in finished.message else "SIGXFSZ (File size limit exceeded)")

    def test_many_files(self) -> None:
        finished = self.sh("i=0; while :; do i=$((i+1)); head -c 900000 /dev/zero >file$i; done", disk_bytes=8 * MIB)
        self.expect(finished, "crashed", "wrote more than 8 MiB, or more than 10,000 files")

    def test_deep_directories(self) -> None:
        """Deeper than Python's functions for directories go."""
        self.addCleanup(subprocess.run, ["rm", "-rf", str(self.scratch / "d")])
        make = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nimport time\ntime.sleep(30)"
        finished = self.python(make, disk_bytes=64 * MIB)
        self.expect(finished, "crashed", "wrote more than 64 MiB, or more than 10,000 files")

    # What it must not reach.

    def test_environment_of_the_grader(self) -> None:
        os.environ["STAGEGPT_TEST_SECRET"] = "tell nobody"
        self.addCleanup(os.environ.pop, "STAGEGPT_TEST_SECRET")
        self.assertNotIn("tell nobody", self.sh("env; tr '\\0' '\\n' </proc/self/environ").output)

    def test_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            finished = self.python(f"""
                import socket
                socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 2)""")
        if not finished.isolation["network"]:
            self.skipTest("this kernel allows no network namespace")
        self.expect(finished, "failed", "ConnectionRefusedError: [Errno 111] Connection refused")

    def test_covered_directories(self) -> None:
        covered = LABS / "kit"  # below none of the temporary directories, which are empty anyway
        finished = self.sh(f"ls -A '{covered}'", cover=[covered])
        if not finished.isolation["files"]:
            self.skipTest("this kernel allows no mounts of one's own")
        self.assertEqual((finished.status, finished.output), ("passed", ""))
        self.assertTrue((covered / "isolated.py").exists())

    def test_files_of_other_commands(self) -> None:
        if not self.sh("echo mine >/tmp/left; echo mine >left").isolation["files"]:
            self.skipTest("this kernel allows no mounts of one's own")
        finished = isolated.run(["sh", "-c", f"cat /tmp/left '{self.scratch}/left'"],
                                Place(self.top / "other", cover=[self.scratch]), Limits(**LIMITS))
        self.assertNotIn("mine", finished.output)

    @unittest.skipUnless(ROOT, "only root can give a command another user")
    def test_files_of_the_grader(self) -> None:
        kept = self.top / "results.json"
        kept.write_text("0 points")
        finished = self.sh(f"echo 100 points >'{kept}'; rm -f '{kept}'; cat /etc/shadow; id -u")
        self.assertEqual(kept.read_text(), "0 points")
        self.assertIn("cat: /etc/shadow: Permission denied", finished.output)
        self.assertIn(finished.output.splitlines()[-1], [str(uid) for uid in range(60800, 60864)])

    def test_killing_everyone(self) -> None:
        isolation = self.sh("true").isolation
        if not isolation["user"] and not isolation["processes"]:
            self.skipTest("it would end all processes of this user")
        finished = self.sh("kill -KILL $PPID; kill -KILL -1; echo alone")
        self.assertEqual(finished.status, "passed")
        self.assertTrue(finished.output.endswith("alone\n"), finished.output)


if __name__ == "__main__":
    unittest.main()
