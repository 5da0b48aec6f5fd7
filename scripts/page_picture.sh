#!/usr/bin/env bash
# Draws a page of stageN_inspect, compare_stages or --emulator-block as a browser shows it, as a PNG of 64 colours.
#   scripts/page_picture.sh PAGE.html[#FRAGMENT] OUTPUT.png [WIDTH HEIGHT]
# Needs chromium and pngquant (Debian's packages). WIDTH and HEIGHT are in pixels; the page is cut at HEIGHT.
set -euo pipefail
if [ $# -ne 2 ] && [ $# -ne 4 ]; then
  sed -n '2,4s/^# //p' "$0" >&2
  exit 2
fi
page=${1%%#*} fragment=${1#"${1%%#*}"} output=$2 width=${3:-1060} height=${4:-1050}
for tool in chromium pngquant; do
  command -v "$tool" >/dev/null || { echo "page_picture.sh: $tool is missing; install Debian's package $tool" >&2; exit 2; }
done
[ -f "$page" ] || { echo "page_picture.sh: there is no page $page" >&2; exit 2; }
drawn=$(mktemp --suffix=.png)
trap 'rm -f "$drawn"' EXIT
# Without a sandbox, because root has none; the page loads nothing.
chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=3000 \
  --window-size="$width,$height" --screenshot="$drawn" "file://$(realpath "$page")$fragment" 2>/dev/null
pngquant --force --output "$output" 64 "$drawn"
