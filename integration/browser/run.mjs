// Runs the checks of a suite in order, and writes a JSON object a line for each.
import { Desk } from "./desk.mjs";
import * as flood from "./flood.mjs";
import * as pages from "./pages.mjs";
import * as views from "./views.mjs";

const suites = { flood: [flood], pages: [pages, views] };
const desk = new Desk(JSON.parse(process.env.BROWSER_SETUP));
try {
	for (const [check, run] of suites[process.argv[2]].flatMap((suite) => Object.entries(suite))) {
		let fault = "", figures = {};
		try {
			figures = (await run(desk)) ?? {};
		} catch (error) {
			fault = error.stack;
		}
		await desk.tidy();
		console.log(JSON.stringify({ check, fault, figures }));
	}
} finally {
	await desk.close();
}
