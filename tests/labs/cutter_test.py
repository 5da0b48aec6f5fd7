"""Finding functions by signature, cutting and restoring them, in every form that C++ allows for a definition."""

import random
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit.cutter import INCLUDE, cut, find, is_cut, restore  # noqa: E402
from kit.lab_file import Cut, LabError, function_name  # noqa: E402

# Each: a signature, and a definition whose body is {@}; braces, quotes and brackets in other places must not mislead.
FORMS = [
    ("int f(int a)", "int f(int a) {@}"),
    ("int f(int a)", "int   f ( int\n  a )\n{@}"),
    ("int f(int a)", "int f(/* { */ int a) // {\n{@}"),
    ("int f(int a)", "int f(int a);\nint f(int a) {@}"),
    ("int f(int a)", "int f(int a);  // int f(int a) { }\nint f(int b, int a) { return a; }\nint f(int a) {@}"),
    ("int f(int a)", "/* int f(int a) { */ int f(int a) {@}"),
    ("int f(int a)", '#define F int f(int a) { \\\n  }\nint f(int a) {@}'),
    ("int f(int a)", 'const char* s = "int f(int a) { \\" ";\nint f(int a) {@}'),
    ("int f(int a)", 'const char* s = R"x(int f(int a) { )" )x";\nint f(int a) {@}'),
    ("int f(int a)", "const char c = '{', d = '\\'', e = '\"';\nint f(int a) {@}"),
    ("int f(int a)", "constexpr int n = 1'000'000;\nint f(int a) {@}"),
    ("int f(int a)", "int table[] = {1, 2};\nstd::vector<int> v{1, 2};\nint f(int a) {@}"),
    ("int f(int a)", "auto g = [](int f) { return f; };\nint f(int a) {@}"),
    ("int f(int a)", "std::function<int(int)> g{[](int a) { return a; }};\nint f(int a) {@}"),
    ("int f(int a)", "enum class E : int { f };\nint f(int a) {@}"),
    ("int f(int a)", 'extern "C" {\nint f(int a) {@}\n}'),
    ("int f(int a)", 'extern "C" int f(int a) {@}'),
    ("int f(int a)", "namespace a::b { namespace { int f(int a) {@} } }"),
    ("int f(int a)", "using other::operator+;\nint f(int a) {@}"),
    ("int f(int a)", "template <class T> concept C = requires(T t) { { t + t }; };\nint f(int a) {@}"),
    ("int f(int a)", "static_assert(sizeof(int{3}) > 2);\nint f(int a) {@}"),
    # What a signature may omit.
    ("int f(int a)", "[[nodiscard]] static inline constexpr int f(int a) noexcept {@}"),
    ("int f(int a)", "template <class T, int N = (3 > 2)> int f(int a) {@}"),
    ("int f(int a)", "template <class T> requires std::integral<T> && (sizeof(T) > 2) int f(int a) {@}"),
    ("auto f(int a) -> int", "auto f(int a) -> int {@}"),
    ("template <class T> T f(T a)", "template <class T> T f(T a) {@}\nint f(int a);"),
    ("void k(float* x)", "static __global__ void k(float* x) {@}"),
    ("A(int a)", "struct A : B { explicit A(int a) : B(a), C<int>((a)) {@} };"),
    # Members.
    ("int A::f(int a) const", "int A::f(int a) { return 1; }\nint A::f(int a) const {@}"),
    ("int A::f(int a) const", "int A::f(int a) const noexcept {@}"),
    ("int f() const", "struct A : B { int f() const final {@} };"),
    ("T A<T>::f(T a)", "template <class T> T A<T>::f(T a) {@}"),
    ("A::~A()", "A::~A() {@}"),
    ("Tensor& G::operator[](const Tensor& t)", "Tensor& G::operator[](const Tensor& t) {@}"),
    ("bool operator()(int a) const", "struct L { bool operator()(int a) const {@} bool operator()(long a) const { return 1; } };"),
    ("bool A::operator<(const A& o) const", "bool A::operator<(const A& o) const {@}"),
    ("A& operator<<(A& a, int b)", "A& operator<<(A& a, int b) {@}"),
    ("A& A::operator=(const A& o)", "A& A::operator=(const A& o) {@}"),
    ("A::operator bool() const", "A::operator bool() const {@}"),
    ("std::pair<int, std::vector<int>> f(std::array<int, (4 > 3)> a)",
     "std::pair<int, std::vector<int>> f(std::array<int, (4 > 3)> a) {@}"),
]

BODIES = [
    "",
    " return 1; ",
    "\n  if (a) { b({1, {2}}); }\n  return '}' + \"}{\"[0];  // }\n",
    "\n  auto s = R\"(}}{\")\";\n#if 1\n  auto f = [&](int x) { return x; };\n#endif\n  /* } */\n",
    "\n  struct L { void m() {} };\n  const char c = '\\\\';\n  int n = 1'000;\n  return x < y ? L{} : L{};\n",
]


def one_cut(signature, hint="Think.\nTwice.", label="4.1 f"):
    return Cut(signature, hint, label, 1)


class Forms(unittest.TestCase):
    def test_each_form_of_a_definition_is_found_cut_and_restored(self):
        for signature, form in FORMS:
            for body in BODIES:
                with self.subTest(form=form, body=body):
                    self.assertEqual(form.count("{@}"), 1)
                    text = f"#include <a>\n{form.replace('{@}', '{' + body + '}')}\nint last() {{ return 7; }}\n"
                    found = find(text, signature)
                    self.assertEqual(text[found.body_begin:found.body_end], "{" + body + "}")
                    less = cut(text, [one_cut(signature)])
                    self.assertTrue(is_cut(less, one_cut(signature)))
                    self.assertFalse(is_cut(text, one_cut(signature)))
                    self.assertEqual(restore(less, text, one_cut(signature)), text)

    def test_names(self):
        for signature, name in [("Tensor Ring::sent(int item) const", "Ring::sent"), ("A::~A()", "A::~A"),
                                ("Grad Grads::operator[](int i)", "Grads::operator[]"), 
                                ("bool operator()(int a) const", "operator()"), ("A::operator bool() const", "A::operator bool"),
                                ("int x", "")]:
            self.assertEqual(function_name(signature), name)


class Errors(unittest.TestCase):
    def refused(self, text, signature):
        with self.assertRaises(LabError) as raised:
            find(text, signature, "a/b.cpp")
        self.assertNotIn("\n", str(raised.exception))
        return str(raised.exception)

    def test_a_function_that_is_not_there_names_file_and_candidates(self):
        text = "int f(int a) const { }\nnamespace n {\nint g();\nint f(long a) { }\n}\n"
        self.assertEqual(self.refused(text, "int f(int a)"), "a/b.cpp: 'int f(int a)' is defined nowhere; candidates: "
                         "line 1 'int f(int a) const { }'; line 4 'int f(long a) { }'")
        self.assertEqual(self.refused(text, "void other(int a)"), "a/b.cpp: 'void other(int a)' is defined nowhere")

    def test_a_function_that_is_there_twice_names_both(self):
        text = "struct A {\n  void f() { }\n};\nstruct B {\n  void f() { }\n};\n"
        self.assertEqual(self.refused(text, "void f()"), "a/b.cpp: 'void f()' is defined 2 times: line 2, line 5")

    def test_braces_that_do_not_match(self):
        self.assertEqual(self.refused("int f() {\n  g(;\n}\n", "int f()"), "a/b.cpp: line 3: unmatched '}'")
        self.assertEqual(self.refused("int f() { }\nint g() {\n", "int f()"), "a/b.cpp: line 2: unmatched '{'")

    def test_one_function_cannot_be_cut_twice(self):
        with self.assertRaisesRegex(LabError, "are the same function"):
            cut("struct A { int f() { } };", [one_cut("int f()"), one_cut("f()")], "a.cpp")


class Cutting(unittest.TestCase):
    TEXT = ('#pragma once\n\n#include <vector>\n#if X\n#include "x.h"\n#endif\n\nnamespace n {\n\nstruct A {\n'
            '  int f(int a) const { return a; }\n  void g();\n};\n\nvoid A::g() {\n  h();\n}\n\n}  // namespace n\n')
    F, G = one_cut("int f(int a) const"), one_cut("void A::g()", "", "4.2 A::g")

    def test_a_stub_has_the_hint_and_throws(self):
        self.assertEqual(cut(self.TEXT, [self.G, self.F]), (
            '#pragma once\n\n#include <vector>\n' + INCLUDE + '#if X\n#include "x.h"\n#endif\n\nnamespace n {\n\nstruct A {\n'
            '  int f(int a) const {\n    // Think.\n    // Twice.\n    lab::todo("4.1 f");\n  }\n  void g();\n};\n\n'
            'void A::g() {\n  lab::todo("4.2 A::g");\n}\n\n}  // namespace n\n'))
        self.assertEqual(cut(self.TEXT, []), self.TEXT)

    def test_functions_are_restored_one_by_one_in_any_order(self):
        both = cut(self.TEXT, [self.F, self.G])
        self.assertEqual(restore(both, self.TEXT, self.F), cut(self.TEXT, [self.G]))
        self.assertEqual(restore(both, self.TEXT, self.G), cut(self.TEXT, [self.F]))
        self.assertEqual(restore(restore(both, self.TEXT, self.G), self.TEXT, self.F), self.TEXT)

    def test_a_students_own_work_stays(self):
        work = cut(self.TEXT, [self.F, self.G]).replace('lab::todo("4.2 A::g")', "mine({1})").replace("<vector>", "<array>")
        self.assertTrue(is_cut(work, self.F))
        self.assertFalse(is_cut(work, self.G))
        restored = restore(work, self.TEXT, self.F)
        self.assertEqual(restored, self.TEXT.replace("h()", "mine({1})").replace("<vector>", "<array>"))

    def test_a_comment_about_todo_is_no_stub(self):
        work = cut(self.TEXT, [self.G]).replace('lab::todo("4.2 A::g");', '// was lab::todo("4.2")')
        self.assertFalse(is_cut(work, self.G))

    def test_the_header_of_todo_is_added_where_it_can_be(self):
        for text, expected in [("int f() {}\n", INCLUDE + "int f() {"), ("#pragma once\nint f() {}\n", "#pragma once\n" + INCLUDE),
                               ("int f() {}\n#include \"tail.h\"\n", INCLUDE + "int f()")]:
            less = cut(text, [one_cut("int f()")])
            self.assertTrue(less.startswith(expected), less)
            self.assertEqual(restore(less, text, one_cut("int f()")), text)


class RandomText(unittest.TestCase):
    """Files put together at random: what was put in is what is found."""
    PIECES = ["// int f0(int a) {\n", "/* } { */\n", 'const char* s{} = "}} \\" {";\n', 'auto r{} = R"d({ )" })d";\n',
              "struct S{} {{ int m() {{ return 1; }} }};\n", "enum E{} {{ e{} }};\n", "int v{} = 3;\n", "#if A\n", "#endif\n",
              "namespace {{ int hidden{}(int a) {{ }} }}\n", "#define M{} { \\\n  {\n", "std::vector<int> w{}{{1, 2}};\n",
              "int declared{}(int a);\n", "auto l{} = [](int a) {{ return '}}'; }};\n"]

    def test_every_function_of_a_random_file(self):
        random_numbers = random.Random(7)
        for _ in range(150):
            text, expected = "", []
            for i in range(random_numbers.randrange(1, 12)):
                piece = random_numbers.choice(self.PIECES)
                text += piece.replace("{}", str(i)).replace("{{", "{").replace("}}", "}") if "{}" in piece else piece
                signature, form = random_numbers.choice([one for one in FORMS if one[1].startswith(("int f(int a)", "static __gl"))])
                body = "{" + random_numbers.choice(BODIES) + "}"
                signature, form = (re.sub(r"\b[fk]\(", f"f{i}(", one) for one in (signature, form.split("\n")[-1]))
                text += form.replace("{@}", body) + "\n"
                expected.append((signature, body))
            for signature, body in expected:
                found = find(text, signature)
                self.assertEqual(text[found.body_begin:found.body_end], body, text)
            cuts = [one_cut(signature) for signature, _ in expected]
            less = cut(text, cuts)
            for one in random_numbers.sample(cuts, len(cuts)):
                less = restore(less, text, one)
            self.assertEqual(less, text)

    def test_text_that_is_no_program_raises_nothing_but_an_error(self):
        random_numbers = random.Random(11)
        alphabet = ["{", "}", "(", ")", "<", ">", ";", ":", "::", "int ", "f", "template ", "requires ", "operator", "=", "\"", "'",
                    "//", "/*", "*/", "\n", "#", "R\"(", ")\"", "~", "class ", "noexcept", "->", ",", "[[", "]]", "\\"]
        for _ in range(3000):
            text = "".join(random_numbers.choices(alphabet, k=random_numbers.randrange(30)))
            try:
                find(text, "int f()")
            except LabError:
                pass


if __name__ == "__main__":
    unittest.main()
