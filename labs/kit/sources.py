"""What the source text of a submission may not hold, because it would act on the compiler or on the tests."""

import re

from kit.symbols import Findings

# A quote behind a letter or digit separates digits, and begins no character.
_COMMENTS_AND_STRINGS = re.compile(
    r'(?<!\w)(?:u8|[uUL])?R"([^()\\\s]{0,16})\((?:.*?\)\1"|(.*))|//[^\n]*|/\*(?:.*?\*/|(.*))|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'", re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_TESTS = re.compile(r"(EXPECT|ASSERT|TEST|GTEST|SUCCEED|FAIL|ADD_FAILURE|SCOPED)_?|main$|private$|public$|protected$")
_ASSEMBLER = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_ATTRIBUTE = re.compile(r"(?<!\w)(?:__)?(?:constructor|destructor|ifunc|alias|weak|section|interrupt|symver|init_priority)"
                        r"(?:__)?(?!\w)|\bredefine_extname\b")
_PASTE = re.compile(r"##|%:%:")


def screen(path: str, text: str, reference: str) -> Findings:
    """Compares a student's file with the reference's."""
    findings = Findings()
    text = re.sub(r"\\[ \t\r]*\n", "", text)
    if any(match[2] is not None or match[3] is not None for match in _COMMENTS_AND_STRINGS.finditer(text)):
        findings.refused.append(f"{path} has a comment or a raw string without an end")
    code, known = _without_comments(text), _without_comments(reference)
    included = {match.strip() for match in _INCLUDE.findall(reference)}
    for name in _INCLUDE.findall(_without_comments(text, strings=True)):
        if not re.fullmatch(r'<[\w./+-]+>|"[\w/+-][\w./+-]*"', name) or ".." in name or name[1] == "/":
            findings.refused.append(f"{path} includes {name[:100]}")
        elif name not in [*included, '"labs/kit/todo.h"'] and name.startswith('"'):
            findings.flags.append(f"{path} includes {name}, which the solution does not")
    for name in sorted(set(_DEFINE.findall(code)) - set(_DEFINE.findall(known))):
        refused = _TESTS.match(name)
        (findings.refused if refused else findings.flags).append(f"{path} defines the macro {name}")
    for what, pattern in (("assembler", _ASSEMBLER), ("an attribute of the linker", _ATTRIBUTE),
                          ("a macro that pastes names", _PASTE)):
        if pattern.search(code) and not pattern.search(known):
            findings.refused.append(f"{path} uses {what}: {pattern.search(code).group()}")
    return findings


def _without_comments(text: str, strings: bool = False) -> str:
    """The text with a blank for each comment, and "" for each string and character unless `strings` are kept."""
    def replaced(match: re.Match) -> str:
        if match.group().startswith("/"):
            return " "
        return match.group() if strings else '""'
    return _COMMENTS_AND_STRINGS.sub(replaced, text)
