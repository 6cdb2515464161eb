#!/bin/sh
# Crawls sites with curl: crawl.sh URL...
set -eu
for url; do
	site=$(printf '%s' "$url" | sed 's|^\(https*://[^/]*\).*|\1|')
	printf '%s\n' "$url" >pages
	while read -r page; do
		curl --config curlrc --output page --write-out '%{http_code} %header{crawlgate-decision} %{url}\n' "$page"
		sed -n 's|.*<a href="\(/[^"]*\)".*|\1|p' page | while read -r path; do
			grep -qxF "$site$path" pages || printf '%s\n' "$site$path" >>pages
		done
	done <pages # which grows while it is read
done
