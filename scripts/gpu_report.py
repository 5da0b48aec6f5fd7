#!/usr/bin/env python3
"""Converts the results of scripts/gpu_check.sh to tables for docs/performance.md and bench/notes/gpu.md.

    ./scripts/gpu_report.py gpu_check     # the folder with results.jsonl and, if it exists, ncu.csv

gpu_check.sh itself writes them to report.md.

Needs only the standard library.
"""

import argparse
import collections
import csv
import json
import re
import sys
from pathlib import Path


def table(head, rows):
    """A Markdown table; the columns after the first are numbers."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def steps_table(results):
    rows = [(line["step"], line["status"], f"{line.get('seconds', 0)} s") for line in results
            if line["status"] != "passed"]
    return table(("step", "result", "time"), rows) if rows else "All steps passed."


def verify_table(results):
    rows = []
    for line in results:
        report = line.get("result")
        if line["step"].startswith("verify ") and report:
            worst = max(report["tensors"], key=lambda tensor: tensor["error"] / tensor["limit"])
            rows.append((line["step"].split()[1], f"{report['logits_error']:.1e}", f"{report['loss_error']:.1e}",
                         f"{worst['error']:.1e}", worst["name"], f"{worst['limit']:.0e}"))
    return table(("precision", "logits", "loss", "largest error of a gradient", "of", "its limit"), rows)


def bench_table(results):
    """A row for each precision, batch size and round: the step times of StageGPT and PyTorch."""
    rounds = collections.defaultdict(dict)
    for line in results:
        found = re.fullmatch(r"(bench|pytorch) (\w+) b(\d+) round (\d+)", line["step"])
        if found and line.get("result"):
            program, precision, batch, number = found.groups()
            rounds[precision, int(batch), int(number)][program] = line["result"]
    rows = []
    for (precision, batch, number), both in sorted(rounds.items()):
        ours, theirs = both.get("bench"), both.get("pytorch")
        ms = [f"{one['ms_per_step']['median']:.2f}" if one else "–" for one in (ours, theirs)]
        ratio = ours["ms_per_step"]["median"] / theirs["ms_per_step"]["median"] if ours and theirs else None
        rows.append((precision, batch, number, *ms, f"{ratio:.2f}" if ratio else "–",
                     f"{ours['tokens_per_second']:.0f}" if ours else "–", f"{100 * ours['mfu']:.1f} %" if ours else "–",
                     f"{100 * ours['efficiency']:.0f} %" if ours else "–",
                     f"{ours['peak_memory_bytes'] / 2**30:.1f}" if ours else "–"))
    return table(("precision", "batch", "round", "ms", "PyTorch, ms", "ours / PyTorch", "tokens/s", "MFU, 6N+12LCT",
                  "bound / step", "GiB"), rows)


def graphs_table(results):
    """The step times with --gpu-graph off and on, in turns."""
    rounds = collections.defaultdict(dict)
    for line in results:
        found = re.fullmatch(r"bench (\w+) b(\d+) graphs (off|on) round (\d+)", line["step"])
        if found and line.get("result"):
            precision, batch, graphs, number = found.groups()
            rounds[precision, int(batch), int(number)][graphs] = line["result"]["ms_per_step"]["median"]
    rows = [(*key, f"{ms['off']:.2f}", f"{ms['on']:.2f}", f"{ms['on'] / ms['off']:.3f}")
            for key, ms in sorted(rounds.items()) if len(ms) == 2]
    return table(("precision", "batch", "round", "ms, op by op", "ms, graphs", "ratio"), rows)


def tokens_table(results):
    """A token of a text, with --gpu-graph off and on, in turns."""
    rows = []
    for line in results:
        found = re.fullmatch(r"token (\w+) graphs (off|on) round (\d+)", line["step"])
        if found and line.get("result"):
            token, work = line["result"], line["result"]["device_work"]
            rows.append((*found.groups(), f"{token['ms_per_token']['median']:.3f}", f"{100 * token['bandwidth_share']:.0f} %",
                         work["launches"], work["graphs"]))
    return table(("precision", "graphs", "round", "ms", "of the memory's rate", "launches", "graphs"), rows)


def phases_table(results):
    rows = []
    for line in results:
        if line["step"].startswith("bench ") and line.get("result"):
            phases = line["result"]["phases_ms"]
            rows.append((line["step"].removeprefix("bench "), *(f"{phases[name]:.2f}" for name in phases)))
    return table(("ms", "data", "forward", "backward", "communication", "optimizer"), rows)


def ladder_tables(results):
    parts = []
    for line in results:
        ladder = line.get("result")
        if line["step"].startswith("ladder ") and ladder:
            rows = [(one["name"], f"{one['us']:.1f}", f"{one['rate']:.0f}", f"{100 * one['share']:.0f} %",
                     f"{100 * one['of_reference']:.0f} %", f"{one['error']:.1e}") for one in ladder["versions"]]
            parts.append(f"{ladder['ladder']}; bound: {ladder['bound']:.0f} {ladder['unit']}, {ladder['bound_name']}; "
                         f"reference: {ladder['reference']}\n\n" +
                         table(("version", "median µs", ladder["unit"], "of the bound", "of the reference", "error"), rows))
    return "\n\n".join(parts)


def ncu_table(path):
    """A row for each kernel and size of its grid, of which one launch was measured: the longest first."""
    lines = path.read_text(errors="replace").splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return "ncu.csv has no table."
    reader = csv.DictReader(lines[begin:])
    units = next(reader)  # the line below the header
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}[units["gpu__time_duration.sum"]]
    in_bytes = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}[units["dram__bytes.sum"]]

    def number(line, name):
        return float(line[name].replace(",", ""))

    launches = []
    for line in reader:
        if not line["Kernel Name"]:
            continue
        microseconds = scale * number(line, "gpu__time_duration.sum")
        rate = in_bytes * number(line, "dram__bytes.sum") / microseconds / 1e3
        name = re.sub(r"[<(].*", "", line["Kernel Name"]).removeprefix("void ")
        shares = (f"{number(line, metric):.0f} %" for metric in (
            "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            "sm__warps_active.avg.pct_of_peak_sustained_active"))
        launches.append((microseconds, (f"`{name}`", line["Grid Size"].replace(" ", ""), f"{microseconds:.1f}", f"{rate:.0f}",
                                        *shares, f"{number(line, 'launch__registers_per_thread'):.0f}")))
    rows = [row for _, row in sorted(launches, key=lambda launch: -launch[0])]
    return table(("kernel", "grid", "µs", "GB/s of DRAM", "memory", "compute", "warps", "registers"), rows)


def report(folder, brief):
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    machine = next((line for line in results if line["step"] == "machine"), None)
    where = f"{machine['device']}; {machine['date']}, commit {machine['commit']}" if machine else "A rehearsal: no GPU"
    sections = [("What did not pass", steps_table(results)), ("Beside PyTorch's numbers", verify_table(results)),
                ("GPT-2 124M, 1024 tokens in a sequence, one training step", bench_table(results)),
                ("The same step in CUDA graphs", graphs_table(results)),
                ("A token of a text", tokens_table(results))]
    if not brief:
        sections += [("Phases", phases_table(results)), ("Ladders", ladder_tables(results))]
    if not brief and (folder / "ncu.csv").exists():
        sections.append(("Kernels of a step, by ncu", ncu_table(folder / "ncu.csv")))
    return f"{where}\n\n" + "\n\n".join(f"### {title}\n\n{text}" for title, text in sections) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what gpu_check.sh has written")
    parser.add_argument("--brief", action="store_true", help="without phases, ladders and kernels")
    arguments = parser.parse_args()
    folder = arguments.folder
    if not (folder / "results.jsonl").is_file():
        sys.exit(f"gpu_report.py: {folder} has no results.jsonl")
    print(report(folder, arguments.brief), end="")


if __name__ == "__main__":
    main()
