// An origin at two ports, one for HTTP/1.1 and one for HTTP/2. It answers each request with a line of JSON: what its signature is worth
// by npm's http-message-signatures, and what it says of its sender.
import { createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import { createServer } from 'node:https';
import { createVerifier, httpbis } from 'http-message-signatures';

const [certFile, keyFile, keysFile, robots] = process.argv.slice(2);
const tls = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
const keys = new Map();
const seen = [];

// keyOf finds a public key by its thumbprint. The file is read again for one that is new.
function keyOf(id) {
  if (!keys.has(id)) {
    for (const { kid, kty, crv, x } of JSON.parse(readFileSync(keysFile, 'utf8')).keys) {
      keys.set(kid, createVerifier(createPublicKey({ key: { kty, crv, x }, format: 'jwk' }), 'ed25519'));
    }
  }
  const verify = keys.get(id);
  return verify ? { id, algs: ['ed25519'], verify } : null;
}

async function judge(req, arrived) {
  const fields = Object.fromEntries(Object.entries(req.headers).filter(([name]) => !name.startsWith(':')));
  const authority = req.headers[':authority'] ?? req.headers.host;
  let params = {};
  let verified;
  try {
    verified = await httpbis.verifyMessage({
      keyLookup: async (given) => keyOf((params = given).keyid),
      requiredParams: ['created', 'expires', 'keyid', 'tag', 'nonce'],
      requiredFields: ['@authority', 'signature-agent'],
      tolerance: 1,
      all: true,
    }, { method: req.method, url: `https://${authority}${req.url}`, headers: fields });
  } catch (err) {
    verified = String(err);
  }
  const names = ['signature', 'signature-input', 'signature-agent'];
  const lines = req.rawHeaders.filter((name, i) => i % 2 === 0 && names.includes(name.toLowerCase())).length;
  return {
    path: req.url, authority, version: req.httpVersion, verified: verified === true, why: String(verified), lines,
    key: params.keyid ?? '', nonce: params.nonce ?? '', tag: params.tag ?? '',
    age: params.created ? (arrived - params.created.getTime()) / 1000 : 0,
    signature: names.map((name) => req.headers[name] ?? ''), userAgent: req.headers['user-agent'] ?? '', from: req.headers.from ?? '',
  };
}

async function serve(req, res) {
  const arrived = Date.now();
  if (req.url === '/seen') {
    res.end(JSON.stringify(seen));
    return;
  }
  const verdict = await judge(req, arrived);
  if (req.url.endsWith('/robots.txt')) {
    seen.push(verdict);
    if (robots === 'knows crawlers' && verdict.userAgent.startsWith('crawlgate/')) {
      res.writeHead(403);
      res.end();
    } else if (robots === 'knows crawlers' && req.url === '/robots.txt') {
      res.writeHead(302, { location: `https://127.0.0.1:${authorityPort(verdict.authority)}/moved/robots.txt` });
      res.end();
    } else {
      res.end(robots === 'knows crawlers' ? 'User-agent: AcmeBot\nDisallow: /private\n' : robots);
    }
    return;
  }
  res.writeHead(req.url === '/forbidden' ? 403 : 200, { 'content-type': 'application/json' });
  res.end(JSON.stringify(verdict));
}

const authorityPort = (authority) => authority.split(':')[1];

const servers = [createServer(tls, serve), createSecureServer({ ...tls, allowHTTP1: false }, serve)];
await Promise.all(servers.map((s) => new Promise((ready) => s.listen(0, '127.0.0.1', ready))));
console.log(servers.map((s) => s.address().port).join(' '));
process.stdin.on('end', () => process.exit()).resume();
