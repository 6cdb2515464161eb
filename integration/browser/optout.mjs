// Opts a host out by the page of a crawler, as its owner would, without JavaScript. The test in Go hands over a JSON object as
// the argument, publishes the token at the site, tells what the gateways answer to the crawler, and reads one JSON object.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const given = JSON.parse(process.argv[2]);
const browser = await chromium.launch({ executablePath: given.chromium, args: ["--headless", "--no-sandbox", "--disable-gpu"] });
const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 400, height: 800 } });
context.setDefaultTimeout(15_000);
const page = await context.newPage();
const faults = [];
page.on("request", (r) => { if (!r.url().startsWith("data:") && new URL(r.url()).origin !== given.page) faults.push(`asked ${r.url()}`); });
page.on("console", (m) => { if (m.type() === "error" && !m.text().includes("403")) faults.push(m.text()); });
const statuses = async () => (await fetch(`${given.control}/statuses`)).json();
const shown = async (id) => (await page.locator(id).textContent()).trim();

await page.goto(given.page);
const wide = async () => (await page.locator("body").boundingBox()).width;
assert.ok((await wide()) <= 400);
await page.getByLabel("Host").last().fill("shop.example");
await page.getByRole("button", { name: "Begin" }).click();
const token = await shown("#token");
const ticket = await shown("#ticket");
if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/optout.png`, fullPage: true });

const check = page.getByRole("button", { name: "Check the file" });
await check.click();
assert.match(await shown("[role=alert]"), /Nothing has changed/);
assert.deepEqual(await statuses(), [200, 200]);

await fetch(`${given.control}/publish`, { method: "POST", body: token });
await check.click();
const done = performance.now();
assert.match(await shown("[role=status]"), /^It is done/);
assert.equal(await shown("#ticket"), ticket);
assert.deepEqual(await statuses(), [403, 403]);
const after = performance.now() - done;

await page.goto(given.page);
await page.getByLabel("Host").first().fill("shop.example");
await page.getByRole("button", { name: "Show" }).click();
assert.match(await page.locator(".reading").textContent(), /http:\/\/shop\.example[^]*permitted/);
if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/bot-page.png`, fullPage: true });
assert.deepEqual(faults, []);
console.log(JSON.stringify({ ticket, after }));
await browser.close();
