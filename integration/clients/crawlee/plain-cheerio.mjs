// A CheerioCrawler with nothing but the proxy.
import { CheerioCrawler, ProxyConfiguration } from "@crawlee/cheerio";

const crawler = new CheerioCrawler({
  proxyConfiguration: new ProxyConfiguration({ proxyUrls: [process.env.https_proxy] }),
  requestHandler: ({ enqueueLinks }) => enqueueLinks(),
});
await crawler.run(process.argv.slice(2));
