// Says of each page what robot-directives takes from its fields and meta tags. Each line of the input is an object with
// `agent`, `now` (milliseconds), `lines` and `metas` (pairs of name and content); each line of the output is an object
// with a boolean for each directive.
import { createInterface } from "node:readline";
import Directives from "robot-directives";

const names = ["noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate", "noodp"];

for await (const line of createInterface({ input: process.stdin })) {
	const page = JSON.parse(line);
	const directives = new Directives({ userAgent: page.agent, currentTime: () => page.now });
	for (const value of page.lines ?? []) directives.header(value);
	for (const meta of page.metas ?? []) directives.meta(meta.Name, meta.Content);
	const said = {};
	for (const name of names) said[name] = directives.is(name);
	console.log(JSON.stringify(said));
}
