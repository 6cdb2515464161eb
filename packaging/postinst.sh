#!/bin/sh
# After the files are there, of dpkg (configure, and the version before) and of rpm (1 new, 2 upgrade). It starts no
# service: an operator looks at the Caddyfile first. One that runs goes on with the new binary.
set -e

first=no upgrade=no
case "${1:-}" in
configure) if [ -z "${2:-}" ]; then first=yes; else upgrade=yes; fi ;;
1) first=yes ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

# Where systemd is not installed, or cannot work (a chroot without /proc), the same by the tools that every system has.
if ! { command -v systemd-sysusers >/dev/null && systemd-sysusers crawlgate.conf; }; then
	getent group crawlgate >/dev/null || groupadd --system crawlgate
	getent passwd crawlgate >/dev/null || useradd --system --gid crawlgate --home-dir /var/lib/crawlgate \
		--no-create-home --shell /usr/sbin/nologin --comment "Crawlgate, a robots.txt gateway" crawlgate
fi
if ! { command -v systemd-tmpfiles >/dev/null && systemd-tmpfiles --create crawlgate.conf; }; then
	install -d -m 0700 -o crawlgate -g crawlgate /var/lib/crawlgate
	install -d -m 0750 -o crawlgate -g crawlgate /var/log/crawlgate /run/crawlgate
fi

# It may hold hashes of passwords. Later on the operator's mode stays.
if [ "$first" = yes ] && [ -f /etc/crawlgate/Caddyfile ]; then
	chown root:crawlgate /etc/crawlgate/Caddyfile
	chmod 0640 /etc/crawlgate/Caddyfile
fi

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
[ "$upgrade" = no ] || systemctl try-restart crawlgate.service
