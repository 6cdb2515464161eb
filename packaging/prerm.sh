#!/bin/sh
# Runs before removal, by dpkg (remove, upgrade) and rpm (0 removal, 1 upgrade). An upgrade does not stop the gateway.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now crawlgate.service
