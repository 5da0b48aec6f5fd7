"""`lab start`: what a starter holds and what it must not hold, and starts that cannot be made."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from small_tree import SOURCES, is_executable, lab, small_tree, snapshot, temporary, without_git_settings

SECRET = b"the secret of sums"


class Start(unittest.TestCase):
    def setUp(self):
        self.folder = temporary(self)
        self.root = small_tree(self.folder)
        self.target = self.folder / "my lab"

    def start(self, *more, root=None, **environment):
        return lab(root or self.root, "start", 1, "--dir", self.target, "--no-reference", *more, **environment)

    def assert_refused(self, ended, pattern):
        self.assertEqual((ended.returncode, ended.stdout), (2, ""), ended.stderr)
        self.assertRegex(ended.stderr, rf"\Alab: {pattern}.*\n\Z")

    def test_what_a_starter_holds(self):
        before = snapshot(self.root)
        ended = self.start("--student", "ada")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("3 functions are yours to write, in src/sum file.h, src/loop.h", ended.stdout)
        self.assertEqual(snapshot(self.root), before, "the source tree was changed")
        files = snapshot(self.target)
        self.assertEqual(files["src/sum file.h"].decode(),
                         '#pragma once\n#include "labs/kit/todo.h"\n\ninline int sum(int a, int b) {\n  // The sum of a and b.\n'
                         '  lab::todo("1.1 sum");\n}\n\ninline int twice(int a) {\n  // Use sum().\n  lab::todo("1.2 twice");\n}\n')
        self.assertIn('lab::todo("1.3 loop")', files["src/loop.h"].decode())
        for name in ("CMakeLists.txt", "src/sum.h", "src/tests.h", "docs/guide.md", "labs/kit/todo.h"):
            self.assertEqual(files[name], before[name])
        self.assertTrue(is_executable(self.target / "lab") and is_executable(self.target / "labs" / "lab"))
        self.assertEqual(files["HANDOUT.md"].decode(), "# Sums\n\n![a sum](labs/1_sums/pictures/sum.svg) [guide](docs/guide.md#x) "
                                                       "[web](https://a.b/c) [here](#sums) `a[](i)`\n")
        self.assertIn("labs/1_sums/pictures/sum.svg", files)
        self.assertEqual((files["answers.md"], files["AGENTS.md"]), (b"# Why?\n", b"Help, but do not solve.\n"))
        mark = json.loads(files[".lab"])
        self.assertEqual((mark["lab"], mark["student"], mark["source"]), (1, "ada", str(self.root)))
        self.assertEqual(mark["report"], ["--stages", "1", "--ranks", "2", "--", "--steps", "20"])

    def test_the_solution_and_hidden_lines_are_nowhere(self):
        self.assertEqual(self.start().returncode, 0)
        files = snapshot(self.target)
        for name, content in files.items():
            self.assertNotIn(SECRET, content, name)
            self.assertNotIn(b"secret_bug", content, name)
        self.assertNotIn("trace", files["labs/1_sums/lab"].decode())
        for name in ("labs/prove", "labs/2_more/lab", "labs/1_sums/model.md", "labs/1_sums/HANDOUT.md", "labs/zoo/secret_bug",
                     "tests/labs/sum_test.py", ".github/workflows/ci.yml"):
            self.assertNotIn(name, files)
        objects = subprocess.run(["git", "cat-file", "--batch", "--batch-all-objects"], cwd=self.target, capture_output=True,
                                 check=True).stdout
        self.assertIn(b"lab::todo", objects)
        self.assertNotIn(SECRET, objects)
        self.assertEqual(self.git("rev-list", "--all", "--count"), "1")
        self.assertEqual(self.git("remote"), "")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.target, env=without_git_settings(), capture_output=True, text=True,
                              check=True).stdout.strip()

    def test_it_is_a_clean_repository_whatever_the_settings_of_git(self):
        hooks = self.folder / "hooks"
        hooks.mkdir()
        (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
        (hooks / "pre-commit").chmod(0o755)
        settings = self.folder / ".gitconfig"
        settings.write_text(f"[commit]\ngpgsign = true\n[core]\nhooksPath = {hooks}\nexcludesFile = {settings}\n"
                            "[init]\ndefaultBranch = odd\n")
        # GIT_DIR also hides the source tree's list of files: all files are taken then.
        ended = self.start(HOME=str(self.folder), GIT_DIR="/nonexistent")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("log", "--format=%an: %s"), "StageGPT labs: Lab 1: Sums")
        self.assertEqual(self.git("branch", "--show-current"), "main")

    def test_a_tree_without_git_gives_the_same_files(self):
        other = small_tree(self.folder / "plain", git=False)
        (other / "build" / "release").mkdir(parents=True)
        (other / "build" / "release" / "junk.o").write_text("")
        self.assertEqual(self.start().returncode, 0)
        first, self.target = snapshot(self.target), self.folder / "second"
        self.assertEqual(self.start(root=other).returncode, 0)
        second = snapshot(self.target)
        self.assertEqual(sorted(first), sorted(second))
        self.assertEqual({name for name in first if first[name] != second[name]}, {".lab"})

    def test_nothing_that_exists_is_touched(self):
        self.assertEqual(self.start().returncode, 0)
        (self.target / "src" / "loop.h").write_text("my work")
        before = snapshot(self.target)
        self.assert_refused(self.start(), f"{self.target} exists already; nothing was changed")
        self.assertEqual(snapshot(self.target), before)
        for kind in ("file", "empty", "link"):
            self.target = self.folder / kind
            {"file": lambda: self.target.write_text(""), "empty": self.target.mkdir,
             "link": lambda: self.target.symlink_to("nowhere")}[kind]()
            self.assert_refused(self.start(), f"{self.target} exists already")

    def test_folders_that_cannot_be_made(self):
        self.target = self.root / "inside"
        self.assert_refused(self.start(), ".* lies inside of the source tree")
        (self.folder / "file").write_text("")
        self.target = self.folder / "file" / "below"
        self.assert_refused(self.start(), ".*file.*(Not a directory|File exists)")
        ended = lab(self.root, "start", 9, "--dir", self.folder / "x")
        self.assert_refused(ended, "there is no lab 9 in .*there are: 1, 2")

    def test_mistakes_of_an_instructor_leave_no_folder(self):
        file = self.root / "labs" / "1_sums" / "lab"
        for text, pattern in [(SOURCES["labs/1_sums/lab"].replace("int b)", "long b)"),
                               "src/sum file.h: 'int sum\\(int a, long b\\)' is defined nowhere; candidates: line 3 "),
                              (SOURCES["labs/1_sums/lab"].replace("give", "gift"), ".*/labs/1_sums/lab:2: 'gift' is no keyword")]:
            file.write_text(text)
            self.assert_refused(self.start(), pattern)
            self.assertEqual([path.name for path in self.folder.iterdir()], ["a tree"])

    def test_no_git(self):
        tools = self.folder / "tools"
        tools.mkdir()
        self.assert_refused(self.start(PATH=str(tools)), "git is not installed")

    def test_an_interrupted_start_leaves_nothing(self):
        slow = self.folder / "tools"
        slow.mkdir()
        (slow / "git").write_text('#!/bin/sh\ncase "$*" in *commit*) sleep 60 ;; esac\nexec /usr/bin/env PATH="$REAL" git "$@"\n')
        (slow / "git").chmod(0o755)
        environment = without_git_settings(REAL=os.environ["PATH"], PATH=f"{slow}:{os.environ['PATH']}")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            process = subprocess.Popen([sys.executable, self.root / "labs" / "lab", "start", "1", "--no-reference", "--dir",
                                        self.target], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
            deadline = time.monotonic() + 60
            while not list(self.folder.glob(".my lab.*/lab")) and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(process.pid, number)
            self.assertNotEqual(process.wait(60), 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the fake git
            self.assertFalse(self.target.exists())
            left = [path.name for path in self.folder.iterdir() if path.name.startswith(".my lab.")]
            self.assertEqual(len(left), 1 if number == signal.SIGKILL else 0)
        self.assertEqual(self.start().returncode, 0)
        self.assertFalse(list(self.folder.glob(".my lab.*")), "what the killed start left is removed by the next")

    def test_verbs_in_the_wrong_place(self):
        self.assert_refused(lab(self.root, "check"), "name the lab: this is the source tree")
        for verb in ("report", "submit"):
            self.assert_refused(lab(self.root, verb), f"`lab {verb}` works in a folder made by `lab start`")
        self.assertEqual(self.start().returncode, 0)
        self.assert_refused(lab(self.target, "start", 1, "--dir", self.folder / "x"), "this folder is a lab itself")
        self.assert_refused(lab(self.target, "check", 2), "this folder is of lab 1, not 2")
        self.assert_refused(lab(self.target, "grade", "x"), "this folder has no verb 'grade'")
        (self.target / ".lab").write_text("{}")
        self.assert_refused(lab(self.target, "check"), ".*/.lab: ")


if __name__ == "__main__":
    unittest.main()
