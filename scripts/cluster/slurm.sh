#!/usr/bin/env bash
# Runs a command on a Slurm of this machine: cluster.sh's nodes with a slurmd each, slurmctld on the head node.
#   scripts/cluster/slurm.sh [--nodes N] [--bandwidth GBITS] COMMAND...
# For example:
#   scripts/cluster/slurm.sh --nodes 3 bash           # a shell in which sbatch, squeue, scancel work
# Needs root, because the daemons do, and Slurm: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
# (22.05 of Debian 12 was used). The daemons' services need not run; Slurm has its own configuration, in
# $STAGEGPT_CLUSTER/slurm, with the logs of all daemons. Each node has 2 CPUs, and limits are short: a node that does
# not answer is down after 15 s. Processes are not confined to their CPUs and memory (proctrack/linuxproc, task/none).
set -euo pipefail
program=${0##*/}
folder=$(realpath "$(dirname "$0")")
die() { echo "$program: $*" >&2; exit 2; }

write_configuration() {
  cat >"$slurm/slurm.conf" <<END_OF_FILE
ClusterName=small
SlurmctldHost=head(10.89.0.254)
AuthInfo=socket=$slurm/munge.socket,cred_expire=15
SlurmUser=root
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/%n
TmpFS=$slurm/%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=15
KillWait=5
MinJobAge=3600
SlurmdParameters=config_overrides
NodeName=node[1-$nodes] NodeAddr=10.89.0.[1-$nodes] CPUs=2 CoresPerSocket=2 RealMemory=2000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
END_OF_FILE
}

start_slurm() {
  local i
  chmod 755 "$STAGEGPT_CLUSTER"  # munged wants its socket to be within reach of all users
  slurm=$STAGEGPT_CLUSTER/slurm
  mkdir -p "$slurm/state"
  export SLURM_CONF=$slurm/slurm.conf
  write_configuration
  (umask 077 && head -c 1024 /dev/urandom >"$slurm/munge.key")
  munged --force --socket="$slurm/munge.socket" --key-file="$slurm/munge.key" --pid-file="$slurm/munge.pid" \
    --log-file="$slurm/munge.log" --seed-file="$slurm/munge.seed"
  slurmctld >/dev/null 2>&1
  for ((i = 1; i <= nodes; i++)); do
    mkdir "$slurm/node$i"
    "$folder/on_node.sh" "node$i" slurmd -N "node$i"
  done
  for ((i = 0; i < 150; i++)); do
    [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" != "$nodes" ] || return 0
    sleep 0.2
  done
  tail -n 5 "$slurm"/*.log >&2
  die "the nodes have not come up: see above"
}

case ${1:-} in
  --inside)
    nodes=$2
    shift 2
    # Jobs use the nodes and the launcher of their allocation.
    unset OMPI_MCA_orte_default_hostfile OMPI_MCA_plm_rsh_agent
    start_slurm
    exec "$@"
    ;;
esac

nodes=3 options=()
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=${2:-} ;;
    --bandwidth) options+=(--bandwidth "${2:-}") ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown argument '$1'; see --help" ;;
    *) break ;;
  esac
  shift 2 || die "an option needs a value; see --help"
done
[ $# -gt 0 ] || die "expected a command; see --help"
[ "$(id -u)" -eq 0 ] || die "run as root: Slurm's daemons need it"
for tool in slurmctld slurmd sbatch munged; do
  command -v "$tool" >/dev/null ||
    die "$tool is not installed: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
done
exec "$folder/cluster.sh" --nodes "$nodes" "${options[@]}" "$folder/slurm.sh" --inside "$nodes" "$@"
