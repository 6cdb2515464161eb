// What the operator's page does, and what it does not let others do.
import assert from "node:assert/strict";
import http from "node:http";
import { explain, give } from "./desk.mjs";

const sections = ["status", "orders", "refusals", "hosts", "unreachable", "exceptions", "load", "explain"];

export async function loads(desk) {
	const { page, done } = await desk.operator();
	let bytes = 0;
	const bodies = [];
	page.on("response", (r) => {
		if (["document", "stylesheet", "script"].includes(r.request().resourceType())) bodies.push(r.body());
	});
	const answer = await page.goto(desk.setup.console);
	assert.equal(answer.status(), 200);
	for (const id of sections) await page.locator(`#${id}`).waitFor({ state: "attached" });
	await page.waitForFunction(() => document.getElementById("live")?.textContent === "live");
	for (const body of bodies) bytes += (await body).length;
	assert.equal(bodies.length, 3, "page, sheet and script");
	assert.ok(bytes <= 100 << 10, `${bytes} bytes`);
	assert.match(answer.headers()["content-security-policy"], /default-src 'none'/);
	assert.doesNotMatch(answer.headers()["content-security-policy"], /unsafe|\*/);
	assert.equal(answer.headers()["cache-control"], "no-store");
	done();
	return { bytes };
}

export async function explains(desk) {
	const { page, done } = await desk.operator();
	await explains_(desk, page);
	done();
}

async function explains_(desk, page) {
	const { site } = desk.setup;
	assert.equal((await desk.crawl(`${site}/open`)).status, 200);
	await page.goto(desk.setup.console);
	await explain(page, "AcmeBot", `${site}/private/x`);
	assert.equal(await page.locator("#explanation").getAttribute("data-decision"), "deny");
	assert.equal(await page.locator("#explanation mark").innerText(), "Disallow: /private/");
	await explain(page, "AcmeBot", `${site}/open`);
	assert.equal(await page.locator("#explanation").getAttribute("data-decision"), "allow");
	assert.equal(await page.locator("#explanation mark").count(), 0);
	assert.match(await page.locator("#explanation").innerText(), /no_rule/);
}

export async function orders(desk) {
	const { page, done } = await desk.operator();
	await orders_(desk, page);
	done();
}

async function orders_(desk, page) {
	const { site, user } = desk.setup;
	const host = new URL(site).hostname;
	await page.goto(desk.setup.console);
	const said = await give(page, { action: "deny", scope: "host", value: host, reason: "complaint 12" });
	assert.ok(said.includes(host), said);
	assert.match((await desk.crawl(`${site}/open`)).decision, /^deny; reason=kill_switch/);
	const row = page.locator("#orders tbody tr", { hasText: host });
	for (const text of [user, "complaint 12"]) assert.ok((await row.innerText()).includes(text), text);
	await row.getByRole("button").click();
	await page.locator("#message", { hasText: host }).waitFor();
	assert.equal(await page.locator("#orders tbody tr").count(), 0);
	assert.equal((await desk.crawl(`${site}/open`)).status, 200);
}

export async function scriptOff(desk) {
	const { page, done } = await desk.operator({ javaScriptEnabled: false });
	await page.goto(desk.setup.console);
	for (const id of sections) assert.ok((await page.locator(`#${id}`).innerText()).trim().length > 10, id);
	await explains_(desk, page);
	await orders_(desk, page);
	await page.goto(`${desk.setup.console}/origin?origin=${encodeURIComponent(desk.setup.site)}`);
	assert.match(await page.locator("main").innerText(), /Disallow: \/private\//);
	done();
}

// inert asserts that texts of others are shown, and did nothing.
async function inert(page, ...texts) {
	const seen = await page.evaluate(() => ({
		ran: "pwned" in window, scripts: document.scripts.length, images: document.images.length,
		tags: document.querySelectorAll("b.evil, iframe, object, embed").length,
		text: document.documentElement.textContent, html: document.documentElement.outerHTML.length,
	}));
	assert.equal(seen.ran, false, "a script of the site ran");
	assert.ok(seen.scripts <= 1 && seen.images === 0 && seen.tags === 0, JSON.stringify({ ...seen, text: "" }));
	for (const bad of ["\u202e", "\u0000", "\u001b"]) assert.ok(!seen.text.includes(bad), `U+${bad.charCodeAt(0).toString(16)}`);
	for (const text of texts) assert.ok(seen.text.includes(text), `it does not show ${text}`);
	return seen.html;
}

export async function hostile(desk) {
	const { page, done } = await desk.operator();
	const { evil, huge } = desk.setup;
	const attack = "<script>pwned=1</script>";
	await desk.crawl(`${evil}/x/${attack}`);
	await desk.crawl(`${evil}/x/\u00e2\u0080\u00aegnp.exe?q="'><img/src=x/onerror=pwned=1>`); // U+202E in UTF-8
	await desk.crawl(`${evil}/x/${"a".repeat(8 << 10)}`);
	await desk.crawl(`${evil}/x/`, attack);
	await desk.crawl(`${huge}/`);

	await page.goto(desk.setup.console);
	await page.locator("#refusals summary").click();
	await inert(page, "/x/%3Cscript%3E");
	assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "a long URL makes the page wide");

	await explain(page, "AcmeBot", `${evil}/x/${attack}\u202e`);
	await inert(page, "Disallow: /x/ # <script>", "\\xe2\\x80\\xae");
	await explain(page, "AcmeBot", `${evil}/x/${"a".repeat(8000)}`);
	const long = await inert(page);
	await page.goto(`${desk.setup.console}/origin?origin=${encodeURIComponent(evil)}`);
	await inert(page, "<script>pwned=1</script>", "\\xe2\\x80\\xae");
	await page.goto(`${desk.setup.console}/?agent=${encodeURIComponent(attack)}&url=${encodeURIComponent(`javascript:${attack}`)}`);
	await inert(page);
	await page.goto(`${desk.setup.console}/?m=${encodeURIComponent(attack)}`);
	await inert(page);

	const answer = await page.goto(`${desk.setup.console}/origin?origin=${encodeURIComponent(huge)}`);
	const size = (await answer.body()).length;
	assert.ok(size <= 100 << 10, `the page of a robots.txt of 10 MB has ${size} bytes`);
	await inert(page, "Disallow: /huge/");
	done();
	return { long, size };
}

export async function refusesOthers(desk) {
	const { console: address, user, password } = desk.setup;
	const port = new URL(address).port;
	const basic = (u, p) => ({ Authorization: `Basic ${Buffer.from(`${u}:${p}`).toString("base64")}` });
	const asked = { none: {}, wrong: basic(user, "wrong"), other: basic("eve", password) };
	for (const path of ["/", "/origin?origin=http://example.com", "/events", "/orders", "/console.js"]) {
		for (const [who, headers] of Object.entries(asked)) {
			assert.equal((await fetch(address + path, { headers, method: path === "/orders" ? "POST" : "GET" })).status, 401, `${path}, ${who}`);
		}
	}

	const rebound = await desk.browser("--no-proxy-server", "--host-resolver-rules=MAP evil.test 127.0.0.1");
	const { page } = await desk.operator({}, rebound);
	for (const path of ["/", "/events", "/console.js"]) {
		assert.equal((await page.goto(`http://evil.test:${port}${path}`)).status(), 421, path);
	}
}

// A form of another site is sent with the password, as browsers do.
export async function crossSite(desk) {
	const { console: address, site } = desk.setup;
	const port = new URL(address).port;
	const form = `<form method="post" action="${address}/orders"><input name="action" value="deny"><input name="scope" value="all">
		<input name="value" value=""><input name="reason" value="x"></form><button onclick="document.forms[0].submit()">go</button>`;
	const attacker = http.createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end(form));
	await new Promise((resolve) => attacker.listen(0, "127.0.0.1", resolve));
	try {
		const browser = await desk.browser("--no-proxy-server", "--host-resolver-rules=MAP evil.test 127.0.0.1");
		for (const host of ["evil.test", "localhost"]) { // another site, and another origin of the same
			const { page } = await desk.operator({}, browser);
			await page.goto(address); // the browser knows the password now
			await page.goto(`http://${host}:${attacker.address().port}/`);
			const [answer] = await Promise.all([
				page.waitForResponse((r) => r.url() === `${address}/orders` && r.status() !== 401), page.getByRole("button").click(),
			]);
			assert.equal(answer.status(), 403, host);
			await page.goto(address);
			assert.equal(await page.locator("#orders tbody tr").count(), 0, `${host} gave an order`);
		}
		assert.equal((await desk.crawl(`${site}/open`)).status, 200);
		assert.ok(port);
	} finally {
		attacker.close();
	}
}
