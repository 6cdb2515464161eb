// Prints the page of a report as someone would who files it. The test in Go hands over a JSON object as the argument, and
// reads one: the sentence that the page begins with, and the number of printed pages.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const given = JSON.parse(process.argv[2]);
const browser = await chromium.launch({ executablePath: given.chromium, args: ["--headless", "--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 688, height: 1000 }, colorScheme: "dark" }); // A4 between its margins
await page.goto(given.report);
await page.emulateMedia({ media: "print" });
const figures = await page.evaluate(() => {
  const shown = (e) => e.getClientRects().length > 0;
  const cut = [...document.querySelectorAll(".scroll, table, td, th, .chart, p")].filter((e) => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1);
  const labels = [...document.querySelectorAll(".chart .ticks span, .chart .scale span")].map((e) => e.getBoundingClientRect());
  const over = labels.filter((a, i) => labels.some((b, j) => j < i && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
  return {
    statement: document.querySelector("main p").innerText,
    cut: cut.map((e) => e.outerHTML.slice(0, 200)),
    labels: labels.length, over: over.length,
    heads: [...document.querySelectorAll("thead")].filter((e) => getComputedStyle(e).display !== "table-header-group").length,
    sections: [...document.querySelectorAll("h2")].filter(shown).map((e) => e.innerText),
    dark: getComputedStyle(document.body).color !== "rgb(0, 0, 0)",
  };
});
assert.deepEqual(figures.cut, []);
assert.equal(figures.over + figures.heads, 0, JSON.stringify(figures)); // heads come again on each page
assert.equal(figures.dark, false);
const pdf = await page.pdf({ format: "A4", preferCSSPageSize: true });
assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
figures.pages = pdf.toString("latin1").match(/\/Type \/Page\b/g).length;
if (given.screenshots) {
  writeFileSync(join(given.screenshots, "report.pdf"), pdf);
  await page.screenshot({ path: join(given.screenshots, "report-print.png"), fullPage: true });
}
console.log(JSON.stringify(figures));
await browser.close();
