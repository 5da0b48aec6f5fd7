#!/usr/bin/env bash
# Runs a script that is a test with a PATH on which it finds the programs that it needs, and not the other ones that scripts/setup.sh
# installs: so it fails everywhere, not only where they are missing, if tests/CMakeLists.txt does not name them.
#   needs.sh "PROGRAM…" COMMAND [ARGUMENT…]
# If one of the programs is missing, the exit code is 77, for "skipped", or that of STAGEGPT_MISSING_PROGRAM, which .ci/run sets.
needed=$1
shift
for program in $needed; do
  command -v "$program" >/dev/null || { echo "there is no $program"; exit "${STAGEGPT_MISSING_PROGRAM:-77}"; }
done
hidden=()
for program in python3 git cmake ninja c++ mpirun ip nm c++filt; do
  case " $needed " in *" $program "*) ;; *) hidden+=("$program") ;; esac
done

folder=${TMPDIR:-/tmp}
[ -w /dev/shm ] && folder=/dev/shm  # a thousand links are made there in a tenth of the time
links=$(mktemp -d -p "$folder")
trap 'rm -rf "$links"' EXIT
path=
count=0
IFS=:
for folder in $PATH; do
  for program in "${hidden[@]}"; do
    [ -e "$folder/$program" ] || continue
    count=$((count + 1))
    mkdir "$links/$count"
    ln -s "$folder"/* "$links/$count/"
    (cd "$links/$count" && rm -f "${hidden[@]}")
    folder=$links/$count
    break
  done
  path+=${path:+:}$folder
done
unset IFS
PATH=$path PYTHONDONTWRITEBYTECODE=1 "$@"
