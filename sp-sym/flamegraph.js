"use strict";
(() => {
	const $ = id => document.getElementById(id);
	const D = JSON.parse($("data").textContent);
	const ROW = 18, CHAR = 6.95, MIN = 0.35;
	const GROUP = 7, TRUNCATED = 5;
	const chart = $("chart"), detail = $("detail"), box = $("search"), hits = $("hits");

	// What is shown: one of D.events, which count different things.
	let E = D.events[0];

	// Nodes arrive in depth-first order as [depth, func * 2 + inlined, total]; the children of the
	// root are threads.
	function read() {
		const root = { f: -1, t: E.total, c: [], p: null, d: 0 }, path = [root], a = E.nodes;
		for (let i = 0; i < a.length; i += 3) {
			const p = path[a[i] - 1];
			const n = { f: a[i + 1], t: a[i + 2], c: [], p, d: a[i] };
			p.c.push(n);
			path[a[i]] = n;
		}
		return root;
	}

	let threads = read();

	function merge(into, from) {
		const byFunc = new Map();
		for (const c of into.c) byFunc.set(c.f, c);
		for (const c of from.c) {
			let n = byFunc.get(c.f);
			if (!n) {
				n = { f: c.f, t: 0, c: [], p: into, d: into.d + 1 };
				byFunc.set(c.f, n);
				into.c.push(n);
			}
			n.t += c.t;
			merge(n, c);
		}
	}

	function groupKey(how, th) {
		if ("label" in th) return th.label;
		if (how === "process") return `${th.process} (${th.pid})`;
		if (how === "thread") return `${th.comm} (${th.pid}/${th.tid})`;
		if (how === "pool") return th.comm.replace(/[0-9]+/g, "N");
		return th.comm;
	}

	function order(root) {
		const stack = [root];
		while (stack.length) {
			const n = stack.pop();
			n.c.sort((a, b) => b.t - a.t || (name(a) < name(b) ? -1 : name(a) > name(b) ? 1 : a.f - b.f));
			for (const c of n.c) stack.push(c);
		}
		return root;
	}

	function regroup(how) {
		const root = { f: -1, t: E.total, c: [], p: null, d: 0 }, groups = new Map();
		threads.c.forEach((thread, i) => {
			if (how === "none") {
				merge(root, thread);
				return;
			}
			const key = groupKey(how, E.threads[i]);
			let g = groups.get(key);
			if (!g) {
				g = { f: -2, label: key, t: 0, c: [], p: root, d: 1 };
				groups.set(key, g);
				root.c.push(g);
			}
			g.t += thread.t;
			merge(g, thread);
		});
		return order(root);
	}

	function func(n) { return D.funcs[n.f >> 1]; }
	function name(n) { return n.f === -1 ? "all" : n.f === -2 ? n.label : D.strings[func(n)[0]]; }
	function kind(n) { return n.f < 0 ? GROUP : func(n)[3]; }
	function inlined(n) { return n.f >= 0 && (n.f & 1) === 1; }
	function colour(n) {
		if (n.f < 0) return n.f === -1 ? "#c9c2b4" : "#b9c0b0";
		return (inlined(n) ? func(n)[5] : func(n)[4]);
	}
	function self(n) { return n.c.reduce((s, c) => s - c.t, n.t); }

	function amount(v, unit = E.unit) {
		if (unit === "ns")
			return v >= 1e9 ? (v / 1e9).toFixed(2) + " s" : (v / 1e6).toFixed(1) + " ms";
		return v.toLocaleString("en") + " " + unit;
	}
	function percent(v, of) { return of ? (100 * v / of).toFixed(2) + " %" : "0 %"; }
	function escape(s) { return s.replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]); }

	// A long C++ name loses the insides of its longest brackets first (template arguments, parameters),
	// then its return type. What must stay together, and brackets that are done with, stand as U+0001 to
	// U+0005 meanwhile.
	const PLAIN = "<>() ", hide = m => m.replace(/[<>() ]/g, c => String.fromCharCode(PLAIN.indexOf(c) + 1));
	const KEPT = /operator(<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\)| )|\(anonymous namespace\)|->|\{unnamed type[^}]*\}| (?=<)/g;
	function longest(t) {
		const open = [];
		let best = null;
		for (let i = 0; i < t.length; i++) {
			if (t[i] === "<" || t[i] === "(") open.push(i);
			else if (open.length && t[i] === (t[open[open.length - 1]] === "<" ? ">" : ")")) {
				const at = open.pop();
				if (i - at > 2 && (!best || i - at > best[1] - best[0])) best = [at, i];
			}
		}
		return best;
	}
	function brief(s, room) {
		let t = s.replace(KEPT, hide);
		for (let n = 0, cut; n < 40 && t.length > room && t.length < 5000 && (cut = longest(t)); n++)
			t = t.slice(0, cut[0] + 1) + "…" + t.slice(cut[1]);
		const args = t.indexOf("("), space = t.lastIndexOf(" ", args);
		if (t.length > room && args > 0 && space > 0) t = t.slice(space + 1);
		return t.replace(/[\u0001-\u0005]/g, c => PLAIN[c.charCodeAt(0) - 1]);
	}

	let root = null, zoomed = null, selected = null, flame = false, match = null, drawn = [], places = new Map();

	// Which nodes are wide enough to be seen, with their places: siblings are ordered by weight, so
	// the first that is too narrow ends its row.
	function layout(width) {
		drawn = [];
		const scale = width / (zoomed.t || 1);
		for (let n = zoomed.p; n; n = n.p) drawn.push({ n, x: 0, w: width, up: true });
		const stack = [{ n: zoomed, x: 0 }];
		while (stack.length) {
			const { n, x } = stack.pop();
			drawn.push({ n, x, w: n.t * scale });
			let at = x;
			for (const c of n.c) {
				if (c.t * scale < MIN) break;
				stack.push({ n: c, x: at });
				at += c.t * scale;
			}
		}
	}

	function draw() {
		const width = Math.max(300, chart.clientWidth - 32);
		layout(width);
		places = new Map();
		const depth = drawn.reduce((d, r) => Math.max(d, r.n.d), 0) + 1, height = depth * ROW;
		const out = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="tree" aria-label="flame graph">` +
			`<defs><pattern id="cut" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#d8d2c5"/><rect width="2.5" height="6" fill="#a59d8c"/></pattern></defs>`];
		drawn.forEach((r, i) => {
			const n = r.n, y = flame ? height - (n.d + 1) * ROW : n.d * ROW;
			const cls = [];
			if (inlined(n)) cls.push("inl");
			if (r.up) cls.push("up");
			if (n === selected) cls.push("sel");
			if (match && n.hit) cls.push("hit");
			places.set(n, i);
			const fill = kind(n) === TRUNCATED ? "url(#cut)" : colour(n);
			let s = `<g data-i="${i}"${cls.length ? ` class="${cls.join(" ")}"` : ""}>` +
				`<rect x="${r.x.toFixed(2)}" y="${y + .5}" width="${Math.max(r.w, .3).toFixed(2)}" height="${ROW - 1}"${r.w < 3 ? ' stroke="none"' : ' rx="1.5"'} fill="${fill}"/>`;
			const room = Math.floor((r.w - 7) / CHAR);
			if (room >= 2) {
				let label = name(n);
				if (label.length > room && /[<(]/.test(label)) label = brief(label, room);
				if (label.length > room) label = label.slice(0, room - 1) + "…";
				s += `<text x="${(r.x + 4).toFixed(2)}" y="${y + 13}">${escape(label)}</text>`;
			}
			out.push(s + "</g>");
		});
		out.push("</svg>");
		chart.innerHTML = out.join("");
		chart.classList.toggle("searching", !!match);
		$("reset").disabled = zoomed === root;
		describe(selected || zoomed);
	}

	function describe(n) {
		const f = n.f >= 0 ? func(n) : null, own = self(n);
		const marks = [];
		if (inlined(n)) marks.push("inlined");
		if (f) marks.push(D.kinds[f[3]]);
		let text = `<b>${escape(name(n))}</b><div class="nums">${amount(n.t)}, ${percent(n.t, E.total)} of all`;
		if (zoomed !== root && zoomed.t) text += `, ${percent(n.t, zoomed.t)} of the zoomed`;
		text += ` · self ${amount(own)} (${percent(own, E.total)})</div>`;
		if (f) {
			const where = [D.strings[f[1]], D.strings[f[2]]].filter(Boolean).join(" · ");
			text += `<div class="where">${escape([marks.join(", "), where].filter(Boolean).join(" · "))}</div>`;
		} else if (n === root) {
			text += `<div class="where">click zooms · <kbd>Esc</kbd> all · <kbd>/</kbd> search · <kbd>i</kbd> turns it over · arrows and <kbd>Enter</kbd> walk</div>`;
		}
		detail.innerHTML = text;
	}

	function zoom(n) {
		zoomed = n;
		selected = n === root ? null : n;
		draw();
		if (flame) chart.scrollTop = chart.scrollHeight;
	}

	// Marks the hits; samples are counted once, at the outermost hit of their path.
	function search(text) {
		match = null;
		if (text) {
			try {
				match = new RegExp(text, "i");
			} catch {
				match = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
			}
		}
		let sum = 0;
		const known = new Map(), stack = [{ n: root, in: false }];
		while (match && stack.length) {
			const { n, in: inside } = stack.pop();
			let hit = known.get(n.f);
			if (hit === undefined || n.f === -2) {
				hit = n.f !== -1 && (match.test(name(n)) || (n.f >= 0 && match.test(D.strings[func(n)[1]])));
				known.set(n.f, hit);
			}
			n.hit = hit;
			if (hit && !inside) sum += n.t;
			for (const c of n.c) stack.push({ n: c, in: inside || hit });
		}
		hits.textContent = match ? `${percent(sum, E.total)} in matches` : "";
		draw();
	}

	function at(event) {
		const g = event.target.closest("g[data-i]");
		return g ? drawn[+g.dataset.i].n : null;
	}

	function walk(key) {
		let n = selected || zoomed;
		const down = flame ? "ArrowUp" : "ArrowDown", up = flame ? "ArrowDown" : "ArrowUp";
		if (key === down) n = n.c[0] || n;
		else if (key === up) n = n.p || n;
		else if (n.p) {
			const row = n.p.c, i = row.indexOf(n) + (key === "ArrowRight" ? 1 : -1);
			n = row[i] || n;
		}
		if (!places.has(n)) {
			zoom(n);
			return;
		}
		selected = n;
		draw();
		const el = chart.querySelector("g.sel");
		if (el) el.scrollIntoView({ block: "nearest" });
	}

	chart.addEventListener("click", e => { const n = at(e); if (n) zoom(n); });
	chart.addEventListener("mouseover", e => { const n = at(e); if (n) describe(n); });
	chart.addEventListener("mouseleave", () => describe(selected || zoomed));
	$("reset").addEventListener("click", () => zoom(root));
	$("turn").addEventListener("click", turn);
	function restart() { root = zoomed = regroup($("group").value); selected = null; search(box.value); }
	$("group").addEventListener("change", restart);
	if ($("event")) {
		D.events.forEach((e, i) => $("event").append(new Option(`${e.name} (${amount(e.total, e.unit)})`, i)));
		$("event").addEventListener("change", e => { E = D.events[+e.target.value]; threads = read(); restart(); });
	}
	let timer = 0;
	box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => search(box.value), 120); });
	addEventListener("resize", draw);
	function turn() {
		flame = !flame;
		$("turn").textContent = flame ? "Icicle" : "Flame";
		draw();
		chart.scrollTop = flame ? chart.scrollHeight : 0;
	}
	addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		if (e.key === "Escape") {
			if (e.target === box || match) { box.value = ""; box.blur(); search(""); }
			else zoom(root);
			return;
		}
		if (e.target === box || e.target.tagName === "SELECT") return;
		if (e.key === "/") box.focus();
		else if (e.key === "i") turn();
		else if (e.key === "Backspace") zoom(zoomed.p || root);
		else if (e.key === "Enter") { if (e.target.tagName === "BUTTON") return; zoom(selected || zoomed); }
		else if (e.key.startsWith("Arrow")) walk(e.key);
		else return;
		e.preventDefault();
	});

	document.documentElement.classList.add("js");
	$("group").value = D.group;
	root = zoomed = regroup(D.group);
	draw();
})();
