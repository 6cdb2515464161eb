#!/usr/bin/env bash
# Makes all files of a release: packaging/release.sh [FOLDER]. Needs Go, git, nfpm, buildah, jq and minisign, and no
# daemon. The version is the tag of the commit, or else a pseudo-version that names it. Anyone who
# runs it on the same commit gets the same SHA256SUMS (see reproduce.sh).
# CRAWLGATE_SIGNING_KEY is the file of the owner's secret key, or "throwaway" for a release that is not published.
set -euo pipefail
fail() { echo "release: $*" >&2; exit 1; }
key=${CRAWLGATE_SIGNING_KEY:-}
[ -n "$key" ] || fail 'set CRAWLGATE_SIGNING_KEY to the file of the secret key, or to "throwaway" for a release that is not published'
[ "$key" = throwaway ] || key=$(realpath -e -- "$key")
for program in nfpm buildah jq minisign; do command -v "$program" >/dev/null || fail "$program is not installed"; done
dist=$(mkdir -p "${1:-dist/release}" && cd "${1:-dist/release}" && pwd)
cd "$(dirname "$0")/.."

umask 022
export LC_ALL=C TZ=UTC GOTOOLCHAIN=local
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only the commit counts, not other files of this folder. Besides, Go writes no version into binaries that are
# built in a linked worktree.
git -c advice.detachedHead=false clone --quiet . "$work/source"
git -C "$work/source" checkout --quiet "$(git rev-parse HEAD)"
cd "$work/source"
[ "$key" = throwaway ] || [ -e crawlgate.pub ] || fail "the commit has no crawlgate.pub, the public key of the releases"
rm -f "$dist"/{crawlgate[_-]*,SHA256SUMS*,THIRD-PARTY-LICENSES,throwaway.pub}

say() { echo "release: $*"; }

# Go's v0.1.1-0.20260101000000-0123456789ab, which precedes v0.1.1, is 0.1.1~0.2026… in packages.
package_version() {
	local v
	v=$(go version -m "$1" | awk '$1 == "mod" { print $3 }')
	[ "$v" != "(devel)" ] || fail "the binary has no version"
	v=${v#v}
	case $v in
	*-*) v="${v%%-*}~${v#*-}" ;;
	esac
	echo "${v//-/.}"
}

binaries() {
	local os arch
	for os in linux darwin; do
		for arch in amd64 arm64; do
			say "binary $os $arch"
			packaging/binary.sh "$os" "$arch" "$work/$os-$arch" >"$work/$os-$arch.ldflags"
		done
	done
	version=$(package_version "$work/linux-amd64")
	for os in linux darwin; do
		for arch in amd64 arm64; do
			cp "$work/$os-$arch" "$dist/crawlgate_${version}_${os}_$arch"
		done
	done
}

# A list of the modules of each binary, and the licences of all these modules.
lists() {
	local os arch
	say "SBOM and licences"
	(cd packaging/sbom && GOFLAGS=-buildvcs=false go build -o "$work/sbom" .)
	for os in linux darwin; do
		for arch in amd64 arm64; do
			"$work/sbom" modules "$work/$os-$arch" >"$dist/crawlgate_${version}_${os}_$arch.cdx.json"
		done
	done
	"$work/sbom" licences "$work/linux-amd64" "$work/darwin-amd64" >"$dist/THIRD-PARTY-LICENSES"
}

# The files that dpkg expects beside those of a package.
debian_files() {
	mkdir "$work/doc"
	{
		echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
		echo "Upstream-Name: crawlgate"
		echo "Source: https://github.com/crawlgate/crawlgate"
		echo
		echo "Files: *"
		echo "Copyright: 2026 the authors of Crawlgate"
		echo "License: Apache-2.0"
		echo " See /usr/share/common-licenses/Apache-2.0. The binary holds modules of others:"
		echo " their licences are in THIRD-PARTY-LICENSES.gz in this folder."
	} >"$work/doc/copyright"
	{
		echo "crawlgate ($version) stable; urgency=medium"
		echo
		echo "  * See https://github.com/crawlgate/crawlgate/blob/main/CHANGELOG.md"
		echo
		echo " -- Crawlgate <crawlgate@users.noreply.github.com>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")"
	} | gzip -9n >"$work/doc/changelog.gz"
	gzip -9nc "$dist/THIRD-PARTY-LICENSES" >"$work/doc/THIRD-PARTY-LICENSES.gz"
	"$work/linux-$(go env GOARCH)" manpage --directory "$work/doc/man" # the month in them is that of SOURCE_DATE_EPOCH
	sed -i 's/^\.TH "Caddy"/.TH "Crawlgate"/' "$work"/doc/man/*
	gzip -9n "$work"/doc/man/*
	mkdir "$work/doc/completion"
	local shell
	for shell in bash:crawlgate zsh:_crawlgate fish:crawlgate.fish; do
		"$work/linux-$(go env GOARCH)" completion "${shell%%:*}" >"$work/doc/completion/${shell#*:}"
	done
}

packages() {
	local kind
	debian_files
	export VERSION=$version BINARY DOC=$work/doc ARCH
	for ARCH in amd64 arm64; do
		BINARY=$work/linux-$ARCH
		for kind in deb rpm; do
			say "$kind $ARCH"
			nfpm package --config packaging/nfpm.yaml --packager "$kind" --target "$dist" >/dev/null
		done
	done
}

# The build context of packaging/Containerfile: the files of the image, and nothing else.
image_context() {
	mkdir -p "$1/data"
	cp "$work/linux-$2" "$1/crawlgate"
	cp LICENSE "$dist/THIRD-PARTY-LICENSES" /etc/ssl/certs/ca-certificates.crt "$1"
	cp examples/container/Caddyfile "$1/Caddyfile"
	find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# Nothing of buildah's own state is kept.
buildah_here() {
	buildah --storage-driver vfs --root "$work/storage" --runroot "$work/runroot" "$@"
}

images() {
	local arch name
	for arch in amd64 arm64; do
		say "image $arch"
		image_context "$work/context-$arch" "$arch"
		name=crawlgate:$arch
		buildah_here build --isolation chroot --format oci --platform "linux/$arch" --identity-label=false \
			--timestamp "$SOURCE_DATE_EPOCH" --build-arg "VERSION=$version" --build-arg "REVISION=$(git rev-parse HEAD)" \
			--tag "$name" --file packaging/Containerfile "$work/context-$arch" >/dev/null
		# A tag may have neither ~ nor +.
		buildah_here push --quiet "$name" "oci-archive:$work/image-$arch.tar:crawlgate:${version//[~+]/_}"
		normal_tar "$work/image-$arch.tar" "$dist/crawlgate_${version}_oci_$arch.tar"
	done
}

# The pushed archive has the times of this run.
normal_tar() {
	local dir=$work/unpacked
	rm -rf "$dir" && mkdir "$dir"
	tar -xf "$1" -C "$dir"
	tar -cf "$2" -C "$dir" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX --format=ustar blobs index.json oci-layout
}

# How each file was made from the commit: an in-toto statement with an SLSA predicate. Its only time is the
# commit's, so that everyone gets the same bytes.
provenance() {
	local commit target
	say "provenance"
	commit=$(git rev-parse HEAD)
	for target in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do
		go version -m -json "$work/$target" | jq --rawfile ldflags "$work/$target.ldflags" '.Settings += [{Key: "-ldflags", Value: ($ldflags | rtrimstr("\n"))}]'
	done >"$work/builds.json"
	(cd "$dist" && sha256sum -- *) | jq --raw-input --null-input --arg commit "$commit" --slurpfile builds "$work/builds.json" \
		--arg gosum "$(sha256sum <go.sum | cut -c -64)" '
		"https://github.com/crawlgate/crawlgate" as $repository
		| [$builds[] | {GoVersion, Main, settings: (.Settings | map({(.Key): .Value}) | add)}] as $builds
		| {
			_type: "https://in-toto.io/Statement/v1",
			subject: [inputs | capture("^(?<sha256>[0-9a-f]{64})  (?<name>.+)$") | {name, digest: {sha256}}],
			predicateType: "https://slsa.dev/provenance/v1",
			predicate: {
				buildDefinition: {
					buildType: "\($repository)/blob/main/docs/contributing.md#release",
					externalParameters: {version: $builds[0].Main.Version, commit: $commit},
					internalParameters: {
						tree: (if all($builds[]; .settings["vcs.modified"] == "false") then "clean" else "modified" end),
						go: ($builds | map(.GoVersion) | unique | join(" ")),
						settings: ($builds | map({"\(.settings.GOOS)_\(.settings.GOARCH)": .settings}) | add)
					},
					resolvedDependencies: [
						{uri: "git+\($repository)@\($commit)", digest: {gitCommit: $commit}},
						{name: "go.sum", digest: {sha256: $gosum}}
					]
				},
				runDetails: {builder: {id: "\($repository)/blob/main/packaging/release.sh"}}
			}
		}' >"$work/provenance.json"
	mv "$work/provenance.json" "$dist/crawlgate_$version.provenance.json"
}

# The comment is signed too, so the sums of one version cannot be passed off as those of another.
sign() {
	local public=$work/source/crawlgate.pub
	say "signature"
	(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS")
	mv "$work/SHA256SUMS" "$dist"
	if [ "$key" = throwaway ]; then
		key=$work/key public=$dist/throwaway.pub
		minisign -G -W -p "$public" -s "$key" >/dev/null
	fi
	minisign -S -s "$key" -m "$dist/SHA256SUMS" -t "crawlgate $version, commit $(git rev-parse HEAD)"
	minisign -V -q -p "$public" -m "$dist/SHA256SUMS"
}

binaries
lists
packages
images
provenance
sign
say "$version is in $dist"
