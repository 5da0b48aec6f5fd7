"""The edits that make mutants: small changes of C++ code that resemble a programmer's mistakes.

They rely on the layout of clang-format: a binary operator has white space on both sides, but a unary operator and the angle
bracket of a template do not. The compiler finds mutants that are not valid C++.
"""

import re
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "labs"))
from kit.cpp import CLOSING, partners, tokenize  # noqa: E402

Edit = namedtuple("Edit", "start end text")  # replaces the text of a file from `start` to `end`

_OPERATORS = {
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "<": ["<=", ">="], ">": [">=", "<="], "<=": ["<", ">"],
    ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"], "^": ["&"],
    "<<": [">>"], ">>": ["<<"], "+=": ["-="], "-=": ["+="], "*=": ["/="], "/=": ["*="], "|=": ["&="], "&=": ["|="],
}
_WORDS = {"++": "--", "--": "++", "true": "false", "false": "true", "min": "max", "max": "min",
          "min_element": "max_element", "max_element": "min_element"}
_NOT_CALLS = {"switch", "catch", "return", "sizeof", "alignof", "decltype", "noexcept", "min", "max"}
# Calls that are not mutated, because a change would affect only a message, the use of memory or compilation.
_LEFT_ALONE = {"user_error", "concat", "InternalError", "UserError", "static_assert", "reserve"}
# A statement that can be deleted, with brackets left empty: break, continue, an assignment, increment or call.
_VARIABLE = r"(\w+|\()( [(\[])*( (::|\.|->) \w+( [(\[])*)*"
_STATEMENT = re.compile(r"(?!(return|throw|goto|delete|if|for|while|switch|do|else) )"
                        rf"(break|continue|(\+\+|--) {_VARIABLE}|(\* )*{_VARIABLE}( ([-+*/%&|^]?=|<<=?|>>=|\+\+|--).*|(?<=[(\[]))) ")


class _Editor:
    def __init__(self, text):
        self.text = text
        self.tokens = tokenize(text)
        self.partner = partners(self.tokens)
        self.edits = set()
        heads = (i + 1 for i in range(len(self.tokens)) if self.token(i) == "for" and self.token(i + 1) == "(")
        self.loop_heads = {inside for i in heads for inside in range(i, self.partner[i])}

    def token(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def between(self, first, last):
        """The text of the tokens from `first` to `last`."""
        return self.text[self.tokens[first].begin:self.tokens[last].end]

    def put(self, first, last, *texts):
        self.edits.update(Edit(self.tokens[first].begin, self.tokens[last].end, text) for text in texts)

    def run(self):
        left_alone = self.left_alone()
        for i in range(len(self.tokens)):
            if i not in left_alone:
                self.at(i)
        return self.edits

    def left_alone(self):
        """The indices of tokens that are not mutated: arguments that form a message, and attributes."""
        indices = set()
        for i, token in enumerate(self.tokens):
            if self.token(i + 1) == "(" and token.text in _LEFT_ALONE:
                indices.update(range(i, self.partner[i + 1] + 1))
            if self.token(i + 1) == "(" and token.text == "check":  # only its message, not its condition
                first = next(self.arguments(i + 1), (i, i))
                indices.update(range(first[1] + 1, self.partner[i + 1] + 1))
            if token.text == "[" and self.token(i + 1) == "[":
                indices.update(range(i, self.partner[i] + 1))
        return indices

    def at(self, i):
        token = self.tokens[i]
        kind, text, start, end = token.kind, token.text, token.begin, token.end
        spaced = self.text[start - 1:start].isspace() and self.text[end:end + 1].isspace()
        if kind == "number":
            self.put(i, i, f"({text} + 1)")
            if text.strip("0.'uUlLzZfF"):  # not zero
                self.put(i, i, f"({text} - 1)", f"({text} * 2)")
        elif text in _OPERATORS and spaced:
            self.put(i, i, *_OPERATORS[text])
        elif text in _WORDS and (not text.startswith("m") or self.token(i - 1) == "::"):
            self.put(i, i, _WORDS[text])
        elif (text == "!" and not spaced) or (text == "-" and self.token(i - 1) in ("(", ",", "=", "return", "?", ":")):
            self.put(i, i, "")
        if kind == "name" and self.token(i + 1) == "(":
            self.call(text, i + 1)
        if self.token(i - 1) in (";", "{", "}", "else", "do") and i not in self.loop_heads or self.ends_condition(i - 1):
            self.statement(i)

    def call(self, name, opening):
        first, closed = opening + 1, self.partner[opening]
        ends = [i for i in range(first, closed) if self.token(i) == ";"]
        if name in ("if", "while"):
            condition = self.between(first, closed - 1)
            if not ends and "=" not in (self.token(i) for i in range(first, closed)):
                # `while (true)` is not tried: it only costs time until the timeout.
                self.put(first, closed - 1, f"!({condition})", "false", *(["true"] if name == "if" else []))
        elif name == "for":
            if len(ends) == 2 and ends[1] > ends[0] + 1:
                self.put(ends[0] + 1, ends[1] - 1, "false")
        elif name not in _NOT_CALLS:
            arguments = list(self.arguments(opening))
            for (a, b), (c, d) in zip(arguments, arguments[1:]):
                one, other = self.between(a, b), self.between(c, d)
                self.put(a, d, other + self.text[self.tokens[b].end:self.tokens[c].begin] + one)

    def arguments(self, opening):
        """The first and last token of each argument."""
        first = i = opening + 1
        closed = self.partner[opening]
        while i <= closed:
            if (i == closed or self.token(i) == ",") and i > first:
                yield first, i - 1
                first = i + 1
            i = (self.partner[i] if self.token(i) in ("(", "[", "{") else i) + 1

    def ends_condition(self, i):
        return self.token(i) == ")" and self.token(self.partner[i] - 1) in ("if", "for", "while", "switch")

    def statement(self, first):
        """Deletes the statement that begins with token `first`."""
        i, text = first, ""
        while self.token(i) not in (";", "}", ")", "]", ""):
            text += self.token(i) + " "
            i = self.partner.get(i, i) + 1
        if self.token(i) == ";" and _STATEMENT.fullmatch(text):
            self.put(first, i, ";")


def bodies(text):
    """The bodies of a file's functions, in order, as (start, end): there a mutant can be switched on at run time."""
    tokens = tokenize(text)
    partner = partners(tokens)
    found, header, i = [], [], 0  # header: the declaration so far, without what is in brackets
    while i < len(tokens):
        token = tokens[i].text
        if token == "template":
            i = _angle_end(tokens, i + 1)
        elif token == "{":
            member = header and re.match(r"\w|>", header[-1]) and ":" in header  # its initial value: `: a_{1}`
            if "(" in header and not member and "=" not in header:
                if "consteval" not in header:
                    found.append((tokens[i].end, tokens[partner[i]].begin))
                header, i = [], partner[i]
            elif "(" not in header and "=" not in header and {"namespace", "class", "struct", "union", "extern"} & {*header}:
                header = []  # the declarations in it follow
            else:
                i = partner[i]
        elif token in CLOSING:
            if not {"alignas", "decltype", "explicit", "noexcept", "requires", "__attribute__", "__launch_bounds__"} & {*header[-1:]}:
                header.append(token)
            i = partner[i]
        elif token in (";", "}") or (token == ":" and header in (["public"], ["private"], ["protected"])):
            header = []
        elif not (token == "=" and header[-1:] == ["operator"]):
            header.append(token)
        i += 1
    return found


def _angle_end(tokens, i):
    """The index of the `>` that closes the `<` at i."""
    depth = 0
    while True:
        depth += {"<": 1, ">": -1, ">>": -2}.get(tokens[i].text, 0)
        if depth <= 0:
            return i
        i += 1


def body_of(all_bodies, start, end):
    """The body that contains these offsets, or None."""
    return next((body for body in all_bodies if body[0] <= start and end <= body[1]), None)


def edits(text):
    """All edits of a file, sorted by their start. Some are outside all functions."""
    return sorted(edit for edit in _Editor(text).run() if text[edit.start:edit.end] != edit.text)
