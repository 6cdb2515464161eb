#!/bin/sh
# Before the files go, of dpkg (remove, upgrade) and of rpm (0 removal, 1 upgrade). At an upgrade the gateway runs on.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now crawlgate.service
