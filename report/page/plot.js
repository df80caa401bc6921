// SPDX-License-Identifier: Apache-2.0
// What the charts are made of: panels, axes, marks; redrawn for light, dark and print.
"use strict";
(function () {
	const el = JM.el,
		known = JM.known;
	const drawn = [];
	const dark = window.matchMedia("(prefers-color-scheme: dark)");
	let printing = false;

	const palettes = {
		light: {
			ink: "#16202c",
			soft: "#52606f",
			line: "#dce2e9",
			card: "#ffffff",
			main: "#1f5fbf",
			best: "#12724a",
			ref: "#b4540a",
			off: "#8a96a3",
			band: "rgba(31,95,191,.16)",
			many: ["#1f5fbf", "#c2570c", "#12724a", "#8b3fb8", "#a8741a", "#0e7490", "#b3261e", "#5b6675"],
			phase: [
				"rgba(31,95,191,.09)",
				"rgba(90,100,115,.08)",
				"rgba(18,114,74,.10)",
				"rgba(180,84,10,.09)",
			],
		},
		dark: {
			ink: "#e7ecf2",
			soft: "#a9b5c2",
			line: "#2c3641",
			card: "#181f27",
			main: "#7db0ff",
			best: "#6fd3a2",
			ref: "#ffb074",
			off: "#7b8896",
			band: "rgba(125,176,255,.20)",
			many: ["#7db0ff", "#ffb074", "#6fd3a2", "#d3a4f5", "#e9c46a", "#67d3e5", "#ff9a92", "#a9b5c2"],
			phase: [
				"rgba(125,176,255,.13)",
				"rgba(169,181,194,.10)",
				"rgba(111,211,162,.13)",
				"rgba(255,176,116,.12)",
			],
		},
	};
	// Colour of a cell, 0 = the lowest value and 1 the highest, and of the text on it.
	const mix = (from, to) => (part) =>
		"rgb(" + from.map((v, i) => Math.round(v + part * (to[i] - v))).join(",") + ")";
	palettes.light.heat = mix([233, 240, 250], [20, 84, 160]);
	palettes.light.onHeat = (part) => (part > 0.5 ? "#ffffff" : "#16202c");
	palettes.dark.heat = mix([30, 42, 58], [140, 190, 255]);
	palettes.dark.onHeat = (part) => (part > 0.5 ? "#10151b" : "#e7ecf2");
	const palette = () => palettes[dark.matches && !printing ? "dark" : "light"];

	// On paper a drawing has a fixed size and is scaled to the column as a whole.
	function onPaper(chart, tall) {
		const width = tall ? 760 : 430,
			height = tall === "names" ? 400 : tall ? 270 : 235;
		chart.resize({ width: width, height: height });
		chart.getZr().flush();
		chart.getDom().style.setProperty("--shape", width + " / " + height);
		chart.getDom()
			.querySelector("svg")
			.setAttribute("viewBox", "0 0 " + width + " " + height);
	}

	function redraw() {
		for (const d of drawn) {
			if (!printing) d.chart.resize({ width: "auto", height: "auto" });
			d.chart.setOption(d.option(palette()), true);
			if (printing) onPaper(d.chart, d.tall);
			else d.chart.getDom().querySelector("svg").removeAttribute("viewBox");
		}
	}
	dark.addEventListener("change", redraw);
	window.addEventListener("beforeprint", () => {
		drawAll();
		printing = true;
		redraw();
	});
	window.addEventListener("afterprint", () => {
		printing = false;
		redraw();
	});

	// The drawing as a separate file, in the colours of paper: SVG, or the print dialog of the
	// browser for PDF.
	function paperSvg(chart) {
		chart.draw();
		const svg = () => chart.chart.getDom().querySelector("svg");
		chart.chart.setOption(chart.option(palettes.light), true);
		chart.chart.getZr().flush();
		const text = new XMLSerializer().serializeToString(svg());
		chart.chart.setOption(chart.option(palette()), true);
		return text;
	}
	const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
	const save = (chart, title) => JM.download(fileName(title) + ".svg", "image/svg+xml", paperSvg(chart));

	// All other parts of the page are hidden while this chart is printed, which the browser saves as PDF.
	function printAlone(chart) {
		const root = document.documentElement;
		const done = () => {
			root.classList.remove("alone");
			chart.node.classList.remove("alone");
			window.removeEventListener("afterprint", done);
		};
		root.classList.add("alone");
		chart.node.classList.add("alone");
		window.addEventListener("afterprint", done);
		window.print();
	}

	const small = (label, title, click) =>
		el("button", { class: "save", "aria-label": label + ": " + title, onclick: click }, label);

	function caption(chart, title, more) {
		const link = more.id
			? el("a", { class: "permalink", href: "#" + more.id, "aria-label": "Link to: " + title }, "#")
			: null;
		return el(
			"div",
			{ class: "head" },
			el("h3", {}, title, " ", link),
			el(
				"div",
				{ class: "tools" },
				more.tools,
				small("SVG", title, () => save(chart, title)),
				small("PDF", title, () => printAlone(chart)),
			),
		);
	}

	// The figures of a chart, computed when the reader requests them.
	function behind(title, table) {
		const details = el("details", { class: "behind" }, el("summary", {}, "Table"));
		details.addEventListener("toggle", () => {
			const old = details.querySelector(".scroll-box");
			if (old) old.remove();
			if (details.open) details.append(el("div", { class: "scroll-box" }, table()));
		});
		details.querySelector("summary").setAttribute("aria-label", "Table of: " + title);
		return details;
	}

	// ---- when charts are drawn: those in sight first, the others one by one while nothing else is to be done -------

	const waiting = new Map(); // chart of each element that is not drawn yet, in order of the page
	const idle = (f) => (window.requestIdleCallback ? requestIdleCallback(f, { timeout: 200 }) : setTimeout(f, 30));
	const NEAR = "200px";

	function forget(chart, node) {
		inSight.unobserve(node);
		waiting.delete(node);
	}

	function draw(chart, node, size) {
		if (chart.chart) return;
		forget(chart, node);
		chart.size = size.width + " " + size.height;
		chart.chart = echarts.init(node, null, { renderer: "svg", width: size.width, height: size.height });
		drawn.push(chart);
		byNode.set(node, chart);
		chart.chart.setOption(chart.option(palette()));
		sizes.observe(node);
	}

	const byNode = new WeakMap();
	const sizes = new ResizeObserver(function (entries) {
		for (const { target, contentRect } of entries) {
			const chart = byNode.get(target),
				size = contentRect.width + " " + contentRect.height;
			if (printing || size === chart.size) continue;
			chart.size = size;
			chart.chart.resize({ width: contentRect.width, height: contentRect.height });
		}
	});

	const inSight = new IntersectionObserver(
		function (entries) {
			for (const { isIntersecting, target, boundingClientRect } of entries)
				if (isIntersecting && waiting.has(target)) draw(waiting.get(target), target, boundingClientRect);
			if (!asked) asked = idle(next);
		},
		{ rootMargin: NEAR },
	);

	let asked = 0;
	function next() {
		const [first] = waiting.keys();
		asked = 0;
		if (!first) return;
		if (first.isConnected) draw(waiting.get(first), first, first.getBoundingClientRect());
		else forget(waiting.get(first), first);
		asked = idle(next);
	}

	function later(chart, node) {
		waiting.set(node, chart);
		inSight.observe(node);
	}

	const drawAll = () => [...waiting.values()].forEach((chart) => chart.draw());

	// A panel with a chart; option(palette) is called for each drawing. more: {id, tall, tools, table() -> element}; tall:
	// over all columns; "names": with turned names below it as well.
	function panel(title, note, option, more) {
		more = more || {};
		const node = el("div", {
			class: "chart" + (more.tall ? " tall" : "") + (more.tall === "names" ? " names" : ""),
			role: "img",
			"aria-label": title + ". " + note + (more.table ? " The figures are in the table below it." : ""),
		});
		const chart = { option: option, tall: more.tall };
		chart.node = el(
			"section",
			{ class: "panel", id: more.id, "aria-label": title },
			caption(chart, title, more),
			el("p", { class: "soft small note" }, note),
			node,
			more.table ? behind(title, more.table) : null,
		);
		chart.close = function () {
			forget(chart, node);
			if (!chart.chart) return;
			sizes.unobserve(node);
			chart.chart.dispose();
			drawn.splice(drawn.indexOf(chart), 1);
		};
		chart.draw = () => draw(chart, node, node.getBoundingClientRect());
		later(chart, node);
		return chart;
	}
	JM.redraw = (chart) => chart.chart && chart.chart.setOption(chart.option(palette()), true);

	function axis(c, name, more) {
		const out = Object.assign(
			{
				type: "value",
				name: name,
				nameLocation: "middle",
				nameTextStyle: { color: c.soft, fontSize: 12 },
				nameGap: 30,
				axisLine: { show: true, lineStyle: { color: c.line } },
				axisTick: { show: false },
				axisLabel: { color: c.soft, hideOverlap: true },
				splitLine: { lineStyle: { color: c.line, opacity: 0.7 } },
			},
			more,
		);
		if (out.type === "value")
			out.axisLabel = Object.assign({ formatter: (v) => JM.apartAll(JM.apart(String(+v.toPrecision(12)))) }, out.axisLabel);
		return out;
	}

	// One name below each bar. Many are turned, and where they have no room side by side even then, some are left out.
	const areTurned = (names) => names.length > 12;
	function namesAxis(c, names) {
		return axis(c, "", {
			type: "category",
			data: names,
			axisLabel: areTurned(names)
				? { color: c.soft, fontSize: 11, rotate: 60, width: 250, overflow: "truncate" }
				: { color: c.soft, hideOverlap: true, width: Math.max(60, Math.floor(900 / names.length)), overflow: "break", interval: 0 },
		});
	}

	// Labels, each a list of words, without the words that all of them have. What a word says before "=" or a space is its
	// name, which goes too where the words at this place all have it.
	const NAMED = /^([^= ]+)[= ](.+)$/;
	function brief(labels) {
		const kept = labels.map((words) => words.filter((word) => labels.some((other) => !other.includes(word)))),
			nameOf = (word) => (NAMED.exec(word) || [])[1],
			shared = (name) => name && kept.every((words) => words.some((word) => nameOf(word) === name));
		return kept.map((words) => words.map((word) => (shared(nameOf(word)) ? NAMED.exec(word)[2] : word)).join(", "));
	}

	// Of parts that stand on each other.
	const partsLegend = (c, names) => ({
		type: "scroll", top: 0, left: 0, right: 0, data: names, textStyle: { color: c.soft }, inactiveColor: c.off,
		itemWidth: 12, itemHeight: 12, icon: "roundRect",
	});

	// The unit stands above it, where names of values would be turned.
	function valueAxis(c, unit, more) {
		return axis(
			c,
			"",
			Object.assign(
				{
					name: unit,
					nameLocation: "end",
					nameGap: 12,
					nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -28] },
				},
				more,
			),
		);
	}

	// Labels of points on a plane, for the "labelLayout" of all their series: each where it stands, else above, below or left
	// of its point, wherever it covers no label before it, else out of sight. LINE: what a line of text takes at least.
	const AWAY = -9999,
		LINE = 13;
	function labelPlaces() {
		let placed = [],
			seen = new Set();
		const isFree = (a) => placed.every((b) => a.x >= b.x + b.w || b.x >= a.x + a.w || a.y >= b.y + b.h || b.y >= a.y + a.h);
		return function ({ seriesIndex, dataIndex, rect, labelRect }) {
			const key = seriesIndex + "/" + dataIndex;
			if (seen.has(key)) [placed, seen] = [[], new Set()]; // drawn again
			seen.add(key);
			const w = labelRect.width,
				h = Math.max(labelRect.height, LINE),
				x = rect.x + rect.width / 2,
				y = rect.y + rect.height / 2,
				gap = rect.width / 2 + 5;
			const places = [
				[labelRect.x, labelRect.y + (labelRect.height - h) / 2],
				[x - w / 2, y - gap - h],
				[x - w / 2, y + gap],
				[x - gap - w, y - h / 2],
			].map((at) => ({ x: at[0], y: at[1], w: w, h: h }));
			const free = places.find(isFree);
			if (free) placed.push(free);
			return { x: free ? free.x : AWAY, y: free ? free.y + h / 2 : AWAY, align: "left", verticalAlign: "middle" };
		};
	}

	const hollow = (c, color) => ({ color: c.card, borderColor: color, borderWidth: 2 });

	// Points that are not on the curve: settings that were not held, and the reference.
	const offPoints = (c, data, more) =>
		Object.assign(
			{ type: "scatter", data: data, symbol: "circle", symbolSize: 8, z: 4, itemStyle: hollow(c, c.off) },
			more,
		);
	const referencePoints = (c, data, more) =>
		Object.assign(
			{ type: "scatter", data: data, symbol: "diamond", symbolSize: 13, z: 5, itemStyle: hollow(c, c.ref) },
			more,
		);

	function base(c) {
		return {
			animation: false,
			backgroundColor: "transparent",
			textStyle: {
				color: c.ink,
				fontFamily: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
			},
			grid: { left: 8, right: 22, top: 34, bottom: 34, containLabel: true },
			tooltip: {
				trigger: "item",
				confine: true,
				backgroundColor: c.card,
				borderColor: c.line,
				textStyle: { color: c.ink, fontSize: 12 },
			},
		};
	}

	// The dimensions in which the points of a series differ; the only one there is otherwise.
	JM.dims = function (series) {
		const all = JM.S.dimensions.map((d, i) => Object.assign({ index: i }, d));
		const text = (i) => new Set(series.points.map((p) => p.settings[i].text)).size;
		const varied = all.filter((d) => text(d.index) > 1);
		return varied.length ? varied : all.slice(0, 1);
	};

	// "batch 16" of a point, where its label is "16": outside what has the name of the axis as its heading.
	JM.named = function (series, point) {
		const dims = JM.dims(series),
			bare = dims.length === 1 && !dims[0].knob && point.settings[dims[0].index].text === point.label;
		return (bare ? dims[0].name + " " : "") + point.label;
	};

	// Sizes, such as batches, that span a factor of eight or more have an axis of their logarithms; knobs have not.
	const WIDE = 8;
	const isWide = (one, xs) => !one.knob && xs.length > 2 && Math.min(...xs) > 0 && Math.max(...xs) >= WIDE * Math.min(...xs);

	// Of two dimensions that with more values is the axis, and each value of the other one has a line, if these are few.
	const LINES = 8;
	function axisAndLines(dims, shown) {
		const distinct = (d) => new Set(shown.map((p) => p.settings[d.index].text)).size;
		const [one, other] = [...dims].sort((a, b) => distinct(b) - distinct(a));
		const fits = dims.length === 2 && distinct(other) <= LINES && shown.every((p) => known(p.settings[one.index].x));
		return dims.length === 1 ? [one, null] : fits ? [one, other] : [null, null];
	}

	// What the points of a series are laid out by: numbers where all have one, else their labels. Points without a
	// successful run take no room: their place is NaN. lines: {name, of(indexes) -> those of the line, in its order}.
	function setting(series) {
		const dims = JM.dims(series),
			good = series.points.filter((p) => p.runs_ok > 0),
			shown = good.length ? good : series.points,
			[one, other] = axisAndLines(dims, shown);
		const value = (p) => p.settings[one.index].x;
		const numeric = one !== null && shown.every((p) => known(value(p)));
		const group = (p) => (numeric && other ? p.settings[other.index].text : "");
		const hertz = one !== null && one.unit === "Hz";
		// without the names of several dimensions, which the axis has, and without those that a point does not have
		const values = (p) => dims.map((d) => p.settings[d.index].text).filter((text) => text && text !== "-").join(", "),
			short = (p) => (dims.length > 1 && values(p)) || p.label;
		const kept = (p) => (p.state === "violated" ? "(" + short(p) + ")" : short(p));
		const place = (p) => (numeric ? (hertz ? value(p) / 1e6 : value(p)) : shown.indexOf(p));
		const x = series.points.map((p) => (shown.includes(p) ? place(p) : NaN));
		const line = (text) => ({
			name: text && other.name + " " + text,
			of: (list) => list.filter((i) => group(series.points[i]) === text).sort((a, b) => x[a] - x[b]),
		});
		return {
			numeric: numeric,
			log: numeric && isWide(one, shown.map(value)),
			shown: shown,
			x: x,
			labels: shown.map(kept),
			lines: [...new Set(shown.map(group))].map(line),
			of: other && other.name, // of which each line has a value
			brief: (i) => (numeric && other ? series.points[i].settings[one.index].text : short(series.points[i])),
			name:
				(one ? one.name : dims.map((d) => d.name).join(", ")) +
				(one && one.unit ? " in " + (hertz ? "MHz" : one.unit) + (series.per ? " " + series.per : "") : ""),
		};
	}

	// Names of categories are turned where they have no room side by side, many of them more, and of very many some are left
	// out; the axis' own name stands below them.
	const MANY = 12,
		MOST = 20;
	function categoryAxis(c, name, labels) {
		const longest = Math.min(90, 6.5 * Math.max(...labels.map((l) => l.length))),
			turned = labels.length > 8 || labels.length * longest > 180,
			slope = !turned ? 0 : labels.length > MANY ? 65 : 40; // degrees
		return axis(c, name, {
			type: "category",
			data: labels,
			boundaryGap: true,
			nameGap: turned ? 18 + longest * Math.sin((slope * Math.PI) / 180) : 30,
			axisLabel: {
				color: c.soft, hideOverlap: true, rotate: slope, width: 90, overflow: "truncate",
				interval: labels.length > MANY ? Math.ceil(labels.length / MOST) - 1 : "auto",
			},
		});
	}

	function settingAxis(c, s) {
		if (!s.numeric) return categoryAxis(c, s.name, s.labels);
		const xs = s.x.filter(known),
			low = Math.min(...xs),
			high = Math.max(...xs),
			pad = (high - low || high || 1) * 0.05,
			room = Math.pow(high / low, 0.05);
		const edges = { color: c.soft, hideOverlap: true, showMinLabel: false, showMaxLabel: false };
		const octaves = Math.log2((high * room * room) / low);
		if (s.log)
			return axis(c, s.name, {
				type: "log",
				logBase: octaves < 10 ? 2 : octaves < 20 ? 4 : 16, // a mark at each power of it
				min: low / room,
				max: high * room,
				axisLabel: { ...edges, formatter: (v) => JM.apart(String(+v.toPrecision(4))) },
			});
		return axis(c, s.name, { min: Math.max(0, low - pad), max: high + pad, axisLabel: edges });
	}

	// Indexes of the points by their part: on the curve, off it (not held), the reference. The reference
	// is a part of the curve too, where no other point has its place.
	function parts(series) {
		const all = series.points.map((p, i) => i),
			at = (i) => series.points[i];
		const off = (i) => at(i).state === "violated";
		const isReference = (i) => at(i).reference;
		const alone = (i) => known(at(i).x) && !all.some((k) => k !== i && at(k).x === at(i).x);
		return {
			curve: all.filter((i) => !off(i) && (!isReference(i) || alone(i))).sort((a, b) => at(a).x - at(b).x),
			off: all.filter((i) => !isReference(i) && off(i)),
			reference: all.filter(isReference),
		};
	}

	const tip = (series, cols, name) => (p) => {
		const i = p.data && p.data.index;
		if (i === undefined) return "";
		const point = series.points[i],
			box = el("div", {}, el("b", {}, (name ? name + ": " : "") + JM.named(series, point) + (point.reference ? " (reference)" : "")));
		for (const col of cols)
			box.append(el("br"), col.title + ": " + JM.estimate(col.mean[i], col.half[i], col.places) + " " + col.unit);
		box.append(el("br"), [point.state, point.runs_ok + " runs", series.origin].filter(Boolean).join(", "));
		return box;
	};

	const line = (x1, y1, x2, y2, style) => ({ type: "line", shape: { x1: x1, y1: y1, x2: x2, y2: y2 }, style: style });

	// 95 % intervals, each [place on the other axis, low, high]; flat: they are drawn along the
	// horizontal axis.
	function whiskers(color, items, flat) {
		return {
			type: "custom",
			silent: true,
			z: 3,
			data: items,
			encode: flat ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] },
			renderItem: function (params, api) {
				const end = (k) => api.coord(flat ? [api.value(k), api.value(0)] : [api.value(0), api.value(k)]);
				const low = end(1),
					high = end(2),
					[dx, dy] = flat ? [0, 4] : [4, 0],
					style = { stroke: color, lineWidth: 1.4, fill: "none" };
				const bar = ([x, y]) => line(x - dx, y - dy, x + dx, y + dy, style);
				return { type: "group", children: [bar(low), bar(high), line(...low, ...high, style)] };
			},
		};
	}

	// Bars over a category axis, each [index, from, to] and, where it is known, the interval's low and high end. They
	// have the share `width` of a category and are moved by `shift` widths.
	const MOST_BAR = 64; // pixels
	function bars(color, items, width, shift, ink) {
		return {
			type: "custom",
			data: items,
			color: color,
			encode: { x: 0, y: [1, 2, 3, 4] },
			renderItem: function (params, api) {
				const full = api.size([1, 0])[0],
					w = Math.min(full * width, MOST_BAR),
					[x, low] = api.coord([api.value(0), api.value(1)]),
					high = api.coord([api.value(0), api.value(2)])[1];
				const middle = x + (shift || 0) * w,
					ends = [3, 4].map((k) => api.coord([api.value(0), api.value(k)])[1]),
					style = { stroke: ink, lineWidth: 1.4 };
				const bar = {
					type: "rect",
					shape: { x: middle - w / 2, y: Math.min(low, high), width: w, height: Math.abs(low - high) },
					style: { fill: color },
				};
				if (!known(ends[0]) || !known(ends[1])) return bar;
				return {
					type: "group",
					children: [
						bar,
						line(middle - 4, ends[0], middle + 4, ends[0], style),
						line(middle - 4, ends[1], middle + 4, ends[1], style),
						line(middle, ends[0], middle, ends[1], style),
					],
				};
			},
		};
	}

	// The 95 % band along a curve as one polygon.
	function band(color, items) {
		return {
			type: "custom",
			silent: true,
			z: 1,
			data: items.length > 1 ? [[items[0][0], items[0][1]]] : [],
			renderItem: (params, api) => ({
				type: "polygon",
				style: { fill: color },
				shape: {
					points: items
						.map((d) => api.coord([d[0], d[2]]))
						.concat(
							items
								.slice()
								.reverse()
								.map((d) => api.coord([d[0], d[1]])),
						),
				},
			}),
		};
	}

	function bestOf(series, metric) {
		const v = series.verdicts.find((x) => x.metric === metric);
		if (!v || v.kind === "none") return { text: "", at: [] };
		return v.kind === "best" ? { text: "best", at: [v.leading] } : { text: "no clear best", at: v.tied };
	}

	Object.assign(JM, {
		panel,
		axis,
		valueAxis,
		namesAxis,
		areTurned,
		brief,
		labelPlaces,
		partsLegend,
		offPoints,
		referencePoints,
		base,
		setting,
		settingAxis,
		parts,
		tip,
		line,
		whiskers,
		band,
		bars,
		hollow,
		bestOf,
	});
})();
