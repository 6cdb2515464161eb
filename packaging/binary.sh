#!/usr/bin/env bash
# Builds the gateway as it is released: packaging/binary.sh OS ARCH FILE. The version is that of the
# tag or commit, so it needs a git clone (no linked worktree). The same commit gives the same bytes in every folder.
# It prints the flags of the linker.
set -euo pipefail
os=$1 arch=$2 out=$(realpath "$3")
cd "$(dirname "$0")/.."
# Only this file says what is built in. GOFLAGS of the environment may contain -buildvcs=false.
export GOFLAGS='' CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=''
ldflags='-s -w -buildid='
# Go starts functions at multiples of 32 bytes on amd64. 8 makes the file for darwin 1.4 MB shorter, below 66 MiB.
[ "$os-$arch" != darwin-amd64 ] || ldflags+=' -funcalign=8'
# The tags leave out step-ca's stores of certificates in badger, MySQL and PostgreSQL, and the debugging pages of gRPC.
echo "$ldflags" # Go keeps them out of a binary that is built with -trimpath
exec "${GO:-go}" build -o "$out" -trimpath -buildvcs=true -tags nobadger,nomysql,nopgx,grpcnotrace \
	-ldflags "$ldflags" ./cmd/crawlgate
