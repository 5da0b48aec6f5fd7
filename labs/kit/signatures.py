"""Signatures of functions: their names, and whether two are those of the same function."""

import re
from collections.abc import Iterator

from kit.cpp import CLOSING, NO_PARAMETERS, Function, Token, angle_end, parameters, partners, requires_end

_SPECIFIERS = {"static", "inline", "constexpr", "explicit", "virtual", "extern", "friend", "__global__", "__device__",
               "__host__", "__forceinline__", "__noinline__"}


def function_name(tokens: list[Token]) -> str:
    """The name before the parameters, with the classes it is qualified with: Ring::sent. Empty if there is none."""
    try:
        i = parameters(tokens)
    except ValueError:
        i = None
    if not i:
        return ""
    name = tokens[_name_begin(tokens, i):i]
    return "".join("operator " if token.text == "operator" and following.kind == "name" else token.text
                   for token, following in zip(name, [*name[1:], tokens[i]]))


def spelled(tokens: list[Token]) -> str:
    """Tokens as a text on one line, with a blank where the file has white space."""
    parts = [tokens[0].text] if tokens else []
    for before, token in zip(tokens, tokens[1:]):
        parts.append(" " if token.begin > before.end else "")
        parts.append(token.text)
    return "".join(parts)


def signature_of(function: Function) -> str:
    """As a lab file may name the function: without template heads, specifiers and attributes."""
    header = _without_attributes(function.header)
    return spelled(header[_prefix_end(header):] or header)


def equal_declarations(signature: list[Token], function: Function) -> bool:
    """Whether a signature is that of a function. A signature may omit template heads, specifiers such as `static`,
    attributes, default arguments, `noexcept`, `override`, `requires` and a trailing return type; and, inside of a
    class, its name."""
    header = _without_defaults(_without_attributes(function.header))
    texts = [token.text for token in header]
    for wanted in _spellings(_without_defaults(_without_attributes(signature)), function.scope):
        for at in range(len(texts) - len(wanted) + 1):
            end = at + len(wanted)
            if texts[at:end] == wanted and _is_prefix(header[:at]) and _is_suffix(header[end:]):
                return True
    return False


def _spellings(signature: list[Token], scope: tuple[str, ...]) -> Iterator[list[str]]:
    """A signature as it is; and without the qualification that its scope makes superfluous."""
    texts = [token.text for token in signature]
    yield texts
    opening = parameters(signature)
    if not opening:
        return
    begin = _name_begin(signature, opening)
    qualifiers, at = [], begin
    while at + 1 < opening and texts[at + 1] == "::":
        qualifiers.append(texts[at])
        at += 2
        if tuple(qualifiers) == scope[-len(qualifiers):]:
            yield texts[:begin] + texts[at:]


def _name_begin(tokens: list[Token], opening: int) -> int:
    """The index where the qualified name before a parenthesis begins."""
    i = opening
    for k in range(opening - 1, -1, -1):  # operator+, operator(), operator bool
        if tokens[k].text == "operator":
            i = k + 1
            break
    i -= 1
    if i and tokens[i].text in (">", ">>"):  # f<int>(
        i = _angle_begin(tokens, i) - 1
    if i and tokens[i - 1].text == "~":
        i -= 1
    while i >= 2 and tokens[i - 1].text == "::":
        i -= 2
        if tokens[i].text in (">", ">>"):
            i = _angle_begin(tokens, i) - 1
    return i


def _angle_begin(tokens: list[Token], i: int) -> int:
    depth = 0
    while i >= 0:
        depth += {">": 1, ">>": 2, "<": -1}.get(tokens[i].text, 0)
        if depth <= 0:
            return i
        i -= 1
    return 0


def _without_attributes(tokens: list[Token]) -> list[Token]:
    """A declaration without [[...]] and __launch_bounds__(...), which may also stand behind the return type."""
    partner = partners(tokens)
    kept, i = [], 0
    while i < len(tokens):
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        if tokens[i].text == "[" and following == "[":
            i = partner[i]
        elif tokens[i].text in ("__launch_bounds__", "__attribute__") and following == "(":
            i = partner[i + 1]
        else:
            kept.append(tokens[i])
        i += 1
    return kept


def _without_defaults(tokens: list[Token]) -> list[Token]:
    """A declaration without the default values of its parameters."""
    opening = parameters(tokens)
    if opening is None:
        return tokens
    partner = partners(tokens)
    kept, i, skips = tokens[:opening + 1], opening + 1, False
    while i < partner[opening]:
        if tokens[i].text == "<":
            closed = angle_end(tokens, partner, i)
        else:
            closed = partner[i] if tokens[i].text in CLOSING else i
        if tokens[i].text == "=":
            skips = True
        elif tokens[i].text == ",":
            skips = False
        if not skips:
            kept += tokens[i:closed + 1]
        i = closed + 1
    return kept + tokens[partner[opening]:]


def _prefix_end(tokens: list[Token]) -> int:
    """The number of tokens that belong to template heads, specifiers and attributes before a declaration."""
    partner = partners(tokens)
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        if text == "template" and following == "<":
            i = angle_end(tokens, partner, i + 1) + 1
        elif text == "requires":
            i = requires_end(tokens, partner, i) + 1
        elif text in NO_PARAMETERS and following == "(":
            i = partner[i + 1] + 1
        elif text in _SPECIFIERS or tokens[i].kind == "string":
            i += 1
        elif re.fullmatch(r"[A-Z][A-Z0-9_]*", text) and following == "(":  # a macro
            i = partner[i + 1] + 1
        else:
            break
    return i


def _is_prefix(tokens: list[Token]) -> bool:
    try:
        return _prefix_end(tokens) == len(tokens)
    except ValueError:  # a part of a bracket
        return False


def _is_suffix(tokens: list[Token]) -> bool:
    """Whether tokens may follow a signature: noexcept, override, final, requires ..., -> TYPE."""
    try:
        partner = partners(tokens)
    except ValueError:
        return False
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        if text == "->":
            return True
        if text == "requires":
            i = requires_end(tokens, partner, i) + 1
        elif text in ("noexcept", "override", "final"):
            i += 1
            if text == "noexcept" and i < len(tokens) and tokens[i].text == "(":
                i = partner[i] + 1
        else:
            return False
    return True
