// SPDX-License-Identifier: Apache-2.0
// The limits of one run that shared a power budget: what each device enforced, one on the other, below the budget.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base } = JM;

	const watts = (v) => (known(v) ? JM.apart(String(+v.toPrecision(6))) : "\u2013");

	// A row for each change: {start, each: [W of a device], sum}; a last one where the run ended.
	function rowsOf(budget) {
		const changes = budget.changes;
		const rows = changes.start_s.map(function (start, i) {
			const each = changes.watts.map((list) => JM.number(list[i]));
			return { start: start, each: each, sum: each.reduce((a, b) => a + b, 0) };
		});
		const last = rows[rows.length - 1];
		return known(budget.end_s) && budget.end_s > last.start ? [...rows, { ...last, start: budget.end_s, end: true }] : rows;
	}

	function option(c, budget) {
		const rows = rowsOf(budget),
			out = base(c);
		const names = budget.limits.map((l) => l.device);
		out.color = c.many;
		out.xAxis = axis(c, "seconds", { min: Math.min(0, rows[0].start), nameGap: 24 });
		out.yAxis = valueAxis(c, "W", { min: 0, max: Math.ceil(1.08 * Math.max(budget.watts, ...rows.map((r) => r.sum).filter(known))) });
		out.tooltip.trigger = "axis";
		out.tooltip.formatter = function (list) {
			const r = rows[list[0].dataIndex];
			return el(
				"div",
				{},
				el("b", {}, "from " + r.start.toFixed(2) + " s on: " + watts(r.sum) + " of " + watts(budget.watts) + " W"),
				names.slice(0, 16).map((name, k) => [el("br"), name + ": " + watts(r.each[k]) + " W"]),
			);
		};
		out.series = names.map((name, k) => ({
			type: "line",
			name: name,
			step: "end",
			stack: "limits",
			symbol: "none",
			data: rows.map((r) => [r.start, r.each[k]]),
			lineStyle: { width: 1 },
			areaStyle: { opacity: 0.35 },
			markLine: k
				? undefined
				: {
						silent: true,
						symbol: "none",
						lineStyle: { type: "dashed", color: c.ref, width: 1.5 },
						label: { show: true, position: "insideEndTop", color: c.soft, formatter: "budget" },
						data: [{ yAxis: budget.watts }],
					},
		}));
		return out;
	}

	// all: of the runs of the series; the chart shows one of them.
	JM.chartBudgets = function (series, all) {
		let shown = all[0];
		const note = () =>
			"What the devices said they enforce, one on the other, after each change; dashed: the budget. The highest sum was " +
			watts(shown.enforced_most_watts) + " of " + watts(shown.watts) + "\u00a0W. Limits that fall are read back before others rise." +
			(shown.changes_made > shown.changes.start_s.length
				? " Drawn and listed are the last " + shown.changes.start_s.length + " of " + shown.changes_made + " changes."
				: "") +
			(all.length > 1 ? " One run: " + JM.runName(series, shown.run) + "." : "");
		const choice = el(
			"select",
			{
				"aria-label": "run of the budget",
				onchange: function (e) {
					shown = all[e.target.value];
					chart.node.querySelector("p.note").textContent = note();
					chart.node.querySelector("details.behind").open = false;
					JM.redraw(chart);
				},
			},
			all.map((b, i) => el("option", { value: i }, JM.runName(series, b.run))),
		);
		const table = () =>
			JM.table(
				[
					{ title: "from", unit: "s", of: (r) => r.start.toFixed(2) },
					{ title: "sum", unit: "W", of: (r) => watts(r.sum) },
					...shown.limits.map((l, k) => ({ title: l.device, unit: "W", of: (r) => watts(r.each[k]) })),
				],
				rowsOf(shown).filter((r) => !r.end),
				{ limit: 12, csv: "budget" },
			);
		const chart = panel("Limits under the budget of " + watts(shown.watts) + "\u00a0W", note(), (c) => option(c, shown), {
			id: series.id + "/budget",
			tools: all.length > 1 ? choice : null,
			table: table,
		});
		return chart;
	};
})();
