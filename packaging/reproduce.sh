#!/usr/bin/env bash
# Makes a release again, from a clone in another folder and with an empty build cache, and compares:
# packaging/reproduce.sh DIST [OS-ARCH...]. With OS-ARCH, such as linux-amd64, only those binaries.
set -euo pipefail
dist=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -c advice.detachedHead=false clone --quiet . "$work/clone"
git -C "$work/clone" checkout --quiet "$(git rev-parse HEAD)"
export GOCACHE=$work/cache
mkdir "$work/again"

if [ $# -eq 0 ]; then
	CRAWLGATE_SIGNING_KEY=throwaway "$work/clone/packaging/release.sh" "$work/again"
	diff "$dist/SHA256SUMS" "$work/again/SHA256SUMS"
else
	for target in "$@"; do
		file=$(cd "$dist" && echo crawlgate_*_"${target/-/_}")
		"$work/clone/packaging/binary.sh" "${target%-*}" "${target#*-}" "$work/again/$file"
		(cd "$work/again" && grep " $file\$" "$dist/SHA256SUMS" | sha256sum --check)
	done
fi
echo "reproduce: equal"
