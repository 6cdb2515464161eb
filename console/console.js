// Keeps the sections of the page up to date. Without it the page shows the same after a reload.
const live = document.getElementById("live");
const held = new Map(); // changes of sections that somebody is using

function show(section, html) {
	const open = [...section.querySelectorAll("details")].map((d) => d.open);
	const scrolled = [...section.querySelectorAll(".wide")].map((d) => d.scrollLeft);
	section.innerHTML = html;
	section.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
	section.querySelectorAll(".wide").forEach((d, i) => { d.scrollLeft = scrolled[i] ?? 0; });
}

function release() {
	for (const [section, html] of held) {
		if (section.contains(document.activeElement)) continue;
		held.delete(section);
		show(section, html);
	}
}

function follow() {
	const source = new EventSource("/events");
	source.onopen = () => { live.textContent = "live"; };
	source.onmessage = (event) => {
		for (const [id, html] of Object.entries(JSON.parse(event.data))) {
			const section = document.getElementById(id);
			if (section) held.set(section, html);
		}
		release();
	};
	source.onerror = () => {
		live.textContent = "not live";
		if (source.readyState === EventSource.CLOSED) setTimeout(follow, 10_000); // refused: it does not try again by itself
	};
}

document.addEventListener("focusout", () => setTimeout(release));
follow();
