// How the pages look: barriers, narrow windows, keyboard, pictures.
import assert from "node:assert/strict";
import axe from "axe-core";
import { explain } from "./desk.mjs";

const schemes = ["light", "dark"];

// shown opens each page that the gateway serves, with something on it.
const shown = {
	async console(desk, options) {
		const { page } = await desk.operator(options);
		await page.goto(desk.setup.console);
		await explain(page, "AcmeBot", `${desk.setup.site}/private/report`);
		for (const summary of await page.locator("summary").all()) await summary.click();
		return page;
	},
	async origin(desk, options) {
		const { page } = await desk.operator(options);
		await page.goto(`${desk.setup.console}/origin?origin=${encodeURIComponent(desk.setup.site)}`);
		return page;
	},
	async landing(desk, options) {
		const { page } = await desk.operator(options);
		await page.goto(desk.setup.proxy);
		return page;
	},
	async refusal(desk, options) {
		const { page } = await desk.reader(options);
		const answer = await page.goto(`${desk.setup.site}/private/report`);
		assert.equal(answer.status(), 403);
		assert.equal(await page.locator("mark").innerText(), "Disallow: /private/");
		return page;
	},
};

export async function barriers(desk) {
	await desk.crawl(`${desk.setup.site}/open`);
	const found = [];
	let rules = 0;
	for (const [name, open] of Object.entries(shown)) {
		for (const colorScheme of schemes) {
			for (const width of [1280, 360, 320]) {
				const page = await open(desk, { colorScheme, viewport: { width, height: 900 } });
				const where = `${name}, ${colorScheme}, ${width}`;
				await page.evaluate(axe.source); // as a debugger does: the page's policy lets no script in
				const { violations, passes } = await page.evaluate(() => axe.run());
				rules = Math.max(rules, passes.length);
				for (const v of violations) found.push(`${where}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html} ${n.failureSummary}`).join("; ")}`);
				const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
				if (wide > 0) found.push(`${where}: ${wide} pixels wider than the window`);
				await page.context().close();
			}
		}
	}
	assert.deepEqual(found, []);
	assert.ok(rules > 15, `axe looked at ${rules} rules only`);
	return { rules };
}

export async function keyboard(desk) {
	const { page, done } = await desk.operator();
	await page.goto(desk.setup.console);
	const reached = [];
	for (let i = 0; i < 80; i++) {
		await page.keyboard.press("Tab");
		const at = await page.evaluate(() => {
			const e = document.activeElement, style = getComputedStyle(e);
			const visible = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
			return { tag: e.tagName, name: e.getAttribute("name") ?? "", form: e.closest("form")?.id ?? "", section: e.closest("section")?.id ?? "", visible,
				text: e.textContent.trim().slice(0, 20) };
		});
		if (at.tag === "BODY") break;
		assert.ok(at.visible, `the focus does not show on ${JSON.stringify(at)}`);
		if (at.tag === "SUMMARY" && at.text.includes("order")) await page.keyboard.press("Enter");
		reached.push(`${at.form || at.section}:${at.name || at.tag.toLowerCase()}`);
	}
	const want = ["give-order:action", "give-order:scope", "give-order:value", "give-order:reason", "give-order:button", "explain:agent", "explain:url", "explain:button"];
	for (const name of want) assert.ok(reached.includes(name), `Tab does not reach ${name}: ${reached.join(" ")}`);
	assert.ok(want.every((name, i) => i === 0 || reached.indexOf(want[i - 1]) < reached.indexOf(name)), reached.join(" "));

	await page.locator("#explain [name=agent]").focus();
	await page.keyboard.type("AcmeBot");
	await page.keyboard.press("Tab");
	await page.keyboard.type(`${desk.setup.site}/private/`);
	await page.keyboard.press("Enter");
	await page.locator("#explanation[data-decision=deny]").waitFor();
	done();
	return { stops: reached.length };
}

export async function pictures(desk) {
	if (!desk.setup.pictures) return;
	for (const colorScheme of schemes) {
		const { page } = await desk.operator({ colorScheme, viewport: { width: 1280, height: 860 } });
		await page.goto(desk.setup.console);
		await explain(page, "AcmeBot", `${desk.setup.site}/private/report`);
		await page.evaluate(() => scrollTo(0, 0));
		await page.screenshot({ path: `${desk.setup.pictures}/console-${colorScheme}.png`, fullPage: true });
	}
	for (const [name, open] of Object.entries(shown)) {
		for (const width of [1280, 360]) {
			for (const colorScheme of schemes) {
				const page = await open(desk, { colorScheme, viewport: { width, height: 700 } });
				await page.screenshot({ path: `${desk.setup.pictures}/all-${name}-${width}-${colorScheme}.png`, fullPage: true });
			}
		}
	}
	const page = await shown.refusal(desk, { viewport: { width: 900, height: 700 } });
	await page.screenshot({ path: `${desk.setup.pictures}/refusal.png`, fullPage: true });
}
