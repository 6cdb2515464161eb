// Crawls the sites of the start URLs with axios: each page that is linked to, one at a time for each site.
import { setTimeout as pause } from "node:timers/promises";
import axios from "axios"; // goes by http_proxy and https_proxy

const client = axios.create({
  headers: { "user-agent": "examplebot/1.0 (+https://acme.example/bot)" },
  validateStatus: () => true,
});

// Asks again for a page that was answered 429 or 503, after the time in Retry-After.
async function get(url, tries = 10) {
  const response = await client.get(url);
  const after = Number(response.headers["retry-after"]);
  if (![429, 503].includes(response.status) || !after || tries === 0) return response;
  await pause(after * 1000);
  return get(url, tries - 1);
}

async function crawl(start) {
  const seen = new Set([start]);
  for (const url of seen) {
    const response = await get(url).catch((error) => console.error(url, error.message));
    console.log(response?.status, url);
    if (response?.status !== 200) continue; // a 403 by rule stays one: do not ask again
    for (const [, href] of response.data.matchAll(/<a href="([^"]*)"/g)) {
      const link = new URL(href, url);
      if (link.origin === new URL(url).origin) seen.add(link.href);
    }
  }
}
await Promise.all(process.argv.slice(2).map(crawl));
