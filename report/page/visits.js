// SPDX-License-Identifier: Apache-2.0
// The search of a tuner in one run: the objective over the knob, and the settings in the order of their visits.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, whiskers, hollow, offPoints, referencePoints } = JM;
	const SYMBOLS = { coarse: "circle", golden: "rect", confirm: "triangle" };

	// [{start_s, stage, found, value, second, objective, objective_error, aside, x, y}]; x and y: the places of both knobs
	// on their axes, where a setting without a number, such as no limit, stands at the end of the range.
	const rowsOf = (tune) =>
		tune.visits.start_s.map(function (_, i) {
			const row = Object.fromEntries(Object.entries(tune.visits).map(([key, list]) => [key, list[i]]));
			return Object.assign(row, { x: known(row.value) ? row.value : tune.max, y: known(row.second) ? row.second : (tune.second || {}).max });
		});

	// The visits of one setting together; half: of the 95 % interval of their mean.
	function settingsOf(rows) {
		const by = new Map();
		for (const r of rows.filter((v) => !v.aside && known(v.objective))) {
			const key = r.found ? "found" : r.x + " " + r.y;
			by.set(key, [...(by.get(key) || []), r]);
		}
		return [...by.values()]
			.map((list) => ({
				x: list[0].x,
				y: list[0].y,
				found: list[0].found,
				value: list[0].value,
				second: list[0].second,
				n: list.length,
				mean: JM.mean(list.map((r) => r.objective)),
				half: Math.hypot(...list.map((r) => JM.number(r.objective_error))) / list.length,
			}))
			.sort((a, b) => a.x - b.x || a.y - b.y);
	}

	const quantity = (v, unit) => (known(v) ? JM.apart(String(+v.toPrecision(6))) + " " + unit : "no limit");
	const valueText = (tune, r) =>
		quantity(r.value, tune.unit) + (tune.second ? ", " + quantity(r.second, tune.second.unit) : "") + (r.found ? " (found)" : "");
	const knobsText = (tune) => tune.knob + (tune.second ? ", " + tune.second.knob : "");
	const isHeld = (tune, p) =>
		tune.chosen_found ? p.found : !p.found && p.value === tune.chosen && (!tune.second || p.second === tune.second.chosen);
	const knobAxis = (c, knob, more) => axis(c, knob.knob + " in " + knob.unit, { nameGap: 24, scale: true, min: knob.min, max: knob.max, ...more });
	// "held" at a point of a chart.
	const heldLabel = (c, tune, x) => ({
		show: true,
		formatter: tune.choice === "open" ? "best so far" : "held",
		color: c.best,
		fontWeight: "bold",
		distance: 8,
		position: "bottom",
		align: x === tune.max ? "right" : x === tune.min ? "left" : undefined,
	});
	const tipOf = (tune, p) =>
		p.data && p.data.setting
			? el("div", {}, el("b", {}, valueText(tune, p.data.setting)), el("br"),
				"mean of " + p.data.setting.n + (p.data.setting.n === 1 ? " visit: " : " visits: ") + JM.estimate(p.data.setting.mean, p.data.setting.half))
			: "";

	function overKnob(c, tune) {
		const rows = rowsOf(tune).filter((r) => known(r.objective)),
			settings = settingsOf(rows),
			out = base(c);
		const dots = (list) => list.map((r) => ({ value: [r.x, r.objective], row: r }));
		const means = (list) => list.map((p) => ({ value: [p.x, p.mean], setting: p }));
		const held = settings.filter((p) => isHeld(tune, p));
		out.grid.right = 30; // a range may end in the last tick
		out.xAxis = knobAxis(c, tune);
		out.yAxis = valueAxis(c, "of the setting found", { scale: true, boundaryGap: ["6%", "12%"], nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -36] } });
		out.tooltip.formatter = function (p) {
			const r = p.data.row;
			if (!r) return tipOf(tune, p);
			return el(
				"div",
				{},
				el("b", {}, valueText(tune, r)),
				el("br"),
				"visit after " + r.start_s.toFixed(1) + " s (" + r.stage + "): " + JM.estimate(r.objective, r.objective_error) + (r.aside ? ", set aside" : ""),
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
				data: means(held).map((d) => Object.assign(d, { label: heldLabel(c, tune, d.value[0]) })),
				symbolSize: 11,
				z: 6,
				itemStyle: { color: c.best },
			},
		];
		return out;
	}

	// Two knobs: the stronger the colour of a point, the lower its objective.
	function overBoth(c, tune) {
		const settings = settingsOf(rowsOf(tune)),
			out = base(c),
			all = settings.map((p) => p.mean),
			low = Math.min(...all),
			high = Math.max(...all);
		const part = (p) => (high > low ? (Math.log(high / p.mean) / Math.log(high / low)) : 1);
		const point = (p) => ({ value: [p.x, p.y], setting: p, itemStyle: { color: c.heat(part(p)), borderColor: c.off, borderWidth: 1 } });
		out.grid.right = 30;
		out.xAxis = knobAxis(c, tune);
		out.yAxis = valueAxis(c, tune.second.knob + " in " + tune.second.unit, {
			scale: true, min: tune.second.min, max: tune.second.max, nameTextStyle: { color: c.soft, align: "left", padding: [0, 0, 0, -36] } });
		out.tooltip.formatter = (p) => tipOf(tune, p);
		out.series = [
			{ type: "scatter", data: settings.filter((p) => !p.found).map(point), symbolSize: 13, z: 3 },
			{ type: "scatter", symbol: "diamond", symbolSize: 17, z: 5, data: settings.filter((p) => p.found).map((p) => ({ ...point(p), itemStyle: { color: c.heat(part(p)), borderColor: c.ref, borderWidth: 2 } })) },
			{
				type: "scatter",
				symbolSize: 17,
				z: 6,
				data: settings.filter((p) => isHeld(tune, p)).map((p) => ({ ...point(p), label: heldLabel(c, tune, p.x), itemStyle: { color: c.heat(part(p)), borderColor: c.best, borderWidth: 3 } })),
			},
		];
		return out;
	}

	// Each visit as a piece of line, in its order; of two knobs in percent of their ranges.
	function inTime(c, tune) {
		const rows = rowsOf(tune),
			out = base(c),
			two = tune.second;
		const share = (v, knob) => (100 * (v - knob.min)) / (knob.max - knob.min);
		const places = two ? [(r) => share(r.x, tune), (r) => share(r.y, two)] : [(r) => r.x];
		const mark = (place) => (r) => ({
			value: [r.start_s, place(r)],
			row: r,
			itemStyle: r.aside ? hollow(c, c.off) : undefined,
		});
		const of = (stage) => rows.filter((r) => r.stage === stage);
		const stages = Object.keys(SYMBOLS).filter((stage) => of(stage).length);
		out.color = c.many;
		out.legend = { top: 0, right: 0, data: stages, textStyle: { color: c.soft }, inactiveColor: c.off, itemWidth: 10, itemHeight: 10 };
		out.xAxis = axis(c, "seconds", { min: 0, nameGap: 24 });
		out.yAxis = valueAxis(c, two ? "% of the range" : tune.unit, { scale: true });
		out.tooltip.formatter = (p) =>
			p.data && p.data.row
				? el("div", {}, el("b", {}, valueText(tune, p.data.row)), el("br"), "from " + p.data.row.start_s.toFixed(1) + " s on (" + p.data.row.stage + ")" + (p.data.row.aside ? ", set aside" : ""))
				: "";
		out.series = [
			...places.map((place, k) => ({
				type: "line",
				step: "end",
				silent: true,
				symbol: "none",
				data: rows.map((r) => [r.start_s, place(r)]),
				lineStyle: { width: 1, color: c.off, type: k ? "dashed" : "solid" },
			})),
			...stages.map((stage, k) => ({
				type: "scatter",
				name: stage,
				symbol: SYMBOLS[stage],
				symbolSize: 8,
				color: c.many[k],
				z: 4,
				data: places.flatMap((place) => of(stage).map(mark(place))),
			})),
		];
		return out;
	}

	const settingsTable = (tune) =>
		JM.table(
			[
				{ title: knobsText(tune), of: (p) => valueText(tune, p) },
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
				{ title: knobsText(tune), of: (r) => valueText(tune, r) },
				{ title: tune.objective + " of the setting found", of: (r) => JM.estimate(JM.number(r.objective), JM.number(r.objective_error)) },
				{ title: "set aside", left: true, of: (r) => (r.aside ? "yes" : "no") },
			],
			rowsOf(tune),
			{ limit: 12, csv: "visits" },
		);

	// Clocks in MHz, as they are given and printed elsewhere.
	const inMega = (v) => (known(v) ? v / 1e6 : v);
	const scaledKnob = (knob) =>
		knob.unit === "Hz"
			? Object.assign({}, knob, { unit: "MHz" }, ...["min", "max", "step", "found", "chosen"].map((key) => ({ [key]: inMega(knob[key]) })))
			: knob;
	const scaledList = (knob, list) => (knob && knob.unit === "Hz" ? list.map(inMega) : list);
	// Two knobs of different devices are named with these.
	const nameOf = (knob, apart) => (apart && knob.devices.length === 1 ? knob.knob + " of " + knob.devices[0] : knob.knob);
	const isApart = (tune) => Boolean(tune.second) && String(tune.devices) !== String(tune.second.devices);
	const named = (knob, apart) => Object.assign({}, scaledKnob(knob), { knob: nameOf(knob, apart) });
	const scaled = (tune) =>
		Object.assign({}, named(tune, isApart(tune)), tune.second ? { second: named(tune.second, isApart(tune)) } : {}, {
			visits: { ...tune.visits, value: scaledList(tune, tune.visits.value), second: scaledList(tune.second, tune.visits.second) },
		});

	// all: of the runs of the series. Two charts of one run, with a choice of the run where there are several.
	JM.chartVisits = function (series, all) {
		const tunes = all.map(scaled);
		let tune = tunes[0];
		const ofRun = () => (tunes.length > 1 ? " One run: " + JM.runName(series, tune.run) + "." : "");
		const notes = [
			() =>
				"The objective (" + tune.objective + ") by that of the setting found: " +
				(tune.second ? "means of visits; the stronger the colour, the lower. Diamond: the setting found. " : "means of visits (small dots) with their 95\u00a0% interval. Diamond, dashed: the setting found. ") +
				(!tune.second && rowsOf(tune).some((r) => r.aside) ? "Grey squares: visits set aside. " : "") + tune.why + ofRun(),
			() =>
				(tune.second ? "Where both knobs stood in each visit (dashed: " + tune.second.knob + "). " : "Where the knob stood in each visit. ") +
				"coarse: a grid over the range; golden: a golden section; confirm: the best against the setting found." + ofRun(),
		];
		const titles = ["Search of " + tunes[0].knob + (tunes[0].second ? " and " + tunes[0].second.knob : ""), "Visits of the search"];
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
		const over = (c, t) => (t.second ? overBoth(c, t) : overKnob(c, t));
		const charts = [over, inTime].map((draw, k) =>
			panel(titles[k], notes[k](), (c) => draw(c, tune), {
				id: series.id + (k ? "/visits" : "/search"),
				tools: choice(),
				table: () => [settingsTable, visitsTable][k](tune),
			}),
		);
		return charts;
	};
})();
