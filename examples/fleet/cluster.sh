#!/usr/bin/env bash
# Makes a cluster of six servers, each written HOST:PORT:BUSPORT: three primaries, then their replicas.
set -euo pipefail
cli=${REDIS_CLI:-redis-cli}

# ask SERVER COMMAND... asks one of them.
ask() {
	local host port
	IFS=: read -r host port _ <<<"$1"
	shift
	"$cli" -h "$host" -p "$port" "$@"
}

# until_ok COMMAND... repeats a command for at most a minute, until it prints OK.
until_ok() {
	for _ in {1..600}; do
		[ "$("$@" 2>/dev/null)" = OK ] && return
		sleep 0.1
	done
	echo "the cluster is not there: $*" >&2
	exit 1
}

known() { [ "$(ask "$1" cluster info | grep -c -e cluster_known_nodes:6 -e cluster_state:ok)" = 2 ] && echo OK; }

servers=("$@")
[ "${#servers[@]}" = 6 ] || { echo "six servers are needed" >&2; exit 2; }
ask "${servers[0]}" cluster info 2>/dev/null | grep -q cluster_known_nodes:6 && exit # it was made before
for i in 0 1 2; do
	until_ok ask "${servers[i]}" cluster addslotsrange $((i * 16384 / 3)) $(((i + 1) * 16384 / 3 - 1))
	until_ok ask "${servers[i]}" cluster set-config-epoch $((i + 1))
done
for server in "${servers[@]:1}"; do
	IFS=: read -r host port bus <<<"$server"
	until_ok ask "${servers[0]}" cluster meet "$host" "$port" "$bus"
done
for server in "${servers[@]}"; do until_ok known "$server"; done
for i in 0 1 2; do
	until_ok ask "${servers[i + 3]}" cluster replicate "$(ask "${servers[i]}" cluster myid)"
done
