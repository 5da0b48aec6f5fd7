# shellcheck shell=bash
# Common part of the jobs, which source this file with a program and its flags as arguments.

# Slurm may put a type before the number: a100:4.
if [ -n "${SLURM_GPUS_PER_NODE:-}" ] && [ "${SLURM_GPUS_PER_NODE##*:}" != "$SLURM_NTASKS_PER_NODE" ]; then
  echo "train.sh: --gpus-per-node=$SLURM_GPUS_PER_NODE and --ntasks-per-node=$SLURM_NTASKS_PER_NODE:" \
    "expected one rank per GPU" >&2
  exit 2
fi

# Slurm sends USR1 to this shell (B:USR1), which passes it on and waits.
trap 'kill -USR1 "$child" 2>/dev/null' USR1
./scripts/run_resilient.sh mpirun --map-by "ppr:$SLURM_NTASKS_PER_NODE:node:PE=$SLURM_CPUS_PER_TASK" --bind-to core "$@" &
child=$!
while true; do
  wait "$child"
  status=$?
  kill -0 "$child" 2>/dev/null || break
done
wait "$child"  # the last wait may have been interrupted
status=$?

# 75: saved, but not done.
if [ "$status" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
