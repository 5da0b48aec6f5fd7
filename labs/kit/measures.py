"""The lines `count`, `trace` and `time` of a lab file: the student's program beside the reference's."""

import json
import math
import os
import random
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kit import isolated
from kit.isolated import Finished, Place
from kit.lab_file import Count, LabError, Measure, Time, Trace
from kit.programs import RESULT, Command, Programs, read_result

LEAST_SECONDS = 10  # every program may take these
MESSAGES = "messages.json"
PAIRS = 7
OWN_SPREAD = 0.10  # the reference against itself
PLAUSIBLE = 1.5    # a student who is faster than this, times the reference, is looked at
TRACE_STEPS = 3
# Of programs that measure training. All steps have led to the last one. (--ladder compares its results itself.)
RESULTS = ("first_step.loss", "first_step.grad_norm", "last_step.loss", "last_step.grad_norm")
SAME = 1e-4        # relative: sums in another order
HEADS = {"--n-head", "--n-embd"}  # one must divide the other


@dataclass(frozen=True)
class Pair:
    student: Programs
    reference: Programs
    scratch: Path
    counting_library: Path | None = None  # messages.c, preloaded for the counters `bytes` and `messages`
    least_seconds: float = LEAST_SECONDS
    say: Callable[[str], None] = lambda line: None  # is told of the progress of a measurement of many runs

    def each(self) -> Iterator[tuple[str, Programs]]:
        yield "reference", self.reference
        yield "student", self.student

    def limit(self, reference: Finished) -> float:
        """Seconds for the student's program, after the reference's has run."""
        return limit(reference.seconds, self.least_seconds)


def limit(reference: float, least: float) -> float:
    """Seconds that a student's program may take: ten times the reference's. Where that is more than five minutes, three
    times: a hang must not take hours."""
    return max(least, min(10 * reference, max(300, 3 * reference)))


@dataclass
class Measured:
    status: str  # passed, failed, crashed, hung, pending
    earned: float
    message: str
    details: str = ""
    flags: list[str] = field(default_factory=list)
    pending: tuple[float, float] = (0, 0)  # the fewest and the most points that the readings allow


def did_not_run(finished: Finished, who: str) -> Measured:
    """A program that failed. If it is the reference, the machine or the lab file is to blame, not the student."""
    if who == "reference":
        raise LabError(f"the reference's {Path(finished.command[0]).name} {finished.status}: {finished.message}")
    return Measured(finished.status, 0, finished.message, finished.output)


# Counters.

def count(line: Count, pair: Pair) -> Measured:
    """All points if the student's counter is at most `factor` times the reference's, in a run with the same results."""
    values, results, seconds = {}, {}, None
    for who, programs in pair.each():
        scratch = fresh(pair.scratch / f"count-{who}")
        finished = programs.run(counting(Command.parse(line.command), scratch), scratch, seconds,
                                preloaded(line, pair, scratch))
        seconds = pair.limit(finished)
        if not finished.ok:
            return did_not_run(finished, who)
        value = counter(document(scratch), line.counter)
        if value is None and who == "reference":
            raise LabError(f"count {line.counter}: {line.command[0]} prints no such counter")
        if value is None:
            return Measured("failed", 0, f"printed no counter {line.counter}", finished.output)
        values[who], results[who] = value, parsed(read_result(scratch))
    if wrong := difference(results["student"], results["reference"]):
        return Measured("failed", 0, wrong)
    allowed = line.factor * values["reference"]
    message = f"{line.counter}: {shown(values['student'])}, the reference {shown(values['reference'])}"
    if values["student"] <= allowed:
        flags = [f"{message}: less than half"] if 2 * values["student"] < values["reference"] else []
        return Measured("passed", line.points, message, flags=flags)
    return Measured("failed", 0, f"{message}; allowed {shown(allowed)}")


def counts_messages(line: Measure) -> bool:
    return isinstance(line, Count) and line.counter in ("bytes", "messages")


def preloaded(line: Count, pair: Pair, scratch: Path) -> dict[str, str]:
    if not counts_messages(line):
        return {}
    return {"LD_PRELOAD": str(pair.counting_library), "STAGEGPT_MESSAGES": str(scratch / MESSAGES)}


def counting(command: Command, scratch: Path) -> Command:
    """With the flags that make the program print its counters: --json, or an emulator report in place of `-`."""
    flags = list(command.flags)
    if "--emulator-report" in flags:
        place = flags.index("--emulator-report") + 1
        flags[place:place + 1] = [str(scratch / "counts")]
    elif "--json" not in flags:
        flags.append("--json")
    return command.with_flags(flags)


def document(scratch: Path) -> object:
    """The counters of a finished program: its messages, report.json of the emulator, or its standard output."""
    return parsed(next(filter(None, (read_result(scratch, name) for name in (MESSAGES, "counts/report.json", RESULT))), b""))


def parsed(content: bytes | None) -> object:
    try:
        return json.loads(content or b"")
    except (ValueError, RecursionError):
        return None


def difference(student: object, reference: object) -> str:
    """What a measured run has computed otherwise than the reference's: the losses and norms that its program prints."""
    for path in RESULTS:
        right, found = counter(reference, path), counter(student, path)
        if right is not None and (found is None or abs(found - right) > SAME * abs(right)):
            return f"the measured run is wrong: {path} is {found and shown(found)}, not {shown(right)}"
    return ""


def counter(found: object, path: str) -> float | None:
    """A number of a JSON document. `kernels.NAME.sectors`: NAME is the name of an element of the array `kernels`, and
    the result is the sum of all numbers with the key `sectors` that lie below it. A list, such as `races`, counts as the
    number of its elements. None: there is none."""
    *above, key = path.split(".")
    for step in above:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list):
            found = [one for one in found if isinstance(one, dict) and str(one.get("name", "")).split("<")[0] == step]
        else:
            return None
    numbers = _numbers(found, key)
    try:
        return math.fsum(numbers) if numbers else None
    except OverflowError:  # of finite numbers, whose sum is not
        return None


def _numbers(found: object, key: str) -> list[float]:
    if isinstance(found, list):
        return [value for one in found for value in _numbers(one, key)]
    if not isinstance(found, dict):
        return []
    own = found.get(key)
    own = len(own) if isinstance(own, list) else own
    mine = [own] if isinstance(own, (int, float)) and not isinstance(own, bool) and _is_finite(own) else []
    return mine + [value for name, one in found.items() if name != key for value in _numbers(one, key)]


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False


def shown(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


# Traces.

@dataclass(frozen=True)
class SecretRun:
    """A training run that students do not know: seed, model and text."""
    flags: dict[str, str]
    text: str


def secret_run(secret: str, ranks: int, reproducible: bool = False) -> SecretRun:
    """The same secret gives the same run, so that all submissions of a grading have the same one."""
    chance = random.Random(secret)
    heads, head_size = chance.choice([1, 2, 3]), chance.choice([8, 12, 20])
    letters = "".join(chance.sample("abcdefghijklmnopqrstuvwxyz", 20))
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(150)]
    text = " ".join(chance.choices(words, k=1500))
    return SecretRun({"--seed": str(chance.randrange(1, 1 << 31)), "--n-layer": str(chance.choice([1, 2])),
                      "--n-head": str(heads), "--n-embd": str(heads * head_size),
                      "--block-size": str(chance.choice([11, 14, 17])),
                      "--batch-size": "8" if reproducible else str(ranks * chance.choice([2, 3])),
                      "--steps": str(TRACE_STEPS), "--learning-rate": chance.choice(["0.002", "0.003", "0.005"])}, text)


def trace(line: Trace, pair: Pair, secret: str, compare: Programs) -> Measured:
    """All points if every tensor of the student's first steps agrees with the reference's. `compare` has
    compare_stages, which reads both traces after the student's program has ended: no expected value enters it."""
    run = secret_run(f"{secret} {line.line}", line.ranks or 1, "--reproducible" in line.flags)
    given = {*line.flags, *(HEADS if HEADS & {*line.flags} else {})}  # the lab's own flags come first
    traces, seconds = {}, None
    for who, programs in pair.each():
        scratch = fresh(pair.scratch / f"trace-{who}")
        (scratch / "text.txt").write_text(run.text)
        flags = [word for flag, value in run.flags.items() if flag not in given for word in (flag, value)]
        steps = line.flags[line.flags.index("--steps") + 1] if "--steps" in line.flags else str(TRACE_STEPS)
        flags += ["--data", str(scratch / "text.txt"), "--tokenizer", "char", "--val-fraction", "0", "--run-dir",
                  str(scratch / "run"), "--trace-steps", steps, *line.flags]
        finished = programs.run(Command(line.program, line.ranks, flags), scratch, seconds)
        seconds = pair.limit(finished)
        if not finished.ok:
            return did_not_run(finished, who)
        traces[who] = taken(scratch, pair.scratch / f"traces-{who}")
        fresh(scratch)  # the student's program runs next, and must not find the reference's traces
    if not traces["student"]:
        return Measured("failed", 0, "wrote no traces")
    for directory in traces.values():
        directory.chmod(0o755)
    place = Place(pair.scratch / "compared", show=[*traces.values(), compare.directory])
    command = [str(compare.path("compare_stages")), "--traces", *(str(traces[who]) for who in ("reference", "student"))]
    compared = isolated.run(command, place, compare.limits)
    if compared.ok:
        return Measured("passed", line.points, compared.output.strip())
    return Measured("failed", 0, isolated.first_complaint(compared.output, "compare_stages"))


def taken(scratch: Path, copy: Path) -> Path | None:
    """Copies the traces that a run has left, regular files only: a link would make them those of the reference."""
    fresh(copy).chmod(0o700)
    traces = scratch / "run" / "traces"
    for name in sorted(os.listdir(traces)) if traces.is_dir() else []:
        content = read_result(scratch, f"run/traces/{name}", most=256 << 20)
        if content is not None:
            (copy / name).write_bytes(content)
    return copy if any(copy.iterdir()) else None


# Times.

def time(line: Time, pair: Pair) -> Measured:
    """Reference, student, reference, student, ..., reference: each run of the student lies between two of the reference,
    and each of the reference but the first and the last serves two pairs. Points grow with the logarithm of the ratio,
    from none at `floor` to all at `target`. The lower quartile of the pairs counts. If the reference differs from itself by
    more than OWN_SPREAD, an instructor decides, unless the fastest pair has no points either."""
    command = Command.parse([line.program, *line.flags])
    speeds, seconds = [], []
    most = right = None
    for turn in range(2 * PAIRS + 1):
        who, programs = ("student", pair.student) if turn % 2 else ("reference", pair.reference)
        scratch = fresh(pair.scratch / f"time-{who}")
        finished = programs.run(counting(command, scratch), scratch, most)
        most = most or pair.limit(finished)
        if not finished.ok:
            return did_not_run(finished, who)
        printed = document(scratch)
        right, speed = right or printed, counter(printed, "tokens_per_second")
        if not speed and who == "reference":
            raise LabError(f"time {line.program}: prints no tokens_per_second")
        if not speed or speed < 0:
            return Measured("failed", 0, "printed no tokens_per_second", finished.output)
        if wrong := difference(printed, right):
            return Measured("failed", 0, wrong)
        speeds.append(speed)
        seconds.append(finished.seconds)
        pair.say(f"run {turn + 1} of {2 * PAIRS + 1}, {who}: {speed:.4g} tokens/s, {finished.seconds:.0f} s")
    own = [after / before for before, after in zip(speeds[:-2:2], speeds[2::2])]
    return judge(line, _beside_neighbours(speeds), own, _beside_neighbours(seconds))


def _beside_neighbours(values: list[float]) -> list[float]:
    """Each value of the student, divided by the geometric mean of the reference's before and after it."""
    return [values[turn] / math.sqrt(values[turn - 1] * values[turn + 1]) for turn in range(1, len(values), 2)]


def judge(line: Time, ratios: list[float], own: list[float], walls: list[float]) -> Measured:
    """`ratios` of speeds and `walls` of times, student / reference; `own`: the reference against itself."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    details = (f"{len(ratios)} pairs in turns, student / reference: quartiles {low:.2f}, {middle:.2f}, {high:.2f}, "
               f"from {min(ratios):.2f} to {max(ratios):.2f}")
    own_low, _, own_high = statistics.quantiles(own, n=4, method="inclusive")
    spread = max(own_high, 1 / own_low) - 1
    least, earned, most = (_points(line, ratio) for ratio in (min(ratios), low, max(ratios)))
    if spread > OWN_SPREAD and most > 0:
        return Measured("pending", 0, f"the machine was busy: the reference differs from itself by {spread:.0%}", details,
                        pending=(least, most))
    flags = []
    if middle > PLAUSIBLE:
        flags.append(f"{middle:.2f} times as fast as the reference")
    if middle * statistics.median(walls) > 1.25 * max(middle, 1):
        flags.append(f"reports {middle:.2f} times the reference's speed, but its process takes "
                     f"{statistics.median(walls):.2f} times as long")
    status = "passed" if earned == line.points else "failed"
    return Measured(status, earned, f"{low:.2f} times the reference's speed; {line.floor:g} gives no points, "
                    f"{line.target:g} all", details, flags)


def _points(line: Time, ratio: float) -> float:
    if ratio <= line.floor:
        return 0
    return line.points * min(1, math.log(ratio / line.floor) / math.log(line.target / line.floor))


def fresh(directory: Path) -> Path:
    subprocess.run(["rm", "-rf", "--", str(directory)], check=True)  # shutil.rmtree cannot remove deep directories
    directory.mkdir(parents=True)
    return directory
