#!/usr/bin/env bash
# make.sh BINARY FOLDER runs the binary of release 0.1.0 with a store, stops, a sealed log and Redis, in a network of its
# own, and leaves in FOLDER what the gateways wrote. Needs root, curl, python3 and Redis.
set -euo pipefail
if [ -z "${INSIDE:-}" ]; then exec unshare --mount --net --pid --fork --kill-child env INSIDE=1 "$0" "$@"; fi
mount -t proc proc /proc
binary=$(realpath "$1")
out=$(mkdir -p "$2" && cd "$2" && pwd)
work=$(mktemp -d)
cd "$work"
ip link set lo up
echo "127.0.0.1 localhost fresh.example gone.example held.example busy.example" >hosts
mount --bind hosts /etc/hosts

python3 - <<'PYTHON' &
import http.server
class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        robots = self.path.endswith("/robots.txt")
        busy = self.headers["Host"] == "busy.example" and not robots
        self.send_response(500 if self.headers["Host"] == "gone.example" else 429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "86400")
        self.end_headers()
        self.wfile.write(b"User-agent: *\nDisallow: /private/\n" if robots else b"page\n")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 80), Site).serve_forever()
PYTHON
until curl -s -o /dev/null http://127.0.0.1/; do sleep 0.1; done
redis-server --port 6379 --save '' --daemonize yes --dir "$work" >/dev/null

caddyfile() { # PORT, options of robots, output of the log
	cat <<CADDYFILE
{
	admin unix/$work/admin-$1.sock
	persist_config off
	robots {
		$2
		egress {
			allow_private 127.0.0.0/8
		}
	}
}
http://:$1 {
	log {
		output $3
	}
	robots
}
CADDYFILE
}

run() { # NAME PORT
	XDG_DATA_HOME=$out/$1 XDG_CONFIG_HOME=$work "$binary" run --config "$1.Caddyfile" --adapter caddyfile 2>"$1.stderr" &
	for _ in $(seq 100); do curl -sf "http://127.0.0.1:$2/health" >/dev/null && break; sleep 0.1; done
	for url in http://fresh.example/page http://fresh.example/private/page http://gone.example/page http://busy.example/page; do
		curl -s -o /dev/null -w "%{http_code} $url\n" --proxy "http://127.0.0.1:$2" -A "somebot/1.0" "$url"
	done
	for order in "deny host held.example" "deny agent badbot" "deny host lifted.example" "undeny host lifted.example"; do
		# shellcheck disable=SC2086 # three words
		"$binary" robots $order --by dora --address "unix/$work/admin-$2.sock"
	done
}

caddyfile 3128 "gateway gw1.acme.example
		store file $out/file/caddy/crawlgate/robots.db {
			retain 36500d
		}" "robots_evidence {
			file $out/file/access.log
		}" >file.Caddyfile
caddyfile 3129 "gateway gw2.acme.example
		store redis redis://127.0.0.1:6379/0 {
			retain 36500d
		}
		pace {
			shared redis redis://127.0.0.1:6379/0
		}
		fleet redis" "file $out/redis/access.log" >redis.Caddyfile
for name in file:3128 redis:3129; do
	run "${name%:*}" "${name#*:}"
	sleep 3 # the store is written behind
	[ "$name" = file:3128 ] || redis-cli --rdb "$out/redis/dump.rdb" >/dev/null
	kill -TERM $!
	wait $! || true
done
# Keys of certificates and what no test reads.
rm -r "$out"/*/caddy/{pki,locks,instance.uuid,last_clean.json} "$out/file/evidence/access/lock"
cat ./*.stderr >&2
