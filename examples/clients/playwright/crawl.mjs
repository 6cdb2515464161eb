// Crawls the sites of the start URLs with Playwright: each page that is linked to, one at a time for each site.
import { setTimeout as pause } from "node:timers/promises";
import { chromium } from "playwright";

const proxy = new URL(process.env.https_proxy); // Chromium itself does not read it
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  proxy: { server: proxy.origin, username: decodeURIComponent(proxy.username), password: decodeURIComponent(proxy.password) },
  args: [
    // The browser's own calls to its maker go nowhere: the browser itself refuses port 1.
    "--autofill-server-url=https://localhost:1",
    "--component-updater=url-source=https://localhost:1",
    "--gaia-url=https://localhost:1",
  ],
});
// The gateway knows the crawler by its credentials or, without any, by its User-Agent.
const context = await browser.newContext({ userAgent: proxy.username ? undefined : "examplebot/1.0 (+https://acme.example/bot)" });
context.setDefaultNavigationTimeout(120_000);

// Asks again for a page that was answered 429 or 503, after the time in Retry-After.
async function get(page, url, tries = 10) {
  let response;
  const note = (answer) => { if (answer.request().isNavigationRequest()) response = answer; };
  page.on("response", note);
  await page.goto(url).catch((error) => { if (!(response?.status() >= 400)) throw error; }); // it throws at one without a body
  page.off("response", note);
  const after = Number(response.headers()["retry-after"]);
  if (![429, 503].includes(response.status()) || !after || tries === 0) return response;
  await pause(after * 1000);
  return get(page, url, tries - 1);
}

async function crawl(start) {
  const page = await context.newPage();
  // What the crawl does not need: all that a page loads waits for its turn at the host, the browser's icon too.
  const devtools = await context.newCDPSession(page);
  await devtools.send("Network.enable");
  await devtools.send("Network.setBlockedURLs", { urls: ["*/favicon.ico"] });
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
