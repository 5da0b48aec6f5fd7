#!/usr/bin/env bash
# scripts/slurm/*.sbatch as sbatch would start them, with a fake mpirun, which executes $TRAINING, and a fake scontrol.
# Slurm is not used: the test checks what the jobs call, and when.
set -uo pipefail
root=$(realpath "$(dirname "$0")/../..")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/scripts"
cp -r "$root/scripts/slurm" "$root/scripts/run_resilient.sh" "$scratch/scripts/"
cd "$scratch" || exit 1

cat >bin/mpirun <<'END_OF_FILE'
#!/usr/bin/env bash
printf '<%s>' "$@" >>called
echo >>called
eval "$TRAINING"
END_OF_FILE
cat >bin/scontrol <<'END_OF_FILE'
#!/usr/bin/env bash
echo "scontrol $*" >>called
END_OF_FILE
chmod +x bin/*
export PATH=$scratch/bin:$PATH STAGEGPT_RESTART_SECONDS=0
export SLURM_JOB_ID=17 SLURM_NTASKS_PER_NODE=4 SLURM_CPUS_PER_TASK=8
unset SLURM_GPUS_PER_NODE CUDA_DEVICE_ORDER

failed=0 status=0
# run JOB FLAGS…
run() {
  rm -f called
  status=0
  bash "scripts/slurm/$1.sbatch" "${@:2}" >/dev/null 2>errors || status=$?
}
# expect NAME EXIT_CODE CALLS: checks the last job that was run.
expect() {
  local calls
  calls=$(cat called 2>/dev/null)
  if [ "$status" -ne "$2" ] || [ "$calls" != "$3" ]; then
    echo "$1: exit code $status, expected $2; called"; echo "$calls"; echo "expected"; echo "$3"; cat errors
    failed=1
  fi
}
mapping='<--map-by><ppr:4:node:PE=8><--bind-to><core>'
of_stage1="$mapping<./build/release/bin/stage1_train><--threads><8>"
of_stage3="$mapping<./build/release/bin/stage3_train>"
flags='<--data><a b.txt><--run-dir><run>'

for job in one_node many_nodes; do
  TRAINING='exit 0' run $job --data 'a b.txt' --run-dir run
  expect ${job}_trains 0 "$of_stage1$flags"
done
export SLURM_GPUS_PER_NODE=4
for job in one_node_gpus many_nodes_gpus; do
  # shellcheck disable=SC2016  # mpirun's stand-in expands it
  TRAINING='[ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ] || exit 2; exit 0' run $job --data 'a b.txt' --run-dir run
  expect ${job}_trains 0 "$of_stage3$flags"
done
SLURM_GPUS_PER_NODE=a100:4 TRAINING='exit 0' run one_node_gpus --data 'a b.txt' --run-dir run
expect type_of_gpu 0 "$of_stage3$flags"
SLURM_GPUS_PER_NODE=8 TRAINING='exit 0' run one_node_gpus --data 'a b.txt' --run-dir run
expect more_gpus_than_ranks 2 ''

TRAINING='exit 2' run many_nodes_gpus --data 'a b.txt' --run-dir run
expect users_mistake 2 "$of_stage3$flags"
TRAINING='exit 75' run many_nodes_gpus --data 'a b.txt' --run-dir run
expect queued_again 75 "$of_stage3$flags
scontrol requeue 17"
# Slurm signals the job's shell alone: run_resilient.sh is its child, mpirun its grandchild.
# shellcheck disable=SC2016
TRAINING='trap "exit 75" USR1; kill -USR1 "$(sed -n "s/^PPid:\t//p" /proc/$PPID/status)"
  for ((i = 0; i < 100; i++)); do sleep 0.1; done; exit 1' \
  run many_nodes_gpus --data 'a b.txt' --run-dir run
expect time_is_nearly_over 75 "$of_stage3$flags
scontrol requeue 17"

# Grading: labs/lab's stand-in notes its arguments and the submissions that it finds, then executes $GRADING.
mkdir labs handed_in
for name in ada 'b c.tar.gz' dijkstra euler; do echo "$name" >"handed_in/$name"; done
cat >labs/lab <<'END_OF_FILE'
#!/usr/bin/env bash
printf '<%s>' "$@" >>called
ls "$2" | tr '\n' ';' >>called
echo >>called
eval "${GRADING:-}"
END_OF_FILE
chmod +x labs/lab
export STAGEGPT_GRADE_WORK=$scratch/work SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=2 SLURM_CPUS_PER_TASK=2
# graded TASK SUBMISSIONS: the call that is expected of a task.
graded() {
  printf '<grade><%s/work/%s/submissions><--lab><4><--out><out/%s><--work><%s/work/%s><--jobs><2><--again>%s' \
    "$scratch" "$1" "$1" "$scratch" "$1" "$2"
}
SLURM_ARRAY_TASK_ID=1 run grade_array 4 handed_in out --again
expect first_task 0 "$(graded 1 'ada;euler;')"
secret=$(cat out/secret)
[[ $secret =~ ^[0-9a-f]{32}$ ]] || { echo "not a secret: $secret"; failed=1; }
SLURM_ARRAY_TASK_ID=3 run grade_array 4 handed_in out --again
expect second_task 0 "$(graded 3 'b c.tar.gz;')"
SLURM_ARRAY_TASK_ID=5 GRADING='exit 2' run grade_array 4 handed_in out --again
expect mistake_of_the_instructor 2 "$(graded 5 'dijkstra;')"
[ "$(cat out/secret out/1/secret out/5/secret)" = "$secret$secret$secret" ] || { echo 'tasks have different secrets'; failed=1; }
SLURM_ARRAY_TASK_COUNT=9 SLURM_ARRAY_TASK_ID=17 run grade_array 4 handed_in out --again
expect nothing_left 0 ''
run grade_array 4 no_such_directory out
expect no_submissions 2 ''
# shellcheck disable=SC2016
SLURM_ARRAY_TASK_ID=3 GRADING='kill -USR1 $PPID; exec sleep 20' run grade_array 4 handed_in out --again
expect grading_takes_too_long 75 "$(graded 3 'b c.tar.gz;')
scontrol requeue 17"

for job in "$root"/scripts/slurm/*.sbatch; do
  asked() { sed -n "s/^#SBATCH --$1=//p" "$job"; }
  if [ -n "$(asked gpus-per-node)" ] && [ "$(asked gpus-per-node)" != "$(asked ntasks-per-node)" ]; then
    echo "$job asks for another number of GPUs than of ranks"; failed=1
  fi
  [ "$(asked signal)" = B:USR1@120 ] || { echo "$job is not told when its time is nearly over"; failed=1; }
done
exit $failed
