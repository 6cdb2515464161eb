#!/bin/sh
# After the files are gone, of dpkg and rpm. `remove`, and rpm, keep the state and the logs: who installs again goes on
# with the same rulesets, orders and certificate authority. `purge` removes all, the sealed logs among it.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
[ "${1:-}" = purge ] || exit 0
rm -rf /var/lib/crawlgate /var/log/crawlgate /run/crawlgate
# Without the operator's own files the folder goes, too.
rmdir /etc/crawlgate 2>/dev/null || true
# Minimal systems may have no userdel; a user that owns nothing does no harm.
if getent passwd crawlgate >/dev/null && command -v userdel >/dev/null; then
	userdel crawlgate || true
fi
if getent group crawlgate >/dev/null && command -v groupdel >/dev/null; then
	groupdel crawlgate || true
fi
