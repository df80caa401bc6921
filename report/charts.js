// SPDX-License-Identifier: Apache-2.0
// The charts of the report page, by ECharts. Every chart is redrawn for light, dark and print.
"use strict";
(function () {
const el = JM.el, known = JM.known;
const drawn = [];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false;

const palettes = {
	light: { ink: "#16202c", soft: "#52606f", line: "#dce2e9", card: "#ffffff", main: "#1f5fbf",
		best: "#12724a", ref: "#b4540a", off: "#8a96a3", band: "rgba(31,95,191,.16)",
		many: ["#1f5fbf", "#c2570c", "#12724a", "#8b3fb8", "#a8741a", "#0e7490", "#b3261e", "#5b6675"],
		phase: ["rgba(31,95,191,.09)", "rgba(90,100,115,.08)", "rgba(18,114,74,.10)", "rgba(180,84,10,.09)"] },
	dark: { ink: "#e7ecf2", soft: "#a9b5c2", line: "#2c3641", card: "#181f27", main: "#7db0ff",
		best: "#6fd3a2", ref: "#ffb074", off: "#7b8896", band: "rgba(125,176,255,.20)",
		many: ["#7db0ff", "#ffb074", "#6fd3a2", "#d3a4f5", "#e9c46a", "#67d3e5", "#ff9a92", "#a9b5c2"],
		phase: ["rgba(125,176,255,.13)", "rgba(169,181,194,.10)", "rgba(111,211,162,.13)", "rgba(255,176,116,.12)"] },
};
const palette = () => palettes[dark.matches && !printing ? "dark" : "light"];

// On paper a drawing has a size of its own and is scaled to the column as a whole.
function onPaper(chart, tall) {
	const width = tall ? 760 : 430, height = tall ? 270 : 235;
	chart.resize({ width: width, height: height });
	chart.getZr().flush();
	chart.getDom().style.setProperty("--shape", width + " / " + height);
	chart.getDom().querySelector("svg").setAttribute("viewBox", "0 0 " + width + " " + height);
}

function redraw() {
	for (const d of drawn) {
		if (!printing)
			d.chart.resize({ width: "auto", height: "auto" });
		d.chart.setOption(d.option(palette()), true);
		if (printing)
			onPaper(d.chart, d.tall);
		else
			d.chart.getDom().querySelector("svg").removeAttribute("viewBox");
	}
}
dark.addEventListener("change", redraw);
window.addEventListener("beforeprint", () => { printing = true; redraw(); });
window.addEventListener("afterprint", () => { printing = false; redraw(); });

// A panel with a chart; option(palette) is called for each drawing.
function panel(title, note, option, tall) {
	const node = el("div", { class: "chart" + (tall ? " tall" : ""), role: "img", "aria-label": title });
	const chart = { node: el("div", { class: "panel" },
		el("h3", {}, title), el("p", { class: "soft small" }, note), node) };
	requestAnimationFrame(function () {
		chart.chart = echarts.init(node, null, { renderer: "svg" });
		chart.option = option;
		chart.tall = tall;
		drawn.push(chart);
		chart.chart.setOption(option(palette()));
		new ResizeObserver(() => printing || chart.chart.resize()).observe(node);
	});
	return chart;
}
JM.redraw = (chart) => chart.chart && chart.chart.setOption(chart.option(palette()), true);

function axis(c, name, more) {
	return Object.assign({ type: "value", name: name, nameLocation: "middle",
		nameTextStyle: { color: c.soft, fontSize: 12 }, nameGap: 30,
		axisLine: { show: true, lineStyle: { color: c.line } }, axisTick: { show: false },
		axisLabel: { color: c.soft, hideOverlap: true }, splitLine: { lineStyle: { color: c.line, opacity: .7 } },
	}, more);
}

function base(c) {
	return { animation: false, backgroundColor: "transparent",
		textStyle: { color: c.ink, fontFamily: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif" },
		grid: { left: 8, right: 22, top: 34, bottom: 34, containLabel: true },
		tooltip: { trigger: "item", confine: true, backgroundColor: c.card, borderColor: c.line,
			textStyle: { color: c.ink, fontSize: 12 } } };
}

// What the points of a series are laid out by: numbers where all have one, else their labels.
function setting(series, dims) {
	const numeric = series.points.every((p) => known(p.x)) && dims.length === 1;
	const hertz = dims.length === 1 && dims[0].unit === "Hz";
	return {
		numeric: numeric,
		x: series.points.map((p, i) => numeric ? (hertz ? p.x / 1e6 : p.x) : i),
		labels: series.points.map((p) => p.label),
		name: dims.map((d) => d.name).join(", ") +
			(dims.length === 1 && dims[0].unit ? " in " + (hertz ? "MHz" : dims[0].unit) : ""),
	};
}

function settingAxis(c, s) {
	if (!s.numeric)
		return axis(c, s.name, { type: "category", data: s.labels, boundaryGap: true });
	const low = Math.min(...s.x), high = Math.max(...s.x), pad = (high - low || high || 1) * 0.05;
	return axis(c, s.name, { min: Math.max(0, low - pad), max: high + pad,
		axisLabel: { color: c.soft, hideOverlap: true, showMinLabel: false, showMaxLabel: false } });
}

// Indexes of the points by their part: on the curve, off it (not kept to), the reference. The reference
// is a part of the curve too, where no other point has its place.
function parts(series) {
	const all = series.points.map((p, i) => i), at = (i) => series.points[i];
	const off = (i) => at(i).state === "violated";
	const twin = (i) => at(i).reference;
	const alone = (i) => known(at(i).x) && !all.some((k) => k !== i && at(k).x === at(i).x);
	return { curve: all.filter((i) => !off(i) && (!twin(i) || alone(i))).sort((a, b) => at(a).x - at(b).x),
		off: all.filter((i) => !twin(i) && off(i)), reference: all.filter(twin) };
}

const tip = (series, cols) => (p) => {
	const i = p.data && p.data.index;
	if (i === undefined)
		return "";
	const point = series.points[i], box = el("div", {}, el("b", {}, point.label +
		(point.reference ? " (reference)" : "")));
	for (const col of cols)
		box.append(el("br"), col.title + ": " + JM.estimate(col.mean[i], col.half[i]) + " " + col.unit);
	box.append(el("br"), [point.state, point.runs_ok + " runs", series.origin].filter(Boolean).join(", "));
	return box;
};

function whiskers(c, color, items) {
	return { type: "custom", silent: true, z: 3, data: items, encode: { x: 0, y: [1, 2] },
		renderItem: function (params, api) {
			const low = api.coord([api.value(0), api.value(1)]), high = api.coord([api.value(0), api.value(2)]);
			const style = { stroke: color, lineWidth: 1.4, fill: "none" };
			const bar = (y) => ({ type: "line", shape: { x1: low[0] - 4, x2: low[0] + 4, y1: y, y2: y }, style: style });
			return { type: "group", children: [bar(low[1]), bar(high[1]),
				{ type: "line", shape: { x1: low[0], x2: low[0], y1: low[1], y2: high[1] }, style: style }] };
		} };
}

// The 95 % band along a curve as one polygon.
function band(color, items) {
	return { type: "custom", silent: true, z: 1, data: items.length > 1 ? [[items[0][0], items[0][1]]] : [],
		renderItem: (params, api) => ({ type: "polygon", style: { fill: color },
			shape: { points: items.map((d) => api.coord([d[0], d[2]]))
				.concat(items.slice().reverse().map((d) => api.coord([d[0], d[1]]))) } }) };
}

function bestOf(series, metric) {
	const v = series.verdicts.find((x) => x.metric === metric);
	if (!v || v.kind === "none")
		return { text: "", at: [] };
	return v.kind === "best" ? { text: "best", at: [v.leading] } : { text: "no clear best", at: v.tied };
}

// Means of one metric against the setting, with the reference as a dashed level.
JM.chartSetting = function (series, dims, metric, verdict, note) {
	const s = setting(series, dims), col = JM.column(series, metric);

	if (series.reference !== null)
		note += " Dashed: the reference.";
	return panel(col.title[0].toUpperCase() + col.title.slice(1), note, function (c) {
		const part = parts(series), best = bestOf(series, verdict);
		const has = (i) => known(col.mean[i]);
		const item = (i) => ({ value: [s.x[i], col.mean[i]], index: i,
			label: { show: best.at.includes(i) && best.text === "best", formatter: "best", color: c.best,
				position: "top", fontWeight: "bold", distance: 8 },
			itemStyle: best.at.includes(i) && series.points[i].eligible ? { color: best.text === "best" ? c.best : c.main,
				borderColor: c.best, borderWidth: 2.5 } : undefined,
			symbolSize: best.at.includes(i) ? 11 : 7 });
		const spread = (list) => list.filter((i) => has(i) && col.half[i] > 0)
			.map((i) => [s.x[i], col.mean[i] - col.half[i], col.mean[i] + col.half[i]]);
		const ref = part.reference.filter(has), option = base(c);
		option.xAxis = settingAxis(c, s);
		option.yAxis = axis(c, "", { name: col.unit, nameLocation: "end", nameGap: 12, boundaryGap: [0, "12%"],
			nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -28] } });
		option.tooltip.formatter = tip(series, [col]);
		option.series = [band(c.band, spread(part.curve)), whiskers(c, c.main, spread(part.curve)),
			whiskers(c, c.off, spread(part.off)),
			{ type: "line", data: part.curve.filter(has).map(item), color: c.main,
				symbol: "circle", z: 4, lineStyle: { width: s.numeric ? 2 : 0, color: c.main } },
			{ type: "scatter", data: part.off.filter(has).map(item), symbol: "circle", symbolSize: 8, z: 4,
				itemStyle: { color: c.card, borderColor: c.off, borderWidth: 2 } },
			{ type: "scatter", data: ref.map(item), symbol: "diamond", symbolSize: 13, z: 5,
				itemStyle: { color: c.card, borderColor: c.ref, borderWidth: 2 },
				markLine: ref.length ? { silent: true, symbol: "none", lineStyle: { type: "dashed", color: c.ref, opacity: .8 },
					label: { show: false }, data: [{ yAxis: col.mean[ref[0]] }] } : undefined }];
		return option;
	});
};

// Efficiency against throughput, the setting along the curve.
JM.chartTrade = function (series, dims) {
	const x = JM.column(series, "throughput"), y = JM.column(series, "items_per_joule");
	return panel("Efficiency against throughput", "The setting runs along the curve; up and to the right is better.", function (c) {
		const part = parts(series), option = base(c);
		const has = (i) => known(x.mean[i]) && known(y.mean[i]);
		const item = (i) => ({ value: [x.mean[i], y.mean[i]], index: i });
		// Left of the curve where it climbs, right of it where it falls, above its peak: never on its line.
		const place = (i, list) => {
			const next = list[list.indexOf(i) + 1], before = list[list.indexOf(i) - 1];
			if (next === undefined)
				return before !== undefined && y.mean[i] < y.mean[before] ? "left" : "top";
			if (y.mean[next] > y.mean[i])
				return "left";
			return before !== undefined && y.mean[before] > y.mean[i] ? "right" : "top";
		};
		const label = (color, position) => ({ show: true, color: color, fontSize: 11, position: position, distance: 7,
			formatter: (p) => series.points[p.data.index].label });
		option.xAxis = axis(c, x.unit, { scale: true, boundaryGap: ["8%", "14%"],
			splitNumber: 4, axisLabel: { color: c.soft, hideOverlap: true, showMinLabel: false } });
		option.yAxis = axis(c, "", { name: y.unit, nameLocation: "end", nameGap: 12, scale: true, boundaryGap: ["8%", "15%"],
			nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -28] } });
		option.tooltip.formatter = tip(series, [x, y]);
		const bars = (list) => list.filter((i) => has(i) && y.half[i] > 0)
			.map((i) => [x.mean[i], y.mean[i] - y.half[i], y.mean[i] + y.half[i]]);
		option.series = [whiskers(c, c.main, bars(part.curve)),
			{ type: "line", data: part.curve.filter(has).map((i, k, list) =>
				Object.assign(item(i), { label: { position: place(i, list) } })), color: c.main, lineStyle: { width: 2, color: c.main },
				symbol: "circle", symbolSize: 8, z: 4, label: label(c.ink, "top") },
			{ type: "scatter", data: part.off.filter(has).map(item), symbol: "circle", symbolSize: 8, z: 4,
				itemStyle: { color: c.card, borderColor: c.off, borderWidth: 2 },
				label: Object.assign(label(c.off, "top"), { formatter: (p) => "(" + series.points[p.data.index].label + ")" }) },
			{ type: "scatter", data: part.reference.filter(has).map(item), symbol: "diamond", symbolSize: 14, z: 5,
				itemStyle: { color: c.card, borderColor: c.ref, borderWidth: 2 },
				label: Object.assign(label(c.ref, "bottom"), { formatter: "reference", distance: 9 }) }];
		return option;
	});
};

// Mean power against the cap: under the dashed line the cap was kept, above it was not.
JM.chartPower = function (series, dims) {
	const s = setting(series, dims), devices = series.meters || 1;
	const per = series.points.map((p) => known(p.metrics.watts_mean.mean) ? p.metrics.watts_mean.mean / devices : NaN);
	const col = { title: "mean power per meter", unit: "W", mean: per,
		half: series.points.map((p) => JM.half(p.metrics.watts_mean) / devices) };
	return panel("Power against the cap", "Mean power per meter; on the dashed line the work takes all that the cap allows.", function (c) {
		const part = parts(series), option = base(c);
		const has = (i) => known(per[i]) && known(s.x[i]);
		const item = (i) => ({ value: [s.x[i], per[i]], index: i });
		const xs = s.x.filter(known), low = Math.min(...xs), high = Math.max(...xs);
		option.xAxis = settingAxis(c, s);
		option.yAxis = axis(c, "", { name: "W", nameLocation: "end", nameGap: 12,
			nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -28] } });
		option.tooltip.formatter = tip(series, [col]);
		option.series = [
			{ type: "line", silent: true, symbol: "none", data: [[low, low], [high, high]],
				lineStyle: { type: "dashed", color: c.off, width: 1.5 },
				endLabel: { show: true, formatter: "cap", color: c.off, offset: [-26, -8] } },
			{ type: "line", data: part.curve.filter(has).map(item), symbol: "circle", symbolSize: 7,
				color: c.main, lineStyle: { width: 2, color: c.main }, z: 4 },
			{ type: "scatter", data: part.off.filter(has).map(item), symbol: "circle", symbolSize: 8, z: 4,
				itemStyle: { color: c.card, borderColor: c.off, borderWidth: 2 },
				label: { show: true, formatter: "not kept", position: "top", color: c.off, fontSize: 11 } },
			{ type: "scatter", data: part.reference.filter(has).map(item), symbol: "diamond", symbolSize: 13, z: 5,
				itemStyle: { color: c.card, borderColor: c.ref, borderWidth: 2 } }];
		return option;
	});
};

// EDP and each EDS relative to the reference; 1 is the reference, lower is better.
JM.chartProducts = function (series, dims, names) {
	const s = setting(series, dims), ref = series.points[series.reference];
	const cols = names.map((n) => JM.column(series, n)).filter((col) => col.any);
	for (const col of cols) {
		const one = col.mean[series.reference];
		if (!col.name.startsWith("eds"))
			Object.assign(col, { unit: "of the reference", mean: col.mean.map((v) => v / one),
				half: col.half.map((v) => v / one) });
		else
			col.unit = "";
	}
	return panel("Energy and delay together", "EDP and EDS relative to the reference (" + ref.label + "), the dashed line at 1; lower is better.", function (c) {
		const part = parts(series), option = base(c);
		option.color = c.many;
		option.legend = { top: 0, right: 0, textStyle: { color: c.soft }, itemWidth: 16, itemHeight: 8 };
		option.xAxis = settingAxis(c, s);
		option.yAxis = axis(c, "", { scale: true, boundaryGap: ["6%", "10%"] });
		option.tooltip.formatter = (p) => p.data && p.data.index !== undefined ?
			tip(series, [cols[p.data.col]])(p) : "";
		option.series = cols.map((col, k) => ({ type: "line", name: col.name.startsWith("eds") ? col.title : "EDP",
			data: part.curve.filter((i) => known(col.mean[i])).map((i) => ({ value: [s.x[i], col.mean[i]], index: i, col: k })),
			symbol: ["circle", "rect", "triangle", "roundRect"][k % 4], symbolSize: 7, lineStyle: { width: 2 },
			markLine: k ? undefined : { silent: true, symbol: "none", label: { show: false },
				lineStyle: { type: "dashed", color: c.ref }, data: [{ yAxis: 1 }] } }));
		return option;
	});
};

const shade = (c, name, i) => c.phase[{ warmup: 0, setup: 1, cooldown: 1, steady: 2, command: 2, verify: 3 }[name] ?? i % 4];

// Power over time of one run, with its phases shaded; trace: see report/trace.c.
JM.chartTrace = function (trace) {
	const state = { trace: trace };
	const chart = panel("Power over time", "", function (c) {
		const t = state.trace, option = base(c);
		const caps = [...new Set((t.caps || []).filter(known))];
		option.color = c.many;
		option.grid.top = 52;
		option.grid.bottom = 70;
		option.legend = { type: "scroll", selected: t.hidden, top: 0, left: 0, right: 0, textStyle: { color: c.soft }, itemWidth: 12, itemHeight: 12, icon: "circle",
			pageTextStyle: { color: c.soft }, pageIconColor: c.soft, pageIconInactiveColor: c.line };
		option.xAxis = axis(c, "seconds", { min: t.start_s, max: t.end_s, nameGap: 24,
			axisLabel: { color: c.soft, hideOverlap: true, showMaxLabel: false } });
		option.yAxis = axis(c, "", { name: "W", nameLocation: "end", nameGap: 8, boundaryGap: [0, "8%"],
			nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -28] } });
		option.tooltip = Object.assign(option.tooltip, { trigger: "axis", axisPointer: { lineStyle: { color: c.soft } },
			formatter: (list) => el("div", {}, el("b", {}, list[0].value[0].toFixed(2) + " s"),
				list.filter((p) => p.data.index !== undefined).slice(0, 12).map((p) => [el("br"), p.seriesName + ": " + p.value[1].toFixed(1) + " W"])) });
		option.dataZoom = [{ type: "inside", filterMode: "none" },
			{ type: "slider", height: 18, bottom: 6, filterMode: "none", borderColor: c.line, textStyle: { color: c.soft },
				fillerColor: c.band, handleStyle: { color: c.card, borderColor: c.soft },
				dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } } }];
		option.series = t.meters.map((m, k) => ({ type: "line", name: m.label, symbol: "none", step: "end",
			lineStyle: { width: 1.3 }, data: m.points.map((d) => ({ value: d, index: k })), connectNulls: false,
			markArea: k ? undefined : { silent: true, label: { color: c.soft, fontSize: 11, position: "insideTop" },
				data: t.phases.map((p, i) => [{ name: p.name, xAxis: p.start_s,
					label: { show: p.end_s - p.start_s > 0.05 * (t.end_s - t.start_s) }, itemStyle: { color: shade(c, p.name, i) } },
					{ xAxis: p.end_s }]) },
			markLine: k || !caps.length ? undefined : { silent: true, symbol: "none",
				lineStyle: { type: "dashed", color: c.ref }, label: { formatter: "cap {c} W", position: "insideEndTop", color: c.ref, fontSize: 11 },
				data: caps.map((w) => ({ yAxis: w })) } }));
		return option;
	}, true);
	chart.show = function (other) {
		state.trace = other;
		JM.redraw(chart);
	};
	return chart;
};
})();
