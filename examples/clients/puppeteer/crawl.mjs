// Crawls the sites of the start URLs with Puppeteer: each page that is linked to, one at a time for each site.
import { setTimeout as pause } from "node:timers/promises";
import puppeteer from "puppeteer-core";

const proxy = new URL(process.env.https_proxy); // Chromium itself does not read it
const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    `--proxy-server=${proxy.origin}`,
    ...(process.getuid() === 0 ? ["--no-sandbox"] : []), // Chromium's sandbox does not run as root
    // The browser's own calls to its maker go nowhere: the browser itself refuses port 1.
    "--autofill-server-url=https://localhost:1",
    "--component-updater=url-source=https://localhost:1",
    "--gaia-url=https://localhost:1",
    "--disable-features=NetworkTimeServiceQuerying,PreconnectToSearch",
  ],
});

// Asks again for a page that was answered 429 or 503, after the time in Retry-After.
async function get(page, url, tries = 10) {
  const response = await page.goto(url, { timeout: 120_000 });
  const after = Number(response.headers()["retry-after"]);
  if (![429, 503].includes(response.status()) || !after || tries === 0) return response;
  await pause(after * 1000);
  return get(page, url, tries - 1);
}

async function crawl(start) {
  const page = await browser.newPage();
  // What the crawl does not need: all that a page loads waits for its turn at the host, the browser's icon too.
  const devtools = await page.createCDPSession();
  await devtools.send("Network.enable");
  await devtools.send("Network.setBlockedURLs", { urls: ["*/favicon.ico"] });
  // The gateway knows the crawler by its credentials or, without any, by its User-Agent.
  if (proxy.username) {
    await page.authenticate({ username: decodeURIComponent(proxy.username), password: decodeURIComponent(proxy.password) });
  } else {
    await page.setUserAgent({ userAgent: "examplebot/1.0 (+https://acme.example/bot)" });
  }
  const seen = new Set([start]);
  for (const url of seen) {
    const response = await get(page, url).catch((error) => console.error(url, error.message));
    console.log(response?.status(), url);
    if (response?.status() !== 200) continue; // a 403 by rule stays one: do not ask again
    for (const link of await page.$$eval("a[href]", (links) => links.map((a) => a.href))) {
      if (new URL(link).origin === new URL(url).origin) seen.add(link);
    }
  }
}
await Promise.all(process.argv.slice(2).map(crawl));
await browser.close();
