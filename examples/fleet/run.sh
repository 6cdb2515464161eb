#!/usr/bin/env bash
# What compose.yaml does, without containers, on this machine until Ctrl-C: needs redis-server and redis-cli (or those of
# Valkey, by REDIS_SERVER and REDIS_CLI), haproxy and the binary.
set -euo pipefail
cd "$(dirname "$0")"
bin=${CRAWLGATE:-../../crawlgate}
server=${REDIS_SERVER:-redis-server}
export DEMO_PORT=${DEMO_PORT:-8080} DEMO_NETWORK=127.0.0.0/8 BIND=127.0.0.1
export BALANCER=127.0.0.1:${BALANCER_PORT:-3128}
read -ra gateways <<<"${GATEWAY_PORTS:-3131 3132 3133}"
read -ra redis <<<"${REDIS_PORTS:-7001 7002 7003 7004 7005 7006}"
read -ra bus <<<"${BUS_PORTS:-17001 17002 17003 17004 17005 17006}"
export GATEWAY_1=127.0.0.1:${gateways[0]} GATEWAY_2=127.0.0.1:${gateways[1]} GATEWAY_3=127.0.0.1:${gateways[2]}

state=$(mktemp -d)
pids=()
# shellcheck disable=SC2317 # a trap calls it
end() {
	trap - EXIT INT TERM
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait "${pids[@]}" 2>/dev/null || true
	rm -rf "$state"
}
trap end EXIT
trap 'exit 0' INT TERM

# listening PORT waits, at most a minute, until something on this machine listens there.
listening() {
	for _ in {1..600}; do
		(: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 0.1
	done
	echo "nothing listens on port $1" >&2
	exit 1
}

nodes=()
REDIS_URL=redis://127.0.0.1:${redis[0]}
for i in "${!redis[@]}"; do
	mkdir "$state/redis-$i"
	"$server" --port "${redis[i]}" --cluster-port "${bus[i]}" --cluster-enabled yes --cluster-node-timeout 2000 --appendonly yes \
		--maxmemory-policy noeviction --bind 127.0.0.1 --dir "$state/redis-$i" >"$state/redis-$i.log" & pids+=($!)
	nodes+=("127.0.0.1:${redis[i]}:${bus[i]}")
	[ "$i" = 0 ] || REDIS_URL+=$([ "$i" = 1 ] && echo "?" || echo "&")addr=127.0.0.1:${redis[i]}
done
export REDIS_URL
XDG_DATA_HOME="$state/demo" XDG_CONFIG_HOME="$state/demo" "$bin" run --config ../compose/demo.Caddyfile 2>"$state/demo.log" & pids+=($!)
for port in "${redis[@]}" "$DEMO_PORT"; do listening "$port"; done
./cluster.sh "${nodes[@]}"
for i in 0 1 2; do
	XDG_DATA_HOME="$state/gw$i" XDG_CONFIG_HOME="$state/gw$i" GATEWAY="gw$((i + 1)).acme.example" GATEWAY_PORT=${gateways[i]} \
		"$bin" run --config Caddyfile & pids+=($!)
done
for port in "${gateways[@]}"; do listening "$port"; done
haproxy -db -f haproxy.cfg & pids+=($!)
listening "${BALANCER##*:}"
echo "proxy http://$BALANCER, demo site http://127.0.0.1:$DEMO_PORT, Redis at ${redis[*]}"
wait "${pids[@]}" || true # for all of them, or Ctrl-C
