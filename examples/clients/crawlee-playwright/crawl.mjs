// Crawls the sites of the start URLs with Crawlee's PlaywrightCrawler: each page that is linked to.
import { setTimeout as pause } from "node:timers/promises";
import { PlaywrightCrawler, ProxyConfiguration } from "@crawlee/playwright";

const crawler = new PlaywrightCrawler({
  proxyConfiguration: new ProxyConfiguration({ proxyUrls: [process.env.https_proxy] }),
  launchContext: {
    userAgent: "examplebot/1.0 (+https://acme.example/bot)",
    launchOptions: {
      executablePath: "/usr/bin/chromium",
      args: [
        // The browser's own calls to its maker go nowhere: the browser itself refuses port 1.
        "--autofill-server-url=https://localhost:1",
        "--component-updater=url-source=https://localhost:1",
        "--gaia-url=https://localhost:1",
      ],
    },
  },
  browserPoolOptions: { useFingerprints: false }, // they would bring a random User-Agent
  sessionPoolOptions: { blockedStatusCodes: [429, 503] }, // but not 403: it stays one, and by default is asked for four times
  maxRequestRetries: 10,
  maxConcurrency: 4,
  navigationTimeoutSecs: 120,
  preNavigationHooks: [
    async ({ page, request, blockRequests }) => {
      // What the crawl does not need: all that a page loads waits for its turn at the host, the browser's icon too.
      await blockRequests({ urlPatterns: ["favicon.ico"] });
      request.userData.after = undefined;
      page.on("response", (answer) => {
        if (answer.request().isNavigationRequest()) request.userData.after = answer.headers()["retry-after"];
      });
    },
  ],
  // Before a page is asked for again: the time in Retry-After, but for the five minutes that a handler may take.
  errorHandler: async ({ request }) => {
    const after = Number(request.userData.after);
    if (after) await pause(Math.min(after, 240) * 1000);
    else if (request.retryCount >= 3) request.noRetry = true;
  },
  requestHandler: async ({ request, response, enqueueLinks }) => {
    console.log(response.status(), request.url);
    if (response.status() === 200) await enqueueLinks();
  },
});
await crawler.run(process.argv.slice(2));
