"""Cuts functions out of a source file, and puts them back.

A function is named by its signature. Its body is replaced by a hint and a call of lab::todo(), which throws. No marker
is needed in the source.
"""

import difflib
import re
from dataclasses import dataclass

from kit import cpp, signatures
from kit.lab_file import Cut, LabError

INCLUDE = '#include "labs/kit/todo.h"\n'


@dataclass(frozen=True)
class Definition:
    """Offsets in a file."""
    begin: int       # of the declaration
    body_begin: int  # at the opening brace
    body_end: int    # after the closing brace


def find(text: str, signature: str, file: str = "") -> Definition:
    """The definition of a function. Raises LabError, naming the file and the candidates, unless there is exactly one.

    What a signature may omit: signatures.equal_declarations().
    """
    place = f"{file}: " if file else ""
    functions = _functions(text, place)
    wanted = cpp.tokenize(signature)
    found = [function for function in functions if signatures.equal_declarations(wanted, function)]
    if len(found) == 1:
        return Definition(found[0].begin, found[0].body_begin, found[0].body_end)
    if found:
        raise LabError(f"{place}'{signature}' is defined {len(found)} times: {_listed(text, found)}")
    name = signatures.function_name(wanted).split("::")[-1]
    candidates = [function for function in functions
                  if signatures.function_name(function.header).split("::")[-1] == name]
    if not candidates:
        spelled = {signatures.signature_of(function): function for function in functions}
        candidates = [spelled[near] for near in difflib.get_close_matches(signature, spelled, 3, 0.5)]
    listed = f"; candidates: {_listed(text, candidates)}" if candidates else ""
    raise LabError(f"{place}'{signature}' is defined nowhere{listed}")


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


def _functions(text: str, place: str) -> list[cpp.Function]:
    try:
        return cpp.functions(text)
    except ValueError as error:
        offset = int(str(error).rsplit(" ", 1)[1])
        raise LabError(f"{place}line {_line(text, offset)}: unmatched '{text[offset]}'") from error


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _listed(text: str, functions: list[cpp.Function]) -> str:
    return "; ".join(f"line {_line(text, function.begin)} '{signatures.signature_of(function)}' in "
                     f"{'::'.join(function.scope) or 'the global namespace'}" for function in functions)


def _stub(text: str, definition: Definition, cut: Cut) -> str:
    line = text[text.rfind("\n", 0, definition.begin) + 1:definition.begin]
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
