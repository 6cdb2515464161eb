// Prints the sitemaps that robots-parser finds in files: for each argument a JSON array in a line.
import { readFileSync } from "node:fs";
import robotsParser from "robots-parser";

for (const name of process.argv.slice(2)) {
	const rules = robotsParser("https://example.com/robots.txt", readFileSync(name, "utf8"));
	console.log(JSON.stringify(rules.getSitemaps()));
}
