{{- define "crawlgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "crawlgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "crawlgate.labels" -}}
{{ include "crawlgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Lines of a value, in a block of the Caddyfile. In YAML they are indented by blanks, in a Caddyfile by tabs. */}}
{{- define "crawlgate.lines" -}}
{{- $lines := trim . }}
{{- range until 8 }}
{{- $lines = regexReplaceAll "(?m)^(\t*)  " $lines "${1}\t" }}
{{- end }}
{{- $lines | nindent 2 | replace "\n  " "\n\t\t" }}
{{- end }}

{{- define "crawlgate.caddyfile" -}}
{{- if .Values.caddyfile }}{{ .Values.caddyfile }}{{ else -}}
{
	admin unix//run/crawlgate/admin.sock|0660
	metrics
	shutdown_delay 10s
	grace_period {{ sub .Values.terminationGracePeriodSeconds 20 }}s
	persist_config off
	{{- if .Values.ca.existingSecret }}
	pki {
		ca robots {
			root {
				cert /etc/crawlgate/ca/ca.crt
			}
			intermediate {
				cert /etc/crawlgate/ca/tls.crt
				key /etc/crawlgate/ca/tls.key
			}
		}
	}
	{{- end }}
	robots {
		{{- if .Values.redis.existingSecret }}
		redis {file./etc/crawlgate/redis/url} {
			expect {{ .Values.replicas }}
		}
		{{- end }}
		{{- with .Values.engine }}
		{{- include "crawlgate.lines" . }}
		{{- end }}
	}
}

:3128 {
	log {
		{{- with .Values.log }}
		{{- include "crawlgate.lines" . }}
		{{- end }}
	}
	robots {
		{{- with .Values.site }}
		{{- include "crawlgate.lines" . }}
		{{- end }}
	}
}

# The kubelet asks here, where no limit of the gateway counts.
:{{ .Values.metrics.port }} {
	metrics /metrics
	handle /health {
		@stopping vars {http.shutting_down} true
		respond @stopping "the gateway is about to stop" 503
		respond ok
	}
}
{{- if .Values.console.enabled }}

http://:9181 {
	bind 127.0.0.1
	{{- if .Values.console.existingSecret }}
	basic_auth {
		import /etc/crawlgate/console/users
	}
	{{- end }}
	robots_console {
		orders {{ if .Values.console.existingSecret }}on{{ else }}off{{ end }}
	}
}
{{- end }}
{{ end }}
{{- end }}

{{- /* What only a start reads: its change has to change the pod. A Secret is seen where helm sees the cluster. */}}
{{- define "crawlgate.start" -}}
{{- $secrets := list }}
{{- range .Values.extraEnv }}
{{- $secrets = append $secrets (dig "valueFrom" "secretKeyRef" "name" "" .) }}
{{- end }}
{{- if not .Values.reload.image }}
{{- include "crawlgate.caddyfile" . }}
{{- $secrets = concat $secrets (list .Values.ca.existingSecret .Values.redis.existingSecret .Values.console.existingSecret) }}
{{- end }}
{{- range compact $secrets }}
{{- toJson (lookup "v1" "Secret" $.Release.Namespace .).data }}
{{- end }}
{{- end }}

{{- define "crawlgate.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* A changed ConfigMap or Secret swaps the link ..data in its folder. A Caddyfile that was refused is tried again. The first look
loads as well: nobody knows what has changed before it. */}}
{{- define "crawlgate.watch" -}}
trap exit TERM
loaded=''
while :; do
	found=$(for folder in /etc/crawlgate{{ range .Values.extraVolumeMounts }} {{ .mountPath | squote }}{{ end }}; do readlink "$folder/..data"; done)
	if [ "$found" != "$loaded" ] && curl --silent --show-error --fail-with-body --max-time 60 --unix-socket /run/crawlgate/admin.sock \
		--header 'Content-Type: text/caddyfile' --header 'Cache-Control: must-revalidate' --data-binary @/etc/crawlgate/Caddyfile http://localhost/load; then
		loaded=$found
	fi
	sleep 10 & wait $!
done
{{- end }}
