// A PlaywrightCrawler with nothing but the proxy.
import { PlaywrightCrawler, ProxyConfiguration } from "@crawlee/playwright";

const crawler = new PlaywrightCrawler({
  proxyConfiguration: new ProxyConfiguration({ proxyUrls: [process.env.https_proxy] }),
  launchContext: { launchOptions: { executablePath: "/usr/bin/chromium" } },
  requestHandler: ({ enqueueLinks }) => enqueueLinks(),
});
await crawler.run(process.argv.slice(2));
