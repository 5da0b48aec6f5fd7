"""Inserts mutants into a C++ file next to the original code, switched by STAGEGPT_MUTANT (switch.h).

A function's body becomes `if (mutant 17) { mutated } else { original }`, an expression `(mutant 17 ? mutated :
original)`. Line directives assign the code of a mutant to a file mutant_17/…, so that the compiler's errors name the invalid
mutants.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from cpp_source import regions

_MARK = re.compile(r"\bmutant_(\d+)/")
_SWITCH = (Path(__file__).resolve().parent / "switch.h").read_text()


@dataclass
class Mutant:
    """An edit of a file, as Edit in mutators.py; `file` is relative to the repository's root."""
    id: int
    kind: str
    file: str
    start: int
    end: int
    text: str
    tests: list = field(default_factory=list)  # patterns of the tests that are expected to fail

    def lines(self, source):
        """The lines that the mutant changes, before and after the change."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end)
        before, after = source[first:self.start], source[self.end:len(source) if last < 0 else last]
        return before + source[self.start:self.end] + after, before + self.text + after

    def line_number(self, source):
        return source.count("\n", 0, self.start) + 1


def region_of(all_regions, start, end):
    """The region that contains these offsets, or None."""
    return next((region for region in all_regions if region.start <= start and end <= region.end), None)


def rewritten(source, mutants):
    """`source` with all `mutants` of that file inserted. Each must be inside a region."""
    groups = {}
    all_regions = regions(source)
    for mutant in mutants:
        region = region_of(all_regions, mutant.start, mutant.end)
        if region is None:
            raise ValueError(f"{mutant.file}:{mutant.line_number(source)}: no place for a mutant")
        groups.setdefault(region, []).append(mutant)
    changes = [change for region, group in groups.items() for change in _changes(source, region, group)]
    # Changes are made from the end of the file, so that the offsets of earlier changes remain valid.
    for start, end, text in sorted(set(changes), key=lambda change: change[:2], reverse=True):
        source = source[:start] + text + source[end:]
    return f'#line 1 "switch.h"\n{_SWITCH}#line 1 "{mutants[0].file}"\n{source}'


def mentioned(errors):
    """The mutants named in lines with compiler errors; if there are none, the mutants named in any line."""
    at_fault = {int(match) for line in errors.splitlines() if "error:" in line for match in _MARK.findall(line)}
    return at_fault or {int(match) for match in _MARK.findall(errors)}


def _line(source, at, file, mutant=None):
    """A line directive for the offset `at`."""
    place = file if mutant is None else f"mutant_{mutant.id}/{file}"
    return f'\n#line {source.count(chr(10), 0, at) + 1} "{place}"\n'


def _mutated(source, region, mutant):
    return source[region.start:mutant.start] + mutant.text + source[mutant.end:region.end]


def _changes(source, region, mutants):
    file = mutants[0].file
    original = source[region.start:region.end]
    if region.kind == "body":
        parts = [f"if (STAGEGPT_MUTANT({mutant.id})) {{{_line(source, region.start, file, mutant)}"
                 f"{_mutated(source, region, mutant)}}} else " for mutant in mutants]
        text = "".join(parts) + f"{{{_line(source, region.start, file)}{original}}}" + _line(source, region.end, file)
        return [(region.start, region.end, text)]
    condition = "STAGEGPT_MUTANT" if region.kind == "argument" else "::stagegpt::mutants::is_chosen"
    parts = [f"{condition}({mutant.id}) ?{_line(source, region.start, file, mutant)}"
             f"({_mutated(source, region, mutant)}) : " for mutant in mutants]
    text = "(" + "".join(parts) + f"({original}){_line(source, region.end, file)})"
    changes = [(region.start, region.end, text)]
    if region.constexpr:
        # The mutant is chosen when the program starts, so the constant must not be constexpr. If the compiler
        # needs its value, the compiler's error names this declaration.
        begin, end = region.declaration
        changes += [(begin, begin, _line(source, begin, file, mutants[0])),
                    (region.constexpr.start, region.constexpr.end, "inline const" if region.in_class else "const"),
                    (end, end, _line(source, end, file))]
    return changes
