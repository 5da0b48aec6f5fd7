"""Cuts functions out of a source file, and puts them back.

A function is named by its signature. Its body is replaced by a hint and a call of lab::todo(), which throws. No marker
is needed in the source.
"""

import re
from dataclasses import dataclass

from kit import cpp
from kit.lab_file import Cut, LabError, function_name

INCLUDE = '#include "labs/kit/todo.h"\n'


@dataclass(frozen=True)
class Definition:
    """Offsets in a file."""
    begin: int       # of the declaration
    body_begin: int  # at the opening brace
    body_end: int    # after the closing brace


def find(text: str, signature: str, file: str = "") -> Definition:
    """The definition of a function. Raises LabError, naming the file and the candidates, unless there is exactly one.

    A signature is spelled as in the file, apart from white space. What comes before it may be omitted (template heads, `static`), and
    behind it `override`, `final`, `noexcept` and a constructor's initialisers.
    """
    place = f"{file}: " if file else ""
    tokens, wanted = cpp.tokenize(text), [token.text for token in cpp.tokenize(signature)]
    try:
        partner = cpp.partners(tokens)
    except ValueError as error:
        offset = int(str(error).rsplit(" ", 1)[1])
        raise LabError(f"{place}line {_line(text, offset)}: unmatched '{text[offset]}'") from error
    texts = [token.text for token in tokens]
    found = []
    for at in range(len(texts) - len(wanted)):
        if texts[at] == wanted[0] and texts[at:at + len(wanted)] == wanted:
            body = _body(texts, partner, at + len(wanted))
            if body is not None:
                found.append(Definition(tokens[at].begin, tokens[body].begin, tokens[partner[body]].end))
    if len(found) == 1:
        return found[0]
    if found:
        lines = ", ".join(f"line {_line(text, one.begin)}" for one in found)
        raise LabError(f"{place}'{signature}' is defined {len(found)} times: {lines}")
    name = function_name(signature).split("::")[-1]
    lines = [f"line {i} '{line.strip()}'" for i, line in enumerate(text.splitlines(), 1) if name and f"{name}(" in line]
    raise LabError(f"{place}'{signature}' is defined nowhere" + (f"; candidates: {'; '.join(lines[:3])}" if lines else ""))


def _body(texts: list[str], partner: dict[int, int], at: int) -> int | None:
    """The index of the brace behind a signature that ends at `at`; None if it is a declaration or a call."""
    while at < len(texts) and texts[at] in ("override", "final", "noexcept"):
        at += 1
    if at < len(texts) and texts[at] == ":":  # initialisers: a(b), c(d)
        while at < len(texts) and texts[at] not in ("{", ";"):
            at = partner[at] + 1 if texts[at] == "(" else at + 1
    return at if at < len(texts) and texts[at] == "{" else None


def cut(text: str, cuts: list[Cut], file: str = "") -> str:
    """The text with the body of each function replaced by its hint and lab::todo()."""
    places = sorted(((find(text, one.signature, file), one) for one in cuts), key=lambda place: place[0].begin)
    for (before, first), (after, second) in zip(places, places[1:]):
        if after.begin < before.body_end:
            raise LabError(f"{file}: '{first.signature}' and '{second.signature}' are the same function")
    for definition, one in reversed(places):
        text = text[:definition.body_begin] + _stub(text, definition, one) + text[definition.body_end:]
    return _with_include(text) if cuts else text


def restore(student_text: str, original_text: str, cut: Cut, file: str = "") -> str:
    """The student's text with the original body of one function. All cuts restored, the text is the original."""
    ours, original = find(student_text, cut.signature, file), find(original_text, cut.signature, file)
    text = (student_text[:ours.body_begin] + original_text[original.body_begin:original.body_end]
            + student_text[ours.body_end:])
    return without_include(text) if "lab::todo(" not in text else text


def is_defined(text: str, cut: Cut) -> bool:
    """Whether a text has a function, once."""
    try:
        find(text, cut.signature)
        return True
    except LabError:
        return False


def is_cut(text: str, cut: Cut, file: str = "") -> bool:
    """Whether a function still calls lab::todo()."""
    definition = find(text, cut.signature, file)
    body = cpp.tokenize(text[definition.body_begin:definition.body_end])
    texts = [token.text for token in body]
    return any(texts[i:i + 4] == ["lab", "::", "todo", "("] for i in range(len(texts)))


def without_include(text: str) -> str:
    return re.sub(r'^[ \t]*#include "labs/kit/todo\.h"[^\n]*\n', "", text, flags=re.MULTILINE)


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _stub(text: str, definition: Definition, cut: Cut) -> str:
    line = text[text.rfind("\n", 0, definition.body_end) + 1:definition.body_end]  # the closing brace is indented as the function
    indent = re.match(r"[ \t]*", line).group()
    hints = "".join(f"{indent}  // {hint}\n" for hint in cut.hint.splitlines())
    return f'{{\n{hints}{indent}  lab::todo("{cut.label}");\n{indent}}}'


def _with_include(text: str) -> str:
    """Adds the line that declares lab::todo(): after the last #include before the first stub, but not inside an #if."""
    end, at, depth = text.index("lab::todo("), 0, 0
    after = pragma = 0
    for line in text[:end].splitlines(keepends=True):
        at += len(line)
        directive = re.match(r"\s*#\s*(\w+)", line)
        word = directive.group(1) if directive else ""
        depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(word, 0)
        if word == "include" and depth == 0:
            after = at
        elif word == "pragma" and "once" in line:
            pragma = at
    place = after or pragma
    return text[:place] + INCLUDE + text[place:]
