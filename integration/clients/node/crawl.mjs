// Crawls a site with undici's fetch, the one that Node has built in, through a proxy. The certificate comes by
// NODE_EXTRA_CA_CERTS, which Node reads as it starts.
import { fetch, ProxyAgent, setGlobalDispatcher } from "undici";

const [proxy, , , root] = process.argv.slice(2);
const dispatcher = new ProxyAgent(proxy);
setGlobalDispatcher(dispatcher);

const seen = new Set([root]);
for (const url of seen) {
  const page = { url };
  try {
    const response = await fetch(url, { headers: { "user-agent": "Reckless/1.0" } });
    page.status = response.status;
    page.body = await response.text();
    for (const [, href] of page.body.matchAll(/<a href="([^"]*)"/g)) {
      seen.add(new URL(href, url).href);
    }
  } catch (error) {
    page.error = `${error.message}: ${error.cause?.message}`;
  }
  console.log(JSON.stringify(page));
}
await dispatcher.close();
