// SPDX-License-Identifier: Apache-2.0
// The charts of one system, each metric against the setting. Each takes a series and gives a chart with its panel.
"use strict";
(function () {
	const { known, panel, axis, valueAxis, base, setting, settingAxis, parts } = JM,
		{ offPoints, referencePoints, tip, line, whiskers, band, bestOf } = JM;

	const spread = (s, col, list) =>
		list
			.filter((i) => known(col.mean[i]) && col.half[i] > 0)
			.map((i) => [s.x[i], col.low[i], col.mean[i] + col.half[i]]);
	const dashed = (color, at, more = []) => ({
		silent: true,
		symbol: "none",
		lineStyle: { type: "dashed", color: color, opacity: 0.8 },
		label: { show: false },
		data: [{ yAxis: at }, ...more],
	});
	const limitLine = (c, at) => ({
		yAxis: JM.limit(at),
		lineStyle: { type: "dotted", color: c.soft, opacity: 1 },
		label: { show: true, position: "insideStartBottom", color: c.soft, fontSize: 11, formatter: JM.limitName },
	});

	const namesOfLines = (c, s) => ({ type: "scroll", top: 0, right: 0, left: 90, data: s.lines.map((one) => one.name), textStyle: { color: c.soft }, inactiveColor: c.off });

	// --ttft and --tpot, in s; NaN = not given, or an axis.
	function boundOf(series, metric) {
		const name = { ttft_p99_s: "ttft", tpot_p99_s: "tpot" }[metric];
		const axis = JM.dims(series).some((dim) => dim.name === name);
		return name && !axis ? parseFloat(((series.parameters || {}).options || {})[name]) : NaN;
	}

	// Means of one metric against the setting, with the reference as a dashed level.
	JM.chartSetting = function (series, metric, verdict, note) {
		const s = setting(series),
			col = JM.column(series, metric),
			part = parts(series),
			bound = boundOf(series, metric) / col.factor;
		if (known(bound)) note += " Dotted: the bound --" + metric.split("_")[0] + ".";
		if (series.reference !== null)
			note += " Dashed: the reference." + (metric === "throughput" && JM.limited ? " Dotted: " + JM.limitName + " than it." : "");
		if (s.lines.length > 1) note += " A line for each value of " + s.of + ".";
		if (part.off.length) note += " Grey circles: caps that were violated.";
		const option = function (c) {
			const best = bestOf(series, verdict),
				ends = [Math.min(...s.x.filter(known)), Math.max(...s.x.filter(known))];
			const has = (i) => known(col.mean[i]),
				isBest = (i) => best.at.includes(i);
			const item = (i) => ({
				value: [s.x[i], col.mean[i]],
				index: i,
				label: {
					show: isBest(i) && best.text === "best",
					formatter: col.better > 0 ? "highest" : "lowest",
					color: c.best,
					position: "top",
					align: s.x[i] === ends[0] ? "left" : s.x[i] === ends[1] ? "right" : undefined, // inside the chart
					fontWeight: "bold",
					distance: 8,
				},
				itemStyle:
					isBest(i) && series.points[i].eligible
						? { color: best.text === "best" ? c.best : undefined, borderColor: c.best, borderWidth: 2.5 }
						: undefined,
				symbolSize: isBest(i) ? 11 : 7,
			});
			const ref = part.reference.filter(has),
				out = base(c);
			if (s.lines.length > 1) out.legend = namesOfLines(c, s);
			out.xAxis = settingAxis(c, s);
			out.yAxis = valueAxis(c, col.unit, { boundaryGap: [0, "12%"] });
			out.tooltip.formatter = tip(series, [col]);
			out.series = [
				band(c.band, s.numeric && s.lines.length === 1 ? spread(s, col, part.curve) : []),
				whiskers(c.off, spread(s, col, part.off)),
				...s.lines.flatMap(function (one, k) {
					const color = s.lines.length > 1 ? c.many[k] : c.main,
						list = one.of(part.curve.filter(has));
					return [
						whiskers(color, spread(s, col, list)),
						{
							type: "line",
							name: one.name,
							data: list.map(item),
							color: color,
							symbol: "circle",
							z: 4,
							lineStyle: { width: s.numeric ? 2 : 0, color: color },
						},
					];
				}),
				{
					type: "line",
					silent: true,
					symbol: "none",
					data: known(bound) ? ends.map((x) => [x, bound]) : [],
					lineStyle: { type: "dotted", color: c.off, width: 1.5 },
				},
				offPoints(c, part.off.filter(has).map(item)),
				referencePoints(c, ref.map(item), {
					markLine: ref.length
						? dashed(c.ref, col.mean[ref[0]], metric === "throughput" && JM.limited ? [limitLine(c, col.mean[ref[0]])] : [])
						: undefined,
				}),
			];
			return out;
		};
		return panel(col.title[0].toUpperCase() + col.title.slice(1), note, option, {
			id: series.id + "/" + metric,
			table: () => JM.metricTable(series, [metric]),
		});
	};

	// Mean power of a device against its cap: below the dashed line the work needed less than the cap allows.
	JM.chartPower = function (series, per) {
		const s = setting(series),
			part = parts(series);
		const col = { title: "mean power per device", unit: "W", mean: per, half: [] };
		const option = function (c) {
			const out = base(c);
			const has = (i) => known(per[i]) && known(s.x[i]);
			const item = (i) => ({ value: [s.x[i], per[i]], index: i });
			const xs = s.x.filter(known),
				low = Math.min(...xs),
				high = Math.max(...xs);
			out.xAxis = settingAxis(c, s);
			out.yAxis = valueAxis(c, "W");
			out.tooltip.formatter = tip(series, [col]);
			out.series = [
				{
					type: "line",
					silent: true,
					symbol: "none",
					data: [
						[low, low],
						[high, high],
					],
					lineStyle: { type: "dashed", color: c.off, width: 1.5 },
				},
				{
					type: "line",
					data: part.curve.filter(has).map(item),
					symbol: "circle",
					symbolSize: 7,
					color: c.main,
					lineStyle: { width: 2, color: c.main },
					z: 4,
				},
				offPoints(c, part.off.filter(has).map(item), {
					label: {
						show: true,
						formatter: (p) => "(" + series.points[p.data.index].label + ")",
						position: "top",
						color: c.soft,
						fontSize: 11,
					},
					labelLayout: { hideOverlap: true },
				}),
				referencePoints(c, part.reference.filter(has).map(item)),
			];
			return out;
		};
		const note =
			"Mean power per device. Dashed: the cap; on it the work takes all that the cap allows, above it the cap was violated (in parentheses).";
		return panel("Power against the cap", note, option, {
			id: series.id + "/power",
			table: () => JM.pointTable(series, [{ title: "mean power per device", unit: "W", of: (p) => JM.plain(per[p.index]) }]),
		});
	};

	// EDP and each EDS relative to the reference; 1 is the reference, lower is better.
	JM.chartProducts = function (series, names) {
		const s = setting(series),
			ref = series.points[series.reference];
		const cols = names.map((n) => JM.column(series, n)).filter((col) => col.any);
		for (const col of cols) {
			const one = col.mean[series.reference];
			col.short = col.name.startsWith("eds") ? col.title : col.name.toUpperCase();
			if (!col.name.startsWith("eds"))
				Object.assign(col, {
					unit: "of the reference",
					mean: col.mean.map((v) => v / one),
					half: col.half.map((v) => v / one),
				});
			else col.unit = "";
		}
		const option = function (c) {
			const part = parts(series),
				out = base(c);
			out.color = c.many;
			out.legend = { top: 0, right: 0, textStyle: { color: c.soft }, inactiveColor: c.off, itemWidth: 16, itemHeight: 8, selected: { ED2P: false } };
			out.xAxis = settingAxis(c, s);
			out.yAxis = axis(c, "", { scale: true, boundaryGap: ["6%", "10%"] });
			out.tooltip.formatter = (p) =>
				p.data && p.data.index !== undefined ? tip(series, [cols[p.data.col]])(p) : "";
			out.series = cols.flatMap((col, k) => s.lines.map((one, l) => ({
				type: "line",
				name: col.short,
				data: one
					.of(part.curve.filter((i) => known(col.mean[i])))
					.map((i) => ({ value: [s.x[i], col.mean[i]], index: i, col: k })),
				symbol: ["circle", "rect", "triangle", "roundRect"][k % 4],
				symbolSize: 7,
				color: c.many[k % c.many.length],
				lineStyle: { width: s.numeric ? 2 : 0 },
				markLine: k || l ? undefined : dashed(c.ref, 1),
			})));
			return out;
		};
		const note =
			"EDP: energy \u00d7 time per " + series.item + "; ED2P: energy \u00d7 time\u00b2; EDS k, the Energy Delay Sum: " +
			"(1\u00a0\u2212\u00a01/k) of the energy + 1/k of the time. All relative to the reference (" +
			JM.named(series, ref) +
			"), the dashed line at 1; lower is better. The vertical axis does not start at 0.";
		return panel("Energy and delay together", note, option, {
			id: series.id + "/products",
			table: () => JM.metricTable(series, names),
		});
	};

	// Clocks, temperature and the share of time at the power cap, one strip below the other.
	const STRIPS = [
		["hertz", "clock in MHz", 1e-6],
		["memory_hertz", "memory clock in MHz", 1e-6],
		["celsius", "highest temperature in \u00b0C", 1],
		["throttled", "held at the power cap, % of the time", 100],
	];
	JM.telemetry = function (series) {
		return STRIPS.map(([name, title, factor]) => ({
			title: title,
			mean: series.points.map((p) => factor * JM.mean(JM.runsOf(series, p.index).map((i) => JM.run(name, i)))),
		})).filter((strip) => strip.mean.some(known));
	};

	const OTHER = [
		[2, "temperature"],
		[4, "power brake"],
		[8, "other reasons"],
	];
	// "temperature (300 W)": reasons for low clocks other than the cap.
	function otherReasons(series) {
		const bits = (p) => JM.runsOf(series, p.index).reduce((all, i) => all | (JM.run("throttle_reasons", i) || 0), 0);
		const list = series.points.flatMap((p) =>
			OTHER.filter(([bit]) => bits(p) & bit).map(([, name]) => name + " (" + p.label + ")"),
		);
		return list.length ? "Clocks were also held back by: " + list.join(", ") + "." : "";
	}

	JM.chartTelemetry = function (series, strips) {
		const s = setting(series),
			part = parts(series);
		const option = function (c) {
			const out = base(c),
				n = strips.length,
				below = 0.35 * ((settingAxis(c, s).nameGap || 30) - 30), // turned names take more of the chart, in % of it
				each = (78 - below) / n,
				title = Math.min(13, each / 2); // height above a strip, in % of the chart
			out.grid = strips.map((_, k) => ({
				left: 52,
				right: 22,
				top: 9 + k * each + "%",
				height: each - title + "%",
			}));
			out.xAxis = strips.map((_, k) =>
				Object.assign(settingAxis(c, s), { gridIndex: k }, k < n - 1 ? { name: "", axisLabel: { show: false } } : {}),
			);
			out.yAxis = strips.map((strip, k) =>
				axis(c, strip.title, {
					gridIndex: k,
					min: 0,
					splitNumber: 2,
					nameLocation: "end",
					nameGap: 7,
					axisLabel: { color: c.soft, fontSize: 10, showMaxLabel: false, hideOverlap: true },
					nameTextStyle: { color: c.ink, align: "left", padding: [0, 0, 0, -44], fontSize: 11 },
				}),
			);
			out.tooltip.formatter = (p) =>
				p.data && p.data.index !== undefined
					? tip(series, strips.map((strip) => ({ title: strip.title, unit: "", mean: strip.mean, half: [] })))(p)
					: "";
			out.series = strips.flatMap((strip, k) => {
				const points = (list) =>
					list.filter((i) => known(strip.mean[i])).map((i) => ({ value: [s.x[i], strip.mean[i]], index: i }));
				const on = { xAxisIndex: k, yAxisIndex: k };
				return [
					...s.lines.map((one) => Object.assign(
						{
							type: "line",
							data: points(one.of(part.curve)),
							symbol: "circle",
							symbolSize: 6,
							color: c.many[k],
							lineStyle: { width: s.numeric ? 2 : 0 },
						},
						on,
					)),
					offPoints(c, points(part.off), on),
					referencePoints(c, points(part.reference), Object.assign({ symbolSize: 10 }, on)),
				];
			});
			return out;
		};
		const columns = strips.map((strip) => ({ title: strip.title, of: (p) => JM.plain(strip.mean[p.index]) }));
		const note = "Mean over devices and runs; the highest temperature of any device. " + otherReasons(series);
		return panel("Clocks and temperature", note, option, {
			id: series.id + "/clock",
			table: () => JM.pointTable(series, columns),
		});
	};

	// The deviation of each run from the median of its setting; a box from five runs on.
	const quantile = (sorted, q) => {
		const at = q * (sorted.length - 1),
			low = Math.floor(at);
		return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
	};
	function deviations(series, metric, order) {
		return order.map((p) => {
			const median = p.metrics[metric].median;
			return JM.runsOf(series, p.index)
				.filter((i) => known(JM.run(metric, i)) && median > 0)
				.map((i) => ({ run: i, percent: 100 * (JM.run(metric, i) / median - 1) }));
		});
	}
	// The box shows the spread of many runs; marks show only the outliers and the two extremes.
	const MOST_MARKS = 40;
	function marked(list) {
		if (list.length <= MOST_MARKS) return list;
		const sorted = list.slice().sort((a, b) => a.percent - b.percent),
			ends = [sorted[0], sorted[sorted.length - 1]];
		return list.filter((d) => ends.includes(d) || JM.run("outlier", d.run));
	}
	function box(c, list) {
		return {
			type: "custom",
			silent: true,
			z: 2,
			data: list,
			encode: { x: 0, y: [1, 2, 3, 4, 5] },
			renderItem: function (params, api) {
				const y = [1, 2, 3, 4, 5].map((k) => api.coord([api.value(0), api.value(k)])[1]),
					x = api.coord([api.value(0), 0])[0],
					w = Math.min(18, api.size([1, 0])[0] / 3);
				const style = { stroke: c.main, fill: c.band, lineWidth: 1.3 };
				return {
					type: "group",
					children: [
						{ type: "rect", shape: { x: x - w, y: y[3], width: 2 * w, height: y[1] - y[3] }, style: style },
						line(x - w, y[2], x + w, y[2], style),
						line(x, y[0], x, y[1], style),
						line(x, y[3], x, y[4], style),
					],
				};
			},
		};
	}

	JM.chartSpread = function (series) {
		const metrics = ["throughput", "joules_per_item", "watts_mean"].filter((m) => JM.column(series, m).any);
		let metric = metrics.includes("joules_per_item") ? "joules_per_item" : metrics[0];
		const place = setting(series),
			order = place.numeric ? place.shown.slice().sort((a, b) => place.x[a.index] - place.x[b.index]) : place.shown;
		const option = function (c) {
			const runs = deviations(series, metric, order),
				out = base(c);
			const boxes = runs
				.map((list, i) => [i, list.map((d) => d.percent).sort((a, b) => a - b)])
				.filter(([, v]) => v.length >= 5)
				.map(([i, v]) => [i, v[0], quantile(v, 0.25), quantile(v, 0.5), quantile(v, 0.75), v[v.length - 1]]);
			const dots = runs.flatMap((list, i) =>
				marked(list).map((d) => ({ value: [i, d.percent], index: order[i].index, run: d.run, off: JM.run("outlier", d.run) })),
			);
			const most = Math.max(0.01, ...dots.map((d) => Math.abs(d.value[1])));
			out.xAxis = settingAxis(c, { numeric: false, labels: order.map((p) => place.labels[place.shown.indexOf(p)]), name: place.name });
			out.yAxis = valueAxis(c, "% from the median", { min: -1.15 * most, max: 1.15 * most,
				axisLabel: { color: c.soft, showMinLabel: false, showMaxLabel: false, formatter: (v) => +v.toPrecision(2) } });
			out.tooltip.formatter = (p) =>
				p.data && p.data.run !== undefined
					? JM.el("div", {}, JM.el("b", {}, JM.named(series, series.points[p.data.index])), JM.el("br"),
						"run " + JM.text(JM.run("repeat", p.data.run)) + ": " + p.data.value[1].toPrecision(3) + " %" +
						(p.data.off ? ", outlier" : ""))
					: "";
			out.series = [
				box(c, boxes),
				{
					type: "scatter",
					symbolSize: 6,
					z: 4,
					data: dots.map((d) => Object.assign(d, {
						itemStyle: d.off ? JM.hollow(c, c.ref) : { color: c.main, opacity: 0.75 },
						symbol: d.off ? "diamond" : "circle",
						symbolSize: d.off ? 11 : 6,
					})),
					markLine: dashed(c.off, 0),
				},
			];
			return out;
		};
		const choice = JM.el(
			"select",
			{
				"aria-label": "metric of the spread",
				onchange: (e) => {
					metric = e.target.value;
					JM.redraw(chart);
				},
			},
			metrics.map((m) => JM.el("option", { value: m, selected: m === metric }, JM.column(series, m).title)),
		);
		const many = series.points.some((p) => p.runs_ok > MOST_MARKS);
		const chart = panel(
			"Spread of the runs",
			"Each run against the median of its setting. Diamonds: outliers (by the median absolute deviation). From five runs on a box shows the quartiles, its whiskers the extremes." +
				(many ? " Of a setting with more than " + MOST_MARKS + " runs only the outliers and the two extremes have a mark." : ""),
			option,
			{
				id: series.id + "/spread",
				tools: metrics.length > 1 ? choice : null,
				table: () =>
					JM.pointTable(
						series,
						["n", "mean", "median", "sd", "min", "max"].map((key) => ({
							title: key,
							of: (p) => (key === "n" ? String(p.metrics[metric].n) : JM.plain(p.metrics[metric][key])),
						})),
					),
			},
		);
		return chart;
	};
})();
