#!/usr/bin/env bash
# scripts/run_resilient.sh, with a fake training program that executes RUN/script, one line for each start.
set -uo pipefail
resilient=$(realpath "$(dirname "$0")/../../scripts/run_resilient.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export STAGEGPT_RESTART_SECONDS=0

cat >train <<'END'
#!/usr/bin/env bash
echo "$*" >>run/starts
line=$(sed -n "$(wc -l <run/starts)p" run/script)
eval "$line"
END
chmod +x train

failed=0
# expect NAME EXIT_CODE STARTS: the script of the run is read from standard input.
expect() {
  rm -rf run; mkdir -p run/checkpoints; cat >run/script
  local status=0 starts
  "$resilient" --failures 3 ./train --run-dir run >/dev/null 2>errors || status=$?
  starts=$(tr '\n' ';' <run/starts)
  if [ $status -ne "$2" ] || [ "$starts" != "$3" ]; then
    echo "$1: exit code $status, expected $2; starts $starts, expected $3"; cat errors; failed=1
  fi
}
first="--run-dir run;"
again="--run-dir run --resume;"

expect trains 0 "$first" <<<'exit 0'
expect users_mistake 2 "$first" <<<'exit 2'
expect goes_on_from_a_checkpoint 0 "$first$again" <<END
mkdir run/checkpoints/step_00000010; exit 1
exit 0
END
expect begins_anew_without_one 0 "$first$first" <<END
kill -9 \$\$
exit 0
END
expect gives_up 1 "$first$first$first" <<END
exit 1
exit 1
exit 1
exit 0
END
expect unfinished_checkpoints_do_not_count 1 "$first$first$first" <<END
mkdir run/checkpoints/step_00000010.tmp; exit 1
mkdir run/checkpoints/step_00000020.tmp; exit 1
exit 1
exit 0
END
expect goes_on_while_there_is_progress 0 "$first$again$again$again$again" <<END
mkdir run/checkpoints/step_00000010; exit 1
mkdir run/checkpoints/step_00000020; exit 1
mkdir run/checkpoints/step_00000030; exit 1
mkdir run/checkpoints/step_00000040; exit 1
exit 0
END
expect passes_a_signal_on 75 "$first" <<END
trap 'exit 75' USR1; kill -TERM \$PPID; while true; do sleep 0.1; done
END
# mpirun, when the signal comes before its nodes have started
expect is_not_done_after_an_early_signal 75 "$first" <<END
trap 'exit 0' USR1; kill -TERM \$PPID; while true; do sleep 0.1; done
END
expect does_not_start_again_after_a_signal 1 "$first" <<END
trap 'exit 1' USR1; kill -TERM \$PPID; while true; do sleep 0.1; done
END

# A rank that nobody reaches holds the lock of the run for a while.
hold_lock='exec 9>run/.lock; flock 9; sleep 1 & exit 1'
expect waits_for_the_last_rank 0 "$first$first" <<END
$hold_lock
flock --nonblock run/.lock true || exit 2
END
expect stops_while_it_waits 75 "$first" <<END
${hold_lock/sleep 1/(sleep 0.5; kill -TERM \$PPID; sleep 5)}
END

# mpirun notices lost nodes early; the user's own values stay.
export OMPI_MCA_oob_tcp_keepalive_probes=7
expect sets_keepalive 0 "$first" <<'END'
[ "$OMPI_MCA_oob_tcp_keepalive_time $OMPI_MCA_oob_tcp_keepalive_intvl $OMPI_MCA_oob_tcp_keepalive_probes" = "10 5 7" ]; exit $?
END

"$resilient" ./train --steps 3 2>/dev/null; [ $? -eq 2 ] || { echo "without --run-dir: expected exit code 2"; failed=1; }
exit $failed
