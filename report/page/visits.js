// SPDX-License-Identifier: Apache-2.0
// The search of a tuner in one run: the objective over the knob, and the settings in the order of their visits.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, whiskers, hollow, offPoints, referencePoints } = JM;
	const SYMBOLS = { coarse: "circle", golden: "rect", confirm: "triangle" };

	// [{start_s, stage, found, value, objective, objective_error, aside, x}]; x: the place on the axis, where a setting
	// without a number, such as no limit, stands at the end of the range.
	const rowsOf = (tune) =>
		tune.visits.start_s.map(function (_, i) {
			const row = Object.fromEntries(Object.entries(tune.visits).map(([key, list]) => [key, list[i]]));
			return Object.assign(row, { x: known(row.value) ? row.value : tune.max });
		});

	// The visits of one setting together; half: of the 95 % interval of their mean.
	function settingsOf(rows) {
		const by = new Map();
		for (const r of rows.filter((v) => !v.aside && known(v.objective))) {
			const key = r.found ? "found" : r.x;
			by.set(key, [...(by.get(key) || []), r]);
		}
		return [...by.values()]
			.map((list) => ({
				x: list[0].x,
				found: list[0].found,
				value: list[0].value,
				n: list.length,
				mean: JM.mean(list.map((r) => r.objective)),
				half: Math.hypot(...list.map((r) => JM.number(r.objective_error))) / list.length,
			}))
			.sort((a, b) => a.x - b.x);
	}

	const valueText = (tune, r) => (known(r.value) ? JM.apart(String(+r.value.toPrecision(6))) + " " + tune.unit : "no limit") + (r.found ? " (found)" : "");
	const isHeld = (tune, p) => (tune.chosen_found ? p.found : !p.found && p.value === tune.chosen);
	const knobAxis = (c, tune, more) => axis(c, tune.knob + " in " + tune.unit, { nameGap: 24, scale: true, ...more });

	function overKnob(c, tune) {
		const rows = rowsOf(tune).filter((r) => known(r.objective)),
			settings = settingsOf(rows),
			out = base(c);
		const dots = (list) => list.map((r) => ({ value: [r.x, r.objective], row: r }));
		const means = (list) => list.map((p) => ({ value: [p.x, p.mean], setting: p }));
		const held = settings.filter((p) => isHeld(tune, p));
		out.grid.right = 30; // a range may end in the last tick
		out.xAxis = knobAxis(c, tune, { min: tune.min, max: tune.max });
		out.yAxis = valueAxis(c, "of the setting found", { scale: true, boundaryGap: ["6%", "12%"], nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -36] } });
		out.tooltip.formatter = function (p) {
			const s = p.data.setting,
				r = p.data.row;
			if (!s && !r) return "";
			return el(
				"div",
				{},
				el("b", {}, valueText(tune, s || r)),
				el("br"),
				s ? "mean of " + s.n + (s.n === 1 ? " visit: " : " visits: ") + JM.estimate(s.mean, s.half)
					: "visit after " + r.start_s.toFixed(1) + " s (" + r.stage + "): " + JM.estimate(r.objective, r.objective_error) + (r.aside ? ", set aside" : ""),
			);
		};
		out.series = [
			{ type: "scatter", data: dots(rows.filter((r) => !r.aside)), symbolSize: 5, z: 2, itemStyle: { color: c.off, opacity: 0.75 } },
			offPoints(c, dots(rows.filter((r) => r.aside)), { symbol: "rect", symbolSize: 7 }),
			whiskers(c.main, settings.filter((p) => p.half > 0).map((p) => [p.x, p.mean - p.half, p.mean + p.half])),
			{
				type: "line",
				data: means(settings),
				color: c.main,
				symbol: "circle",
				symbolSize: 7,
				z: 4,
				lineStyle: { width: 1.5 },
				markLine: { silent: true, symbol: "none", lineStyle: { type: "dashed", color: c.ref, opacity: 0.8 }, label: { show: false }, data: [{ yAxis: 1 }] },
			},
			referencePoints(c, means(settings.filter((p) => p.found))),
			{
				type: "scatter",
				data: means(held).map((d) => Object.assign(d, { label: {
					show: true, formatter: tune.choice === "open" ? "best so far" : "held", color: c.best, fontWeight: "bold", distance: 8,
					position: "bottom", align: d.value[0] === tune.max ? "right" : d.value[0] === tune.min ? "left" : undefined } })),
				symbolSize: 11,
				z: 6,
				itemStyle: { color: c.best },
			},
		];
		return out;
	}

	// Each visit as a piece of line, in its order.
	function inTime(c, tune) {
		const rows = rowsOf(tune),
			out = base(c);
		const mark = (r) => ({
			value: [r.start_s, r.x],
			row: r,
			itemStyle: r.aside ? hollow(c, c.off) : undefined,
		});
		const of = (stage) => rows.filter((r) => r.stage === stage);
		const stages = Object.keys(SYMBOLS).filter((stage) => of(stage).length);
		out.color = c.many;
		out.legend = { top: 0, right: 0, data: stages, textStyle: { color: c.soft }, inactiveColor: c.off, itemWidth: 10, itemHeight: 10 };
		out.xAxis = axis(c, "seconds", { min: 0, nameGap: 24 });
		out.yAxis = valueAxis(c, tune.unit, { scale: true });
		out.tooltip.formatter = (p) =>
			p.data && p.data.row
				? el("div", {}, el("b", {}, valueText(tune, p.data.row)), el("br"), "from " + p.data.row.start_s.toFixed(1) + " s on (" + p.data.row.stage + ")" + (p.data.row.aside ? ", set aside" : ""))
				: "";
		out.series = [
			{
				type: "line",
				step: "end",
				silent: true,
				symbol: "none",
				data: rows.map((r) => [r.start_s, r.x]),
				lineStyle: { width: 1, color: c.off },
			},
			...stages.map((stage, k) => ({
				type: "scatter",
				name: stage,
				symbol: SYMBOLS[stage],
				symbolSize: 8,
				color: c.many[k],
				z: 4,
				data: of(stage).map(mark),
			})),
		];
		return out;
	}

	const settingsTable = (tune) =>
		JM.table(
			[
				{ title: tune.knob, of: (p) => valueText(tune, p) },
				{ title: "visits", of: (p) => String(p.n) },
				{ title: tune.objective + " of the setting found", of: (p) => JM.estimate(p.mean, p.half) },
			],
			settingsOf(rowsOf(tune)),
			{ limit: 12, csv: "search" },
		);
	const visitsTable = (tune) =>
		JM.table(
			[
				{ title: "begins at", unit: "s", of: (r) => r.start_s.toFixed(1) },
				{ title: "stage", left: true, of: (r) => r.stage },
				{ title: tune.knob, of: (r) => valueText(tune, r) },
				{ title: tune.objective + " of the setting found", of: (r) => JM.estimate(JM.number(r.objective), JM.number(r.objective_error)) },
				{ title: "set aside", left: true, of: (r) => (r.aside ? "yes" : "no") },
			],
			rowsOf(tune),
			{ limit: 12, csv: "visits" },
		);

	// tunes: of the runs of the series. Two charts of one run, with a choice of the run where there are several.
	JM.chartVisits = function (series, tunes) {
		let tune = tunes[0];
		const ofRun = () => (tunes.length > 1 ? " One run: " + JM.runName(series, tune.run) + "." : "");
		const notes = [
			() =>
				"The objective (" + tune.objective + ") by that of the setting found: means of visits (small dots) with their 95\u00a0% interval. " +
				"Diamond, dashed: the setting found. " + (rowsOf(tune).some((r) => r.aside) ? "Grey squares: visits set aside. " : "") + tune.why + ofRun(),
			() =>
				"Where the knob stood in each visit. coarse: a grid over the range; golden: a golden section; confirm: the best against the setting found." + ofRun(),
		];
		const titles = ["Search of " + tunes[0].knob, "Visits of the search"];
		const choice = () =>
			tunes.length > 1
				? el(
						"select",
						{
							"aria-label": "run of the search",
							onchange: function (e) {
								tune = tunes[e.target.value];
								charts.forEach(function (chart, k) {
									chart.node.querySelector("p.note").textContent = notes[k]();
									chart.node.querySelector("details.behind").open = false;
									chart.node.querySelector("select").value = e.target.value;
									JM.redraw(chart);
								});
							},
						},
						tunes.map((t, i) => el("option", { value: i }, JM.runName(series, t.run))),
					)
				: null;
		const charts = [overKnob, inTime].map((draw, k) =>
			panel(titles[k], notes[k](), (c) => draw(c, tune), {
				id: series.id + (k ? "/visits" : "/search"),
				tools: choice(),
				table: () => [settingsTable, visitsTable][k](tune),
			}),
		);
		return charts;
	};
})();
