// SPDX-License-Identifier: Apache-2.0
// The power of one GPU under each kernel, by its parts, and the correlation of each part with arithmetic intensity.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, bars } = JM;
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
		const title = (r) => r.kernel + (r.setting ? ", " + r.setting : "") + (r.state === "violated" ? " (violated)" : "");
		out.color = c.many;
		out.grid.top = 62;
		out.legend = { type: "scroll", top: 0, left: 0, right: 0, data: names, textStyle: { color: c.soft }, inactiveColor: c.off, itemWidth: 12, itemHeight: 12, icon: "roundRect" };
		out.xAxis = axis(c, "", { type: "category", data: rows.map(title), axisLabel: { color: c.soft, hideOverlap: true, width: 110, overflow: "break", interval: 0 } });
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

	function table(rows) {
		const number = (title, unit, of) => ({ title: title, unit: unit, of: (r) => JM.plain(of(r)) });
		const columns = [
			{ title: "kernel", left: true, of: (r) => r.kernel },
			{ title: "setting", left: true, of: (r) => r.setting },
			{ title: "state", left: true, of: (r) => r.state },
			{ title: "origin", left: true, of: (r) => r.origin },
			{ title: "runs", of: (r) => r.runs },
			...["total", ...PARTS].map((p) => number(p, "W", (r) => r.watts[p])),
			...["total", ...PARTS].map((p) => number(p, "\u00d7", (r) => r.normalised[p])),
			...["sm", "tensor", "dram"].map((a) => number(a, "%", (r) => (known(r.activity[a]) ? 100 * r.activity[a] : NaN))),
			number("NVLink received", "GB/s", (r) => (known(r.activity.nvlink) ? r.activity.nvlink / 1e9 : NaN)),
			number("theoretical intensity", "FLOP/B", (r) => r.intensity.theoretical),
			number("measured intensity", "FLOP/B", (r) => r.intensity.measured),
		];
		return JM.table(columns, rows, { limit: 24, csv: "signatures" });
	}

	function correlations(list) {
		if (!list.length) return null;
		return JM.table(
			[
				{ title: "setting", left: true, of: (r) => r.setting || "all" },
				{ title: "intensity", left: true, of: (r) => r.intensity },
				{ title: "power of", left: true, of: (r) => r.part },
				{ title: "Pearson\u2019s r", of: (r) => (r.r > 0 ? "+" : "") + r.r.toFixed(2) },
				{ title: "kernels", of: (r) => r.kernels },
			],
			list,
			{ limit: 24, csv: "correlations" },
		);
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
		const simulated = all.rows.some((r) => r.origin !== "measured") ? " Rows whose origin is not 'measured' were not measured." : "";
		const chart = panel(
			"Signatures of kernels",
			"Mean power of one GPU under each kernel, by its parts; rest is what no meter of a part covers. Normalised: divided by the power of the cores (of the rest, or of the whole GPU, where that is unknown) in the first row of the same workload." + simulated,
			(c) => option(c, all.rows, key),
			{ id: id, tools: select, table: () => el("div", {}, table(all.rows), correlations(all.correlations)) },
		);
		return chart;
	};
})();
