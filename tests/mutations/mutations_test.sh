#!/usr/bin/env bash
# Tests of tests/mutations. Exit code 77 means "skipped": no Python.
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
cd "$(dirname "$0")"
PYTHONDONTWRITEBYTECODE=1 python3 mutations_test.py
