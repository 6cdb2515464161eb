// Looks at the operator's page with a real browser, as docs/console.md describes it. The test in Go starts the gateway,
// hands over a JSON object as the argument, and reads one JSON object a line: a check's name, its figures, its error.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { chromium } from "playwright-core";

const given = JSON.parse(process.argv[2]);
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const { port } = new URL(given.console);
const agents = new http.Agent({ keepAlive: true, maxSockets: 8 });

// Chromium resolves no name but these: it asks for addresses of its own makers in spite of all switches.
const flags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
  "--host-resolver-rules=MAP evil.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
];
const browser = await chromium.launch({ executablePath: given.chromium, args: flags });

async function check(name, run) {
  const line = { name };
  try {
    line.figures = await run();
  } catch (error) {
    line.error = error.stack;
  }
  console.log(JSON.stringify(line));
}

// open gives a page of a user, and what it must not do: ask another host, break its policy, run a stranger's script.
async function open(path, options = {}) {
  const context = await browser.newContext({ httpCredentials: given.user, viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(15_000);
  const faults = [];
  context.on("request", (r) => {
    if (!r.url().startsWith("data:") && new URL(r.url()).origin !== given.console) faults.push(`asked ${r.url()}`);
  });
  const page = await context.newPage();
  page.on("console", (m) => { if (m.type() === "error") faults.push(m.text()); });
  page.on("pageerror", (e) => faults.push(e.message));
  page.on("dialog", (d) => { faults.push(`dialog ${d.message()}`); d.dismiss(); });
  await page.goto(given.console + path, { waitUntil: "domcontentloaded" });
  const close = async (expected = []) => {
    const ran = await page.evaluate("window.pwned");
    await context.close();
    assert.deepEqual(faults.filter((f) => !expected.some((e) => e.test(f))), []);
    assert.equal(ran, undefined);
  };
  return { page, context, close };
}

// crawl asks for a page by way of the gateway, and gives the decision.
function crawl(url, agent = "AcmeBot/1.0") {
  const proxy = new URL(given.proxy);
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: proxy.hostname, port: proxy.port, path: url, agent: agents, headers: { host: new URL(url).host, "user-agent": agent },
    }, (response) => {
      response.resume();
      response.on("end", () => resolve({ status: response.statusCode, decision: response.headers["crawlgate-decision"] ?? "" }));
    });
    request.on("error", reject).end();
  });
}

async function explain(page, url, button = "Fetch and explain") {
  await page.getByLabel("Agent", { exact: true }).fill("AcmeBot");
  await page.getByLabel("URL", { exact: true }).fill(url);
  const loaded = page.waitForEvent("domcontentloaded");
  await page.getByRole("button", { name: button, exact: true }).click({ noWaitAfter: true });
  await loaded;
  return page.locator("#explanation").getAttribute("data-decision");
}

const stopped = (page) => page.locator("#orders tr.stopped");

// clicks counts those of a story.
let clicks = 0;
async function click(target) {
  clicks++;
  await target.click({ noWaitAfter: true });
}

async function toStops(page) {
  await click(page.getByRole("navigation").getByRole("link", { name: "Stops" }));
  await page.locator("#journal").waitFor();
}

async function stopHost(page, host) {
  await page.locator("#stop-host input[name=value]").fill(host);
  await page.locator("#stop-host input[name=reason]").fill("asked by mail");
  await click(page.getByRole("button", { name: "Stop the host" }));
  await page.locator("#message.stopped").waitFor();
  await stopped(page).first().waitFor();
}

async function stopAgentAt(page, agent, host) {
  await page.locator("#stop-agent").getByLabel("Agent", { exact: true }).fill(agent);
  await page.locator("#stop-agent").getByLabel("Only at host").fill(host);
  await page.locator("#stop-agent input[name=reason]").fill("asked by mail");
  await click(page.getByRole("button", { name: "Stop the agent" }));
  await page.locator("#message.stopped").waitFor();
}

async function lift(page) {
  await click(page.getByRole("button", { name: /^Lift the stop/ }));
  await page.getByText("Requests go on at once.").waitFor();
  await click(page.getByRole("button", { name: "Lift", exact: true }));
  await page.locator("#message.done").waitFor();
  await page.getByText("Nothing is stopped.").waitFor();
}

async function orderAndLift(page) {
  const host = new URL(given.site).host.split(":")[0];
  assert.equal((await crawl(given.allowed)).status, 200);
  clicks = 0;
  await toStops(page);
  await stopAgentAt(page, "AcmeBot", host);
  const row = await stopped(page).first().innerText();
  assert.match(row, /\bada\b/);
  assert.match(row, /asked by mail/);
  assert.ok(row.includes(host), row);
  assert.equal((await crawl(given.allowed)).decision, "deny; reason=kill_switch");
  assert.equal((await crawl(given.allowed, "AcmeNews/2.3")).status, 200);
  await lift(page);
  assert.ok(clicks <= 4, `${clicks} clicks`);
  assert.equal((await crawl(given.allowed)).status, 200);
  return clicks;
}

await check("explain", async () => {
  const { page, close } = await open("/");
  assert.equal(await explain(page, given.allowed), "allow");
  assert.equal(await explain(page, given.refused, "Explain"), "deny");
  assert.equal(new URL(page.url()).searchParams.get("url"), given.refused);
  assert.equal(await page.locator("#explanation mark").count(), 1);
  assert.equal(await page.locator("#explanation mark").innerText(), given.rule);
  await close();
});

await check("order", async () => {
  const { page, close } = await open("/");
  const figures = { clicks: await orderAndLift(page) };
  // Who stopped what today?
  await page.goto(given.console, { waitUntil: "domcontentloaded" });
  clicks = 0;
  await toStops(page);
  const row = await page.locator("#journal tr", { hasText: "asked by mail" }).first().innerText();
  assert.equal(row.match(/\bada\b/g).length, 2, row); // gave and lifted it
  assert.equal(clicks, 1);
  // Everything is stopped only once somebody has said why.
  await page.getByRole("button", { name: "Stop everything" }).click({ noWaitAfter: true });
  await page.getByText("Every request of every agent is refused, including the requests of the 20 configured agents").waitFor();
  assert.equal((await crawl(given.allowed)).status, 200);
  await page.getByLabel("Reason").fill("fire drill");
  await page.getByRole("button", { name: "Stop", exact: true }).click({ noWaitAfter: true });
  await page.locator("#message.stopped").waitFor();
  assert.equal((await crawl(given.allowed)).decision, "deny; reason=kill_switch");
  await lift(page);
  await close();
  return figures;
});

await check("lost", async () => {
  const { page, context, close } = await open("/stops");
  for (const [path, status, text] of [["/nothing", 404, "nothing at this path"], ["/origin?origin=nobody.example", 404, "name a new site by its URL"], ["/orders", 405, "sent with POST"]]) {
    const answer = await context.request.get(given.console + path);
    assert.equal(answer.status(), status, path);
    const there = await page.goto(given.console + path, { waitUntil: "domcontentloaded" }).catch((e) => e);
    assert.equal(there.status?.(), status, path);
    await page.getByText(text).waitFor();
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).marginTop), "0px", `${path}: no style`);
    await page.getByRole("link", { name: "To the overview" }).click({ noWaitAfter: true });
    await page.locator("#status").waitFor();
  }
  await close([/status of 40[45]/]);
});

await check("hostile texts", async () => {
  const { page, close } = await open("/");
  await crawl(given.hostilePage);
  // Sections are rendered once a second.
  await page.locator("#refusals td.url", { hasText: /script/i }).first().waitFor({ state: "attached" });
  const figures = {};
  const look = async (where, name) => {
    const text = await page.locator(where).first().innerText();
    assert.match(text, /<script>|%3Cscript%3E/i, name);
    assert.doesNotMatch(text, /[\u202a-\u202e\u2066-\u2069]/, name);
    assert.equal(await page.locator(`${where} script, ${where} img`).count(), 0, name);
    figures[name] = (await page.content()).length;
  };
  await look("#refusals", "refusals");
  assert.equal(await explain(page, given.hostilePage), "deny");
  await look("#explanation", "explanation");
  await page.goto(`${given.console}/origin?origin=${encodeURIComponent(given.hostile)}`, { waitUntil: "domcontentloaded" });
  await look("main", "origin");
  assert.ok(Object.values(figures).every((n) => n < 200_000), JSON.stringify(figures));
  await close();
  return figures;
});

await check("other sites", async () => {
  const form = `<form method="post" action="${given.console}/orders"><input name="action" value="deny"><input name="scope" value="all"><button>Go</button></form>`;
  const server = http.createServer((_, response) => response.setHeader("content-type", "text/html").end(form));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const other = server.address().port;
  const context = await browser.newContext({ httpCredentials: given.user });
  for (const host of ["127.0.0.1", "localhost"]) { // another origin of the same site, and another site
    const page = await context.newPage();
    await page.goto(`http://${host}:${other}/`);
    const answer = page.waitForResponse((r) => r.url() === `${given.console}/orders`);
    await page.getByRole("button").click({ noWaitAfter: true });
    assert.equal((await answer).status(), 403, host);
  }
  assert.equal((await crawl(given.allowed)).status, 200);
  await context.close();
  server.close();
});

await check("another name", async () => {
  const context = await browser.newContext({ httpCredentials: given.user });
  const page = await context.newPage();
  for (const path of ["/", "/console.js", "/events"]) {
    assert.equal((await page.goto(`http://evil.test:${port}${path}`)).status(), 421, path);
  }
  await context.close();
});

await check("no password", async () => {
  const context = await browser.newContext();
  for (const path of ["/", "/console.css", "/events", "/origin"]) {
    assert.equal((await context.request.get(given.console + path)).status(), 401, path);
  }
  await context.close();
});

await check("no script", async () => {
  const { page, close } = await open("/", { javaScriptEnabled: false });
  assert.match(await page.locator("#status").innerText(), /Gateway/);
  assert.equal(await explain(page, given.refused), "deny");
  assert.equal(await page.locator("#explanation mark").innerText(), given.rule);
  await page.goto(given.console, { waitUntil: "domcontentloaded" });
  await orderAndLift(page);
  await close();
});

await check("keyboard", async () => {
  const { page, close } = await open("/");
  const seen = [];
  for (let i = 0; i < 30; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement, s = getComputedStyle(e);
      return { name: e.name ?? e.tagName, explain: e.matches("#explain button"), ring: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 };
    });
    assert.ok(at.ring, `the focus on ${at.name} cannot be seen`);
    seen.push(at.name);
    if (at.explain) {
      await close();
      return { tabs: seen.length };
    }
  }
  assert.fail(`Tab does not reach explain: ${seen}`);
});

// Something of everything for the pages that are judged and shown.
async function fill() {
  const paths = ["/private/", "/private/accounts?page=2", "/cart/checkout", "/search?q=shoes"];
  for (const [i, agent] of ["AcmeBot/1.0", "AcmeNews/2.3", "PriceWatch/0.9"].entries()) {
    for (const path of paths.slice(i)) await crawl(given.site + path, agent);
    await crawl(given.allowed, agent);
  }
  await crawl(given.resting); // it asks for a pause
  await crawl(given.resting);
  await crawl(`${given.gone}/`); // its robots.txt is unreachable
}

// lists are the pages that the overview leads to.
const lists = ["/refusals", "/agents", "/agents?name=AcmeBot", "/hosts", "/origins?state=unreachable", "/gateways", "/find?q=shop"];

// The questions of a night, answered by clicks alone, of 10,000 origins, 20 agents of three teams and three gateways.
await check("stories", async () => {
  await fill();
  for (let n = 0; n < 30; n++) await crawl(given.resting, "PriceWatch/0.9"); // it has asked for a pause
  const figures = {};
  for (const javaScriptEnabled of [true, false]) {
    const { page, close } = await open("/", { javaScriptEnabled });
    const begin = async () => {
      await page.goto(given.console, { waitUntil: "domcontentloaded" });
      clicks = 0;
    };
    const end = (story, most) => {
      assert.ok(clicks <= most, `${story}: ${clicks} clicks`);
      figures[story] = clicks;
    };
    const follow = async (link, path) => {
      await click(link.first());
      await page.waitForURL((url) => url.pathname === path, { waitUntil: "domcontentloaded" });
    };
    // Which sites are unreachable now, and since when? A catalog is read again after some seconds.
    for (let tries = 0; !(await page.locator("#unreachable", { hasText: "gone.example" }).count()) && tries < 120; tries++) {
      await pause(500);
      await begin();
    }
    await begin();
    const rows = await page.locator("#unreachable tbody tr").allInnerTexts();
    assert.equal(rows.length, 10, rows.join());
    assert.ok(rows.every((row) => /\d\d:\d\d UTC.*(ago|just now)/s.test(row)), rows.join());
    assert.match(await page.locator("#trouble").innerText(), /unreachable robots.txt unreachable\s+10\s/);
    end("which sites are unreachable now, and since when?", 0);
    // Why was AcmeBot refused at shop.example?
    await begin();
    await follow(page.locator("#trouble").getByRole("link", { name: "Disallowed by robots.txt" }), "/refusals");
    await follow(page.locator("tr", { hasText: "AcmeBot" }).getByRole("link", { name: /shop\.example/ }), "/");
    assert.equal(await page.locator("#explanation mark").count(), 1);
    assert.match(await page.locator("#explanation mark").innerText(), /^Disallow: \//);
    end("why was acmebot refused at shop.example ten minutes ago?", 3);
    await follow(page.locator("#explanation").getByRole("link", { name: /robots\.txt/ }), "/origin");
    assert.ok(await page.getByRole("region", { name: "History" }).locator("tbody tr").count() >= 1);
    // Which team hammers?
    await begin();
    await follow(page.getByRole("navigation").getByRole("link", { name: "Agents" }), "/agents");
    assert.match(await page.getByRole("region", { name: "Table of owners" }).locator("tbody tr").first().innerText(), /^prices\b/);
    end("which team hammers?", 1);
    // Until when is a host left alone? And who are the gateways?
    await begin();
    await follow(page.locator("#trouble").getByRole("link", { name: "Hosts that asked for a pause" }), "/hosts");
    assert.match(await page.locator("tr.blocked").first().innerText(), /news\.example.*in \d+ min/s);
    end("which hosts are blocked, and until when?", 1);
    await begin();
    await follow(page.getByRole("navigation").getByRole("link", { name: "Gateways" }), "/gateways");
    assert.equal(await page.locator("tbody tr").count(), 3);
    end("which gateways are there?", 1);
    // The box finds what is typed.
    await begin();
    await page.getByRole("searchbox").fill("HOST-09995");
    await follow(page.getByRole("button", { name: "Search" }), "/find");
    assert.equal(await page.getByRole("region", { name: "Table of origins" }).locator("tbody tr").count(), 1);
    await close();
  }
  const context = await browser.newContext({ httpCredentials: given.user });
  for (const path of [...lists, "/origins", "/origins?from=9950"]) {
    const start = performance.now();
    const size = (await (await context.request.get(given.console + path)).body()).length;
    figures[path] = `${size} bytes, ${Math.round(performance.now() - start)} ms`;
    assert.ok(size <= 150 << 10, `${path}: ${size} bytes`);
  }
  await context.close();
  return figures;
});

await check("axe and widths", async () => {
  await fill();
  const figures = {};
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 360]) {
      const { page, close } = await open("/stops", { colorScheme, viewport: { width, height: 900 } });
      await stopHost(page, "careful.example");
      const judge = async (name) => {
        const where = `${name} ${colorScheme} ${width}`;
        await page.evaluate(axe);
        const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
        const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200) + " " + n.failureSummary).join(" | ")}`);
        assert.deepEqual(found, [], where);
        assert.ok(passes.length > 10, where);
        // Buttons in tables are whole: what is too wide is scrolled to.
        assert.equal(await page.evaluate(() => [...document.querySelectorAll("td button")].filter((e) => e.offsetHeight > 40).length), 0, `${where}: buttons are broken into lines`);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(await page.evaluate(() => [...document.querySelectorAll("nav a")].every((e) => e.offsetHeight < 40)), `${where}: the navigation is broken into lines`);
        assert.ok(over <= 0, `${where}: the page scrolls sideways by ${over}`);
        figures[where] = passes.length;
      };
      await page.goto(given.console, { waitUntil: "domcontentloaded" });
      await explain(page, given.refused);
      await page.evaluate(() => { for (const d of document.querySelectorAll("details")) d.open = true; });
      await judge("page");
      await page.goto(given.console + "/stops", { waitUntil: "domcontentloaded" });
      await page.evaluate(() => { for (const d of document.querySelectorAll("details")) d.open = true; });
      await judge("stops");
      if (width === 360) { // nothing has to be scrolled to
        assert.equal(await page.evaluate(() => [...document.querySelectorAll(".rows")].filter((e) => e.scrollWidth > e.parentElement.clientWidth).length), 0, "rows are cut off");
      }
      await page.getByRole("button", { name: /^Lift the stop/ }).click({ noWaitAfter: true });
      await page.getByText("Requests go on at once.").waitFor();
      await judge("question");
      await page.getByRole("button", { name: "Lift", exact: true }).click({ noWaitAfter: true });
      await page.getByText("Nothing is stopped.").waitFor();
      for (const [name, of] of [["origin", given.site], ["hostile origin", given.hostile], ["unreachable origin", given.gone]]) {
        await page.goto(`${given.console}/origin?origin=${encodeURIComponent(of)}`, { waitUntil: "domcontentloaded" });
        await judge(name);
      }
      if ((width === 360) === (colorScheme === "dark")) {
        for (const path of lists) {
          await page.goto(given.console + path, { waitUntil: "domcontentloaded" });
          await judge(path);
        }
      }
      await close();
    }
  }
  return figures;
});

await check("size", async () => {
  const context = await browser.newContext({ httpCredentials: given.user });
  const figures = {};
  for (const path of ["/", "/console.css", "/console.js"]) {
    figures[path] = (await (await context.request.get(given.console + path)).body()).length;
  }
  await context.close();
  const sum = Object.values(figures).reduce((a, b) => a + b);
  assert.ok(sum <= 150 << 10, `${sum} bytes`);
  return figures;
});

// Refusals at 100 a second, with the page open: it stays as large as it is, and is told once a second.
await check("load", async () => {
  const { page, context, close } = await open("/");
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Performance.enable");
  let frames = 0, sent = 0, failed = 0, other = 0;
  session.on("Network.eventSourceMessageReceived", () => frames++);
  const measure = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const of = (name) => metrics.find((m) => m.name === name).value;
    return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), elements: await page.evaluate(() => document.querySelectorAll("*").length) };
  };
  const load = async (seconds) => {
    const start = performance.now();
    const waiting = [];
    for (let n = 0; n < 100 * seconds; n++) {
      const early = start + 10 * n - performance.now();
      if (early > 0) await pause(early);
      sent++;
      waiting.push(crawl(`${given.refused}?n=${n}`, ["AcmeBot/1.0", "AcmeNews/2.3", "PriceWatch/0.9"][n % 3])
        .then((a) => { if (a.status !== 403) other++; }, () => { failed++; }));
    }
    await Promise.all(waiting);
    return (performance.now() - start) / 1000;
  };
  await load(3); // until the lists are full
  await pause(1500);
  const before = await measure();
  frames = 0;
  const seconds = await load(given.seconds);
  const told = frames;
  await pause(1500);
  const after = await measure();
  const figures = { seconds, sent, failed, other, frames: told, before, after };
  const line = JSON.stringify(figures);
  assert.equal(failed + other, 0, line);
  assert.ok(told >= seconds / 3 && told <= seconds * 1.2 + 2, `frames: ${line}`);
  assert.ok(after.elements <= before.elements * 1.1 + 50, `elements: ${line}`);
  assert.ok(after.nodes <= before.nodes * 1.5 + 500, `nodes: ${line}`);
  assert.ok(after.heap <= before.heap * 1.5 + (2 << 20), `heap: ${line}`);
  assert.equal(await page.locator("#live").innerText(), "live");
  await close();
  return figures;
});

// Pictures come behind the load: there is something to see.
if (given.screenshots) {
  await check("screenshots", async () => {
    for (const [name, colorScheme, width, height] of [["light", "light", 1280, 1100], ["dark", "dark", 1280, 1100], ["narrow", "light", 360, 1400]]) {
      const { page, close } = await open("/stops", { colorScheme, viewport: { width, height } });
      await stopHost(page, "careful.example");
      await page.screenshot({ path: join(given.screenshots, `stops-${name}.png`) });
      await page.goto(given.console, { waitUntil: "domcontentloaded" });
      await explain(page, given.refused);
      await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
      await pause(1500); // an event, which makes the page live
      await page.screenshot({ path: join(given.screenshots, `console-${name}.png`) });
      await lift(page);
      for (const path of ["refusals", "agents", "origins"]) {
        await page.goto(`${given.console}/${path}`, { waitUntil: "domcontentloaded" });
        await page.screenshot({ path: join(given.screenshots, `${path}-${name}.png`) });
      }
      await close();
    }
  });
}

// The page opens all clients and copies lines by the keyboard: they are selected, as they are to be typed. Without script there is no button.
async function copies(page, where) {
  const plain = await browser.newContext({ javaScriptEnabled: false });
  const still = await plain.newPage();
  await still.goto(given.proxy);
  assert.equal(await still.locator("button").count(), 0, `${where}: a button that does nothing`);
  assert.ok(await still.locator("pre").count() > 20, where);
  await plain.close();
  await page.evaluate(() => { for (const client of document.querySelectorAll("details")) client.open = true; });
  const lines = page.locator("pre"), buttons = page.locator("pre + button");
  assert.equal(await buttons.count(), await lines.count(), where);
  for (const i of [0, await lines.count() - 1]) {
    await buttons.nth(i).focus();
    await page.keyboard.press("Enter");
    assert.equal(await buttons.nth(i).getAttribute("aria-label"), "Copied", where);
    assert.equal(await page.evaluate(() => getSelection().toString()), await lines.nth(i).textContent(), where);
  }
}

// The documentation: its index, a long page, one with pictures, what a search finds, what it does not, and no page.
const docs = ["", "caddyfile", "problems/disallowed", "?q=robots.txt", "?q=nothingatall", "nothing"].map((path) => [`docs/${path}`, `${given.proxy}/docs/${path}`, path === "nothing" ? 404 : 200]);

// The gateway's own page and a refusal, as a person sees them who browses through it, and the file of a report. Chromium's
// own questions are of no agent: the gateway refuses them, and asks nobody.
await check("own pages", async () => {
  const behind = await chromium.launch({ executablePath: given.chromium, args: [...flags, `--proxy-server=${given.proxy}`, "--proxy-bypass-list=<-loopback>"] });
  const figures = {};
  try {
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 400, 360, 320]) {
        for (const [name, url, status] of [["landing", given.proxy, 200], ["refusal", given.refused, 403], ["report", given.report, 200], ...docs]) {
          if (name.startsWith("docs/") ? width < 400 : width === 400) continue;
          const where = `${name} ${colorScheme} ${width}`;
          const context = await (status === 200 ? browser : behind).newContext({ userAgent: "AcmeBot/1.0", colorScheme, viewport: { width, height: 700 } });
          const page = await context.newPage();
          const faults = [];
          page.on("console", (m) => { if (m.type() === "error" && !/status of 40[34]/.test(m.text())) faults.push(m.text()); });
          page.on("request", (r) => { if (!r.url().startsWith("data:") && !r.url().startsWith(given.proxy + "/docs/images/") && !r.isNavigationRequest()) faults.push(`asked ${r.url()}`); });
          const answer = await page.goto(url);
          assert.equal(answer.status(), status, where);
          const policy = answer.headers()["content-security-policy"] ?? await page.locator("meta[http-equiv=Content-Security-Policy]").getAttribute("content");
          assert.match(policy, /^default-src 'none'/, where);
          assert.doesNotMatch(policy, /unsafe/, where);
          if (status === 403) assert.equal(await page.locator("mark").innerText(), given.rule, where);
          assert.notEqual(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), "rgba(0, 0, 0, 0)", `${where}: no style`);
          if (name === "landing") await copies(page, where);
          await page.evaluate(axe);
          const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
          assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" | ")}`), [], where);
          assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), `${where} scrolls sideways`);
          await page.emulateMedia({ media: "print" });
          assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), "rgb(255, 255, 255)", `${where}: its print is not white`);
          await page.emulateMedia({ media: "screen" });
          if (status === 403) { // its URL is one of the gateway, also through the gateway
            const more = await page.locator("dt", { hasText: "more" }).locator("+ dd").innerText();
            assert.equal(more, given.proxy + "/docs/problems/disallowed", where);
            await page.goto(more);
            assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), "Disallowed by robots.txt", where);
            await page.goBack();
          }
          assert.deepEqual(faults, [], where);
          figures[where] = passes.length;
          if (given.screenshots && width === 1280) await page.screenshot({ path: join(given.screenshots, `${name.replace(/\W/g, "_")}-${colorScheme}.png`), fullPage: true });
          await context.close();
        }
      }
    }
  } finally {
    await behind.close();
  }
  return figures;
});

await browser.close();
agents.destroy();
