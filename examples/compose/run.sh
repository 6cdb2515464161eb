#!/usr/bin/env bash
# What compose.yaml does, without containers, on this machine until Ctrl-C: needs redis-server, prometheus and the binary.
set -euo pipefail
cd "$(dirname "$0")"
bin=${CRAWLGATE:-../../crawlgate}
export GATEWAY_PORT=${GATEWAY_PORT:-3128} METRICS_PORT=${METRICS_PORT:-9180} DEMO_PORT=${DEMO_PORT:-8080}
redis_port=${REDIS_PORT:-6379} prometheus_port=${PROMETHEUS_PORT:-9090}
export REDIS_URL="redis://127.0.0.1:$redis_port/0" DEMO_NETWORK=127.0.0.0/8 BIND=127.0.0.1

state=$(mktemp -d)
pids=()
end() {
	trap - EXIT INT TERM
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait "${pids[@]}" 2>/dev/null || true
	rm -rf "$state"
}
trap end EXIT
trap 'exit 0' INT TERM
export XDG_DATA_HOME="$state/data" XDG_CONFIG_HOME="$state/config"
export CRAWLGATE_GATEWAY="unix/$state/admin.sock"
export ADMIN="$CRAWLGATE_GATEWAY|0600"
mkdir "$state/redis"
sed "s/gateway:9180/127.0.0.1:$METRICS_PORT/" prometheus.yml >"$state/prometheus.yml"
cp ../monitoring/rules.yml "$state/"

# listening PORT waits, at most a minute, until something on this machine listens there.
listening() {
	for _ in {1..600}; do
		(: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 0.1
	done
	echo "nothing listens on port $1" >&2
	exit 1
}

redis-server --port "$redis_port" --appendonly yes --bind 127.0.0.1 --dir "$state/redis" >"$state/redis.log" & pids+=($!)
"$bin" run --config demo.Caddyfile 2>"$state/demo.log" & pids+=($!)
# A site that refuses the connection counts as unreachable: the gateway then refuses its pages for a while.
listening "$redis_port" && listening "$DEMO_PORT"
"$bin" run --config Caddyfile & pids+=($!)
prometheus --config.file="$state/prometheus.yml" --storage.tsdb.path="$state/prometheus" --web.listen-address="127.0.0.1:$prometheus_port" \
	--log.level=warn & pids+=($!)
listening "$GATEWAY_PORT" && listening "$prometheus_port"
"$bin" robots gateways # the health check
echo "proxy http://127.0.0.1:$GATEWAY_PORT, demo site http://127.0.0.1:$DEMO_PORT, Prometheus http://127.0.0.1:$prometheus_port"
wait -n "${pids[@]}" # until one of them ends
exit 1
