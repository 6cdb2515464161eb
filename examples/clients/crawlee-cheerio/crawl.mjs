// Crawls the sites of the start URLs with Crawlee's CheerioCrawler: each page that is linked to.
import { setTimeout as pause } from "node:timers/promises";
import { CheerioCrawler, ProxyConfiguration } from "@crawlee/cheerio";

const crawler = new CheerioCrawler({
  proxyConfiguration: new ProxyConfiguration({ proxyUrls: [process.env.https_proxy] }),
  ignoreSslErrors: false, // it verifies nothing by default, and so would not notice a missing certificate
  sessionPoolOptions: { blockedStatusCodes: [429] }, // but not 403: it stays one, and by default is asked for four times
  additionalMimeTypes: ["text/plain"], // the gateway's refusals
  maxRequestRetries: 10,
  maxConcurrency: 8,
  navigationTimeoutSecs: 120,
  preNavigationHooks: [
    (_, got) => {
      got.useHeaderGenerator = false;
      got.headers = { ...got.headers, "user-agent": "examplebot/1.0 (+https://acme.example/bot)" };
    },
  ],
  // Before a page is asked for again: the time in Retry-After, but for the five minutes that a handler may take.
  errorHandler: async ({ request, response }) => {
    const after = Number(response?.headers["retry-after"]);
    if (after) await pause(Math.min(after, 240) * 1000);
    else if (request.retryCount >= 3) request.noRetry = true;
  },
  requestHandler: async ({ request, response, enqueueLinks }) => {
    console.log(response.statusCode, request.url);
    if (response.statusCode === 200) await enqueueLinks();
  },
});
await crawler.run(process.argv.slice(2));
