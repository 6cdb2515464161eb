#!/bin/sh
# Checks the settings of this machine or container for the gateway http://GATEWAY:3128.
#
#   sh check.sh [User-Agent [allowed-URLs [disallowed-URLs]]]
#
# The User-Agent is that of your crawler. The script requests all URLs through the gateway, and the allowed ones also
# without it. It needs sh and curl, changes nothing and shows no password. Its status is 0 if all is right, 1 if something
# is WRONG, and 2 if something is unknown (??).

main() {
	gateway='http://GATEWAY:3128' own=crawlgate.invalid # no such name exists: only a gateway answers for it
	agent=${1-} allowed=${2:-http://example.com/ https://example.com/} refused=${3:-http://$own/refused https://$own/refused}
	status=0 cr=$(printf '\r') nl='
'
	set -f
	check_gateway
	for name in http_proxy HTTP_PROXY https_proxy HTTPS_PROXY; do check_proxy $name "$(value $name)"; done
	for name in no_proxy NO_PROXY; do check_no_proxy $name "$(value $name)"; done
	check_agent http
	if [ "$root" ]; then
		check_agent https
		check_trust
		for name in SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS; do check_file $name "$(value $name)"; done
	else
		say ok "certificate: none is needed, because this gateway does not intercept https"
		[ "${3-}" ] || refused=http://$own/refused
	fi
	for url in $allowed; do check_allowed "$url"; done
	for url in $refused; do check_refused "$url"; done
	exit $status
}
value() { eval "printf %s \"\${$1-}\""; }
say() {
	printf '%-6s %s\n' "$1" "$2"
	case $1 in WRONG) status=1 ;; '??') [ $status = 1 ] || status=2 ;; esac
}
ask() { # gives header and body of an answer, whomever curl trusts: only check_trust looks at that
	text=$(curl -q -k -s -i --connect-timeout 5 -m 60 --max-filesize 1000000 ${agent:+-A "$agent"} "$@")
	set -- $?
	case $text in HTTP/1.?\ 200*"$nl$cr${nl}HTTP/"*) text=${text#*"$nl$cr$nl"} ;; esac # the answer to CONNECT
	printf %s "$text" && return "$1"
}
body() { case $1 in *"$nl$cr$nl"*) printf %s "${1#*"$nl$cr$nl"}" ;; esac }
decision() { # is what the gateway says of an answer, such as "deny; reason=disallowed"; of others, nothing
	fields=${1%%"$nl$cr$nl"*}
	case $fields in *rawlgate-[Dd]ecision:*) fields=${fields#*rawlgate-[Dd]ecision: } && printf %s "${fields%%"$cr"*}" ;; esac
}
joined() { # makes one line of a file of certificates
	while IFS= read -r line || [ "$line" ]; do
		case $line in *END*BEGIN*) line=torn ;; esac # no line end between two files
		printf %s "${line%"$cr"}"
	done
}
check_gateway() {
	command -v curl >/dev/null || { say '??' "curl: not installed" && exit 2; }
	answer=$(ask --noproxy '*' "$gateway/ca.crt") || { say '??' "gateway: no answer from $gateway (curl: $?)" && exit 2; }
	page=$(body "$answer") root=
	case $(decision "$answer"):$page in
	deny*client_not_allowed*) say WRONG "gateway: it does not serve this address. Ask its operator to add it to clients" && exit 1 ;;
	:-----BEGIN*) root=$(echo "$page" | joined) ;;
	:*Crawlgate*) ;;
	*) say '??' "gateway: it is not Crawlgate that answers at $gateway" && exit 2 ;;
	esac
	say ok "gateway: answers at $gateway"
}
check_proxy() {
	case $1:$2 in
	http_proxy:) say WRONG "$1: not set, and curl, wget and others do not read HTTP_PROXY. Set it to $gateway" && return ;;
	*:) say WRONG "$1: not set. Some clients read upper case, some lower. Set it to $gateway" && return ;;
	*://*) ;;
	*) say WRONG "$1: does not begin with http://, which some clients need" && return ;;
	esac
	answer=$(http_proxy=$2 no_proxy='' NO_PROXY='' ask "http://$own/ca.crt")
	[ "$(body "$answer")" = "$page" ] && say ok "$1: leads to the gateway" && return
	say WRONG "$1: does not lead to this gateway. Set it to $gateway"
}
check_no_proxy() {
	out='' IFS=', '
	for item in $2; do
		item=${item#\*} # "*", ".com" and "*.com" are "", "com" and "com"
		case ${item#.} in '' | com | org | net | 0.0.0.0/0 | ::/0) out=1 ;; esac
	done
	unset IFS
	[ ! "$out" ] && say ok "$1: leaves the web to the proxy" && return
	say WRONG "$1: takes most of the web from the proxy. List internal hosts only"
}
check_agent() {
	answer=$(ask "$1://$own/agent")
	code=$? says=$(body "$answer")
	case $(decision "$answer"):$says in
	deny*) say WRONG "agent over $1: refused: $(decision "$answer")${says:+: ${says%%"$nl"*}}" ;;
	:agent:\ "$nl"*) say WRONG "agent over $1: unnamed. Send credentials, or a User-Agent that the gateway knows (first argument)" ;;
	:agent:\ *) name=${says#*: } && say ok "agent over $1: ${name%%"$nl"*}, known by ${says##*: }" ;;
	*) say WRONG "agent over $1: not known, because the variables above do not lead to the gateway (curl: $code)" ;;
	esac
}
check_trust() {
	why=$(curl -q -sS -o /dev/null --connect-timeout 5 -m 60 "https://$own/agent" 2>&1) && say ok "certificate: curl trusts it" && return
	if ask "https://$own/agent" >/dev/null; then say WRONG "certificate: ${why%%"$nl"*}. Get $gateway/ca.crt"; else
		say '??' "certificate: not tried, because the line before must be corrected first"
	fi
}
check_file() {
	[ "$2" ] || { say WRONG "$1: not set. Some clients have no other way to the certificate, $gateway/ca.crt" && return; }
	if [ ! -f "$2" ] || [ ! -r "$2" ] || [ "$2" = "${2#/}" ]; then say WRONG "$1: $2 is not a readable file with an absolute path" && return; fi
	all=$(joined <"$2")
	case $1:$all in
	NODE*"$root"* | *"$root"*BEGIN* | *BEGIN*"$root"*) say ok "$1: $2 has the certificate" ;;
	*"$root"*) say ok "$1: $2 has the certificate and no other, so connections that bypass the gateway fail" ;;
	*) say WRONG "$1: $2 does not have the certificate of this gateway, $gateway/ca.crt" ;;
	esac
}
check_allowed() { # looks at the direct way, too
	answer=$(ask "$1")
	code=$? far=$(body "$answer")
	case $(decision "$answer"):$root:$1:${answer%%"$cr"*} in
	allow*) say ok "allowed: $1" ;;
	error* | deny*=unreachable* | deny*:HTTP*\ 429* | deny*:HTTP*\ 503*) say '??' "allowed: $1 is not available now: $(decision "$answer")" ;;
	deny*) say WRONG "allowed: $1 is refused: $(decision "$answer")" ;;
	::https:*:HTTP*) say ok "allowed: $1, in a tunnel" ;;
	:*:HTTP*) say WRONG "allowed: $1 did not come through the gateway" ;;
	*) say '??' "allowed: $1 has no answer (curl: $code)" ;;
	esac
	near=$(ask --noproxy '*' -m 10 -w "$nl%{time_connect}" "$1")
	code=$?
	case $code:${near##*"$nl"}:$(body "${near%"$nl"*}") in
	6:*) say ok "direct way: closed, because $1 has no address here (close the way to addresses too)" ;;
	*:0.000000:*) say ok "direct way: closed to $1 (curl: $code)" ;;
	0:*:"$far") say WRONG "direct way: open. $1 answers without the gateway, so clients can bypass it" ;;
	*) say '??' "direct way: something answers for $1 without the gateway: the site, or a captive portal" ;;
	esac
}
check_refused() {
	answer=$(ask "$1")
	code=$?
	case $(decision "$answer") in
	deny*) say ok "refused: $1: $(decision "$answer")" ;;
	allow*) say WRONG "refused: $1 is allowed" ;;
	*) say '??' "refused: $1 has no answer of the gateway (curl: $code)" ;;
	esac
}
main "$@" 2>/dev/null
