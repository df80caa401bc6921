// SPDX-License-Identifier: Apache-2.0
// The message of the page: the best setting of each system; and all systems in one table.
"use strict";
(function () {
	const { el, known } = JM;
	const FEW = 6; // systems that are answered in full

	const labels = (s, list) => list.map((i) => JM.named(s, s.points[i])).join(", ");

	const watts = (stat) => JM.estimateOf(stat) + "\u00a0W";

	// What the terminal's answer does not have.
	function meanPower(s, i) {
		if (s.reference === null) return "";
		const m = s.points[i].metrics,
			ref = s.points[s.reference];
		return (
			"The reference is " + JM.named(s, ref) +
			(known(m.watts_mean.mean) && known(ref.metrics.watts_mean.mean)
				? "; mean power" + (s.sum_of ? " of " + s.sum_of : "") + ": " + watts(m.watts_mean) + " instead of " + watts(ref.metrics.watts_mean) + "."
				: ".")
		);
	}

	// The command as the terminal prints it, to be copied.
	function nextStep(found) {
		if (!found.next) return found.limit ? el("div", {}, found.limit) : null;
		const copy = el("button", { class: "save", onclick: () => navigator.clipboard && navigator.clipboard.writeText(found.next) }, "copy");
		return el("div", { class: "next" }, "Next: ", el("code", {}, found.next), " ", copy);
	}

	function answer(s, found) {
		const title = JM.S.series.length > 1 ? el("a", { href: "#" + s.id }, s.title) : s.title,
			what = el("div", { class: "what" }, title, " ", JM.origin(s.origin));
		if (found.kind === "none") return [what, el("div", {}, found.answer), nextStep(found)];
		return [
			what,
			el("div", { class: "answer" }, found.kind === "best" ? JM.named(s, s.points[found.leading]) + (s.per ? " " + s.per : "") : "no clear best"),
			el("div", {}, JM.nbsp(found.answer)),
			found.kind === "best" ? null : el("div", {}, found.why[0].toUpperCase() + found.why.slice(1) + ". " + JM.named(s, s.points[found.leading]) + (JM.limited ? " has the largest mean saving." : " has the best mean.")),
			el("div", {}, meanPower(s, found.leading)),
			nextStep(found),
		];
	}

	// " (gpu.power)"
	function ofWhat(S) {
		const knobs = S.dimensions.filter((d) => d.knob).map((d) => d.name);
		return knobs.length ? " (" + knobs.join(", ") + ")" : "";
	}

	// Of many systems: how many save, how much, and which saves most.
	function summary(rows, found) {
		const gain = (k) => rows[k].points[found[k].leading].metrics.energy_gain_percent;
		const some = rows.map((_, k) => k).filter((k) => found[k].kind !== "none" && known(gain(k).mean));
		if (!some.length) return [el("div", {}, "None of the " + rows.length + " systems has a clear best setting. The table gives the reasons.")];
		const order = some.slice().sort((a, b) => gain(b).mean - gain(a).mean),
			most = order[0],
			least = order[order.length - 1];
		return [
			el(
				"div",
				{ class: "answer" },
				some.length + " of " + rows.length + " systems save " + Math.round(gain(least).mean) + " to " + Math.round(gain(most).mean) + "\u00a0% energy",
			),
			el("div", {}, "Most: ", el("b", {}, rows[most].title), ": ", JM.nbsp(found[most].answer)),
			el("p", {}, el("a", { href: "#systems" }, "Each system"), " is in the table below."),
		];
	}

	// Without a reference there is no saving to show. Each work has a system with the least energy per item, at the setting
	// that leads in the verdict on it, or has the least mean where there is no verdict.
	function leastEnergy(w) {
		const list = w.series
			.filter((s) => s.origin && !/estimated|mixed/.test(s.origin))
			.map((s) => [s, (s.points.length > 1 && s.verdicts.find((v) => v.metric === "joules_per_item")) || null])
			.map(([s, v]) => [s, v, v && v.kind !== "none" ? v.leading : bestPoint(s, "items_per_joule", 1)])
			.filter((x) => x[2] !== null);
		const value = ([s, , i]) => s.points[i].metrics.joules_per_item.mean;
		return list.length ? list.reduce((a, b) => (value(b) < value(a) ? b : a)) : null;
	}

	function withoutReference(S) {
		const found = JM.works.map(leastEnergy).filter(Boolean).slice(0, FEW);
		if (!found.length || S.runs.n < 2) return null;
		const one = ([s, v, i]) => [
			el("div", { class: "what" }, s.work.title, " ", JM.origin(s.origin)),
			v && v.kind !== "best"
				? el("div", {}, v.kind === "none" ? "No best setting: " + v.why + "." : v.sentence[0].toUpperCase() + v.sentence.slice(1) + ".")
				: null,
			el("div", { class: v && v.kind !== "best" ? null : "answer" }, v && v.kind !== "best" ? "Least mean: " : "",
				S.series.length > 1 ? s.title + ": " : "", JM.named(s, s.points[i])),
			el("div", {}, stat(s, i, "items_per_joule") + " " + s.metrics.items_per_joule.unit + ", " + stat(s, i, "throughput") + " " + s.metrics.throughput.unit + "."),
		];
		const many = found.some(([s]) => s.work.series.length > 1);
		return el(
			"section",
			{ class: "leading card", id: "best", "aria-label": "Least energy" },
			el("h2", {}, found.length === 1 ? "Least energy per " + found[0][0].item : "Least energy per item"),
			el("div", { class: found.length > 1 ? "answers" : null }, found.map((x) => el("div", {}, one(x)))),
			el("p", { class: "soft small" }, (many ? "Of several systems that with the least mean. " : "") + "No setting is a reference, so that no saving and no slowdown can be given" +
				(JM.works.length > found.length ? "; of " + JM.works.length + " works the first " + found.length + ", all are in the table below." : ".")),
		);
	}

	function referenceIs(rows) {
		const kinds = [...new Set(rows.map((s) => s.reference_is).filter(Boolean))];
		if (!kinds.length) return "";
		return "Reference: " + kinds.join(" or ") + ". ";
	}

	// One card for all series that have settings to choose from.
	JM.leading = function (S) {
		const rows = S.series.filter((s) => s.points.length > 1 && (s.reference !== null || !JM.limited));
		if (!rows.length) return withoutReference(S);
		const found = rows.map((s) => s.within);
		const kind = found.some((f) => f.kind === "best") ? "best" : found[0].kind;
		return el(
			"section",
			{ class: "leading card " + kind, id: "best", "aria-label": "Best setting" },
			el("h2", {}, JM.nbsp(S.within_title) + ofWhat(S)),
			rows.length > FEW
				? summary(rows, found)
				: el(
						"div",
						{ class: rows.length > 1 ? "answers" : null },
						rows.map((s, i) => el("div", {}, answer(s, found[i]))),
					),
			el(
				"p",
				{ class: "soft small" },
				referenceIs(rows) + "Mean \u00b1 half of the 95\u00a0% interval over the repeats." +
					(JM.limited ? " The upper end of the interval of the slowdown is within the limit." : JM.S.budget_watts ? " The upper end of the interval of the power is within the budget." : ""),
			),
		);
	};

	// ---- all systems in one table -----------------------------------------------------------------------------

	// Parameters in which the series that have them differ, beyond their titles' machine.
	function differing(S) {
		const seen = new Map();
		for (const s of S.series)
			for (const [path, name, v] of JM.parameters(s))
				if (!/^(workload|device|source|control)$/.test(name))
					seen.set(name, (seen.get(name) || new Set()).add(JSON.stringify(v)));
		return [...seen].filter(([, values]) => values.size > 1).map(([name]) => name);
	}

	const one = (s, name) => {
		const found = JM.parameters(s).find(([, n]) => n === name);
		return found ? found[2] : null;
	};
	const stat = (s, i, metric) => {
		const m = i === null || i === undefined ? null : s.points[i].metrics[metric];
		return m ? JM.estimateOf(m) : "\u2013";
	};

	// The best mean of a metric over the points that count.
	function bestPoint(s, metric, better) {
		const list = s.points.filter((p) => p.eligible && known(p.metrics[metric].mean));
		return list.length
			? list.reduce((a, b) => (better * (b.metrics[metric].mean - a.metrics[metric].mean) > 0 ? b : a)).index
			: null;
	}

	JM.systemsTable = function (S) {
		if (S.series.length < 2) return null;
		const inTitle = (name) => S.series.every((s) => s.work.title === JM.text(one(s, name)));
		const axes = differing(S).filter((name) => !/^(response|model)$/.test(name) && !inTitle(name)).slice(0, 4),
			names = new Map(JM.works.flatMap((w) => JM.systemNames(w.series).map((n, i) => [w.series[i], n])));
		const found = (s) => s.within;
		const system = (s) => names.get(s).replace(s.work.title, "").replace(/^ on /, "") || "\u2013";
		const items = S.series.some((s) => s.item !== S.series[0].item);
		const columns = [
			{ title: "work", left: true, of: (s) => el("a", { href: "#" + s.id }, s.work.title) },
			...(S.series.every((s) => system(s) === "\u2013" || s.work.title.endsWith(" on " + system(s))) ? [] : [{ title: "system", left: true, of: system }]),
			...axes.map((name) => ({ title: name, of: (s) => JM.text(one(s, name)) })),
			{ title: "throughput", unit: items ? "" : S.series[0].item + "/s", of: (s) => stat(s, s.reference ?? 0, "throughput") + (items ? " " + s.item + "/s" : "") },
			{ title: "power", unit: "W, all devices", of: (s) => stat(s, s.reference ?? 0, "watts_mean") },
			{ title: "efficiency", unit: items ? "items/J" : S.series[0].item + "/J", of: (s) => stat(s, s.reference ?? 0, "items_per_joule") },
			{
				title: "best setting",
				unit: JM.nbsp(JM.S.objective_brief),
				left: true,
				of: (s) => (found(s).kind === "none" ? "\u2013" : labels(s, found(s).at) + (s.per ? " " + s.per : "")),
				hint: (s) => found(s).why,
			},
			{ title: "energy saved", unit: "%", of: (s) => stat(s, found(s).leading, "energy_gain_percent") },
			{ title: "slowdown", unit: "%", of: (s) => stat(s, found(s).leading, "time_loss_percent") },
			{
				title: "least energy",
				unit: "no limit",
				left: true,
				of: (s) => {
					const i = s.points.length > 1 ? bestPoint(s, "items_per_joule", 1) : null;
					return i === null ? "\u2013" : JM.named(s, s.points[i]);
				},
			},
			...(S.series.some((s) => s.origin !== S.series[0].origin) ? [{ title: "origin", left: true, of: (s) => JM.text(s.origin) }] : []),
			{ title: "runs", of: (s) => s.runs_ok + (s.runs_failed ? " + " + s.runs_failed + " failed" : "") },
		];
		return el(
			"section",
			{ class: "panel", id: "systems", "aria-label": "All systems" },
			el("h3", {}, "All systems (" + S.series.length + ")"),
			el("p", { class: "soft small" }, "Throughput, power and efficiency are those of the reference, to which the other settings are compared; without a reference, those of the first setting. Power is the sum over all devices. " + JM.nbsp(JM.S.within_title) + "; energy saved and slowdown are its own, per item, compared with the reference. Click a heading to sort, and a work to see its charts."),
			JM.table(columns, S.series, { filter: S.series.length > 12, limit: 12, csv: "systems" }),
		);
	};
})();
