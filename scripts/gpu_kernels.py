#!/usr/bin/env python3
"""Lists the kernels of a program that nvcc has built, as a Markdown table for each architecture.

    ./scripts/gpu_kernels.py                                  # of build/release/bin/stage2_train
    ./scripts/gpu_kernels.py PROGRAM [--only flash]           # kernels whose name contains "flash"

Columns: registers per thread; static shared memory per block, in bytes; local memory per thread, in bytes (spilled
registers); the number of warps per SM that the registers allow, at most 64; and the numbers of tensor core instructions
(HMMA), of 16-byte loads and stores, and of asynchronous copies to shared memory.

The exit code is 1 if a kernel uses local memory, a tensor core kernel has no HMMA, or a vectorised kernel has no 16-byte
load. Needs cuobjdump and nvdisasm (CUDA toolkit) and c++filt (binutils).
"""

import argparse
import re
import subprocess
import sys

COLUMNS = ("registers", "shared", "local", "warps", "HMMA", "HGMMA", "16-byte loads", "16-byte stores", "async copies")
REGISTERS_OF_SM = 65536
WARPS_OF_SM = 64


def run(*command):
    """The output of a command. Exits if the command does not exist or fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"gpu_kernels.py: there is no {command[0]}; cuobjdump and nvdisasm are part of the CUDA toolkit")
    except subprocess.CalledProcessError as error:
        sys.exit(f"gpu_kernels.py: {' '.join(command)} failed: {error.stderr.strip()}")


def resources(text):
    """{(architecture, function): row} from `cuobjdump --dump-resource-usage`."""
    kernels, architecture, function = {}, None, None
    for line in text.splitlines():
        if found := re.match(r"arch = (\w+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            function = found[1]
        elif function and "REG:" in line:
            number = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}
            granted = -(-number["REG"] // 8) * 8 * 32  # of a warp
            kernels[architecture, function] = dict.fromkeys(COLUMNS, 0) | {
                "registers": number["REG"],
                "shared": number["SHARED"],
                "local": number["STACK"] + number["LOCAL"],
                "warps": min(WARPS_OF_SM, REGISTERS_OF_SM // granted if granted else WARPS_OF_SM)}
            function = None
    return kernels


def count_instructions(text, kernels):
    """Adds the instruction counts from `cuobjdump -sass`."""
    architecture, row = None, None
    for line in text.splitlines():
        if found := re.match(r"\s*code for (\w+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function : (\S+)", line):
            row = kernels.get((architecture, found[1]))
        elif row is None:
            continue
        elif found := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", line):
            name = found[1]
            row["HMMA"] += name.startswith("HMMA")
            row["HGMMA"] += name.startswith("HGMMA")
            row["16-byte loads"] += name.startswith(("LDG.", "LD.")) and ".128" in name
            row["16-byte stores"] += name.startswith(("STG", "ST.")) and ".128" in name
            row["async copies"] += name.startswith(("LDGSTS", "UTMALDG", "UBLKCP"))


def short_names(functions):
    """Names of kernels without return type, namespaces and parameters, such as softmax_kernel<float>."""
    plain = run("c++filt", *functions).splitlines() if functions else []
    names = {}
    for function, name in zip(functions, plain):
        name = re.sub(r"\b(?:\w+::)+", "", name).removeprefix("void ")
        depth = 0
        for i, letter in enumerate(name):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                name = name[:i]
                break
        names[function] = name
    return names


def problems(name, row):
    if row["local"] > 0:
        yield f"{name} uses {row['local']} bytes of local memory"
    if ("TensorCores<" in name or "_mma_" in name) and row["HMMA"] == 0:
        yield f"{name} has no instruction of tensor cores"
    copies = row["async copies"] > 0 or "matmul_wgmma_" in name
    if re.search("wgmma_|_ring_", name) and (row["HGMMA"] == 0 or not copies):
        yield f"{name} has no wgmma, or no copy of the copy engine"
    if re.search(r"[<, ](4|8)(, false)?>$", name) and row["16-byte loads"] == 0:
        yield f"{name} has no load of 16 bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="build/release/bin/stage2_train")
    parser.add_argument("--only", default="", metavar="TEXT", help="only kernels whose name contains TEXT")
    arguments = parser.parse_args()

    kernels = resources(run("cuobjdump", "--dump-resource-usage", arguments.program))
    count_instructions(run("cuobjdump", "-sass", arguments.program), kernels)
    names = short_names(sorted({function for _, function in kernels}))
    named = {key: row for key, row in kernels.items() if arguments.only in names[key[1]]}
    if not named:
        sys.exit(f"gpu_kernels.py: {arguments.program} has no such kernels")
    found = []
    for architecture in sorted({architecture for architecture, _ in named}):
        print(f"\n{architecture}\n\n| kernel | {' | '.join(COLUMNS)} |")
        print("|---|" + "---:|" * len(COLUMNS))
        rows = sorted((names[key[1]], row) for key, row in named.items() if key[0] == architecture)
        for name, row in rows:
            print(f"| `{name}` | {' | '.join(str(row[column]) for column in COLUMNS)} |")
            found += [f"{architecture}: {problem}" for problem in problems(name, row)]
    for problem in found:
        print(f"gpu_kernels.py: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
