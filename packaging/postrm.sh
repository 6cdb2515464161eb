#!/bin/sh
# Runs after removal, by dpkg and rpm. `remove`, and rpm, keep state and logs, so a new installation continues with the
# same rulesets, orders and certificate authority. `purge` removes everything, with the sealed logs.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
[ "${1:-}" = purge ] || exit 0
rm -rf /var/lib/crawlgate /var/log/crawlgate /run/crawlgate
# This removes the folder only if it has no other files.
rmdir /etc/crawlgate 2>/dev/null || true
# Minimal systems may have no userdel. A user that owns nothing does no harm.
if getent passwd crawlgate >/dev/null && command -v userdel >/dev/null; then
	userdel crawlgate || true
fi
if getent group crawlgate >/dev/null && command -v groupdel >/dev/null; then
	groupdel crawlgate || true
fi
