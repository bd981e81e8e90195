// SPDX-License-Identifier: GPL-2.0
// Uses a flame graph as its reader does: clicks on "Search" and answers `pattern`, clicks on the frame of
// `wanted`, and on "Reset Zoom". vm-flame adds this to the graph, and reads what it reports:
//     frames N                    functions that are drawn
//     matched TEXT                what the graph says of the search
//     highlighted TITLE           a frame in the colour of a match: its function, samples and share
//     seen FUNCTION               the name on such a frame
//     zoomed PART HIDDEN          the part of the whole width that the frame has, frames that are hidden
//     back PART HIDDEN            likewise, after the click on "Reset Zoom"
window.prompt = () => pattern;
window.onerror = message => report(`error ${message}`);
const lines = document.createElementNS("http://www.w3.org/2000/svg", "desc");
const report = line => lines.append(`\n${line}\n`);
const click = element => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
const frames = () => [...document.querySelectorAll("#frames > g")];
const title = frame => frame.querySelector("title").textContent;
const width = element => element.getBoundingClientRect().width;
const size = frame => {
	const hidden = frames().filter(other => getComputedStyle(other).display === "none");
	const part = width(frame.querySelector("rect")) / width(document.getElementById("frames"));
	return `${part.toFixed(3)} ${hidden.length}`;
};

setTimeout(() => {
	document.documentElement.append(lines);
	report(`frames ${frames().length}`);
	click(document.getElementById("search"));
	report(`matched ${document.getElementById("matched").textContent}`);
	for (const frame of frames().filter(one => one.querySelector("rect").getAttribute("fill") === searchcolor)) {
		report(`highlighted ${title(frame)}`);
		report(`seen ${frame.querySelector("text").textContent}`);
	}
	const frame = frames().find(one => title(one).startsWith(`${wanted} (`));
	click(frame.querySelector("rect"));
	report(`zoomed ${size(frame)}`);
	click(document.getElementById("unzoom"));
	report(`back ${size(frame)}`);
}, 500);
