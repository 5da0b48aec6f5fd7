"""Finds the tokens of a C++ file, and its regions: the places where a mutant can be switched on at run time.

A region is the body of a function, or an expression outside functions that initialises a variable. A program can contain
two versions of a region and choose between them at run time. There is no parser: the scanner matches brackets, and
the text before a brace tells what the brace opens.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(r'''
    (?P<space>\s+)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
             |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark><=>|<<=|>>=|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)
''', re.VERBOSE | re.DOTALL)
_DIRECTIVE = re.compile(r"#(?:[^\n\\]|\\.)*", re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NOT_VARIABLES = {"using", "typedef", "static_assert", "namespace", "friend", "concept", "requires", "extern"}


@dataclass(frozen=True)
class Token:
    kind: str  # string, char, number, name or mark
    text: str
    start: int  # offsets in the file
    end: int


@dataclass(frozen=True)
class Region:
    kind: str  # "body" of a function, "argument" of a constructor's initialiser, or a variable's "value"
    start: int
    end: int
    # For a value: the beginning and end of its declaration, and its token `constexpr` if it has one.
    declaration: tuple = (0, 0)
    constexpr: Token | None = None
    in_class: bool = False


def tokenize(text):
    """The tokens of a file, without white space, comments and preprocessor directives."""
    tokens, at = [], 0
    while at < len(text):
        if text[at] == "#" and not text[text.rfind("\n", 0, at) + 1:at].strip():
            at = _DIRECTIVE.match(text, at).end()
            continue
        match = _TOKEN.match(text, at)
        if match.lastgroup not in ("space", "comment"):
            kind = "string" if match.lastgroup == "delimiter" else match.lastgroup
            tokens.append(Token(kind, match.group(), match.start(), match.end()))
        at = match.end()
    return tokens


def match_brackets(tokens):
    """Maps the index of each bracket to the index of its partner."""
    partner, opened = {}, []
    for i, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _CLOSING:
            opened.append(i)
        elif token.text in _CLOSING.values():
            if not opened or _CLOSING[tokens[opened[-1]].text] != token.text:
                raise ValueError(f"unmatched '{token.text}' at offset {token.start}")
            partner[opened[-1]] = i
            partner[i] = opened.pop()
    if opened:
        raise ValueError(f"unmatched '{tokens[opened[-1]].text}' at offset {tokens[opened[-1]].start}")
    return partner


class _Header:
    """The part of a declaration before a brace or a semicolon."""

    def __init__(self, begin):
        self.begin = begin
        self.words = []        # names outside all brackets
        self.parameters = False  # whether there are parentheses outside all other brackets: a function
        self.equals = None     # the index of '='
        self.colon = False     # whether a colon follows the parameters: a constructor's initialisers


class _Scanner:
    def __init__(self, text):
        self.tokens = tokenize(text)
        self.partner = match_brackets(self.tokens)
        self.regions = []

    def scan(self, begin, end, in_class):
        """Scans the declarations of a namespace or a class."""
        header, i = _Header(begin), begin
        while i < end:
            token = self.tokens[i]
            if token.text == ";":
                self.value(header, i, in_class)
                header = _Header(i + 1)
            elif token.text == "{":
                closed = self.partner[i]
                if self.opened(header, i, closed):
                    header = _Header(closed + 1)
                i = closed
            elif token.text == ":" and self.tokens[i - 1].text in ("public", "private", "protected"):
                header = _Header(i + 1)
            else:
                i = self.part(header, i)
            i += 1

    def part(self, header, i):
        """Adds a part of a declaration to its header. Returns the index of the part's last token."""
        token = self.tokens[i]
        if token.text == "template" and self.tokens[i + 1].text == "<":
            return self.angle_end(i + 1)
        if token.text == "operator":
            while self.tokens[i + 1].text != "(":
                i += 1
            return self.partner[i + 1] if self.tokens[i + 2].text == ")" and self.tokens[i + 3].text == "(" else i
        if token.text in ("(", "["):
            if token.text == "(" and header.colon:
                self.arguments(i)
            header.parameters |= token.text == "(" and header.equals is None
            return self.partner[i]
        if token.text == "=" and header.equals is None:
            header.equals = i
        elif token.text == ":" and header.parameters:
            header.colon = True
        elif token.kind == "name":
            header.words.append(token.text)
        return i

    def angle_end(self, i):
        depth = 0
        while True:
            depth += {"<": 1, ">": -1, ">>": -2}.get(self.tokens[i].text, 0)
            if depth <= 0:
                return i
            i = self.partner[i] if self.tokens[i].text in _CLOSING else i
            i += 1

    def opened(self, header, i, closed):
        """Scans the content of a pair of braces. Returns whether the declaration ends with them."""
        words = set(header.words)
        if header.equals is not None or "enum" in words:
            return False  # the declaration ends with a semicolon
        if header.parameters:
            if header.colon and self.tokens[i - 1].kind == "name" and self.tokens[i - 1].text != "noexcept":
                self.arguments(i)
                return False
            if "consteval" not in words:
                self.regions.append(Region("body", self.tokens[i].end, self.tokens[closed].start))
            return True
        if "namespace" in words or (header.words[:1] == ["extern"] and self.tokens[i - 1].kind == "string"):
            self.scan(i + 1, closed, in_class=False)
            return True
        if words & {"class", "struct", "union"}:
            self.scan(i + 1, closed, in_class=True)
        return False

    def arguments(self, opening):
        for start, end in self.pieces(opening):
            self.regions.append(Region("argument", start, end))

    def pieces(self, opening):
        """The offsets of the parts between two brackets, separated by commas."""
        closed = self.partner[opening]
        i = first = opening + 1
        while i <= closed:
            if i == closed or self.tokens[i].text == ",":
                if i > first:
                    yield self.tokens[first].start, self.tokens[i - 1].end
                first = i + 1
            i = self.partner[i] if self.tokens[i].text in _CLOSING else i
            i += 1

    def value(self, header, semicolon, in_class):
        """Adds the initial value of a variable, or each element of a list in braces."""
        first = header.equals
        if first is None or header.parameters or set(header.words) & _NOT_VARIABLES:
            return
        tokens = self.tokens[header.begin:first]
        constexpr = next((token for token in tokens if token.text == "constexpr"), None)
        pieces = self.declarators(first + 1, semicolon)
        if self.tokens[first + 1].text == "{":
            pieces = self.leaves(first + 1)
        declaration = (self.tokens[header.begin].start, self.tokens[semicolon].end)
        for start, end in pieces:
            if self.tokens[first + 1].text not in ("default", "delete"):
                self.regions.append(Region("value", start, end, declaration, constexpr, in_class))

    def declarators(self, i, semicolon):
        """The offsets of each value in `a = 1, b = 2;`."""
        first = i
        while i <= semicolon:
            if i == semicolon or self.tokens[i].text == ",":
                if first is not None:
                    yield self.tokens[first].start, self.tokens[i - 1].end
                first = None
            elif self.tokens[i].text == "=":
                first = i + 1
            i = self.partner[i] if self.tokens[i].text in _CLOSING else i
            i += 1

    def leaves(self, opening):
        for start, end in self.pieces(opening):
            inner = next(i for i in range(opening + 1, self.partner[opening]) if self.tokens[i].start == start)
            if self.tokens[inner].text == "{":
                yield from self.leaves(inner)
            elif self.tokens[inner].text != ".":  # a designated initialiser
                yield start, end


def regions(text):
    """All regions of a file, in order. Raises ValueError if brackets do not match."""
    scanner = _Scanner(text)
    scanner.scan(0, len(scanner.tokens), in_class=False)
    return sorted(scanner.regions, key=lambda region: region.start)
