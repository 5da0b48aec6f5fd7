#!/usr/bin/env bash
# Records the film of README.md, an animated SVG: quickstart.sh, then stage0_generate, as a terminal of 96 columns shows them.
#   scripts/film.sh [OUTPUT.svg]      (default: docs/images/quickstart.svg)
# The film is eight times as fast as the programs. Needs Debian's packages asciinema and termtosvg, and what quickstart.sh
# has built, so that the film shows no compiler. Record on a machine without other work.
set -euo pipefail
cd "$(dirname "$0")/.."
output=${1:-docs/images/quickstart.svg}
for tool in asciinema termtosvg; do
  command -v "$tool" >/dev/null || { echo "film.sh: $tool is missing; install Debian's package $tool" >&2; exit 2; }
done
for program in stage0_train stage0_generate; do
  [ -x build/release/bin/$program ] || { echo "film.sh: run quickstart.sh before" >&2; exit 2; }
done
[ ! -e runs/nano ] || { echo "film.sh: runs/nano exists; move it away" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" runs/nano' EXIT
cat >"$scratch/session.sh" <<'END'
set -e
type() { printf '$ '; for ((i = 0; i < ${#1}; ++i)); do printf %s "${1:i:1}"; sleep 0.3; done; echo; eval "$1"; sleep 16; }
type ./scripts/quickstart.sh
type './build/release/bin/stage0_generate --model runs/nano --prompt "The owl said" --max-new-tokens 100'
touch "${0%/*}/done"
END
asciinema rec --quiet --cols 96 --rows 24 --command "bash $scratch/session.sh" "$scratch/session.cast" </dev/null
[ -e "$scratch/done" ] || { tail -n 3 "$scratch/session.cast" >&2; echo "film.sh: a command failed" >&2; exit 1; }
# Each line after the first is [seconds, "o", text].
awk -F, -v OFS=, 'NR > 1 { $1 = "[" substr($1, 2) / 8 } { print }' "$scratch/session.cast" >"$scratch/faster.cast"
termtosvg render "$scratch/faster.cast" "$scratch/film.svg" --min-frame-duration 60 --loop-delay 5000 --template window_frame
mv "$scratch/film.svg" "$output"
