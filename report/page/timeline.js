// SPDX-License-Identifier: Apache-2.0
// Power over time of one run, its phases as bars in lanes above it.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base } = JM;
	const LANE = 18; // pixels

	// Lane of each phase: the first in which it overlaps none, the longest phases on top.
	JM.lanes = function (phases) {
		const order = phases
			.map(([name, start, end], i) => ({ name: name, start: start, end: end, i: i }))
			.filter((p) => p.end > p.start)
			.sort((a, b) => b.end - b.start - (a.end - a.start) || a.i - b.i);
		const lanes = [];
		for (const p of order) {
			let lane = 0;
			while (lanes[lane] && lanes[lane].some((q) => q.start < p.end && p.start < q.end)) lane++;
			(lanes[lane] = lanes[lane] || []).push(p);
			p.lane = lane;
		}
		return { phases: order, n: lanes.length };
	};

	const shade = (c, name, i) =>
		c.phase[{ warmup: 0, setup: 1, cooldown: 1, steady: 2, command: 2, verify: 3 }[name] ?? i % 4];

	function bars(c, t) {
		const list = t.lanes.phases;
		return {
			type: "custom",
			silent: true,
			clip: true,
			xAxisIndex: 1,
			yAxisIndex: 1,
			data: list.map((p) => [p.start, p.lane, p.end]),
			encode: { x: [0, 2], y: 1 },
			renderItem: function (params, api) {
				const p = list[params.dataIndex],
					area = params.coordSys;
				const left = Math.max(api.coord([p.start, 0])[0], area.x),
					right = Math.min(api.coord([p.end, 0])[0], area.x + area.width);
				const shape = { x: left, y: area.y + LANE * p.lane, width: Math.max(right - left, 1), height: LANE - 2 };
				if (right < area.x || left > area.x + area.width) return null;
				return {
					type: "group",
					children: [
						{
							type: "rect",
							shape: Object.assign({ r: 2 }, shape),
							style: { fill: shade(c, p.name, p.i), stroke: c.line, lineWidth: 1 },
						},
						{
							type: "text",
							ignore: shape.width < 24,
							style: {
								x: shape.x + 4,
								y: shape.y + shape.height / 2,
								text: p.name,
								width: shape.width - 6,
								overflow: "truncate",
								ellipsis: "\u2026",
								verticalAlign: "middle",
								fontSize: 11,
								fill: c.ink,
							},
						},
					],
				};
			},
		};
	}

	// The steady phase, which the figures apply to, shaded in the plot.
	function steady(c, t) {
		return t.phases
			.filter(([name]) => name === t.phase)
			.map(([, start, end]) => [{ xAxis: start, itemStyle: { color: shade(c, "steady", 0) } }, { xAxis: end }]);
	}

	// A dashed line across the plot, its label at the place.
	const level = (text, color, place) => (watts) => ({
		yAxis: watts,
		lineStyle: { color: color },
		label: { formatter: text + " {c} W", position: place, color: color, fontSize: 11 },
	});

	function axes(c, t, out) {
		const top = 40 + LANE * t.lanes.n + 26;
		const range = { min: 0, max: t.end_s },
			rated = Math.max(0, ...t.rated);
		out.grid = [
			{ left: 56, right: 22, top: top, bottom: 70 },
			{ left: 56, right: 22, top: 40, height: LANE * t.lanes.n },
		];
		out.xAxis = [
			axis(c, "seconds", Object.assign({ nameGap: 24, axisLabel: { color: c.soft, hideOverlap: true, showMaxLabel: false } }, range)),
			axis(c, "", Object.assign({ gridIndex: 1, show: false }, range)),
		];
		out.yAxis = [
			valueAxis(c, "W", {
				nameGap: 8,
				boundaryGap: [0, "8%"],
				nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -48] },
				max: (power) => (rated > power.max ? 1.08 * rated : null),
				axisLabel: { color: c.soft, showMaxLabel: rated ? false : null },
			}),
			axis(c, "", { gridIndex: 1, show: false, min: 0, max: Math.max(1, t.lanes.n) }),
		];
	}

	const zoom = (c) => [
		{ type: "inside", filterMode: "none", xAxisIndex: [0, 1], zoomOnMouseWheel: "ctrl" },
		{
			type: "slider",
			height: 18,
			bottom: 6,
			filterMode: "none",
			xAxisIndex: [0, 1],
			borderColor: c.line,
			textStyle: { color: c.soft },
			fillerColor: c.band,
			handleStyle: { color: c.card, borderColor: c.soft },
			dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
		},
	];

	function option(c, t) {
		const out = base(c),
			levels = [
				...t.rated.map(level("rated power of a device", c.soft, "insideStartTop")),
				...[...new Set(t.caps.filter(known))].map(level("cap", c.ref, "insideEndTop")),
			];
		out.color = c.many;
		out.legend = {
			type: "scroll",
			selected: t.hidden,
			top: 0,
			left: 0,
			right: 0,
			textStyle: { color: c.soft },
			inactiveColor: c.off,
			itemWidth: 12,
			itemHeight: 12,
			icon: "circle",
			pageTextStyle: { color: c.soft },
			pageIconColor: c.soft,
			pageIconInactiveColor: c.line,
		};
		axes(c, t, out);
		Object.assign(out.tooltip, {
			trigger: "axis",
			axisPointer: { lineStyle: { color: c.soft } },
			formatter: (list) =>
				el(
					"div",
					{},
					el("b", {}, list[0].value[0].toFixed(2) + " s"),
					list
						.filter((p) => known(p.value[1]) && p.seriesName)
						.slice(0, 12)
						.map((p) => [el("br"), p.seriesName + ": " + p.value[1].toFixed(1) + " W"]),
				),
		});
		out.dataZoom = zoom(c);
		out.series = t.meters.map((m, k) => ({
			type: "line",
			name: m.label,
			symbol: "none",
			step: "end",
			lineStyle: { width: 1.3 },
			data: JM.points(m),
			connectNulls: false,
			markArea: k ? undefined : { silent: true, data: steady(c, t) },
			markLine:
				k || !levels.length
					? undefined
					: { silent: true, symbol: "none", lineStyle: { type: "dashed" }, data: levels },
		}));
		out.series.push(bars(c, t));
		return out;
	}

	const peak = (m) => Math.max(...JM.points(m).map((d) => d[1]).filter(known));
	const table = (t) =>
		JM.table(
			[
				{ title: "meter", left: true, of: (m) => m.label },
				{ title: "highest power", unit: "W", of: (m) => JM.plain(peak(m)) },
				{ title: "points drawn", of: (m) => String(m.n) },
			],
			t.meters,
		);

	// traces: those of one series; start: index of the one that is shown first.
	JM.chartTrace = function (series, traces, start, note) {
		let shown = traces[start];
		const choice = el(
			"select",
			{ "aria-label": "run", onchange: (e) => show(traces[e.target.value]) },
			traces.map((t, i) => el("option", { value: i, selected: i === start }, t.label)),
		);
		const thin = (t) =>
			t.readings > t.meters.reduce((n, m) => n + m.n, 0)
				? " Drawn are the lowest and the highest reading of each short stretch of time, of " +
					JM.apart(String(t.readings)) +
					" readings."
				: "";
		const chart = panel("Power over time", note + thin(shown), (c) => option(c, shown), {
			id: series.id + "/trace",
			tall: true,
			tools: traces.length > 1 ? choice : null,
			table: () => table(shown),
		});
		function show(other) {
			shown = other;
			chart.node.querySelector("p.note").firstChild.textContent = note + thin(shown);
			chart.node.querySelector("details.behind").open = false;
			JM.redraw(chart);
		}
		return chart;
	};
})();
