// SPDX-License-Identifier: Apache-2.0
// Throughput and loss of each step of one run.
"use strict";
(function () {
	const { el, known, panel, axis, namesAxis, partsLegend, base, bars } = JM;

	// Rows of a run: the last step that a row stands for, its speed and its loss.
	const rowsOf = (run) =>
		run.end_s.map((end, i) => ({
			step: Math.min((i + 1) * run.every, run.steps),
			end: end,
			throughput: run.throughput[i],
			loss: run.loss[i],
		}));

	const strips = (series, rows) =>
		[
			["throughput", "throughput in " + series.item + "/s", { min: 0 }],
			["loss", "loss", { scale: true }],
		].filter(([key]) => rows.some((r) => known(r[key])));

	// The steps of the warm-up, which no mean includes.
	function warmup(c, run) {
		const data = [[{ xAxis: 0, itemStyle: { color: c.phase[0] } }, { xAxis: run.warmup }]];
		return run.warmup > 0 ? { silent: true, data: data } : undefined;
	}

	function option(c, series, run) {
		const out = base(c),
			rows = rowsOf(run),
			shown = strips(series, rows),
			n = shown.length,
			each = 86 / n;
		out.grid = shown.map((_, k) => ({ left: 62, right: 22, top: 9 + k * each + "%", height: each - 14 + "%" }));
		out.xAxis = shown.map((_, k) =>
			axis(c, k < n - 1 ? "" : "step", {
				gridIndex: k,
				min: 0,
				max: run.steps,
				nameGap: 24,
				axisLabel: { show: k === n - 1, color: c.soft, hideOverlap: true },
			}),
		);
		out.yAxis = shown.map(([, title, from], k) =>
			axis(c, title, {
				...from,
				gridIndex: k,
				splitNumber: 3,
				nameLocation: "end",
				nameGap: 7,
				axisLabel: { color: c.soft, fontSize: 10, showMaxLabel: false },
				nameTextStyle: { color: c.ink, align: "left", padding: [0, 0, 0, -54], fontSize: 11 },
			}),
		);
		out.axisPointer = { link: [{ xAxisIndex: "all" }] };
		out.tooltip.trigger = "axis";
		out.tooltip.formatter = function (list) {
			const r = rows[list[0].dataIndex];
			return el(
				"div",
				{},
				el("b", {}, "step " + r.step + ", " + r.end.toFixed(2) + " s"),
				shown.map(([key, title]) => [el("br"), title + ": " + JM.plain(r[key])]),
			);
		};
		out.series = shown.map(([key], k) => ({
			type: "line",
			xAxisIndex: k,
			yAxisIndex: k,
			data: rows.map((r) => [r.step, r[key]]),
			symbol: rows.length > 60 ? "none" : "circle",
			symbolSize: 4,
			color: c.many[k],
			lineStyle: { width: 1.5 },
			markArea: warmup(c, run),
		}));
		return out;
	}

	// runs: those of the series, of which the one at index `start` is shown first.
	JM.chartSteps = function (series, runs, start) {
		let shown = runs[start];
		const label = (run) => JM.runName(series, run.run);
		const note = (run) =>
			"One run (" + label(run) + "), all devices together. Shaded: the warm-up, which is in no mean." +
			(run.every > 1 ? " A point stands for " + JM.apart(String(run.every)) + " steps: their speed, and the loss of the last one." : "");
		const choice = el(
			"select",
			{
				"aria-label": "run of the steps",
				onchange: (e) => {
					shown = runs[e.target.value];
					chart.node.querySelector("p.note").textContent = note(shown);
					chart.node.querySelector("details.behind").open = false;
					JM.redraw(chart);
				},
			},
			runs.map((r, i) => el("option", { value: i, selected: i === start }, label(r))),
		);
		const table = () =>
			JM.table(
				[
					{ title: "step", of: (r) => JM.apart(String(r.step)) },
					{ title: "done at", unit: "s", of: (r) => r.end.toFixed(3) },
					...strips(series, rowsOf(shown)).map(([key, title]) => ({ title: title, of: (r) => JM.plain(r[key]) })),
				],
				rowsOf(shown),
				{ limit: 12, csv: "steps" },
			);
		const chart = panel("Each step", note(shown), (c) => option(c, series, shown), {
			id: series.id + "/steps",
			tools: runs.length > 1 ? choice : null,
			table: table,
		});
		return chart;
	};

	// Where the time of a step went: shares of a step, one bar for each run of ranks on several devices. null: there are none.
	const SHARES = ["compute alone", "overlapped", "exposed"];

	JM.stepShares = function (s) {
		const of = s.tables.find((t) => t.shares);
		if (!of) return null;
		const table = of.tables[0],
			name = (row) => (table.titles[0] === "setting" ? table.rows[row][0] : s.title),
			sum = (list) => list.reduce((all, x) => all + x, 0),
			shown = of.shares.map((ms, row) => ({ name: name(row), ms: ms })).filter((r) => r.ms.every(known) && sum(r.ms) > 0);
		if (!shown.length) return null;
		const option = function (c) {
			const out = base(c);
			out.color = c.many;
			out.grid.top = 40;
			out.legend = partsLegend(c, SHARES);
			out.xAxis = namesAxis(c, shown.map((r) => r.name));
			out.yAxis = axis(c, "% of a step", { min: 0, max: 100 });
			out.tooltip.trigger = "axis";
			out.tooltip.formatter = function (list) {
				const r = shown[list[0].dataIndex];
				return el(
					"div",
					{},
					el("b", {}, r.name),
					SHARES.map((part, k) => [el("br"), part + ": " + JM.plain(r.ms[k]) + " ms"]),
				);
			};
			const below = (r, k) => (100 * sum(r.ms.slice(0, k))) / sum(r.ms);
			out.series = SHARES.map((part, k) =>
				Object.assign(
					bars(
						c.many[k],
						shown.map((r, i) => [i, below(r, k), below(r, k + 1)]),
						0.5,
					),
					{ name: part },
				),
			);
			return out;
		};
		return panel(
			"Shares of a step",
			"Computation alone, computation beside transfers (the share of concurrency), and waits for transfers; means over the ranks.",
			option,
			{ id: s.id + "/shares", table: () => JM.grid(table, { limit: 24, csv: "shares" }) },
		);
	};
})();
