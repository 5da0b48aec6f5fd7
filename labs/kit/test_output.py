"""What GoogleTest printed: which test failed or crashed, and why."""

import re
import signal

_RUN = re.compile(r"^\[ RUN      \] (\S+)", re.MULTILINE)
_END = re.compile(r"^\[ *(?:OK|FAILED|SKIPPED) *\] (\S+?),?(?: |$)", re.MULTILINE)
_RANK_FAILURE = re.compile(r"^(?:.*\b)?rank \d+: (?P<test>[\w/]+\.[\w/]+), (?P<rest>.+)", re.MULTILINE)
_LINES = 12  # of a message


def tests_run(output: str) -> int:
    """How many tests ran and were not skipped."""
    ran = re.search(r"^\[==========\] (\d+) tests? from .* ran\.", output, re.MULTILINE)
    skipped = re.search(r"^\[  SKIPPED \] (\d+) tests?", output, re.MULTILINE)
    return (int(ran.group(1)) if ran else 0) - (int(skipped.group(1)) if skipped else 0)


def skip_reason(output: str) -> str:
    """The first reason of a skipped test, or an empty text."""
    match = re.search(r"Skipped\n(.+)", output)
    return match.group(1).strip() if match else ""


def failure(output: str) -> str:
    """The first failed test, with what it printed: `Suite.Test: file:line: ...`. Empty if no test failed."""
    for block in re.split(r"^(?=\[ RUN      \] )", output, flags=re.MULTILINE)[1:]:
        name = _RUN.match(block).group(1)
        text = block[block.index("\n") + 1:] if "\n" in block else ""
        end = re.search(r"^\[  (FAILED  |     OK |SKIPPED )\] ", text, re.MULTILINE)
        if end and end.group(1) == "FAILED  ":
            return _shortened(f"{name}: {_plain(text[:end.start()])}")
        if not end:
            break
    rank = _RANK_FAILURE.search(output)
    if rank:
        return _shortened(output[rank.start():].strip())
    return ""


def running(output: str) -> str:
    """The test that had begun and not ended, or an empty text."""
    begun, ended = _RUN.findall(output), set(_END.findall(output))
    return begun[-1] if begun and begun[-1] not in ended else ""


def signal_of(output: str, number: int | None) -> str:
    """The name of the signal that ended the program or one of its ranks, such as SIGABRT; or an empty text. mpirun does
    not always name the signal of a rank."""
    rank = re.search(r"exited on signal (\d+)", output)
    number = number or (int(rank.group(1)) if rank else 0)
    if not number and "terminate called" in output:  # std::terminate()
        number = signal.SIGABRT
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def thrown(output: str) -> str:
    """What std::terminate() printed of an exception, the reason a sanitizer gave, or what the emulator printed when it
    ended the program, with the source lines; or an empty text."""
    match = (re.search(r"^\s*what\(\):\s*(.+)", output, re.MULTILINE)
             or re.search(r"^.*(?:ERROR: \w+Sanitizer: |runtime error: )(.+)", output, re.MULTILINE)
             or re.search(r"^(kernel \S.*, block \(.+(?:\n[\w.]+:\d+.*)*)$", output, re.MULTILINE))
    return match.group(1).strip().replace("\n", ", ") if match else ""


def _plain(text: str) -> str:
    """A failure without GoogleTest's own words, and with paths from the root of the tree."""
    text = re.sub(r"unknown file: Failure\n", "", text.strip())
    where = r"(?:the test body|SetUp\(\)|TearDown\(\)|\S+'s .*?)"
    text = re.sub(rf'C\+\+ exception with description "(.*?)" thrown in {where}\.', r"\1", text, flags=re.DOTALL)
    file = r"/\S+?/((?:tests|common|stage\d_\w+)/\S+?:\d+): "
    text = re.sub(rf"^rank (\d+): \S+, {file}(?:Failed\n)?", r"rank \1: \2: ", text, flags=re.MULTILINE)
    return re.sub(rf"^{file}Failure\n(?:Failed\n)?", r"\1: ", text, flags=re.MULTILINE)


def _shortened(text: str) -> str:
    lines = [line.rstrip()[:400] for line in text.splitlines() if line.strip()]
    more = len(lines) - _LINES
    return "\n".join(lines[:_LINES] + ([f"... ({more} more lines)"] if more > 0 else []))
