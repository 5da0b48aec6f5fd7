# shellcheck shell=bash
# Functions of the download scripts, which source this file.

program=${0##*/}
# shellcheck disable=SC2034  # used where this is sourced
{
  openai=${STAGEGPT_OPENAI_URL:-https://openaipublic.blob.core.windows.net}
  huggingface=${STAGEGPT_HUGGINGFACE_URL:-https://huggingface.co}
  github=${STAGEGPT_GITHUB_URL:-https://raw.githubusercontent.com}
}

say() { echo "$program: $*" >&2; }
fail() { say "$*"; exit 1; }
usage_error() { say "$*; see --help"; exit 2; }

sha256() { sha256sum <"$1" | cut -d ' ' -f 1; }

# fetch URL FILE: resumes the download if FILE is incomplete.
fetch() {
  local progress=() status=0 code
  if ! command -v curl >/dev/null; then
    [ ! -t 2 ] || progress=(--show-progress)
    wget --no-verbose "${progress[@]}" --tries 3 --timeout 60 --continue --output-document "$2" "$1"
    return
  fi
  if [ -t 2 ]; then progress=(--progress-bar); else progress=(--silent --show-error); fi
  local curl=(curl --fail --location "${progress[@]}" --retry 3 --connect-timeout 30 --speed-time 60 --output "$2")
  code=$("${curl[@]}" --continue-at - --write-out '%{http_code}' "$1") || status=$?
  # If the server cannot resume, or FILE is not shorter than the server's, starts from the beginning.
  if [ $status -eq 33 ] || [ "$code" = 416 ]; then
    rm -f "$2"
    "${curl[@]}" "$1"
    return
  fi
  return $status
}

# download URL FILE [SHA256]: an existing FILE is kept.
download() {
  local url=$1 file=$2 expected=${3:-} part=$2.part actual
  if [ -s "$file" ]; then
    if [ -z "$expected" ]; then
      say "$file exists already (no checksum known)"
    elif actual=$(sha256 "$file") && [ "$actual" = "$expected" ]; then
      say "$file exists already"
    else
      fail "$file exists but differs from $url: expected SHA-256 $expected, got $actual; remove it to download it again"
    fi
    return
  fi
  command -v curl wget >/dev/null ||
    fail "neither curl nor wget is installed: install one of them (Debian, Ubuntu: apt-get install curl)"
  mkdir -p "${file%/*}"
  if [ -s "$part" ]; then say "resuming $url"; else say "fetching $url"; fi
  if ! fetch "$url" "$part"; then
    [ -s "$part" ] || { rm -f "$part"; fail "cannot fetch $url"; }
    fail "cannot fetch $url; the incomplete file is kept, and the next run resumes it"
  fi
  actual=$(sha256 "$part")
  if [ -n "$expected" ] && [ "$actual" != "$expected" ]; then
    rm -f "$part"
    fail "$url: expected SHA-256 $expected, got $actual; the file was removed, try again"
  fi
  mv "$part" "$file"
  say "$file: $(wc -c <"$file") bytes"
}

# set_output DIR DEFAULT: changes to the repository's root, and sets $output to DIR, else DEFAULT, relative to it.
set_output() {
  local here=$PWD
  cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
  case $1 in
    "") output=$2 ;;
    /*) output=$1 ;;
    *) output=$here/$1 ;;
  esac
  output=${output#"$PWD"/}
  output=${output%/}
}
