"""The tokens of a C++ file, and its brackets. There is no parser."""

import re
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


@dataclass(frozen=True)
class Token:
    kind: str  # string, char, number, name or mark
    text: str
    begin: int  # offsets in the file
    end: int


@lru_cache(maxsize=16)  # a file is searched for one signature after another
def tokenize(text: str) -> tuple[Token, ...]:
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
    return tuple(tokens)


def partners(tokens: tuple[Token, ...]) -> dict[int, int]:
    """Maps the index of each bracket to the index of its partner. Raises ValueError if brackets do not match."""
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
