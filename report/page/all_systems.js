// SPDX-License-Identifier: Apache-2.0
// Charts across systems: the plane of efficiency and throughput, bars of one metric, the matrix of two axes, scaling over
// devices.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, parts, tip, whiskers, bars } = JM;

	const hasTrade = (s) =>
		s.points.some((p) => known(p.metrics.throughput.mean) && known(p.metrics.items_per_joule.mean));

	function drawSystem(c, s, name, color, many, labelLayout) {
		const x = JM.column(s, "throughput"),
			y = JM.column(s, "items_per_joule"),
			part = parts(s),
			chosen = s.within.at;
		const has = (i) => known(x.mean[i]) && known(y.mean[i]);
		const all = part.curve.concat(part.off, part.reference).filter(has);
		const place = JM.setting(s);
		const text = (i, brief) => {
			const label = brief ? place.brief(i) : JM.named(s, s.points[i]);
			return s.points[i].state === "violated" ? "(" + label + ")" : label;
		};
		const nearAxis = (i) => x.mean[i] < 0.12 * Math.max(...x.mean.filter(known)); // where a label would lie on it
		const ahead = (i, k, list) => k === list.length - 1 && list.every((j) => x.mean[j] <= x.mean[i]);
		const item = (i, k, list) => ({
			value: [x.mean[i], y.mean[i]],
			index: i,
			label: {
				show: !many || chosen.includes(i) || i === list[0],
				formatter: text(i, k > 0),
				position: k === 0 && place.lines.length > 1 ? "bottom" : k === 0 && !nearAxis(i) ? "left" : ahead(i, k, list) ? "right" : "top",
			},
			itemStyle: chosen.includes(i) ? { borderColor: c.best, borderWidth: 3 } : undefined,
			symbolSize: chosen.includes(i) ? 12 : 8,
		});
		const label = { show: true, color: c.ink, fontSize: 11, distance: 7, backgroundColor: c.card, padding: [1, 2] };
		const on = { tooltip: { formatter: tip(s, [x, y], many ? name : "") }, labelLayout: labelLayout };
		const off = part.off
			.filter(has)
			.map((i) => Object.assign(item(i, 1, []), { label: { show: !many, formatter: text(i), position: "top" } }));
		const reference = part.reference.filter(has).map((i) => ({ value: [x.mean[i], y.mean[i]], index: i }));
		const numeric = s.points.every((p) => p.state === "violated" || known(p.x));
		return [
			whiskers(
				color,
				all.filter((i) => y.half[i] > 0).map((i) => [x.mean[i], y.low[i], y.mean[i] + y.half[i]]),
			),
			whiskers(
				color,
				all.filter((i) => x.half[i] > 0).map((i) => [y.mean[i], x.low[i], x.mean[i] + x.half[i]]),
				true,
			),
			...place.lines.map((one) => Object.assign(
				{
					type: "line",
					name: name,
					data: one.of(part.curve.filter(has)).map(item),
					color: color,
					lineStyle: { width: numeric ? 2 : 0, color: color },
					symbol: "circle",
					z: 4,
					label: label,
				},
				on,
			)),
			Object.assign(JM.offPoints(c, off), { label: Object.assign({}, label, { color: c.soft }) }, on),
			Object.assign(
				JM.referencePoints(c, reference, {
					label: {
						show: !many,
						formatter: "reference",
						position: "bottom",
						color: c.ref,
						fontSize: 11,
						distance: 9,
					},
				}),
				on,
			),
		];
	}

	// Lines of equal EDP and of equal EDS (k) through the reference of a system. With throughput T = 1/d and
	// efficiency E = 1/e: E = E_ref T_ref / T, and E = (k-1)/k E_ref / (1 - T_ref / (k T)).
	function isoLines(c, s, ks, most) {
		const ref = s.points[s.reference].metrics,
			t = ref.throughput.mean,
			e = ref.items_per_joule.mean,
			top = most.y;
		const line = (name, of, k) => {
			const data = [];
			for (let i = 1; i <= 240; i++) {
				const x = (most.x * i) / 240,
					y = of(x);
				if (known(y) && y > 0 && y <= top) data.push([x, y]);
			}
			return {
				type: "line",
				silent: true,
				symbol: "none",
				z: 1,
				data: data.reverse(),
				lineStyle: { width: 1.2, type: k ? "dotted" : "dashed", color: c.off },
				endLabel: { show: true, formatter: name, color: c.soft, fontSize: 11, align: "center", offset: [-6, -9] },
			};
		};
		return [line("EDP", (x) => (e * t) / x, 0)].concat(
			ks.map((k, i) => line("EDS " + k, (x) => (x > t / k ? (((k - 1) / k) * e) / (1 - t / (k * x)) : NaN), i + 1)),
		);
	}

	// Points of the line, and the name at its end.
	const dotted = (c, data, name, offset) => ({
		type: "line",
		silent: true,
		symbol: "none",
		z: 1,
		data: data,
		lineStyle: { width: 1.2, type: "dotted", color: c.soft },
		endLabel: { show: true, formatter: name, color: c.soft, fontSize: 11, align: "right", offset: offset },
	});

	// The best setting is chosen on this line and to its right.
	function limitLine(c, s, top) {
		const x = JM.limit(s.points[s.reference].metrics.throughput.mean);
		return dotted(c, [[x, top], [x, 0]], JM.limitName, [-10, -9]);
	}

	// Of a budget of power P: efficiency = throughput / P; the settings above this line are within it.
	function budgetLine(c, most) {
		const watts = JM.S.budget_watts,
			x = Math.min(most.x, most.y * watts);
		return dotted(c, [[0, 0], [x, x / watts]], JM.plain(watts) + " W", [-16, -10]);
	}

	// The settings of all systems that no other one beats: as fast and as efficient, and better in one of the two.
	function paretoFront(group) {
		const all = group.flatMap((s) => {
			const x = JM.column(s, "throughput").mean,
				y = JM.column(s, "items_per_joule").mean;
			return s.points.filter((p) => p.eligible && known(x[p.index]) && known(y[p.index])).map((p) => [x[p.index], y[p.index]]);
		});
		const beats = (a, b) => a[0] >= b[0] && a[1] >= b[1] && (a[0] > b[0] || a[1] > b[1]);
		return all.filter((p) => !all.some((q) => beats(q, p))).sort((a, b) => a[0] - b[0]);
	}
	const FRONT = "Pareto front";
	const frontLine = (c, points) => ({
		type: "line",
		name: FRONT,
		silent: true,
		symbol: "none",
		z: 1,
		data: points,
		color: c.off,
		lineStyle: { width: 7, color: c.off, opacity: 0.35, cap: "round", join: "round" },
	});

	const extent = (group, metric) =>
		Math.max(...group.flatMap((s) => JM.column(s, metric).mean.filter(known)));

	// Efficiency against throughput of all systems that did the same work; both axes start at 0.
	function systemsOption(c, work, iso) {
		const group = work.series.filter(hasTrade),
			many = group.length > 1,
			name = JM.systemNames(group),
			unit = (metric) => JM.column(group[0], metric).unit;
		const most = { x: 1.08 * extent(group, "throughput"), y: 1.15 * extent(group, "items_per_joule") };
		const out = base(c);
		out.grid.right = 30;
		out.xAxis = axis(c, unit("throughput"), { min: 0, splitNumber: 5, boundaryGap: [0, "6%"] });
		out.yAxis = valueAxis(c, unit("items_per_joule"), { min: 0, boundaryGap: [0, "12%"] });
		if (many)
			out.legend = { type: "scroll", top: 0, right: 0, left: 90, data: name.concat(FRONT), textStyle: { color: c.soft }, inactiveColor: c.off };
		const places = JM.labelPlaces();
		out.series = group.flatMap((s, k) =>
			drawSystem(c, s, name[k], many ? c.many[k % c.many.length] : c.main, many, places),
		);
		if (many) out.series.unshift(frontLine(c, paretoFront(group)));
		const first = group.find((s) => s.reference !== null && known(s.points[s.reference].metrics.items_per_joule.mean));
		if (JM.S.budget_watts) out.series.push(budgetLine(c, most));
		if (!many && first && JM.limited) out.series.push(limitLine(c, first, extent(group, "items_per_joule")));
		if (iso && first) out.series.push(...isoLines(c, first, JM.S.eds_k, most));
		return out;
	}

	const hasReference = (work) => work.series.some((s) => s.reference !== null);
	const hasInterval = (work) => work.series.some((s) => s.points.some((p) => p.runs_ok > 1));
	const systemsNote = (work, iso) =>
		"Up and to the right is better. Both axes start at 0" +
		(hasInterval(work) ? "; bars are 95\u00a0% intervals." : ".") +
		(hasReference(work)
			? " Diamond: the reference; green ring: " + JM.nbsp(JM.S.objective_text) + ", or those that cannot be told apart." +
				(work.series.length > 1 || !JM.limited ? "" : " Dotted line: " + JM.limitName + " than the reference; the best setting is on it or to its right.")
			: "") +
		(JM.S.budget_watts ? " Dotted line: a mean power of " + JM.plain(JM.S.budget_watts) + "\u00a0W; settings above it draw less." : "") +
		(work.series.length > 1 ? " Pareto front: the settings that no other one beats in both." : "") +
		(iso && hasReference(work)
			? " Grey lines: as good as the reference" +
				(work.series.length > 1 ? " of " + JM.systemNames(work.series)[0] : "") +
				" by EDP (energy \u00d7 time) and by EDS k (Energy Delay Sum: (1\u00a0\u2212\u00a01/k) of the energy + 1/k of the time); " +
				"what lies above a line is better."
			: "");

	function systemsTable(work) {
		const rows = work.series.filter(hasTrade).flatMap((s) => s.points.map((p) => [s, p]));
		const value = (metric) => ([s, p]) => JM.estimateOf(p.metrics[metric]);
		const unit = (metric) => work.series[0].metrics[metric].unit;
		return JM.table(
			[
				{ title: "system", left: true, of: ([s]) => s.title },
				{ title: "setting", left: true, of: ([s, p]) => JM.named(s, p) + (p.reference ? " (reference)" : "") },
				{ title: "throughput", unit: unit("throughput"), of: value("throughput") },
				{ title: "efficiency", unit: unit("items_per_joule"), of: value("items_per_joule") },
			],
			rows,
		);
	}

	// One panel; where there are several works, one is chosen. A single system needs two settings to be worth it.
	JM.systems = function (id) {
		const works = JM.works.filter(
			(w) => w.series.some(hasTrade) && (w.series.length > 1 || w.series[0].points.length > 1),
		);
		if (!works.length) return null;
		const state = { work: works[0], iso: works[0].series.length === 1 && window.innerWidth > 640 };
		const named = (w) => "Efficiency against throughput" + (JM.works.length > 1 || w.series.length > 1 ? ": " + w.title : "");
		const select =
			works.length > 1
				? el(
						"select",
						{ "aria-label": "work", onchange: (e) => chart.show(works[e.target.value]) },
						works.map((w, i) => el("option", { value: i }, w.title)),
					)
				: null;
		const box = el("input", { type: "checkbox", checked: state.iso, onchange: (e) => chart.lines(e.target.checked) });
		const chart = panel(named(state.work), systemsNote(state.work, state.iso), (c) => systemsOption(c, state.work, state.iso), {
			id: id,
			tall: true,
			tools: [select, works.some(hasReference) ? el("label", { class: "small soft" }, box, " lines of equal EDP and EDS") : null],
			table: () => systemsTable(state.work),
		});
		function update() {
			chart.node.querySelector("h3").firstChild.textContent = named(state.work);
			chart.node.querySelector("p.note").textContent = systemsNote(state.work, state.iso);
			const open = chart.node.querySelector("details.behind");
			if (open.open) open.open = false;
			JM.redraw(chart);
		}
		chart.show = function (work) {
			if (!works.includes(work)) return;
			state.work = work;
			if (select) select.value = works.indexOf(work);
			update();
		};
		chart.lines = function (on) {
			state.iso = on;
			update();
		};
		return chart;
	};

	// ---- bars: one metric of all systems of a work, at the reference and at the best setting ----------------------

	const BARS = ["items_per_joule", "joules_per_item", "throughput", "watts_mean"];
	const referenceOf = (s) => s.points[s.reference ?? 0];
	const bestOf = (s) => (s.within.kind === "none" ? null : s.points[s.within.leading]);

	function barsOption(c, work, metric) {
		const out = base(c),
			scale = JM.scale(work.series[0].metrics[metric].unit, work.series.map((s) => referenceOf(s).metrics[metric].mean));
		const any = work.series.some(bestOf),
			kinds = [[referenceOf, c.off, "reference"], [bestOf, c.best, "best"]].slice(0, any ? 2 : 1);
		const names = JM.systemNames(work.series);
		out.xAxis = axis(c, "", { type: "category", data: names, axisLabel: { color: c.soft, interval: 0, lineHeight: 14, formatter: (v) => v.replace(/,(?=\S)/g, ", "), width: Math.max(60, Math.floor(400 / names.length)), overflow: names.length > 6 ? "truncate" : "break" } });
		out.yAxis = valueAxis(c, scale.unit, { min: 0, boundaryGap: [0, "8%"] });
		if (any) out.legend = { top: 0, right: 0, data: ["reference", "best"], textStyle: { color: c.soft }, inactiveColor: c.off, itemWidth: 12, itemHeight: 12, icon: "roundRect" };
		out.tooltip.formatter = function (p) {
			const s = work.series[p.value[0]],
				point = kinds.find((k) => k[2] === p.seriesName)[0](s),
				m = point.metrics[metric];
			return el("div", {}, el("b", {}, names[p.value[0]] + ", " + point.label), el("br"), JM.estimate(m.mean / scale.factor, m.half / scale.factor) + " " + scale.unit);
		};
		out.series = kinds.map(function ([of, color, name], k) {
			const items = work.series
				.map((s, i) => [i, of(s) && of(s).metrics[metric]])
				.filter(([, m]) => m && known(m.mean))
				.map(([i, m]) => [i, 0, m.mean, JM.lowEnd(metric, m.mean, m.half), m.mean + m.half].map((v, n) => (n ? v / scale.factor : v)));
			return Object.assign(bars(color, items, any ? 0.35 : 0.5, any ? k - 0.5 : 0, c.ink), { name: name });
		});
		return out;
	}

	function barsTable(work, metric) {
		const value = (of) => (s) => (of(s) ? JM.estimateOf(of(s).metrics[metric]) : "\u2013"),
			unit = work.series[0].metrics[metric].unit;
		return JM.table(
			[
				{ title: "system", left: true, of: (s) => s.title },
				{ title: "reference", left: true, of: (s) => JM.named(s, referenceOf(s)) },
				{ title: "at the reference", unit: unit, of: value(referenceOf) },
				{ title: "best", left: true, of: (s) => (bestOf(s) ? JM.named(s, bestOf(s)) : "\u2013") },
				{ title: "at the best", unit: unit, of: value(bestOf) },
			],
			work.series,
			{ csv: "systems" },
		);
	}

	JM.comparison = function (id) {
		const works = JM.works.filter((w) => w.series.length > 1);
		const usable = (w) => BARS.filter((name) => w.series.some((s) => known(referenceOf(s).metrics[name].mean)));
		const state = { work: works.find((w) => usable(w).length) };
		if (!state.work) return null;
		state.metric = usable(state.work)[0];
		const choice = (label, rows, chosen) =>
			el("select", { "aria-label": label, onchange: (e) => chosen(e.target.value) }, rows.map(([v, text]) => el("option", { value: v }, text)));
		const named = () => "Systems compared" + (JM.works.length > 1 ? ": " + state.work.title : "");
		const changed = () => {
			chart.node.querySelector("h3").firstChild.textContent = named();
			chart.node.querySelector("details.behind").open = false;
			JM.redraw(chart);
		};
		const chart = panel(
			named(),
			"Bars start at 0; lines are 95\u00a0% intervals. Reference: the setting with which the others of a system are compared, or the first one. Best: the setting with the " +
				JM.nbsp(JM.S.objective_text) + "; of several that cannot be told apart that with the best mean.",
			(c) => barsOption(c, state.work, state.metric),
			{
				id: id,
				tools: [
					works.length > 1 &&
						choice("work of the bars", works.map((w, i) => [i, w.title]), (i) => {
							state.work = works[i];
							changed();
						}),
					choice("metric of the bars", usable(state.work).map((n) => [n, state.work.series[0].metrics[n].title]), (n) => {
						state.metric = n;
						changed();
					}),
				],
				table: () => barsTable(state.work, state.metric),
			},
		);
		return chart;
	};

	// ---- two axes: batch x devices -----------------------------------------------------------------------------

	const NOT_WORK = /^(device|source|control|batch|ranks|devices|gpus|nodes)$/;
	const SIZE = /^(m|n|k|size|bytes|elements|sequence|heads)$/; // of a kernel: each has a series of its own
	const systemOf = (s) => s.title.replace(/^.*? on /, "").replace(/,.*$/, "");
	const anySize = (s) => JM.identity(s, ([path, name]) => !NOT_WORK.test(name) && !SIZE.test(name) && !/^settings\//.test(path));

	// One cell for each point: what it is laid out by.
	function attributes(s, p) {
		const out = { system: systemOf(s) };
		for (const [, name, v] of JM.parameters(s)) out[name] = String(v);
		JM.S.dimensions.forEach((d, i) => (out[d.name] = p.settings[i].text));
		return out;
	}

	// The metric's value in a cell, or why there is none; old records name no kind of failure.
	function cellOf(list, metric) {
		const good = list.map(([, p]) => p.metrics[metric].mean).filter(known);
		if (good.length) return { value: Math.max(...good) };
		const runs = list.flatMap(([s, p]) => JM.runsOf(s, p.index)),
			reason = runs.map((i) => JM.run("reason", i)).find(Boolean);
		const isMemory = (i) => (JM.run("failure", i) ? JM.run("failure", i) === "memory" : /out of memory/i.test(JM.run("reason", i)));
		return { word: !list.length ? "" : runs.some(isMemory) ? "OOM" : reason ? "failed" : "unknown", reason: reason };
	}

	const inOrder = (list) =>
		[...new Set(list)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));

	// Axes with the same value in each cell, as m, n and k of a square product, are one: "m = n = k".
	function joinEqual(cells, names) {
		const same = (a, b) => cells.every((x) => x.at[a] === x.at[b]);
		const first = names.filter((n, i) => !names.slice(0, i).some((o) => same(o, n)));
		return first.map(function (n) {
			const joined = names.filter((o) => same(o, n)).join(" = ");
			for (const x of cells) x.at[joined] = x.at[n];
			return joined;
		});
	}

	// Which two axes span a matrix for these points; null: they do not.
	function axesOf(cells) {
		const distinct = (name) => new Set(cells.map((x) => x.at[name])).size;
		const names = [...new Set(cells.flatMap((x) => Object.keys(x.at)))].filter((n) => distinct(n) > 1);
		const rank = (n) => ["batch", "devices", "gpus", "ranks", "system", "device"].indexOf(n);
		names.sort((a, b) => (rank(a) < 0 ? 9 : rank(a)) - (rank(b) < 0 ? 9 : rank(b)));
		const use = joinEqual(cells, names.filter((n) => !(n === "device" && names.includes("system"))));
		const dims = JM.S.dimensions.map((d) => d.name);
		const swept = (n) => n.split(" = ").every((part) => dims.includes(part) || SIZE.test(part));
		if (use.includes("batch") && use.length >= 2) return use.slice(0, 2);
		return use.length === 2 && use.every(swept) ? use : null;
	}

	const DIGIT = 7; // px, of a digit in a cell
	function matrixOption(c, m) {
		const out = base(c),
			values = m.grid.flat().filter((x) => known(x.value)).map((x) => x.value),
			high = Math.max(...values),
			low = Math.min(...values, high);
		const list = m.grid.flatMap((row, y) => row.map((cell, x) => [x, y, cell]));
		const separated = values.some((v) => JM.isApart(JM.plain(v)));
		const brief = (v) => (v >= 1e6 ? +(v / 1e6).toPrecision(3) + "M" : v >= 1e3 ? +(v / 1e3).toPrecision(3) + "k" : String(+v.toPrecision(2)));
		const shown = function (v, room) {
			const whole = separated ? JM.apartAll(JM.plain(v)) : JM.plain(v);
			return DIGIT * whole.length < room ? whole : brief(v);
		};
		out.xAxis = axis(c, m.x, { type: "category", data: m.xs, splitLine: { show: false } });
		out.yAxis = axis(c, m.y, { type: "category", data: m.ys, nameLocation: "end", nameGap: 8, splitLine: { show: false } });
		out.tooltip.formatter = function (p) {
			const cell = list[p.dataIndex][2];
			return el(
				"div",
				{},
				el("b", {}, m.xs[list[p.dataIndex][0]] + ", " + m.ys[list[p.dataIndex][1]]),
				el("br"),
				known(cell.value) ? JM.plain(cell.value) + " " + m.unit : cell.word || "not run",
				cell.reason && !known(cell.value) ? [el("br"), cell.reason] : null,
			);
		};
		out.series = [
			{
				type: "custom",
				data: list.map(([x, y]) => [x, y]),
				renderItem: function (params, api) {
					const cell = list[params.dataIndex][2],
						[w, h] = api.size([1, 1]),
						[x, y] = api.coord([api.value(0), api.value(1)]);
					const part = high > low ? (cell.value - low) / (high - low) : 1;
					const shape = { x: x - w / 2 + 1, y: y - h / 2 + 1, width: w - 2, height: h - 2 };
					const filled = known(cell.value);
					const stripes = [];
					for (let k = -shape.height; !filled && cell.word && k < shape.width; k += 8)
						stripes.push({
							type: "line",
							shape: {
								x1: shape.x + Math.max(0, k),
								y1: shape.y + Math.max(0, -k),
								x2: shape.x + Math.min(shape.width, k + shape.height),
								y2: shape.y + Math.min(shape.height, shape.width - k),
							},
							style: { stroke: c.line, lineWidth: 1 },
						});
					return {
						type: "group",
						children: [
							{
								type: "rect",
								shape: shape,
								style: { fill: filled ? c.heat(part) : c.card, stroke: c.line, lineWidth: 1 },
							},
							...stripes,
							{
								type: "text",
								style: {
									x: x,
									y: y,
									text: filled ? shown(cell.value, w) : cell.word,
									align: "center",
									verticalAlign: "middle",
									fontSize: w < 7 * DIGIT ? 10 : 12,
									fill: filled ? c.onHeat(part) : c.soft,
								},
							},
						],
					};
				},
			},
		];
		return out;
	}

	function matrixTable(m) {
		return JM.table(
			[{ title: m.y, left: true, of: (row) => m.ys[row.y] }].concat(
				m.xs.map((x, i) => ({
					title: m.x + " " + x,
					unit: m.unit,
					of: (row) => (known(row.cells[i].value) ? JM.plain(row.cells[i].value) : row.cells[i].word || "not run"),
				})),
			),
			m.grid.map((cells, y) => ({ y: y, cells: cells })),
		);
	}

	function matrixPanel(series, cells, names, id) {
		const metrics = ["throughput", "items_per_joule"].filter((name) =>
			cells.some((x) => known(x.p.metrics[name].mean)),
		);
		const [x, y] = names,
			m = { x: x, y: y, xs: inOrder(cells.map((q) => q.at[x])), ys: inOrder(cells.map((q) => q.at[y])) };
		const fill = (metric) => {
			m.unit = series[0].metrics[metric].unit;
			m.grid = m.ys.map((v) =>
				m.xs.map((u) => cellOf(cells.filter((q) => q.at[x] === u && q.at[y] === v).map((q) => [q.s, q.p]), metric)),
			);
		};
		if (!metrics.length) return null;
		fill(metrics[0]);
		const select = el(
			"select",
			{
				"aria-label": "metric of the matrix",
				onchange: (e) => {
					fill(e.target.value);
					JM.redraw(chart);
				},
			},
			metrics.map((name) => el("option", { value: name }, series[0].metrics[name].title + " in " + series[0].metrics[name].unit)),
		);
		const chart = panel(
			x + " \u00d7 " + y + ": " + series[0].work.title.replace(/, .*$/, ""),
			"Of several settings in one cell the best. Hatched: no run succeeded (OOM: out of memory); empty: not run.",
			(c) => matrixOption(c, m),
			{ id: id, tools: select, table: () => matrixTable(m) },
		);
		return chart;
	}

	// Matrices of all families of works that have two axes.
	JM.matrices = function () {
		return JM.grouped(anySize)
			.map(function (series, i) {
				const cells = series.flatMap((s) => s.points.map((p) => ({ s: s, p: p, at: attributes(s, p) })));
				const names = axesOf(cells);
				return names ? matrixPanel(series, cells, names, "matrix" + (i + 1)) : null;
			})
			.filter(Boolean);
	};

	// ---- scaling over devices ----------------------------------------------------------------------------------

	JM.scalings = () => JM.S.scalings.map((one, i) => scalingPanel(one, "scaling" + (i + 1)));

	function scalingPanel(one, id) {
		const rows = one.rows,
			first = rows[0],
			unit = one.item + "/s";
		const option = function (c) {
			const out = base(c),
				most = rows[rows.length - 1].devices;
			out.xAxis = axis(c, "devices", { min: 0, max: most * 1.08, minInterval: 1, axisLabel: { color: c.soft, showMaxLabel: false } });
			out.yAxis = valueAxis(c, unit, { min: 0, boundaryGap: [0, "10%"] });
			out.tooltip.formatter = (p) =>
				p.data && p.data.row !== undefined
					? rows[p.data.row].devices + " devices: " + JM.plain(rows[p.data.row].mean) + " " + unit
					: "";
			out.series = [
				{
					type: "line",
					silent: true,
					symbol: "none",
					data: [
						[0, 0],
						[most, (first.mean * most) / first.devices],
					],
					lineStyle: { type: "dashed", color: c.off, width: 1.5 },
				},
				whiskers(
					c.main,
					rows.filter((r) => r.high > r.low).map((r) => [r.devices, r.low, r.high]),
				),
				{
					type: "line",
					color: c.main,
					symbol: "circle",
					symbolSize: 8,
					lineStyle: { width: 2 },
					data: rows.map((r, k) => ({
						value: [r.devices, r.mean],
						row: k,
						label: { show: k > 0, formatter: r.share.toFixed(0) + " %", position: "bottom", color: c.soft },
					})),
				},
			];
			return out;
		};
		return panel("Scaling: " + one.title, JM.S.scaling_caption + " Dashed: the ideal; per cent of it at each point.", option, {
			id: id,
			table: () => JM.grid(one.table, { limit: 24, csv: "scaling" }),
		});
	}
})();
