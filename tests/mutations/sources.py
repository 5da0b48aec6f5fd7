"""Finds the tokens of a C++ file, and the bodies of its functions: there a mutant can be switched on at run time.

There is no parser: the scanner matches brackets, and the text before a brace tells what the brace opens.
"""

import re
from collections import namedtuple

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

# What is before a brace, with brackets left empty and without template arguments.
_TEMPLATE = re.compile(r"< [^<>]*> ")
_OPERATOR = re.compile(r"operator \S+ ")
_SCOPE = re.compile(r'.*\bnamespace |extern "C" $|((public|protected|private) : |template |\[ )*(class|struct|union) ')
_NO_BODY = re.compile(r".*\b(enum|consteval) |.* = |[^(]*$|.*\( .*: (.* )?(?!noexcept)\w+ $")  # last: `A() : member_{}`

Token = namedtuple("Token", "kind text start end")  # kind: string, char, number, name or mark


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
        if token.kind == "mark" and token.text in _CLOSING:
            opened.append(i)
        elif token.kind == "mark" and token.text in _CLOSING.values():
            if not opened or _CLOSING[tokens[opened[-1]].text] != token.text:
                raise ValueError(f"unmatched '{token.text}' at offset {token.start}")
            partner[opened[-1]] = i
            partner[i] = opened.pop()
    if opened:
        raise ValueError(f"unmatched '{tokens[opened[-1]].text}' at offset {tokens[opened[-1]].start}")
    return partner


def bodies(text):
    """The bodies of a file's functions, in order, as (start, end). Raises ValueError if brackets do not match."""
    tokens = tokenize(text)
    return list(_scan(tokens, match_brackets(tokens), 0, len(tokens)))


def _scan(tokens, partner, i, end):
    """The bodies among the declarations of a namespace or a class."""
    before = ""
    while i < end:
        closed = partner.get(i, i)
        if tokens[i].text == "{":
            kind = _kind(before)
            if kind == "scope":
                yield from _scan(tokens, partner, i + 1, closed)
            elif kind == "body":
                yield tokens[i].end, tokens[closed].start
            before = "" if kind else before + "{ "
        else:
            before = "" if tokens[i].text == ";" else f"{before}{tokens[i].text} "
        i = closed + 1


def _kind(before):
    """What a brace opens: "scope" of declarations, "body" of a function, or None for a part of a declaration."""
    before, count = _OPERATOR.sub("operator ", before.replace(">>", "> >")), 1
    while count:
        before, count = _TEMPLATE.subn("", before)
    return "scope" if _SCOPE.match(before) else None if _NO_BODY.match(before) else "body"


def body_of(all_bodies, start, end):
    """The body that contains these offsets, or None."""
    return next((body for body in all_bodies if body[0] <= start and end <= body[1]), None)
