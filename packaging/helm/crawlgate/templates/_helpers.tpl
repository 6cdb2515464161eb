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

{{- define "crawlgate.caddyfile" -}}
{{- if .Values.caddyfile }}{{ .Values.caddyfile }}{{ else -}}
{
	metrics
	grace_period 40s
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
		store redis {$CRAWLGATE_REDIS}
		fleet redis {
			expect {{ .Values.replicas }}
		}
		{{- end }}
		pace {
			{{- if .Values.redis.existingSecret }}
			shared redis {$CRAWLGATE_REDIS}
			{{- end }}
			{{- with .Values.pace }}
			{{- . | trim | nindent 3 | replace "\n   " "\n\t\t\t" }}
			{{- end }}
		}
		{{- with .Values.engine }}
		{{- . | trim | nindent 2 | replace "\n  " "\n\t\t" }}
		{{- end }}
	}
}

:3128 {
	log
	robots {
		{{- with .Values.site }}
		{{- . | trim | nindent 2 | replace "\n  " "\n\t\t" }}
		{{- end }}
	}
}

:{{ .Values.metrics.port }} {
	metrics /metrics
}
{{ end }}
{{- end }}
