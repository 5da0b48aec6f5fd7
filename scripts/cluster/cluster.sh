#!/usr/bin/env bash
# Runs a command on a small cluster of this machine: 2 to 8 nodes, each with a network, an address, a host name, shared
# memory and processes of its own, joined by a bridge.
#   scripts/cluster/cluster.sh [--nodes N] [--slots N] [--bandwidth GBITS] [--burst US] [--latency US] [--check] COMMAND...
# For example:
#   scripts/cluster/cluster.sh --nodes 2 --bandwidth 1 mpirun -np 2 ./build/release/bin/stage1_train --threads 1
#   scripts/cluster/cluster.sh --nodes 4 bash         # a shell on the head node
# --nodes N          nodes node1 … nodeN, with the addresses 10.89.0.1 … (2)
# --slots N          ranks that mpirun starts on each node (1)
# --bandwidth GBITS  limits each node to so many Gb/s in each direction (tc tbf; without it, no limit)
# --burst US         lets an idle link send at once what it passes in so many microseconds, at most 256 KiB (256 KiB)
# --latency US       delays each packet that leaves a node by so many microseconds (delay.py)
# --check            only tests whether this machine permits such nodes; exits with 1 and the reason if it does not
#
# COMMAND runs on the head node, which is not one of node1 … nodeN. There, mpirun starts ranks on the nodes, over TCP.
# Each node is a set of Linux namespaces. The file system is shared, as on a cluster with a parallel file system, and so are
# processors and memory. Needs no root: an ordinary user gets a user namespace. $STAGEGPT_CLUSTER is a folder with
# `hosts` and, for each node, NAME.pid: killing that process kills all processes of the node. `ip link set node2 down`
# on the head node takes down node2's link; `on_node.sh node2 COMMAND` runs a command on it.
# When COMMAND ends or this script is killed, the kernel ends all that ran inside: no process and no link is left. After
# SIGKILL, the script's folder in /tmp remains.
set -euo pipefail

program=${0##*/}
folder=$(realpath "$(dirname "$0")")
readonly kNetwork=10.89.0 kHead=254
die() { echo "$program: $*" >&2; exit 2; }

# check_number OPTION VALUE UNIT
check_number() {
  [[ $2 =~ ^([0-9]+(\.[0-9]*)?|\.[0-9]+)$ ]] || die "$1: expected a number of $3, not '$2'"
  [[ $2 =~ [1-9] ]] || die "$1: expected more than 0 $3, not '$2'"
}

# On a node, as its first process: it gets a name, and memory and processes of its own.
run_node() {
  local state=$1 name=$2 pid
  read -r pid _ </proc/self/stat  # the process ID on the head node, because /proc is still the head's
  hostname "$name"
  mount -t proc proc /proc
  mount -t tmpfs tmpfs /dev/shm
  ip link set lo up
  # The congestion control that every kernel has. BBR, the default of some, sets a pace of its own after a pause.
  echo reno 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control || true
  echo "$pid" >"$state/$name.pid.new"
  mv "$state/$name.pid.new" "$state/$name.pid"
  # Waits for what comes; the shell reaps processes without a parent.
  while true; do sleep 3600 & wait $! || true; done
}

# shape DEVICE: limits what leaves DEVICE. The arguments in front run it on the right node.
shape() {
  local device=$1 bytes=262144
  shift
  [ -n "$bandwidth" ] || return 0
  if [ -n "$burst" ]; then
    # Two packets at least, which must be smaller: the limiter would cut larger ones.
    bytes=$(awk -v gigabits="$bandwidth" -v us="$burst" 'BEGIN {
      b = 125 * gigabits * us; if (b < 6144) b = 6144; if (b > 262144) b = 262144; printf "%d", b }')
    "$@" ip link set "$device" gso_max_size $((bytes < 131072 ? bytes / 2 : 65536))
  fi
  "$@" tc qdisc add dev "$device" root tbf rate "${bandwidth}gbit" burst "$bytes" limit 16mb
}

# join_node NAME PID: creates the device NAME here and eth0 on the node, joined.
join_node() {
  local name=$1 pid=$2
  if [ -z "$latency" ]; then ip link add name "$name" type veth peer name eth0 netns "$pid"; return; fi
  "$folder/delay.py" "$name" "$pid" "$latency" "$state/$name.link" 2>"$state/$name.log" &
  until [ -e "$state/$name.link" ]; do
    kill -0 $! 2>/dev/null || { tail -n 1 "$state/$name.log" >&2; die "--latency: the link of $name has not started"; }
    sleep 0.02
  done
}

start_nodes() {
  local i name on starting=()
  ip link set lo up
  ip link add name cluster type bridge
  ip address add "$kNetwork.$kHead/24" dev cluster
  ip link set cluster up
  mount --bind "$state/etc_hosts" /etc/hosts
  for ((i = 1; i <= nodes; i++)); do
    name=node$i
    unshare --net --mount --pid --uts --ipc --fork --kill-child "$folder/cluster.sh" --as-node "$state" "$name" \
      2>"$state/$name.log" &
    starting+=($!)
  done
  for ((i = 1; i <= nodes; i++)); do
    name=node$i
    until [ -e "$state/$name.pid" ]; do
      kill -0 "${starting[i - 1]}" 2>/dev/null || { cat "$state/$name.log" >&2; die "$name has not started"; }
      sleep 0.02
    done
    on=("$folder/on_node.sh" "$name")
    join_node "$name" "$(cat "$state/$name.pid")"
    ip link set "$name" master cluster up
    "${on[@]}" ip address add "$kNetwork.$i/24" dev eth0
    "${on[@]}" ip link set eth0 up
    shape "$name"
    shape eth0 "${on[@]}"
  done
}

# On the head node, as its first process: when it ends, the kernel ends all others.
run_head() {
  local pid status
  read -r pid _ </proc/self/stat
  trap 'exit 143' TERM HUP USR2
  echo "$pid" >"$state/head.pid"  # from now on, the script outside sends its signals here
  { cat <&8 >/dev/null; kill -USR2 $$; } &  # the script outside has ended
  exec 8<&-
  hostname head
  mount -t proc proc /proc
  mount -t tmpfs tmpfs /dev/shm
  start_nodes
  echo >"$state/started"
  env --default-signal=INT,QUIT "$@" <&0 &
  local command=$!
  trap 'kill -TERM "$command" 2>/dev/null' TERM HUP
  trap 'kill -USR1 "$command" 2>/dev/null' USR1
  trap : INT  # a terminal sends it to the command too
  while true; do
    status=0
    wait "$command" || status=$?
    kill -0 "$command" 2>/dev/null || break  # else a signal has interrupted the wait
  done
  exit "$status"
}

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(--user --map-root-user)
in_namespaces=(unshare "${as_root[@]}" --net --mount --pid --uts --ipc --fork --kill-child)

# Prints what is missing, if anything is.
reason() {
  local tool output
  for tool in unshare nsenter mount hostname ip tc; do
    command -v "$tool" >/dev/null || { echo "'$tool' is not installed (packages util-linux, mount, hostname, iproute2)"; return; }
  done
  output=$("${in_namespaces[@]}" sh -ec 'mount -t proc proc /proc; ip link add name cluster type bridge
    ip link add name port type veth peer name eth0; tc qdisc add dev port root tbf rate 1gbit burst 256kb limit 16mb' 2>&1) ||
    echo "this machine does not permit what a node needs (namespaces, veth, bridge, tbf): ${output//$'\n'/; }"
}

case ${1:-} in
  --as-node) run_node "$2" "$3"; exit ;;
  --as-head)
    state=$2 nodes=$3 bandwidth=$4 burst=$5 latency=$6
    shift 6
    run_head "$@"
    ;;
esac

nodes=2 slots=1 bandwidth="" burst="" latency="" check=""
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=${2:-}; shift ;;
    --slots) slots=${2:-}; shift ;;
    --bandwidth) bandwidth=${2:-0}; shift ;;
    --burst) burst=${2:-0}; shift ;;
    --latency) latency=${2:-0}; shift ;;
    --check) check=1 ;;
    -h | --help) sed -n '2,21s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown argument '$1'; see --help" ;;
    *) break ;;
  esac
  shift || die "an option needs a value; see --help"
done
[[ $nodes =~ ^[2-8]$ ]] || die "--nodes: expected 2 to 8, not '$nodes'"
[[ $slots =~ ^[1-9][0-9]?$ ]] || die "--slots: expected 1 to 99, not '$slots'"
[ -z "$bandwidth" ] || check_number --bandwidth "$bandwidth" Gb/s
[ -z "$burst" ] || check_number --burst "$burst" microseconds
[ -z "$latency" ] || check_number --latency "$latency" microseconds
[[ $folder != *[[:space:]:]* ]] || die "mpirun cannot start nodes from a path with spaces or colons: $folder"
why=$(reason)
if [ -n "$check" ]; then echo "${why:-nodes can be started}"; [ -z "$why" ]; exit; fi
[ $# -gt 0 ] || die "expected a command; see --help"
[ -z "$why" ] || die "$why"
if [ -n "$latency" ] && ! [ -w /dev/net/tun ]; then die "--latency: needs /dev/net/tun, which this machine or container lacks"; fi

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkfifo "$state/alive"
# The end of this script, however it ends, closes the only descriptor that can write (9). The head, which inherits the
# other one (8), then reads the end of the file.
exec 9<>"$state/alive"
exec 8<"$state/alive"
{ echo "127.0.0.1 localhost"; echo "$kNetwork.$kHead head"; } >"$state/etc_hosts"
for ((i = 1; i <= nodes; i++)); do
  echo "$kNetwork.$i node$i" >>"$state/etc_hosts"
  echo "node$i slots=$slots" >>"$state/hosts"
done

export STAGEGPT_CLUSTER=$state
# mpirun: the nodes, `on_node.sh` in place of ssh, and TCP also between ranks of one node. Root is root of the nodes only.
export OMPI_MCA_orte_default_hostfile=$state/hosts OMPI_MCA_plm_rsh_agent=$folder/on_node.sh
# Each node believes that all cores are its own, so a waiting rank must yield its core.
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,tcp}
export OMPI_MCA_orte_tmpdir_base=$state  # also for what killed nodes leave behind
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

env --default-signal=INT,QUIT "${in_namespaces[@]}" "$folder/cluster.sh" --as-head "$state" "$nodes" "$bandwidth" \
  "$burst" "$latency" "$@" <&0 9>&- &
child=$! status_of_end=""
# shellcheck disable=SC2317  # the traps call it
pass_on() {
  if [ -s "$state/head.pid" ]; then
    kill "-$1" "$(cat "$state/head.pid")" 2>/dev/null || true
  elif [ "$1" = TERM ]; then
    # The head has not begun. unshare blocks SIGTERM; the kernel ends its child with it (--kill-child).
    { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
    status_of_end=143
  fi
}
trap 'pass_on TERM' TERM HUP
trap 'pass_on USR1' USR1
trap : INT
while true; do
  status=0
  wait "$child" || status=$?
  kill -0 "$child" 2>/dev/null || break
done
exit "${status_of_end:-$status}"
