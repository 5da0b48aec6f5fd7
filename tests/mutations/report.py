"""Reports the kill rate and the surviving mutants."""

import fnmatch
import json
from choose import plain


def report(original, mutants, compiling, results, directory, equivalent):
    """Prints the surviving mutants and the counts, and writes both to report.json.

    Returns the survivors that equivalent.json does not explain. Writes them to survivors.json too, in the format of
    listed/.
    """
    outcomes = {}
    if results.exists():
        outcomes = {result["id"]: result for result in map(json.loads, results.read_text().splitlines())}
    survivors = []
    for mutant in mutants:
        result = outcomes.get(mutant.id)
        if not result or result["status"] == "killed":
            continue
        source = (original / mutant.file).read_text()
        before, after = (plain(line) for line in mutant.lines(source))
        survivors.append({"id": mutant.id, "where": f"{mutant.file}:{mutant.line_number(source)}", "kind": mutant.kind,
                          "before": before, "after": after, "reaching": result["reaching"], "status": result["status"],
                          "reached_by": result["reached_by"], "why": equivalent.get((mutant.file, before, after))})
    unexplained = [survivor for survivor in survivors if not survivor["why"]]
    killed = sum(result["status"] == "killed" for result in outcomes.values())
    missed = [mutant.id for mutant in mutants if mutant.tests and outcomes.get(mutant.id, {}).get("status") == "killed"
              and not any(fnmatch.fnmatchcase(outcomes[mutant.id]["test"], pattern) for pattern in mutant.tests)]
    recorded = directory / "reached.json"
    tests = len(json.loads(recorded.read_text())) if recorded.exists() else 0
    counts = {"tests": tests, "mutants": len(mutants), "do not compile": len(mutants) - len(compiling),
              "run": len(outcomes),
              "killed": killed, "equivalent": len(survivors) - len(unexplained), "survived": len(unexplained),
              "killed by another test than expected": len(missed)}
    rate = killed / (killed + len(unexplained)) if killed + len(unexplained) else 0.0
    for survivor in survivors:
        print(f"{survivor['id']} {survivor['where']} ({survivor['kind']}): {survivor['status']}, "
              f"reached by {survivor['reaching']} tests: {', '.join(survivor['reached_by'][:3])}\n"
              f"  - {survivor['before']}\n  + {survivor['after']}\n  {survivor['why'] or 'not explained'}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    print(f"kill rate: {100 * rate:.1f} % of the {killed + len(unexplained)} that were run and are not equivalent")
    (directory / "survivors.json").write_text(json.dumps(
        [listed(mutant, (original / mutant.file).read_text()) for mutant in mutants
         if mutant.id in {survivor["id"] for survivor in unexplained}], indent=1))
    (directory / "report.json").write_text(
        json.dumps({"counts": counts, "rate": rate, "survivors": survivors}, indent=1))
    return unexplained


def listed(mutant, source):
    """A mutant in the format of listed/. `find` has as much text around the mutant as makes it unique."""
    start, end = mutant.start, mutant.end
    while source.count(source[start:end]) != 1:
        start, end = max(0, start - 1), min(len(source), end + 1)
    return {"what": mutant.kind, "file": mutant.file, "find": source[start:end],
            "replace": source[start:mutant.start] + mutant.text + source[mutant.end:end], "tests": mutant.tests}
