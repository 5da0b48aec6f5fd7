"""Finds the definitions of functions in a C++ file.

There is no parser. A scanner matches brackets, and the text before a brace tells what the brace opens. Bodies of
functions are not looked into. Raises ValueError if brackets do not match.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(r'''
    (?P<space>\s+|\\\n)
  | (?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
             |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark><=>|<<=|>>=|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)
''', re.VERBOSE | re.DOTALL)
_DIRECTIVE = re.compile(r"#(?:[^\n\\/]|\\.|/(?!\*)|/\*.*?\*/)*", re.DOTALL)
CLOSING = {"(": ")", "[": "]", "{": "}"}
# Parentheses after these words are no parameters.
NO_PARAMETERS = {"__launch_bounds__", "alignas", "decltype", "__attribute__", "noexcept", "explicit", "requires"}


@dataclass(frozen=True)
class Token:
    kind: str  # string, char, number, name or mark
    text: str
    begin: int  # offsets in the file
    end: int


@dataclass(frozen=True)
class Function:
    """The definition of a function: offsets in the file."""
    header: list[Token]      # all before the body, without a constructor's initialisers
    scope: tuple[str, ...]   # names of the namespaces and classes around it
    begin: int
    body_begin: int          # at the opening brace
    body_end: int            # after the closing brace


def tokenize(text: str) -> list[Token]:
    """The tokens of a file, without white space, comments and preprocessor directives."""
    tokens, at = [], 0
    while at < len(text):
        if text[at] == "#" and not text[text.rfind("\n", 0, at) + 1:at].strip():
            at = _DIRECTIVE.match(text, at).end()
            continue
        match = _TOKEN.match(text, at)
        kind = "string" if match.lastgroup == "delimiter" else match.lastgroup
        if kind not in ("space", "comment"):
            tokens.append(Token(kind, match.group(), match.start(), match.end()))
        at = match.end()
    return tokens


@lru_cache(maxsize=16)  # a file is searched for one signature after another
def functions(text: str) -> tuple[Function, ...]:
    """All functions that are defined in a file, in order."""
    scanner = _Scanner(text)
    return tuple(scanner.scan(0, len(scanner.tokens), ()))


def parameters(tokens: list[Token]) -> int | None:
    """The index of the parenthesis that opens the parameters of a declaration."""
    header = _Header(tokens, partners(tokens))
    i = 0
    while i < len(tokens):
        i = header.step(i) + 1
    return header.parameters


def partners(tokens: list[Token]) -> dict[int, int]:
    """Maps the index of each bracket to the index of its partner."""
    partner, opened = {}, []
    for i, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in CLOSING:
            opened.append(i)
        elif token.text in CLOSING.values():
            if not opened or CLOSING[tokens[opened[-1]].text] != token.text:
                raise ValueError(f"unmatched '{token.text}' at offset {token.begin}")
            partner[opened[-1]] = i
            partner[i] = opened.pop()
    if opened:
        raise ValueError(f"unmatched '{tokens[opened[-1]].text}' at offset {tokens[opened[-1]].begin}")
    return partner


def angle_end(tokens: list[Token], partner: dict[int, int], i: int) -> int:
    """The index of the `>` that closes the `<` at i, or i if none does before the declaration ends."""
    depth, at = 0, i
    while at < len(tokens) and tokens[at].text not in (";", "{", "}", ")"):
        depth += {"<": 1, ">": -1, ">>": -2}.get(tokens[at].text, 0)
        if depth <= 0:
            return at
        at = partner[at] if tokens[at].text in CLOSING else at
        at += 1
        if at < len(tokens) and tokens[at].text == "{":  # braces inside of template arguments
            at = partner[at] + 1
    return i


class _Header:
    """The part of a declaration before a brace or a semicolon."""

    def __init__(self, tokens: list[Token], partner: dict[int, int]):
        self.tokens, self.partner = tokens, partner
        self.reset(0)

    def reset(self, begin: int) -> None:
        self.begin = begin
        self.words: list[str] = []           # names outside of all brackets
        self.parameters: int | None = None   # index of the parenthesis
        self.equals = False
        self.colon: int | None = None        # index of the colon after the parameters: a constructor's initialisers

    def step(self, i: int) -> int:
        """Reads a part of the declaration. Returns the index of the part's last token."""
        token = self.tokens[i]
        following = self.tokens[i + 1].text if i + 1 < len(self.tokens) else ""
        if token.text == "operator" and not self.equals:
            return self.operator(i)
        if token.text == "requires" and not self.equals:
            return requires_end(self.tokens, self.partner, i)
        if token.text == "<" and not self.equals:
            return angle_end(self.tokens, self.partner, i)
        if token.text in CLOSING:
            if token.text == "(" and not self.equals and self.parameters is None:
                self.on_parenthesis(i)
            return self.partner[i]
        if token.text == "=":
            self.equals = True
        elif token.text == ":" and self.parameters is not None and self.colon is None:
            self.colon = i
        elif token.kind == "name":
            self.words.append(token.text)
            if token.text in NO_PARAMETERS and following == "(":
                return self.partner[i + 1]
        return i

    def on_parenthesis(self, i: int) -> None:
        before = self.tokens[i - 1] if i > self.begin else None
        if before and (before.kind == "name" or before.text in (">", ">>")) and i - 1 >= self.begin:
            closed = self.partner[i]
            following = self.tokens[closed + 1] if closed + 1 < len(self.tokens) else None
            # A macro before a declaration: NAME(...) int f().
            if following and following.kind == "name" and following.text not in (
                    "const", "volatile", "noexcept", "override", "final", "requires", "try", "mutable"):
                return
            self.parameters = i

    def operator(self, i: int) -> int:
        """The name of an operator: up to the parenthesis of its parameters."""
        at = i + 1
        if at + 1 < len(self.tokens) and self.tokens[at].text == "(" and self.tokens[at + 1].text == ")":
            at += 2
        while at < len(self.tokens) and self.tokens[at].text not in ("(", ";"):
            at += 1
        if at == len(self.tokens) or self.tokens[at].text == ";":  # using A::operator+;
            return at - 1
        if self.parameters is None:
            self.parameters = at
        return self.partner[at]


def requires_end(tokens: list[Token], partner: dict[int, int], i: int) -> int:
    """The index of the last token of `requires CONSTRAINT && CONSTRAINT`."""
    while True:
        i += 1
        while i < len(tokens) and tokens[i].text == "!":
            i += 1
        if i < len(tokens) and tokens[i].text == "requires":  # requires (T t) { ... }
            i += 1
            if i < len(tokens) and tokens[i].text == "(":
                i = partner[i] + 1
            i = partner.get(i, i)
        elif i < len(tokens) and tokens[i].text in CLOSING:  # (a && b)
            i = partner[i]
        else:  # std::integral<T>
            while i + 1 < len(tokens) and tokens[i + 1].text == "::":
                i += 2
            if i + 1 < len(tokens) and tokens[i + 1].text == "<":
                i = angle_end(tokens, partner, i + 1)
        if i + 1 >= len(tokens) or tokens[i + 1].text not in ("&&", "||"):
            return min(i, len(tokens) - 1)
        i += 1


class _Scanner:
    def __init__(self, text: str):
        self.tokens = tokenize(text)
        self.partner = partners(self.tokens)

    def scan(self, begin: int, end: int, scope: tuple[str, ...]) -> Iterator[Function]:
        """The functions of a namespace or a class."""
        header, i = _Header(self.tokens, self.partner), begin
        header.reset(begin)
        while i < end:
            token = self.tokens[i]
            if token.text == ";":
                header.reset(i + 1)
            elif token.text == "{":
                closed = self.partner[i]
                if header.equals or self.initialises(header, i):
                    pass
                elif header.parameters is not None:
                    yield self.function(header, i, scope)
                    header.reset(closed + 1)
                else:
                    inner = self.inner_scope(header)
                    if inner is not None:
                        yield from self.scan(i + 1, closed, scope + inner)
                        header.reset(closed + 1)
                i = closed
            elif token.text == ":" and i and self.tokens[i - 1].text in ("public", "private", "protected"):
                header.reset(i + 1)
            else:
                i = header.step(i)
            i += 1

    def initialises(self, header: _Header, i: int) -> bool:
        """Whether a brace belongs to a member's initial value: `: a_{1}`."""
        before = self.tokens[i - 1]
        names_a_member = before.kind == "name" or before.text in (">", ">>")
        return header.colon is not None and header.colon < i - 1 and names_a_member

    def function(self, header: _Header, i: int, scope: tuple[str, ...]) -> Function:
        end = i if header.colon is None else header.colon
        tokens = self.tokens[header.begin:end]
        if tokens[-1].text == "try":
            tokens = tokens[:-1]
        return Function(tokens, scope, tokens[0].begin, self.tokens[i].begin, self.tokens[self.partner[i]].end)

    def inner_scope(self, header: _Header) -> tuple[str, ...] | None:
        """The names that a brace adds to the scope; None if there are no declarations behind it."""
        words = header.words
        if "namespace" in words:
            return tuple(word for word in words if word not in ("namespace", "inline"))
        if words[:1] == ["extern"]:
            return ()
        if "enum" in words:
            return None
        for kind in ("class", "struct", "union"):
            if kind in words:
                names = [word for word in words[words.index(kind) + 1:] if word not in NO_PARAMETERS]
                return tuple(names[:1])
        return None


