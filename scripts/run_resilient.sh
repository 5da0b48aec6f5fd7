#!/usr/bin/env bash
# Keeps a training run going: starts it, or goes on with it, and again after a failure, from the newest checkpoint.
#   scripts/run_resilient.sh [--failures N] COMMAND...
# COMMAND ends in a stageN_train with its flags, among them --run-dir; before it may stand mpirun with its own. It is
# given up after N failures in a row (3) between which no checkpoint was made, and at once when flags are at fault
# (exit code 2). SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on as SIGUSR1, which mpirun hands to its ranks: they
# save and end with exit code 75, and so does this script. (mpirun itself, sent SIGTERM, kills its ranks.)
set -uo pipefail

program=${0##*/}
say() { echo "$program: $*" >&2; }

most_failures=3
case ${1:-} in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --failures) most_failures=${2:?--failures needs a number}; shift 2 ;;
esac
command=("$@")

run=
for ((i = 0; i < ${#command[@]}; i++)); do
  case ${command[i]} in
    --run-dir) run=${command[i + 1]:-} ;;
    --run-dir=*) run=${command[i]#*=} ;;
    --resume | --resume=*) say "--resume comes by itself; leave it out"; exit 2 ;;
  esac
done
[ -n "$run" ] || { say "COMMAND needs --run-dir, to be found again; see --help"; exit 2; }

child="" stopping=""
stop() {
  stopping=1
  if [ -n "$child" ]; then kill -USR1 "$child" 2>/dev/null; fi
}
trap stop TERM INT HUP USR1

newest_checkpoint() { find "$run/checkpoints" -maxdepth 1 -name 'step_????????*' ! -name '*.*' 2>/dev/null | sort | tail -1; }

# In a process group of its own: a terminal's Ctrl-C reaches this script alone.
run_once() {
  local status
  set -m
  "${command[@]}" "$@" &
  child=$!
  set +m
  [ -z "$stopping" ] || stop
  while true; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break  # a signal has interrupted the wait
  done
  if [ -n "$stopping" ]; then wait "$child"; status=$?; fi  # of the child, not of an interrupted wait
  child=""
  # USR1 has met it before it could take it: nothing is lost.
  if [ -n "$stopping" ] && [ $status -eq 138 ]; then status=75; fi
  return $status
}

failures=0
while true; do
  before=$(newest_checkpoint)
  resume=()
  [ -z "$before" ] || resume=(--resume)
  run_once "${resume[@]}"
  status=$?
  case $status in
    0 | 2 | 75) exit $status ;;
  esac
  [ -z "$stopping" ] || exit $status
  if [ "$(newest_checkpoint)" = "$before" ]; then failures=$((failures + 1)); else failures=1; fi
  if [ $failures -ge "$most_failures" ]; then
    say "given up: $failures failures in a row without a new checkpoint (exit code $status)"
    exit $status
  fi
  after=$(newest_checkpoint)
  say "ended with exit code $status; going on from ${after:-the beginning}"
  sleep "${STAGEGPT_RESTART_SECONDS:-1}"  # until the last rank is gone, which holds the run
done
