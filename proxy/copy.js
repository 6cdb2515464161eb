for (const lines of document.querySelectorAll("pre")) {
	const button = document.createElement("button");
	button.type = "button";
	button.textContent = "Copy";
	button.setAttribute("aria-label", "Copy these lines");
	button.addEventListener("click", () => {
		getSelection().selectAllChildren(lines);
		const copied = document.execCommand("copy");
		button.textContent = copied ? "Copied" : "Press Ctrl+C";
		button.setAttribute("aria-label", copied ? "Copied" : "They are selected: press Ctrl+C");
	});
	lines.after(button);
}
