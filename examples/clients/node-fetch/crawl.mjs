// Crawls the sites of the start URLs with fetch: each page that is linked to, one at a time for each site.
import { EnvHttpProxyAgent, RetryAgent, fetch } from "undici";

// Goes by http_proxy and https_proxy, and asks again for a page that was answered 429 or 503, after the time in Retry-After.
const dispatcher = new RetryAgent(new EnvHttpProxyAgent(), { statusCodes: [429, 503], maxRetries: 10, maxTimeout: 3_600_000 });
const headers = { "user-agent": "examplebot/1.0 (+https://acme.example/bot)" };

async function crawl(start) {
  const seen = new Set([start]);
  for (const url of seen) {
    const response = await fetch(url, { dispatcher, headers }).catch((error) => console.error(url, error));
    console.log(response?.status, url);
    if (response?.status !== 200) continue; // a 403 by rule stays one: do not ask again
    for (const [, href] of (await response.text()).matchAll(/<a href="([^"]*)"/g)) {
      const link = new URL(href, url);
      if (link.origin === new URL(url).origin) seen.add(link.href);
    }
  }
}
await Promise.all(process.argv.slice(2).map(crawl));
