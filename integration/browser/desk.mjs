// What checks share: browsers, an operator at the page, and a crawler behind the gateway.
import assert from "node:assert/strict";
import http from "node:http";
import { chromium } from "playwright-core";

const flags = [
	"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];

export class Desk {
	#browsers = new Map();
	#agent = new http.Agent({ keepAlive: true, maxSockets: 8 });

	// setup is what the test in Go knows: see browser_test.go.
	constructor(setup) {
		this.setup = setup;
	}

	// browser starts one for each set of flags. Each has a profile of its own, which it forgets.
	async browser(...more) {
		const key = more.join(" ");
		if (!this.#browsers.has(key)) {
			this.#browsers.set(key, await chromium.launch({ executablePath: this.setup.chromium, args: [...flags, ...more], timeout: 60_000 }));
		}
		return this.#browsers.get(key);
	}

	// operator opens a window of somebody who knows the password. It notes what no check wants to see:
	// requests to other hosts, errors and dialogs. done asserts that there was none.
	async operator(options = {}, browser = undefined) {
		const context = await (browser ?? await this.browser("--no-proxy-server")).newContext({
			httpCredentials: { username: this.setup.user, password: this.setup.password }, viewport: { width: 1280, height: 900 }, ...options,
		});
		const page = await context.newPage();
		page.setDefaultTimeout(20_000);
		const strange = [];
		const own = new URL(this.setup.console).host;
		page.on("request", (r) => {
			const url = new URL(r.url());
			if (url.protocol !== "data:" && url.host !== own) strange.push(`request to ${r.url()}`);
		});
		page.on("console", (m) => { if (m.type() === "error") strange.push(`console: ${m.text()}`); });
		page.on("pageerror", (e) => strange.push(`error: ${e}`));
		page.on("dialog", (d) => { strange.push(`dialog: ${d.message()}`); d.dismiss(); });
		const done = () => assert.deepEqual(strange, []);
		return { context, page, strange, done };
	}

	// reader opens a window of a browser behind the gateway.
	async reader(options = {}) {
		const browser = await this.browser(`--proxy-server=${this.setup.proxy}`, "--proxy-bypass-list=<-loopback>");
		const context = await browser.newContext({ userAgent: "AcmeBot/1.0", viewport: { width: 1280, height: 900 }, ...options });
		return { context, page: await context.newPage() };
	}

	// crawl asks for a page by way of the gateway, with octets as they are given.
	crawl(url, agent = "AcmeBot/1.0") {
		const proxy = new URL(this.setup.proxy);
		return new Promise((resolve, reject) => {
			const request = http.request({
				host: proxy.hostname, port: proxy.port, path: url, agent: this.#agent,
				headers: { Host: url.split("/")[2], "User-Agent": agent }, timeout: 20_000,
			}, (answer) => {
				answer.resume();
				answer.on("end", () => resolve({ status: answer.statusCode, decision: answer.headers["crawlgate-decision"] ?? "" }));
			});
			request.on("timeout", () => request.destroy(new Error(`no answer for ${url.slice(0, 100)}`)));
			request.on("error", reject);
			request.end();
		});
	}

	// tidy closes all windows.
	async tidy() {
		for (const browser of this.#browsers.values()) {
			for (const context of browser.contexts()) await context.close();
		}
	}

	async close() {
		this.#agent.destroy();
		for (const browser of this.#browsers.values()) await browser.close();
	}
}

// explain fills in the form of the page and sends it, by keys and clicks.
export async function explain(page, agent, url) {
	await page.locator("#explain [name=agent]").fill(agent);
	await page.locator("#explain [name=url]").fill(url);
	await page.locator("#explain form button").click();
	await page.locator("#explanation").waitFor();
}

// give fills in the order form of the page and sends it.
export async function give(page, fields) {
	const form = page.locator("#give-order");
	if (!(await form.isVisible())) await page.locator("summary", { hasText: "order" }).first().click();
	for (const [name, value] of Object.entries(fields)) {
		const field = form.locator(`[name=${name}]`);
		if (["action", "scope"].includes(name)) await field.selectOption(value);
		else await field.fill(value);
	}
	await form.getByRole("button").click();
	await page.locator("#message").waitFor();
	return page.locator("#message").innerText();
}
