#!/usr/bin/env bash
# Runs one_node.sbatch and many_nodes.sbatch of scripts/slurm on a real, small Slurm (slurm.sh), and checks what happens to
# them: a time limit, lost nodes, scancel, and ranks that srun starts. Takes about four minutes.
#   scripts/cluster/slurm_check.sh [CHECK...]
# Checks: one_node, srun, time_limit, cancel, lost_node, lost_first_node (default: all, in this order). stage1_train of
# build/release is used. Exits with 1 after the first check that fails.
set -euo pipefail
program=${0##*/}
root=$(realpath "$(dirname "$0")/../..")
cd "$root"

checks=(one_node srun time_limit cancel lost_node lost_first_node)
case ${1:-} in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
[ -x build/release/bin/stage1_train ] || { echo "$program: build build/release/bin/stage1_train first" >&2; exit 2; }
if [ -z "${STAGEGPT_CLUSTER:-}" ]; then exec scripts/cluster/slurm.sh --nodes 4 "scripts/cluster/$program" "$@"; fi
[ $# -eq 0 ] || checks=("$@")

small=(--n-layer 1 --n-embd 32 --block-size 32 --val-fraction 0 --max-new-tokens 1)
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() {
  echo "$program: FAILED: $*" >&2
  tail -n 20 "$STAGEGPT_CLUSTER/log.$name" >&2 2>/dev/null || true
  scontrol show job "${job:-}" >&2 || true
  exit 1
}

# find_line PATTERN [FILE]: sets $line to the first line of the file, or of standard input, that has the pattern.
find_line() { line=$(grep -m 1 -e "$@") || fail "no line '$1'"; }

# until_true SECONDS WHAT COMMAND…: waits until the command succeeds.
until_true() {
  local seconds=$1 what=$2 end=$((SECONDS + $1))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "not within $seconds s: $what"
    sleep 0.2
  done
}

# submit OPTIONS OF sbatch…: submits the job of the check $name, whose run directory is $run and whose log is $log.
submit() {
  run=$STAGEGPT_CLUSTER/run.$name log=$STAGEGPT_CLUSTER/log.$name
  job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --output="$log" "$@" scripts/slurm/many_nodes.sbatch \
    "${small[@]}" --steps 1000000 --checkpoint-every 500 --watchdog-seconds 20 --run-dir "$run")
  until_true 60 "the job runs" test_state RUNNING
  until_true 60 "the first checkpoint" test -e "$run/latest"
  until_true 60 "a line 'machine:'" grep machine: "$log"
  find_line machine: "$log"
  say "job $job runs on $(nodes_of_job): $line"
}
nodes_of_job() { squeue --noheader --jobs="$job" --format=%N; }
state_of_job() { squeue --noheader --states=all --jobs="$job" --format=%T; }
restarts() { scontrol show job "$job" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
resumed() { grep -q 'resumed from' "$log"; }
no_ranks() { ! pgrep -x stage1_train; }
cancel_job() { scancel "$job"; until_true 30 "no rank is left" no_ranks; }

one_node() {
  run=$STAGEGPT_CLUSTER/run.$name log=$STAGEGPT_CLUSTER/log.$name
  sbatch --wait --ntasks-per-node=2 --cpus-per-task=1 --output="$log" scripts/slurm/one_node.sbatch "${small[@]}" --steps 20 \
    --run-dir "$run" >/dev/null || fail "one_node.sbatch"
  find_line machine: "$log"
  say "one_node.sbatch: $line"
  [ -e "$run/checkpoints/step_00000020" ] || fail "no checkpoint after the last step"
}

time_limit() {
  submit --time=2 --signal=B:USR1@60
  until_true 150 "the job stops at its time limit and is queued again" test_restarts 1
  find_line 'stopped by a signal' "$log"
  say "$line"
  say "queued again by scontrol requeue: $(state_of_job), restarts: $(restarts)"
  until_true 90 "the job resumes" resumed
  find_line 'resumed from' "$log"
  say "job $job runs on $(nodes_of_job): $line"
  cancel_job
}
test_restarts() { [ "$(restarts)" -ge "$1" ]; }

cancel() {
  submit
  scancel "$job"
  until_true 30 "no rank is left" no_ranks
  until_true 30 "the job is cancelled" test_state CANCELLED
  say "scancel: $(state_of_job), no rank left, newest checkpoint $(readlink "$run/latest")"
  submit
  until_true 30 "the run resumes from it" resumed
  find_line 'resumed from' "$log"
  say "submitted again: $line"
  cancel_job
}
test_state() { [[ $(state_of_job) == "$1"* ]]; }

# lose NODE: kills all processes of a node, slurmd too, and waits until the job has resumed on others.
lose() {
  say "kill $1"
  kill -KILL "$(cat "$STAGEGPT_CLUSTER/$1.pid")"
  until_true 120 "the job resumes on other nodes" resumed_elsewhere "$1"
  say "job $job runs on $(nodes_of_job), restarts: $(restarts): $(grep 'resumed from' "$log" | tail -n 1)"
  cancel_job
}
resumed_elsewhere() { resumed && test_state RUNNING && [[ $(scontrol show hostnames "$(nodes_of_job)") != *$1* ]]; }
lost_node() { submit; lose "$(scontrol show hostnames "$(nodes_of_job)" | sed -n 2p)"; }
lost_first_node() { submit; lose "$(scontrol show hostnames "$(nodes_of_job)" | sed -n 1p)"; }  # it runs the job's script

srun() {
  local output status=0
  run=$STAGEGPT_CLUSTER/run.$name
  output=$(command srun --mpi=pmix --nodes=2 --ntasks=2 build/release/bin/stage1_train --threads 1 "${small[@]}" --steps 3 \
    --run-dir "$run" 2>&1) || fail "srun --mpi=pmix: $output"
  find_line machine: <<<"$output"
  say "srun --mpi=pmix: $line"
  output=$(command srun --mpi=none --nodes=2 --ntasks=2 build/release/bin/stage1_train --threads 1 "${small[@]}" --steps 3 \
    --run-dir "$run.none" 2>&1) || status=$?
  [ $status -eq 1 ] || fail "srun without PMIx: exit code $status: $output"
  find_line direct <<<"$output"
  say "srun --mpi=none: exit code $status, Open MPI's own message: $line …"
  [ ! -e "$run.none" ] || fail "a rank without the others has begun to train"
  log=$STAGEGPT_CLUSTER/log.$name status=0
  sbatch --wait --nodes=2 --ntasks=2 --output="$log" --wrap "build/release/bin/stage1_train ${small[*]} --steps 3 --run-dir $run.none" \
    >/dev/null || status=$?
  [ $status -eq 2 ] || fail "a program without srun or mpirun: exit code $status"
  say "without srun or mpirun: exit code $status: $(cat "$log")"
}

for name in "${checks[@]}"; do
  echo "== $name"
  "$name"
done
echo "all checks passed"
