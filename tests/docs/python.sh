#!/usr/bin/env bash
# Runs a test of this folder that is written in Python. 77 is for "skipped": no Python.
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
cd "$(dirname "$0")"
PYTHONDONTWRITEBYTECODE=1 exec python3 "$@"
