"""Tests of the mutant generator, of inserting mutants into a file, and of the committed lists. Run by CTest."""

import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import build
import campaign
import choose
import suite
from cpp_source import regions, tokenize
from mutators import edits
from rewrite import Mutant, mentioned, region_of, rewritten

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PROGRAM = r'''
#include <cstdio>
#define ADD(a, b) ((a) + \
                   (b))
namespace test {
constexpr int kStart = 3;          // "not a string { "
const char* text = R"x(} 1 + 2 " )x";
enum class Kind { one = 1 };
[[maybe_unused]] int table[] = {41, 42};
template <class T = int>
constexpr T square(T x) { return x * x; }
static_assert(square(3) == 9);
struct Box {
  int side = 2;
  int area;
  explicit Box(int factor) : area{side * factor} { side += 1; }
  bool operator<(const Box& other) const { return side < other.side; }
  auto operator()(int n) const -> int { return n - 1; }
};
int f(int a, int b) {
  struct Local { int value = 5; };
  auto twice = [](int x) { return x * 2; };
  if (a > b) return twice(a);
  return Local{}.value + square(b);
}
}  // namespace test
int main(int argc, char**) {
  test::Box box(argc);
  std::printf("%d %d %d %d\n", test::f(argc, 3), box.area, box(7), test::kStart);
}
'''


def mutants_of(source):
    places = regions(source)
    return [Mutant(i + 1, edit.kind, "a.cpp", edit.start, edit.end, edit.text)
            for i, edit in enumerate(edits(source)) if region_of(places, edit.start, edit.end)]


def changes(source):
    """Each edit as (old text, new text)."""
    return {(source[edit.start:edit.end], edit.text) for edit in edits(source)}


class Sources(unittest.TestCase):
    def test_comments_strings_and_directives_are_no_code(self):
        source = 'a // b {\n"c \\" {" R"x(d " })x" /* e\n{ */ \'{\'\n  #define F { \\\n  {\ng = 1\'000u;'
        self.assertEqual([token.text for token in tokenize(source)],
                         ["a", '"c \\" {"', 'R"x(d " })x"', "'{'", "g", "=", "1'000u", ";"])

    def test_regions_are_bodies_and_initial_values(self):
        found = [(region.kind, PROGRAM[region.start:region.end].strip()) for region in regions(PROGRAM)]
        self.assertIn(("value", "3"), found)
        self.assertIn(("value", "41"), found)
        self.assertIn(("value", "2"), found)
        self.assertIn(("argument", "side * factor"), found)
        bodies = [text for kind, text in found if kind == "body"]
        self.assertEqual([text.split("\n")[0] for text in bodies],
                         ["return x * x;", "side += 1;", "return side < other.side;", "return n - 1;",
                          "struct Local { int value = 5; };", "test::Box box(argc);"])

    def test_brackets_that_do_not_match_are_an_error(self):
        for source in ("int f() { (}; }", "int f() { } }", "int f() { {}"):
            self.assertRaises(ValueError, regions, source)

    def test_all_sources_can_be_read(self):
        for file in choose.mutable_files(choose.tracked_files(ROOT)):
            source = (ROOT / file).read_text()
            places = regions(source)
            for one, next_one in zip(places, places[1:]):
                self.assertLessEqual(one.end, next_one.start, file)


class Edits(unittest.TestCase):
    def test_each_kind(self):
        source = "void f() { if (a && !b) g(x, y + 1); for (int i = 0; i < n; ++i) v[i] -= std::min(p, q); return; }"
        found = changes(source)
        for expected in [("&&", "||"), ("!", ""), ("a && !b", "!(a && !b)"), ("a && !b", "true"), ("+", "-"),
                         ("x, y + 1", "y + 1, x"), ("1", "(1 - 1)"), ("0", "(0 + 1)"), ("<", "<="), ("i < n", "false"),
                         ("++", "--"), ("-=", "+="), ("min", "max"), ("g(x, y + 1);", ";"),
                         ("v[i] -= std::min(p, q);", ";")]:
            self.assertIn(expected, found)

    def test_what_is_left_alone(self):
        source = ('template <class T> void f(T* a, int& b) { check(a < b, "x", 1 + 2); user_error("y", 3); int c(4);\n'
                  'v.reserve(5); [[maybe_unused]] const int d = 6; static_assert(7 > 0); return; }')
        found = changes(source)
        self.assertEqual({old for old, _ in found if old.isdigit()}, {"4", "6"})
        self.assertIn(("<", ">="), found)
        self.assertNotIn(("*", "/"), found)
        self.assertNotIn("<", {source[edit.start:edit.end] for edit in edits(source) if edit.start < 20})
        dropped = [source[edit.start:edit.end] for edit in edits(source) if edit.kind == "statement"]
        self.assertFalse([text for text in dropped if text.startswith(("int", "const", "return"))])


    def test_statements(self):
        source = """void f() { switch (x) { case 1: g(); break; default: h(); } y = a ? k() : l();
                    for (i = 0; m(); n()) o(); while (p()) q(); if (r()) s(); else t();
                    ++v; *w = 2; A b(3); auto c = d(); new E(); z; }"""
        dropped = {source[edit.start:edit.end] for edit in edits(source) if edit.kind == "statement"}
        self.assertEqual(dropped, {"g();", "break;", "h();", "y = a ? k() : l();", "o();", "q();", "s();", "t();",
                                   "++v;", "*w = 2;"})


class Rewriting(unittest.TestCase):
    def test_a_file_behaves_as_each_mutant_that_is_chosen(self):
        compiler = shutil.which("c++")
        if not compiler:
            self.skipTest("no c++")
        mutants = [mutant for mutant in mutants_of(PROGRAM) if (PROGRAM[mutant.start:mutant.end], mutant.text) in
                   [("3", "(3 + 1)"), ("*", "/"), ("2", "(2 + 1)"), ("a > b", "true"), ("-", "+")]]
        with tempfile.TemporaryDirectory() as directory:
            source, program = Path(directory) / "a.cpp", Path(directory) / "a"
            source.write_text(rewritten(PROGRAM, mutants))
            strict = ["-std=c++20", "-Wall", "-Wpedantic", "-Werror"]
            subprocess.run([compiler, *strict, source, "-o", program], check=True)

            def output(mutant, environment=None):
                environment = {"STAGEGPT_MUTANT": str(mutant), **(environment or {})}
                return subprocess.run([program], env=environment, check=True, capture_output=True, text=True).stdout

            self.assertEqual(output(0), "14 2 6 3\n")
            outputs = {PROGRAM.count("\n", 0, m.start) + 1: set() for m in mutants}
            for mutant in mutants:
                outputs[PROGRAM.count("\n", 0, mutant.start) + 1].add(output(mutant.id))
            lines = PROGRAM.splitlines()
            self.assertEqual({lines[line - 1].split("  //")[0].strip(): found for line, found in outputs.items()}, {
                "constexpr int kStart = 3;": {"14 2 6 4\n"},
                "constexpr T square(T x) { return x * x; }": {"6 2 6 3\n"},
                "int side = 2;": {"14 3 6 3\n"},
                "explicit Box(int factor) : area{side * factor} { side += 1; }": {"14 2 6 3\n"},
                "auto operator()(int n) const -> int { return n - 1; }": {"14 2 8 3\n"},
                "auto twice = [](int x) { return x * 2; };": {"14 2 6 3\n"},
                "if (a > b) return twice(a);": {"2 2 6 3\n"},
                'std::printf("%d %d %d %d\\n", test::f(argc, 3), box.area, box(7), test::kStart);': {"21 2 6 3\n"}})
            reached = Path(directory) / "reached"
            reached.write_bytes(bytes(mutants[-1].id + 1))
            output(0, {"STAGEGPT_MUTANTS_REACHED": str(reached)})
            self.assertEqual([i for i, byte in enumerate(reached.read_bytes()) if byte],
                             [mutant.id for mutant in mutants])

    def test_compilers_name_the_mutant(self):
        source = "int f(int a) { return a + 1; }\nint g(int a) { return a - 1; }\n"
        text = rewritten(source, [Mutant(7, "", "x/a.cpp", 22, 23, "b"), Mutant(8, "", "x/a.cpp", 54, 55, "+")])
        compiler = shutil.which("c++")
        if not compiler:
            self.skipTest("no c++")
        ended = subprocess.run([compiler, "-std=c++20", "-x", "c++", "-fsyntax-only", "-"], input=text, text=True,
                               capture_output=True, check=False)
        self.assertNotEqual(ended.returncode, 0)
        self.assertEqual(mentioned(ended.stderr), {7})
        self.assertEqual(mentioned("mutant_3/a.cpp:1: note: x\nmutant_7/a.cpp:2: error: y"), {7})
        self.assertEqual(mentioned("a.cpp:1: error: x\nmutant_3/a.cpp:2: note: y"), {3})

    def test_a_mutant_outside_of_all_regions_is_refused(self):
        self.assertRaises(ValueError, rewritten, "void f(int a = 1);", [Mutant(1, "", "a.cpp", 15, 16, "2")])


class Running(unittest.TestCase):
    def test_a_culprit_is_the_test_that_failed_or_the_last_begun(self):
        tests = [suite.Test(name, ["p", f"--gtest_filter={name}"], ".", {}, []) for name in ("A.a", "A.b", "A.c")]
        failed = ("[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n[ RUN      ] A.b\n[  FAILED  ] A.b (1 ms)\n"
                  "[  FAILED  ] 1 test\n")
        self.assertEqual(suite.culprit(tests, suite.Outcome(False, "failed", 0, failed)).name, "A.b")
        crashed = "[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n[ RUN      ] A.c\n"
        self.assertEqual(suite.culprit(tests, suite.Outcome(False, "crashed", 0, crashed)).name, "A.c")

    def test_a_batch_is_of_one_program(self):
        def test(name, program, seconds, label="fast"):
            return suite.Test(name, [program, f"--gtest_filter={name}"], ".", {}, [label], seconds)
        tests = [test("a", "p", 1), test("b", "q", 1), test("c", "p", 1), test("d", "p", 9), test("e", "p", 1, "mpi")]
        self.assertEqual([t.name for t in campaign.next_batch(tests, 5)], ["a", "c"])

    def test_limits_end_a_test_and_all_that_it_began(self):
        test = suite.Test("t", ["/bin/sh", "-c", "echo started; while :; do :; done"], "/", {}, [], 0.1)
        outcome = suite.run([test], {}, patience=2)
        self.assertEqual((outcome.passed, outcome.how, outcome.output), (False, "timed out", "started\n"))


class Lists(unittest.TestCase):
    def test_every_mutant_of_the_lists_applies(self):
        mutants = choose.listed_mutants(ROOT, HERE / "listed")
        self.assertGreater(len(mutants), 0)
        for mutant in mutants:
            self.assertTrue(mutant.tests, mutant.kind)

    def test_every_mutant_of_the_lists_is_another(self):
        kinds, sources = {}, {}
        for mutant in choose.listed_mutants(ROOT, HERE / "listed"):
            source = sources.setdefault(mutant.file, (ROOT / mutant.file).read_text())
            mutated = mutant.file, choose.plain(source[:mutant.start] + mutant.text + source[mutant.end:])
            self.assertFalse(mutated in kinds, f"{mutant.kind}: the same as '{kinds.get(mutated)}'")
            kinds[mutated] = mutant.kind
            self.assertFalse(mutated[1] == choose.plain(source), f"{mutant.kind}: changes nothing")

    def test_lists_of_a_directory_are_read_in_order(self):
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory)
            (tree / "a.cpp").write_text("int f() { return 1; }")
            (tree / "lists").mkdir()
            for name, number in (("b.json", "3"), ("a.json", "2")):
                entry = {"what": name, "file": "a.cpp", "find": "1", "replace": number, "tests": []}
                (tree / "lists" / name).write_text(json.dumps([entry]))
            self.assertEqual([(m.id, m.kind, m.text) for m in choose.listed_mutants(tree, tree / "lists")],
                             [(1, "a.json", "2"), (2, "b.json", "3")])

    def test_a_mutant_that_does_not_apply_is_refused(self):
        for source, find in [("int f() { return 1 + 1; }", "1"), ("int f() { return 2; }", "1"),
                             ("int f(int a = 1);", "1")]:
            with tempfile.TemporaryDirectory() as directory:
                (Path(directory) / "a.cpp").write_text(source)
                entry = {"what": "", "file": "a.cpp", "find": find, "replace": "3", "tests": []}
                (Path(directory) / "list.json").write_text(json.dumps([entry]))
                self.assertRaises(SystemExit, choose.listed_mutants, directory, Path(directory) / "list.json")

    def test_a_constant_that_the_next_line_needs_is_at_fault(self):
        with tempfile.TemporaryDirectory() as directory:
            source = "int a = 1;\nint b = 2;\nint c[b];\n"
            (Path(directory) / "a.h").write_text(source)
            mutants = [Mutant(i + 1, "constant", "a.h", source.index(text), source.index(text) + 1, "3")
                       for i, text in enumerate("12")]
            self.assertEqual(build.beside(Path(directory), "a.h:3:5: error: size of array\n", mutants), {2})

    def test_the_tests_of_an_entry_are_taken_apart(self):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "some_tests"
            program.write_text("#!/bin/sh\n"
                               "printf 'Running main()\\nOps/Table.\\n  adds/f32  # GetParam() = f32\\n  adds/f64\\n'\n")
            program.chmod(0o755)
            group = suite.Test("some_tests_1_of_2", [str(program)], directory,
                               {"GTEST_TOTAL_SHARDS": "2", "GTEST_SHARD_INDEX": "0", "A": "b"}, ["fast"])
            tests = suite.apart(group)
            self.assertEqual([test.name for test in tests],
                             ["some_tests.Ops/Table.adds/f32", "some_tests.Ops/Table.adds/f64"])
            self.assertEqual([test.gtest for test in tests], ["Ops/Table.adds/f32", "Ops/Table.adds/f64"])
            self.assertEqual(tests[0].environment, {"A": "b"})

    def test_what_is_explained_is_still_there(self):
        for entry in json.loads((HERE / "equivalent.json").read_text()):
            self.assertIn(choose.plain(entry["find"]), choose.plain((ROOT / entry["file"]).read_text()), entry["file"])
            self.assertTrue(entry["reason"])

    def test_a_sample_can_be_drawn_again(self):
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory)
            (tree / "common").mkdir()
            (tree / "common" / "a.cpp").write_text(PROGRAM)
            five, three = choose.random_mutants(tree, 3, 5), choose.random_mutants(tree, 3, 3)
            self.assertEqual(five[:3], three)
            self.assertNotEqual(five, choose.random_mutants(tree, 4, 5))
            copy = tree / "copy"
            build.write_copy(tree, copy, five)
            self.assertIn('"mutant_1/common/a.cpp"', (copy / "common" / "a.cpp").read_text())

    def test_a_sample_can_be_of_some_files(self):
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory)
            (tree / "common").mkdir()
            for name in ("a.cpp", "b.cpp"):
                (tree / "common" / name).write_text(PROGRAM)
            self.assertEqual({m.file for m in choose.random_mutants(tree, 3, 5)}, {"common/a.cpp", "common/b.cpp"})
            self.assertEqual({m.file for m in choose.random_mutants(tree, 3, 5, ("common/b",))}, {"common/b.cpp"})


if __name__ == "__main__":
    unittest.main()
