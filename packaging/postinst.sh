#!/bin/sh
# Runs after installation, by dpkg (arguments: configure, former version) and rpm (1 new, 2 upgrade). It starts no
# service, because an operator should read the Caddyfile first. A running gateway is restarted with the new binary.
set -e

first=no upgrade=no
case "${1:-}" in
configure) if [ -z "${2:-}" ]; then first=yes; else upgrade=yes; fi ;;
1) first=yes ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

# If systemd is not installed or does not work (a chroot without /proc), common tools do the same.
if ! { command -v systemd-sysusers >/dev/null && systemd-sysusers crawlgate.conf; }; then
	getent group crawlgate >/dev/null || groupadd --system crawlgate
	getent passwd crawlgate >/dev/null || useradd --system --gid crawlgate --home-dir /var/lib/crawlgate \
		--no-create-home --shell /usr/sbin/nologin --comment "Crawlgate, a robots.txt gateway" crawlgate
fi
if ! { command -v systemd-tmpfiles >/dev/null && systemd-tmpfiles --create crawlgate.conf; }; then
	install -d -m 0700 -o crawlgate -g crawlgate /var/lib/crawlgate
	install -d -m 0750 -o crawlgate -g crawlgate /var/log/crawlgate /run/crawlgate
fi

# The file may hold hashes of passwords. An upgrade keeps the mode that the operator has set.
if [ "$first" = yes ] && [ -f /etc/crawlgate/Caddyfile ]; then
	chown root:crawlgate /etc/crawlgate/Caddyfile
	chmod 0640 /etc/crawlgate/Caddyfile
fi

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
[ "$upgrade" = no ] || systemctl try-restart crawlgate.service
