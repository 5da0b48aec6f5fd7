"""The mutation operators: small changes of C++ code that resemble a programmer's mistakes.

They rely on the layout of clang-format: a binary operator has white space on both sides, but a unary operator and the angle
bracket of a template do not. The compiler finds mutants that are not valid C++.
"""

import re
from dataclasses import dataclass

from cpp_source import match_brackets, tokenize

_OPERATORS = {
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "<": ["<=", ">="], ">": [">=", "<="], "<=": ["<", ">"],
    ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"], "^": ["&"],
    "<<": [">>"], ">>": ["<<"], "+=": ["-="], "-=": ["+="], "*=": ["/="], "/=": ["*="], "|=": ["&="], "&=": ["|="],
}
_STEPS = {"++": "--", "--": "++"}
_WORDS = {"true": "false", "false": "true"}
_EXTREMES = {"min": "max", "max": "min", "min_element": "max_element", "max_element": "min_element"}
_FLOATING = re.compile(r"0[xX].*[pP]|(?!0[xX]).*[.eE]")
_NOT_CALLS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "noexcept"}
# Calls that are not mutated, because a change would affect only a message, the use of memory or compilation.
_LEFT_ALONE = {"user_error", "concat", "InternalError", "UserError", "static_assert", "reserve"}
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>=", "<<", "++", "--"}
_NOT_STATEMENTS = {"return", "throw", "goto", "case", "default", "else", "do", "if", "for", "while", "switch", "try",
                   "using", "const", "constexpr", "static", "auto", "struct", "class", "delete", "new"}


@dataclass(frozen=True)
class Edit:
    """Replaces the text of a file from `start` to `end` by `text`."""
    kind: str
    start: int
    end: int
    text: str


class _Mutator:
    def __init__(self, text):
        self.text = text
        self.tokens = tokenize(text)
        self.partner = match_brackets(self.tokens)
        loops = (i for i in range(len(self.tokens)) if self.token(i) == "for" and self.token(i + 1) == "(")
        self.loop_heads = {inside for i in loops for inside in range(i + 1, self.partner[i + 1])}
        self.edits = []

    def token(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def between(self, first, last):
        """The text of the tokens from `first` to `last`."""
        return self.text[self.tokens[first].start:self.tokens[last].end]

    def put(self, kind, first, last, texts):
        for text in texts:
            self.edits.append(Edit(kind, self.tokens[first].start, self.tokens[last].end, text))

    def spaced(self, i):
        token = self.tokens[i]
        return self.text[token.start - 1:token.start].isspace() and self.text[token.end:token.end + 1].isspace()

    def run(self):
        left_alone = self.left_alone()
        for i, token in enumerate(self.tokens):
            if i in left_alone:
                continue
            if token.kind == "number":
                self.number(i)
            elif token.kind == "name":
                self.word(i)
            elif token.kind == "mark":
                self.mark(i)
        return self.edits

    def left_alone(self):
        """The indices of tokens that are not mutated: arguments that form a message, and attributes."""
        indices = set()
        for i, token in enumerate(self.tokens):
            if self.token(i + 1) == "(" and token.text in _LEFT_ALONE:
                indices |= set(range(i, self.partner[i + 1] + 1))
            if self.token(i + 1) == "(" and token.text == "check":  # only its message, not its condition
                first = next(self.arguments(i + 1), (i, i))
                indices |= set(range(first[1] + 1, self.partner[i + 1] + 1))
            if token.text == "[" and self.token(i + 1) == "[":
                indices |= set(range(i, self.partner[i] + 1))
        return indices

    def number(self, i):
        text = self.token(i)
        zero = not text.strip("0.'uUlLzZfF")
        self.put("constant", i, i, [f"({text} + 1)"] + ([] if zero or text == "1" else [f"({text} * 2)"]))
        if _FLOATING.match(text):
            self.put("constant", i, i, [] if zero else ["0.0"])
        elif not zero:
            self.put("constant", i, i, [f"({text} - 1)"] + ([] if text == "1" else ["0"]))

    def word(self, i):
        text = self.token(i)
        if text in _WORDS:
            self.put("constant", i, i, [_WORDS[text]])
        elif text in ("if", "while") and self.token(i + 1) == "(":
            self.condition(text, i + 1)
        elif text == "for" and self.token(i + 1) == "(":
            self.loop_condition(i + 1)
        elif text in _EXTREMES and self.token(i - 1) == "::":
            self.put("extreme", i, i, [_EXTREMES[text]])
        elif self.token(i + 1) == "(" and text not in _NOT_CALLS:
            self.exchanged(i + 1)
        self.statement(i)

    def mark(self, i):
        text = self.token(i)
        if text in _OPERATORS and self.spaced(i):
            self.put("operator", i, i, _OPERATORS[text])
        elif text in _STEPS:
            self.put("operator", i, i, [_STEPS[text]])
        elif text == "!" and not self.spaced(i):
            self.put("condition", i, i, [""])
        elif text == "-" and self.token(i - 1) in ("(", ",", "=", "return", "?", ":"):
            self.put("operator", i, i, [""])
        if text in ("*", "++", "--"):
            self.statement(i)

    def condition(self, keyword, opening):
        """Mutates the condition of an `if` or `while`. `while (true)` is not tried: it only costs time until the timeout."""
        inside = range(opening + 1, self.partner[opening])
        if not inside or any(self.token(i) in ("=", ";") for i in inside):
            return
        condition = self.between(inside[0], inside[-1])
        texts = [f"!({condition})", "false"] + (["true"] if keyword == "if" else [])
        self.put("condition", inside[0], inside[-1], texts)

    def loop_condition(self, opening):
        ends = [i for i in range(opening, self.partner[opening]) if self.token(i) == ";"]
        if len(ends) == 2 and ends[1] > ends[0] + 1:
            self.put("condition", ends[0] + 1, ends[1] - 1, ["false"])

    def arguments(self, opening):
        """The first and last token of each argument."""
        first = i = opening + 1
        closed = self.partner[opening]
        while i <= closed:
            if (i == closed or self.token(i) == ",") and i > first:
                yield first, i - 1
                first = i + 1
            i = self.partner[i] if self.token(i) in ("(", "[", "{") else i
            i += 1

    def exchanged(self, opening):
        arguments = list(self.arguments(opening))
        for (a, b), (c, d) in zip(arguments, arguments[1:]):
            one, other = self.between(a, b), self.between(c, d)
            if one != other:
                middle = self.text[self.tokens[b].end:self.tokens[c].start]
                self.put("arguments", a, d, [other + middle + one])

    def statement(self, i):
        """Deletes the statement that begins with token i: a call, assignment, increment, decrement, break or continue."""
        if not self.begins_statement(i) or self.token(i) in _NOT_STATEMENTS:
            return
        last = i
        while self.token(last) != ";":
            if self.token(last) in ("}", ")", ""):
                return
            last = self.partner.get(last, last) + 1
        if self.is_expression(i, last):
            self.put("statement", i, last, [";"])

    def begins_statement(self, i):
        before = self.token(i - 1)
        if before == ":":  # possibly the end of a label
            label = i - 1
            while self.token(label) not in (";", "{", "}", "?", "case", "default"):
                label -= 1
            return self.token(label) in ("case", "default")
        if before != ")":
            return before in (";", "{", "}", "else", "do") and i not in self.loop_heads
        return self.token(self.partner[i - 1] - 1) in ("if", "for", "while", "switch")

    def is_expression(self, i, last):
        if self.token(i) in ("break", "continue"):
            return last == i + 1
        while self.token(i) in ("*", "++", "--"):
            i += 1
        called = self.token(i - 1) in ("++", "--")
        while self.tokens[i].kind == "name" or self.token(i) == "(":
            if self.tokens[i].kind == "name":
                i += 1
            while self.token(i) in ("(", "["):
                called = True
                i = self.partner[i] + 1
            if self.token(i) not in ("::", ".", "->"):
                break
            i += 1
        return self.token(i) in _ASSIGNMENTS or (i == last and called)


def edits(text):
    """All edits of a file, sorted by their start. Some are outside all regions."""
    return sorted(_Mutator(text).run(), key=lambda edit: (edit.start, edit.end, edit.text))
