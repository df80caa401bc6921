// SPDX-License-Identifier: Apache-2.0
// The power of one GPU under each kernel, by its parts, and the correlation of each part with arithmetic intensity.
"use strict";
(function () {
	const { el, known, panel, namesAxis, areTurned, brief, partsLegend, valueAxis, base, bars } = JM;
	const PARTS = ["core", "rest", "io", "memory"]; // from below

	const partsOf = (rows) => PARTS.filter((p) => rows.some((r) => known(r.watts[p])));

	// Bars stand on each other; what no known part has, up to the whole GPU, is the bar "total".
	function segments(rows, part, parts, key) {
		return rows.map(function (r, i) {
			const v = r[key],
				sum = (of) => of.reduce((all, p) => all + (known(v[p]) ? v[p] : 0), 0);
			if (part === "total") return known(v.rest) || !known(v.total) ? [i, 0, 0] : [i, sum(parts), v.total];
			const below = sum(parts.slice(0, parts.indexOf(part)));
			return [i, below, below + (known(v[part]) ? v[part] : 0)];
		});
	}

	function option(c, rows, key) {
		const out = base(c),
			parts = partsOf(rows),
			names = rows.some((r) => !known(r[key].rest)) ? parts.concat("total") : parts;
		const off = (r) => (r.state === "violated" ? " (violated)" : ""),
			title = (r) => r.kernel + (r.setting ? ", " + r.setting : "") + off(r),
			words = (r) => (r.kernel.replace(" on ", ", on ").replace(/: (\w+)$/, ", $1") + (r.setting ? ", " + r.setting : "")).split(", "),
			short = brief(rows.map(words));
		out.color = c.many;
		out.grid.top = 62;
		out.legend = partsLegend(c, names);
		out.xAxis = namesAxis(c, rows.map((r, i) => short[i] + off(r)));
		out.yAxis = valueAxis(c, key === "watts" ? "W" : "normalised power", { boundaryGap: [0, "8%"] });
		out.tooltip.trigger = "axis";
		out.tooltip.formatter = function (list) {
			const r = rows[list[0].dataIndex];
			return el(
				"div",
				{},
				el("b", {}, title(r)),
				["total", ...parts].map((p) => [el("br"), p + ": " + JM.plain(r.watts[p]) + " W, \u00d7 " + JM.plain(r.normalised[p])]),
			);
		};
		out.series = names.map((name, k) => Object.assign(bars(c.many[k % c.many.length], segments(rows, name, parts, key), 0.6), { name: name }));
		return out;
	}

	// null: no kernel has a known part or activity.
	JM.signatures = function (id) {
		const all = JM.S.signatures;
		if (!all) return null;
		let key = "normalised";
		const select = el(
			"select",
			{
				"aria-label": "signatures in",
				onchange: function (e) {
					key = e.target.value;
					JM.redraw(chart);
				},
			},
			el("option", { value: "normalised" }, "normalised"),
			el("option", { value: "watts" }, "watts"),
		);
		const chart = panel(
			"Signatures of kernels",
			all.caption,
			(c) => option(c, all.rows, key),
			{ id: id, tall: areTurned(all.rows) && "names", tools: select, table: () => el("div", {}, all.tables.map((t, k) => [k ? el("p", { class: "small soft" }, all.correlated) : null, JM.grid(t, { limit: 24, csv: k ? "correlations" : "signatures" })])) },
		);
		return chart;
	};
})();
