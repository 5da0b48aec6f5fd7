#!/usr/bin/env bash
# Runs a command on a node of cluster.sh, from its head node or from another node. Open MPI calls it in place of ssh
# (plm_rsh_agent).
#   scripts/cluster/on_node.sh NODE COMMAND...
# As with ssh, the words of COMMAND are joined and given to a shell.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
[ $# -ge 2 ] || { echo "${0##*/}: expected NODE COMMAND...; see --help" >&2; exit 2; }
node=$1
shift
pid=$(cat "${STAGEGPT_CLUSTER:?is not set: run this inside cluster.sh}/$node.pid" 2>/dev/null) || {
  echo "${0##*/}: there is no node '$node' in this cluster" >&2
  exit 2
}
exec nsenter --target "$pid" --net --mount --pid --uts --ipc sh -c "$*"
