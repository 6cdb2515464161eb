package crawlgate

import (
	"html/template"
	texttemplate "text/template"
)

// setups is how common clients are told of the gateway and of its certificate. The data are the proxy's URL (.Proxy), its
// host and port (.Address) and, where TLS is intercepted, .Fingerprint.
const setups = `{{define "curl"}}curl --proxy {{.Proxy}}{{if .Fingerprint}} --cacert ca.crt{{end}} URL{{end -}}
{{define "environment"}}export http_proxy={{.Proxy}} https_proxy={{.Proxy}}{{end -}}
{{define "requests"}}requests.get(url, proxies={"http": "{{.Proxy}}", "https": "{{.Proxy}}"}{{if .Fingerprint}}, verify="ca.crt"{{end}}){{end -}}
{{define "scrapy"}}the environment above, or request.meta["proxy"] = "{{.Proxy}}"{{end -}}
{{define "aiohttp"}}session.get(url, proxy="{{.Proxy}}"{{if .Fingerprint}}, ssl=ssl.create_default_context(cafile="ca.crt"){{end}}){{end -}}
{{define "node"}}{{if .Fingerprint}}NODE_EXTRA_CA_CERTS=ca.crt, {{end}}setGlobalDispatcher(new ProxyAgent("{{.Proxy}}")) of undici{{end -}}
{{define "go"}}the environment above{{if .Fingerprint}} and SSL_CERT_FILE=ca.crt{{end}} (loopback targets are never proxied){{end -}}
{{define "java"}}-Dhttp.proxyHost and -Dhttp.proxyPort, the same for https{{if .Fingerprint}}; keytool -importcert -file ca.der{{end}}{{end -}}
{{define "chromium"}}--proxy-server={{.Proxy}}{{if .Fingerprint}}; certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n crawlgate -i ca.crt{{end}}{{end -}}
`

var selfText = texttemplate.Must(texttemplate.New("text").Parse(setups + `This is Crawlgate, a forward proxy in front of crawlers that enforces robots.txt.

What a site's robots.txt disallows is answered with 403 and a text that names the rule. What it allows is sent out at a
pace that the site can bear: a request may be held for some seconds.

Proxy:        {{.Proxy}}
PAC file:     http://{{.Address}}/proxy.pac
Health:       http://{{.Address}}/health
{{- if .Fingerprint}}

For https the gateway ends TLS itself, to see the path. Clients must trust its certificate:

Certificate:  http://{{.Address}}/ca.crt (PEM), http://{{.Address}}/ca.der (DER)
Subject:      {{.Subject}}, valid until {{.Until}}
SHA-256:      {{.Fingerprint}}
{{- end}}

environment:  {{template "environment" .}}
curl:         {{template "curl" .}}
requests:     {{template "requests" .}}
Scrapy:       {{template "scrapy" .}}
aiohttp:      {{template "aiohttp" .}}
Node:         {{template "node" .}}
Go:           {{template "go" .}}
Java:         {{template "java" .}}
Chromium:     {{template "chromium" .}}
`))

var selfHTML = template.Must(template.New("html").Parse(setups + `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Crawlgate</title>
<link rel="icon" href="data:,">
<style>body{font:1rem/1.5 sans-serif;margin:3rem auto;max-width:60rem;padding:0 1rem}dl{display:grid;` +
	`grid-template-columns:max-content 1fr;gap:.25rem 1rem}dt{font-weight:bold}dd{margin:0;overflow-wrap:anywhere}code{font-size:.95em}</style>
</head>
<body>
<h1>Crawlgate</h1>
<p>This is a forward proxy in front of crawlers that enforces robots.txt.</p>
<p>What a site's robots.txt disallows is answered with 403 and a text that names the rule. What it allows is sent out at a
pace that the site can bear: a request may be held for some seconds.</p>
<dl>
<dt>Proxy</dt><dd><code>{{.Proxy}}</code></dd>
<dt>PAC file</dt><dd><a href="/proxy.pac">/proxy.pac</a></dd>
<dt>Health</dt><dd><a href="/health">/health</a></dd>
</dl>
{{- if .Fingerprint}}
<h2>https</h2>
<p>For https the gateway ends TLS itself, to see the path. Clients must trust its certificate:</p>
<dl>
<dt>Certificate</dt><dd><a href="/ca.crt">ca.crt</a> (PEM), <a href="/ca.der">ca.der</a> (DER)</dd>
<dt>Subject</dt><dd>{{.Subject}}, valid until {{.Until}}</dd>
<dt>SHA-256</dt><dd><code>{{.Fingerprint}}</code></dd>
</dl>
{{- end}}
<h2>Clients</h2>
<dl>
<dt>environment</dt><dd><code>{{template "environment" .}}</code></dd>
<dt>curl</dt><dd><code>{{template "curl" .}}</code></dd>
<dt>requests</dt><dd><code>{{template "requests" .}}</code></dd>
<dt>Scrapy</dt><dd><code>{{template "scrapy" .}}</code></dd>
<dt>aiohttp</dt><dd><code>{{template "aiohttp" .}}</code></dd>
<dt>Node</dt><dd><code>{{template "node" .}}</code></dd>
<dt>Go</dt><dd><code>{{template "go" .}}</code></dd>
<dt>Java</dt><dd><code>{{template "java" .}}</code></dd>
<dt>Chromium</dt><dd><code>{{template "chromium" .}}</code></dd>
</dl>
</body>
</html>
`))
