// SPDX-License-Identifier: Apache-2.0
// Meters that include others: what their parts take, and the rest that no other meter reads, by phase and over time.
"use strict";
(function () {
	const { el, known, panel, axis, partsLegend, valueAxis, base, bars } = JM;
	const MOST_PHASES = 12; // bars

	// The meters of a run as a tree; a part has the origin of the meter that includes it.
	function treeOf(detail) {
		const meters = detail.meters.filter((m) => detail.parts[m.id]),
			at = (id) => meters.find((m) => m.id === id);
		const inside = (m) => m.covered_by && at(m.covered_by) && at(m.covered_by).origin === m.origin;
		const parts = (id) => meters.filter((m) => m.covered_by === id && inside(m));
		const alike = (m) => meters.filter((x) => x.scope === m.scope).length;
		return {
			meters: meters,
			parts: parts,
			tops: meters.filter((m) => !inside(m) && parts(m.id).length),
			whole: meters.filter((m) => parts(m.id).length),
			name: (m) => (alike(m) > 1 ? alike(m) + " \u00d7 " + m.scope : m.label || m.id),
		};
	}

	// Shares that add up to the meter: its parts, split in turn, and the rest. One whose rest is unknown is not split.
	function shares(tree, m, value, rest) {
		const parts = tree.parts(m.id),
			left = parts.length ? rest(m, parts) : NaN;
		return known(left)
			? parts.flatMap((p) => shares(tree, p, value, rest)).concat([["rest of " + tree.name(m), left]])
			: [[tree.name(m), value(m)]];
	}

	// Of all outermost meters, the same name added up; null where one of them is unknown.
	function split(tree, value, rest) {
		const out = new Map();
		for (const [name, v] of tree.tops.flatMap((m) => shares(tree, m, value, rest)))
			out.set(name, known(v) && out.get(name) !== null ? (out.get(name) || 0) + v : null);
		return out;
	}

	function phasesOf(detail, tree) {
		const seconds = ([, start, end]) => end - start;
		const all = detail.phases
			.map((p, i) => ({ i: i, name: p[0], seconds: seconds(p), start: p[1] }))
			.filter((p) => p.seconds > 0 && tree.tops.some((m) => known((detail.parts[m.id][p.i] || [])[0])));
		const longest = all.slice().sort((a, b) => b.seconds - a.seconds).slice(0, MOST_PHASES);
		return all.filter((p) => longest.includes(p)).sort((a, b) => a.start - b.start);
	}

	// Mean power of each share in each phase: [{title, values: Map}].
	function byPhase(detail, tree) {
		return phasesOf(detail, tree).map(function (p) {
			const of = (m, k) => {
				const v = (detail.parts[m.id][p.i] || [])[k];
				return known(v) ? v / p.seconds : NaN;
			};
			return { title: p.name, values: split(tree, (m) => of(m, 0), (m) => of(m, 1)) };
		});
	}

	// Power of each share in each part of the time of a trace.
	function overTime(detail, tree, trace) {
		const means = (m) => (trace.meters.find((x) => x.id === m.id) || {}).means || [];
		const hasRest = (m) => detail.parts[m.id].some((x) => x && known(x[1]));
		const n = Math.max(0, ...tree.tops.map((m) => means(m).length));
		return Array.from({ length: n }, function (_, i) {
			const value = (m) => means(m)[i] ?? NaN,
				rest = (m, parts) => (hasRest(m) ? parts.reduce((left, p) => left - value(p), value(m)) : NaN);
			return { title: (trace.end_s * i) / n, values: split(tree, value, rest) };
		});
	}

	const area = (rows, name, value) => ({
		type: "line",
		stack: "all",
		symbol: "none",
		lineStyle: { width: 0 },
		areaStyle: { opacity: 0.85 },
		data: rows.map((r) => [r.title, value(r, name)]),
	});

	// The bar of a name stands on those before it; what is below 0 hangs below 0.
	function stacked(color, rows, name, names, value) {
		const items = rows.map(function (r, i) {
			const v = value(r, name) || 0,
				before = names.slice(0, names.indexOf(name)).map((n) => value(r, n) || 0);
			const from = before.filter((x) => x > 0 === v > 0).reduce((a, b) => a + b, 0);
			return [i, from, from + v];
		});
		return bars(color, items, 0.6);
	}

	function option(c, rows, timed, end) {
		const out = base(c),
			names = [...new Set(rows.flatMap((r) => [...r.values.keys()]))];
		const value = (r, name) => (known(r.values.get(name)) ? r.values.get(name) : null);
		out.color = c.many;
		out.grid.top = 62;
		out.legend = partsLegend(c, names);
		out.xAxis = timed
			? axis(c, "seconds", { min: 0, max: end, axisLabel: { color: c.soft, showMaxLabel: false } })
			: axis(c, "phase", { type: "category", data: rows.map((r) => r.title), axisLabel: { color: c.soft, hideOverlap: true, width: 90, overflow: "truncate" } });
		out.yAxis = valueAxis(c, "W", { boundaryGap: [0, "8%"] });
		out.tooltip.trigger = "axis";
		out.tooltip.formatter = function (list) {
			const at = list[0].dataIndex;
			return el(
				"div",
				{},
				el("b", {}, timed ? rows[at].title.toFixed(1) + " s" : rows[at].title),
				names.map((name) => [el("br"), name + ": " + JM.plain(value(rows[at], name)) + " W"]),
			);
		};
		out.series = names.map((name, k) => Object.assign(timed ? area(rows, name, value) : stacked(c.many[k % c.many.length], rows, name, names, value), { name: name }));
		return out;
	}

	// One row for each phase and each meter that includes others.
	function table(detail, tree) {
		const rows = phasesOf(detail, tree).flatMap((p) =>
			tree.whole.map((m) => {
				const [joules, rest, error] = detail.parts[m.id][p.i] || [];
				return { phase: p, meter: m, joules: JM.number(joules), rest: JM.number(rest), error: JM.number(error) };
			}),
		);
		const includes = (m) => [...new Set(tree.parts(m.id).map(tree.name))].join(", ");
		return JM.table(
			[
				{ title: "phase", left: true, of: (r) => r.phase.name },
				{ title: "meter", left: true, of: (r) => r.meter.label || r.meter.id },
				{ title: "includes", left: true, of: (r) => (tree.parts(r.meter.id).length > 1 ? includes(r.meter) : tree.parts(r.meter.id)[0].label) },
				{ title: "energy", unit: "J", of: (r) => JM.plain(r.joules) },
				{ title: "of its parts", unit: "J", of: (r) => JM.plain(r.joules - r.rest) },
				{ title: "rest", unit: "J", of: (r) => JM.estimate(r.rest, r.error) },
				{ title: "mean power of the rest", unit: "W", of: (r) => JM.plain(r.rest / r.phase.seconds) },
				{ title: "rest of the energy", unit: "%", of: (r) => (known(r.rest / r.joules) ? ((100 * r.rest) / r.joules).toFixed(1) : "\u2013") },
			],
			rows,
			{ limit: 12, csv: "residue" },
		);
	}

	// traces: those of the series, from which the first with means is taken.
	JM.residue = function (s, traces) {
		const detail = JM.S.details[s.index],
			tree = treeOf(detail);
		if (!tree.whole.length) return null;
		const phases = byPhase(detail, tree),
			trace = traces.find((t) => t.meters.some((m) => m.means)),
			bins = trace ? overTime(detail, tree, trace) : [];
		if (!phases.length && !bins.length) return null;
		let timed = !phases.length;
		const note = () =>
			JM.ofOneRun(s, timed ? trace.run : detail.run) + ", " + (timed ? "power" : "mean power of each phase") +
			". A meter that includes others is split into those and the rest, which no other meter reads: what the components, " +
			"boards and supplies lose or use besides. The parts add up to the outermost meter; nothing is counted twice.";
		const select =
			phases.length && bins.length
				? el(
						"select",
						{
							"aria-label": "residue by",
							onchange: (e) => {
								timed = e.target.value === "time";
								chart.node.querySelector("p.note").textContent = note();
								JM.redraw(chart);
							},
						},
						el("option", { value: "phase" }, "by phase"),
						el("option", { value: "time" }, "over time"),
					)
				: null;
		const chart = panel(
			"Parts and residue",
			note(),
			(c) => option(c, timed ? bins : phases, timed, timed ? trace.end_s : 0),
			{ id: s.id + "/residue", tools: select, table: () => table(detail, tree) },
		);
		return chart;
	};
})();
