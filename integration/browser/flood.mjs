// What a minute with a hundred refusals a second does to a page that is open.
import assert from "node:assert/strict";

const perSecond = 100;

export async function refusals(desk) {
	const { page, done } = await desk.operator();
	const session = await page.context().newCDPSession(page);
	const frames = [];
	session.on("Network.eventSourceMessageReceived", () => frames.push(Date.now()));
	await session.send("Network.enable");
	await session.send("Performance.enable");
	await page.goto(desk.setup.console);
	await page.locator("#refusals summary").click({ timeout: 5000 }).catch(() => {}); // there may be nothing in it yet

	const began = Date.now();
	let sent = 0, refused = 0, failed = 0;
	const pending = new Set();
	const send = () => {
		for (const due = Math.floor(((Date.now() - began) * perSecond) / 1000); sent < due && pending.size < 200;) {
			const one = desk.crawl(`${desk.setup.site}/private/page${sent++}?q=${"x".repeat(40)}`)
				.then((a) => { refused += a.status === 403 ? 1 : 0; }, () => { failed++; }).finally(() => pending.delete(one));
			pending.add(one);
		}
	};
	const timer = setInterval(send, 10);
	const measure = async () => {
		await session.send("HeapProfiler.collectGarbage");
		const { metrics } = await session.send("Performance.getMetrics");
		const value = (name) => metrics.find((m) => m.name === name).value;
		return { at: Math.round((Date.now() - began) / 1000), nodes: value("Nodes"), elements: await page.evaluate(() => document.querySelectorAll("*").length), heap: value("JSHeapUsedSize"), sent };
	};
	const samples = [];
	try {
		for (const second of [10, 20, 30, 40, 50, 60].filter((s) => s <= desk.setup.seconds)) {
			await page.waitForTimeout(Math.max(0, began + 1000 * second - Date.now()));
			samples.push(await measure());
			console.log(JSON.stringify({ check: "sample", fault: "", figures: samples.at(-1) }));
		}
	} finally {
		clearInterval(timer);
	}
	await Promise.all(pending);
	const first = samples[0], last = samples.at(-1), seconds = (Date.now() - began) / 1000;
	assert.equal(failed, 0, "requests without an answer");
	assert.equal(refused, sent);
	assert.ok(sent >= (seconds * perSecond) / 2, `${sent} refusals in ${seconds} s: the machine is too slow to tell`);
	assert.ok(last.elements <= first.elements + 200, JSON.stringify(samples));
	assert.ok(last.nodes <= first.nodes * 1.5 + 1000, JSON.stringify(samples));
	assert.ok(last.heap <= first.heap * 1.5 + (2 << 20), JSON.stringify(samples));
	assert.ok(frames.length <= seconds + 3, `${frames.length} frames in ${seconds} s`);
	assert.ok(frames.length >= seconds / 4, `${frames.length} frames in ${seconds} s: the page does not follow`);
	const shown = await page.locator("#refusals").innerText();
	assert.match(shown, /disallowed/);
	done();
	return { seconds, sent, frames: frames.length, first, last };
}
