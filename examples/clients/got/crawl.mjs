// Crawls the sites of the start URLs with got: each page that is linked to, one at a time for each site.
import got from "got";
import { HttpProxyAgent, HttpsProxyAgent } from "hpagent";

const client = got.extend({
  agent: {
    http: new HttpProxyAgent({ proxy: process.env.http_proxy, keepAlive: true }),
    https: new HttpsProxyAgent({ proxy: process.env.https_proxy, keepAlive: true }),
  },
  headers: { "user-agent": "examplebot/1.0 (+https://acme.example/bot)" },
  retry: { limit: 10 }, // after the time in Retry-After
  throwHttpErrors: false,
});

async function crawl(start) {
  const seen = new Set([start]);
  for (const url of seen) {
    const response = await client(url).catch((error) => console.error(url, error.message));
    console.log(response?.statusCode, url);
    if (response?.statusCode !== 200) continue; // a 403 by rule stays one: do not ask again
    for (const [, href] of response.body.matchAll(/<a href="([^"]*)"/g)) {
      const link = new URL(href, url);
      if (link.origin === new URL(url).origin) seen.add(link.href);
    }
  }
}
await Promise.all(process.argv.slice(2).map(crawl));
