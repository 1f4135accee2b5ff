// The pages in a headless Chromium, as a person would use them.
//
//   browse.js flamegraph FILE.html FUNCTION [SCREENSHOT]   a click zooms, a search marks, nothing is fetched
//   browse.js events FILE.html EVENT [SCREENSHOT]   another event is shown by choice
//   browse.js large FILE.html "" [SCREENSHOT]   prints how many ms loading, zooming, turning and grouping take
//   browse.js speedscope PAGE_DIR FILE FUNCTION [SCREENSHOT]   speedscope's own page opens the file
"use strict";
const { chromium } = require("playwright-core");
const assert = require("assert");
const fs = require("fs");
const http = require("http");
const path = require("path");

async function flamegraph(page, file, name, shot) {
	const fetched = [];
	page.on("request", r => { if (!/^(file|data):/.test(r.url())) fetched.push(r.url()); });
	await page.goto("file://" + path.resolve(file));
	const labels = () => page.$$eval("#chart g[data-i] text", t => t.map(x => x.textContent));
	assert((await labels()).some(t => t.includes(name)), "the function is not shown");
	await page.fill("#search", name);
	await page.waitForFunction(() => /in matches/.test(document.querySelector("#hits").textContent));
	assert(await page.$$eval("#chart g.hit", g => g.length) > 0, "the search marks nothing");
	const before = await page.$$eval("#chart g[data-i]", g => g.length);
	const at = await page.$$eval("#chart g[data-i]", (all, n) =>
		all.findIndex(g => (g.querySelector("text") || { textContent: "" }).textContent.includes(n)), name);
	const rect = () => page.$$eval("#chart g[data-i]", (all, n) => {
		const g = all.find(x => (x.querySelector("text") || { textContent: "" }).textContent.includes(n));
		return +g.querySelector("rect").getAttribute("width");
	}, name);
	const narrow = await rect();
	const start = Date.now();
	await (await page.$$("#chart g[data-i] rect"))[at].click();
	const wide = await rect(), full = await page.$eval("#chart svg", s => s.viewBox.baseVal.width);
	assert(wide >= narrow && wide > full * 0.98, `the click does not zoom: ${narrow} to ${wide} of ${full}`);
	console.log(`${before} boxes; zoomed in ${Date.now() - start} ms`);
	assert(!await page.$eval("#reset", b => b.disabled), "nothing to go back from");
	if (shot) await page.screenshot({ path: shot });
	await page.keyboard.press("Escape");
	await page.click("#reset").catch(() => {});
	assert.deepStrictEqual(fetched, []);
}

// Of a recording on and off CPU one is shown, and the other when it is chosen.
async function events(page, file, name, shot) {
	await page.goto("file://" + path.resolve(file));
	const all = () => page.$eval("#detail", d => d.textContent);
	const names = await page.$$eval("#event option", o => o.map(x => x.textContent));
	assert.equal(names.length, 2);
	const first = await all();
	await page.selectOption("#event", String(names.findIndex(n => n.startsWith(name))));
	assert((await all()) !== first && /150.0 ms/.test(await all()), "the other event does not show: " + await all());
	if (shot) await page.screenshot({ path: shot });
}

// How long what a person does takes, in a picture of many frames.
async function large(page, file, name, shot) {
	const begin = Date.now();
	await page.goto("file://" + path.resolve(file));
	const took = { load: Date.now() - begin };
	took.boxes = await page.$$eval("#chart g[data-i]", g => g.length);
	took.frames = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent).events[0].nodes.length / 3);
	const time = async (what, act) => {
		took[what] = await page.evaluate(async act => {
			const t = performance.now();
			new Function(act)();
			await new Promise(requestAnimationFrame);
			return Math.round(performance.now() - t);
		}, act);
	};
	const click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))";
	await time("zoom", `document.querySelectorAll('#chart g[data-i]')[5].querySelector('rect').${click}`);
	await time("back", "document.getElementById('reset').click()");
	await time("turn", "document.getElementById('turn').click()");
	await time("group", "const g = document.getElementById('group'); g.value = 'none'; g.dispatchEvent(new Event('change'))");
	await page.fill("#search", "0x3");
	await page.waitForFunction(() => /in matches/.test(document.querySelector("#hits").textContent));
	assert(await page.$$eval("#chart g.hit", g => g.length) > 0, "the search marks nothing");
	assert(took.boxes > 1000 && took.frames > 100000, "that is not large");
	if (shot) await page.screenshot({ path: shot });
	console.log(JSON.stringify(took));
}

async function speedscope(page, dir, file, name, shot) {
	const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
	const server = http.createServer((request, response) => {
		const wanted = path.join(dir, path.basename(request.url.split("?")[0]) || "index.html");
		if (!fs.existsSync(wanted)) return response.writeHead(404).end();
		response.writeHead(200, { "content-type": types[path.extname(wanted)] || "application/octet-stream" });
		return response.end(fs.readFileSync(wanted));
	}).listen(0, "127.0.0.1");
	await new Promise(r => server.once("listening", r));
	const said = [];
	page.on("console", m => said.push(m.text()));
	await page.goto(`http://127.0.0.1:${server.address().port}/index.html`);
	await page.setInputFiles("input[type=file]", file);
	await page.waitForFunction(() => !/^speedscope$/.test(document.title), null, { timeout: 30000 });
	await page.keyboard.press("3"); // the sandwich view is a table of text
	await page.waitForFunction(n => document.body.innerText.includes(n), name, { timeout: 30000 });
	if (shot) await page.screenshot({ path: shot });
	console.log(await page.title(), said.join(" | "));
	server.close();
}

(async () => {
	const [what, ...args] = process.argv.slice(2);
	const browser = await chromium.launch({
		executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
		args: ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
	});
	try {
		const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
		await { flamegraph, events, large, speedscope }[what](page, ...args);
	} finally {
		await browser.close();
	}
})().catch(e => { console.error(e.message || e); process.exit(1); });
