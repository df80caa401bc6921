// SPDX-License-Identifier: Apache-2.0
// The top of the report page: the setting that saves most within a limit of slowdown, and all systems of one work
// in one chart of efficiency against throughput.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, parts, tip, whiskers } = JM;
	const LIMIT = 5; // percent of slowdown

	const labels = (s, list) => list.map((i) => s.points[i].label).join(", ");

	// The setting that saves most energy while its time loss, upper end of the 95 % interval, is within the limit.
	// kind: best, tie (several cannot be told apart), none (why).
	JM.within = function (s) {
		const verdict = s.verdicts.find((v) => v.metric === "energy_gain_percent");
		const gain = (i) => s.points[i].metrics.energy_gain_percent,
			loss = (i) => s.points[i].metrics.time_loss_percent;
		const none = (why) => ({ kind: "none", why: why, at: [] });
		if (!verdict) return none("there are fewer than two settings");
		if (verdict.kind === "none") return none(verdict.why);
		const others = s.points.map((p, i) => i).filter((i) => i !== s.reference && s.points[i].eligible);
		const fast = others.filter((i) => known(loss(i).high95) && loss(i).high95 <= LIMIT);
		if (!fast.length)
			return none(
				"each setting that the device kept to is, or may be, more than " +
					LIMIT +
					" % slower than the reference",
			);
		const saving = fast.filter((i) => gain(i).low95 > 0);
		if (!saving.length)
			return none(
				"no setting within the limit uses clearly less energy than the reference (" +
					s.points[s.reference].label +
					")",
			);
		const best = saving.reduce((a, b) => (gain(b).mean > gain(a).mean ? b : a));
		const tied = fast.filter((i) => gain(i).high95 >= gain(best).low95);
		return {
			kind: tied.length > 1 ? "tie" : "best",
			leading: best,
			at: tied,
			why: "their 95 % intervals overlap",
		};
	};

	const percent = (stat) => JM.estimate(stat.mean, JM.half(stat)) + "\u00a0% less";
	const slower = (stat) =>
		Math.abs(stat.mean) <= JM.half(stat)
			? "no measurable difference in speed"
			: JM.estimate(Math.abs(stat.mean), JM.half(stat)) +
				"\u00a0% " +
				(stat.mean > 0 ? "slower" : "faster");
	const watts = (stat) => JM.estimate(stat.mean, JM.half(stat)) + "\u00a0W";

	function saving(s, i) {
		const m = s.points[i].metrics,
			ref = s.points[s.reference];
		return [
			el("b", {}, percent(m.energy_gain_percent) + " energy"),
			" per " + s.item + ", " + slower(m.time_loss_percent),
			known(m.watts_mean.mean) && known(ref.metrics.watts_mean.mean)
				? ", mean power " + watts(m.watts_mean) + " instead of " + watts(ref.metrics.watts_mean)
				: "",
			"; the reference is " + ref.label + ".",
		];
	}

	function answer(s, found) {
		const title = s.title;
		if (found.kind === "none")
			return [el("div", { class: "what" }, title), el("div", {}, "No clear best: " + found.why + ".")];
		return [
			el("div", { class: "what" }, title),
			el("div", { class: "answer" }, found.kind === "best" ? s.points[found.leading].label : "no clear best"),
			el(
				"div",
				{},
				found.kind === "best"
					? null
					: labels(s, found.at) +
							": " +
							found.why +
							". " +
							s.points[found.leading].label +
							" has the largest mean saving: ",
				saving(s, found.leading),
			),
		];
	}

	// One card for all series that have settings to choose from.
	JM.leading = function (S) {
		const rows = S.series.filter((s) => s.points.length > 1 && s.reference !== null);
		if (!rows.length) return null;
		const found = rows.map(JM.within);
		const kind = found.some((f) => f.kind === "best") ? "best" : found[0].kind;
		return el(
			"section",
			{ class: "leading card " + kind, id: "best", "aria-label": "Best setting" },
			el("h2", {}, "Best setting for at most " + LIMIT + "\u00a0% slowdown"),
			el(
				"div",
				{ class: rows.length > 1 ? "answers" : null },
				rows.map((s, i) => el("div", {}, answer(s, found[i]))),
			),
			el(
				"p",
				{ class: "soft small" },
				"Mean \u00b1 half of the 95\u00a0% interval over the repeats. The upper end of the interval of the slowdown is within the limit.",
			),
		);
	};

	const leaves = (o, path) =>
		Object.entries(o || {}).flatMap(([k, v]) =>
			v !== null && typeof v === "object" && !Array.isArray(v)
				? leaves(v, path + k + "/")
				: [[path + k, k, v]],
		);

	// Identity of the work: the parameters without the machine and without what is swept.
	function work(s, dims) {
		const swept = (k) => dims.some((d) => d.name === k.split("@")[0]);
		const kept = leaves(s.parameters, "").filter(
			([path, k]) => !/^(device|source|control|settings\/.*)$/.test(path) && !swept(k),
		);
		return JSON.stringify([s.item, kept.map(([path, , v]) => [path, v]).sort()]);
	}

	const hasTrade = (s) =>
		s.points.some((p) => known(p.metrics.throughput.mean) && known(p.metrics.items_per_joule.mean));

	// Names of systems: what follows " on " in the title, where that tells them apart.
	function names(group) {
		const short = group.map((s) => s.title.replace(/^.* on /, ""));
		return new Set(short).size === group.length ? short : group.map((s) => s.title);
	}

	// Both 95 % intervals of a point: [x, x low, x high, y, y low, y high].
	function horizontal(c, color, items) {
		return Object.assign(whiskers(c, color, items), {
			encode: { x: [1, 2], y: 0 },
			renderItem: function (params, api) {
				const a = api.coord([api.value(1), api.value(0)]),
					b = api.coord([api.value(2), api.value(0)]);
				const style = { stroke: color, lineWidth: 1.4, fill: "none" };
				const line = (x1, y1, x2, y2) => ({
					type: "line",
					shape: { x1: x1, y1: y1, x2: x2, y2: y2 },
					style: style,
				});
				return {
					type: "group",
					children: [
						line(a[0], a[1], b[0], b[1]),
						line(a[0], a[1] - 4, a[0], a[1] + 4),
						line(b[0], b[1] - 4, b[0], b[1] + 4),
					],
				};
			},
		});
	}

	function drawSystem(c, s, name, color, many) {
		const x = JM.column(s, "throughput"),
			y = JM.column(s, "items_per_joule"),
			part = parts(s),
			chosen = JM.within(s).at;
		const has = (i) => known(x.mean[i]) && known(y.mean[i]);
		const all = part.curve.concat(part.off, part.reference).filter(has);
		const text = (i) => {
			const p = s.points[i];
			return p.state === "violated" ? "(" + p.label + ")" : p.label;
		};
		const shown = (i, list) => !many || chosen.includes(i) || i === list[0];
		const item = (i, k, list) => ({
			value: [x.mean[i], y.mean[i]],
			index: i,
			label: { show: shown(i, list), formatter: text(i), position: k === 0 ? "left" : "top" },
			itemStyle: chosen.includes(i) ? { borderColor: c.best, borderWidth: 3 } : undefined,
			symbolSize: chosen.includes(i) ? 12 : 8,
		});
		const label = { show: true, color: c.ink, fontSize: 11, distance: 7 };
		const more = { tooltip: { formatter: tip(s, [x, y]) } };
		return [
			whiskers(
				c,
				color,
				all
					.filter((i) => y.half[i] > 0)
					.map((i) => [x.mean[i], y.mean[i] - y.half[i], y.mean[i] + y.half[i]]),
			),
			horizontal(
				c,
				color,
				all
					.filter((i) => x.half[i] > 0)
					.map((i) => [y.mean[i], x.mean[i] - x.half[i], x.mean[i] + x.half[i]]),
			),
			Object.assign(more, {
				type: "line",
				name: name,
				data: part.curve.filter(has).map(item),
				color: color,
				lineStyle: { width: 2, color: color },
				symbol: "circle",
				z: 4,
				label: label,
			}),
			Object.assign(
				JM.offPoints(c, part.off.filter(has).map((i) => Object.assign(item(i, 1, []), { label: { show: true, formatter: text(i), position: "top" } }))),
				{ label: label, tooltip: more.tooltip },
			),
			Object.assign(
				JM.referencePoints(
					c,
					part.reference.filter(has).map((i) => ({ value: [x.mean[i], y.mean[i]], index: i })),
					{
						label: {
							show: !many,
							formatter: "reference",
							position: "bottom",
							color: c.ref,
							fontSize: 11,
							distance: 9,
						},
					},
				),
				{ tooltip: more.tooltip },
			),
		];
	}

	// Efficiency against throughput of all systems that did the same work; both axes start at 0.
	function chartSystems(group) {
		const many = group.length > 1,
			name = names(group);
		const unit = (metric) => JM.column(group[0], metric).unit;
		const title = "Efficiency against throughput" + (many ? ": " + group[0].title.replace(/ on .*$/, "") : "");
		return panel(
			title,
			"Up and to the right is better. Both axes start at 0; bars are 95\u00a0% intervals. Diamond: the reference; " +
				"green ring: best setting for at most " +
				LIMIT +
				"\u00a0% slowdown, or those that cannot be told apart.",
			function (c) {
				const option = base(c);
				option.xAxis = axis(c, unit("throughput"), { min: 0, splitNumber: 5, boundaryGap: [0, "6%"] });
				option.yAxis = valueAxis(c, unit("items_per_joule"), { min: 0, boundaryGap: [0, "12%"] });
				if (many)
					option.legend = {
						type: "scroll",
						top: 0,
						right: 0,
						left: 90,
						data: name,
						textStyle: { color: c.soft },
					};
				option.series = group.flatMap((s, k) =>
					drawSystem(c, s, name[k], many ? c.many[k % c.many.length] : c.main, many),
				);
				return option;
			},
			true,
		);
	}

	// One chart per work; a single system needs two settings to be worth one.
	JM.systems = function (S) {
		const groups = new Map();
		for (const s of S.series.filter(hasTrade)) {
			const key = work(s, S.dimensions);
			groups.set(key, (groups.get(key) || []).concat(s));
		}
		return [...groups.values()]
			.filter((g) => g.length > 1 || g[0].points.length > 1)
			.map((g) => chartSystems(g).node);
	};
})();
