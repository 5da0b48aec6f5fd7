#!/usr/bin/env bash
# Runs a test that is a script.
#   run_script.sh "PROGRAM…" "INPUT…" COMMAND [ARGUMENT…]
# Of the programs that scripts/setup.sh installs, the test can run only the PROGRAMs. So it fails everywhere, not only where others
# are missing, if its CMakeLists.txt does not name them. If one of them is missing, the exit code is 77, for "skipped", or that of
# STAGEGPT_MISSING_PROGRAM, which .ci/run sets.
# INPUTs are files and folders of the source tree. If there are any, and they are as in an earlier run in the present folder that
# passed, the test passes and does not run. `scripts/test.sh` forgets earlier runs.
set -uo pipefail
needed=$1
inputs=$2
shift 2
for program in $needed; do
  command -v "$program" >/dev/null || { echo "there is no $program"; exit "${STAGEGPT_MISSING_PROGRAM:-77}"; }
done

if [ -n "$inputs" ]; then
  root=$(cd "$(dirname "$0")/../.." && pwd)
  # shellcheck disable=SC2086  # a list of paths
  files=$(cd "$root" && find $inputs tests/support/run_script.sh -not -name '*.pyc' -not -type d -printf '%m %l %p\n' | sort) || exit
  # shellcheck disable=SC2086
  contents=$(cd "$root" && find $inputs tests/support/run_script.sh -not -name '*.pyc' -type f -print0 | sort -z | xargs -0 sha256sum) || exit
  state=$(printf '%s\n' "$*" "$(id -u) $(uname -r)" "$files" "$contents" | sha256sum)
  passed=${state%% *}.passed
  [ ! -e "$passed" ] || { echo "passed before; since then, nothing has changed in $inputs"; exit 0; }
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for program in python3 git cmake ninja c++ mpirun ip nm c++filt; do
  case " $needed " in *" $program "*) continue ;; esac
  cat >"$folder/$program" <<'END'
#!/bin/sh
echo "${0##*/}: not among the programs that this test needs, see NEEDS in its CMakeLists.txt" >&2
exit 127
END
  chmod +x "$folder/$program"
done
PATH=$folder:$PATH PYTHONDONTWRITEBYTECODE=1 "$@" || exit
[ -z "$inputs" ] || touch "$passed"
