#!/usr/bin/env bash
# Starts or resumes a training run, and after a failure resumes it again from the newest checkpoint.
#   scripts/run_resilient.sh [--failures N] COMMAND...
# COMMAND is stageN_train with its flags, including --run-dir; mpirun with its flags may precede it. The script gives up
# after N (3) failures in a row without a new checkpoint, and immediately if flags are wrong (exit code 2). It passes
# SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU and SIGPWR on as SIGUSR1, which mpirun forwards to its ranks: they save a checkpoint and exit
# with code 75, and so does this script. (On SIGTERM, mpirun itself would kill its ranks.)
set -uo pipefail

program=${0##*/}
say() { echo "$program: $*" >&2; }

most_failures=3
case ${1:-} in
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --failures) most_failures=${2:?--failures needs a number}; shift 2 ;;
esac
command=("$@")

run=
for ((i = 0; i < ${#command[@]}; i++)); do
  case ${command[i]} in
    --run-dir) run=${command[i + 1]:-} ;;
    --run-dir=*) run=${command[i]#*=} ;;
    --resume | --resume=*) say "--resume is added automatically; remove it"; exit 2 ;;
  esac
done
[ -n "$run" ] || { say "COMMAND needs --run-dir; see --help"; exit 2; }

child="" stopping=""
stop() {
  stopping=1
  if [ -n "$child" ]; then kill -USR1 "$child" 2>/dev/null; fi
}
trap stop TERM INT HUP USR1 USR2 XCPU PWR

newest_checkpoint() { find "$run/checkpoints" -maxdepth 1 -name 'step_????????*' ! -name '*.*' 2>/dev/null | sort | tail -1; }

# In its own process group, so that a terminal's Ctrl-C reaches only this script.
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
  # USR1 ended it before it could handle the signal; nothing is lost. Before its nodes have started, mpirun (4.1) then ends
  # with 0, as after a run that is done, which may be started once more: it says so, and ends with 0.
  if [ -n "$stopping" ] && [[ $status =~ ^(0|138)$ ]]; then status=75; fi
  return $status
}

# A rank on a node that nobody reaches ends only by its own watchdog. If it is rank 0, it holds the lock of the run until
# then, and without this wait the next start would be refused (exit code 2).
wait_until_released() {
  { command -v flock >/dev/null && [ -e "$run/.lock" ]; } || return
  if flock --nonblock "$run/.lock" true; then return; fi
  say "waiting until the rank that still holds $run ends, by its own watchdog"
  flock "$run/.lock" true &
  child=$!
  wait "$child"  # a signal ends it
  child=""
  [ -z "$stopping" ] || exit 75
}

# mpirun gives up on a node that is gone after 25 s of silence; by default after eight minutes. Values that are set stay.
export OMPI_MCA_oob_tcp_keepalive_time="${OMPI_MCA_oob_tcp_keepalive_time:-10}"
export OMPI_MCA_oob_tcp_keepalive_intvl="${OMPI_MCA_oob_tcp_keepalive_intvl:-5}"
export OMPI_MCA_oob_tcp_keepalive_probes="${OMPI_MCA_oob_tcp_keepalive_probes:-3}"

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
    say "gave up after $failures failures in a row without a new checkpoint (exit code $status)"
    exit $status
  fi
  after=$(newest_checkpoint)
  say "ended with exit code $status; restarting from ${after:-the beginning}"
  sleep "${STAGEGPT_RESTART_SECONDS:-1}"  # until the last rank has ended
  wait_until_released
done
