// SPDX-License-Identifier: Apache-2.0
// The report page: best settings, charts, tables, quality and provenance from the embedded data.
"use strict";
(function () {
	const S = JM.S,
		el = JM.el,
		known = JM.known;
	const page = document.getElementById("jm-page");
	JM.fileName =
		document.title
			.toLowerCase()
			.replace(/[^a-z0-9]+/g, "-")
			.replace(/^-|-$/g, "") || "joulemark";

	// One row per setting, all systems and metrics.
	function settingsCsv() {
		const names = [...new Set(S.series.flatMap((s) => Object.keys(s.metrics)))];
		const rows = S.series.flatMap((s) => s.points.map((p) => [s, p]));
		const columns = [
			{ title: "work", of: ([s]) => s.title },
			{ title: "origin", of: ([s]) => s.origin },
			...S.dimensions.map((d, k) => ({ title: d.name, of: ([, p]) => p.settings[k].text })),
			{ title: "reference", of: ([, p]) => (p.reference ? "yes" : "no") },
			{ title: "state", of: ([, p]) => p.state },
			{ title: "runs_ok", of: ([, p]) => p.runs_ok },
			{ title: "runs_failed", of: ([, p]) => p.runs_failed },
			...names.flatMap((n) =>
				["mean", "low95", "high95", "median", "sd"].map((key) => ({
					title: n + "_" + key,
					of: ([, p]) => (p.metrics[n] && known(p.metrics[n][key]) ? p.metrics[n][key] : ""),
				})),
			),
		];
		return JM.csvOf(columns, rows);
	}

	// One row per run, all that is known of it.
	function runsCsv() {
		const of = (i) => S.series[JM.run("series", i)];
		const skip = ["n", "series", "point", "record"];
		const columns = [
			{ title: "work", of: (i) => of(i).title },
			...S.dimensions.map((d, k) => ({ title: d.name, of: (i) => of(i).points[JM.run("point", i)].settings[k].text })),
			...Object.keys(S.runs)
				.filter((k) => !skip.includes(k))
				.map((k) => ({ title: k, of: (i) => JM.run(k, i) })),
		];
		return JM.csvOf(columns, JM.allRuns);
	}

	function top() {
		const first = S.machines[0] || {};
		const days = [...new Set(JM.allRuns.map((i) => (JM.run("started", i) || "").slice(0, 10)).filter(Boolean))].sort();
		const hosts = new Set(S.machines.map((m) => m.hosts || m.host)).size;
		const words = [
			S.runs.n + (S.runs.n === 1 ? " run" : " runs"),
			S.series.length > 1 && S.series.length + " systems",
			hosts > 1 ? "on " + hosts + " machines" : first.hosts ? "on the hosts " + first.hosts : first.host && "on the machine " + first.host,
			days.length && (days.length > 1 ? days[0] + " to " + days[days.length - 1] : days[0]),
		];
		const button = (title, type, name, text) =>
			el("button", { onclick: () => JM.download(JM.fileName + name, type, text()) }, title);
		return el(
			"header",
			{ class: "top" },
			el("div", {}, el("h1", {}, document.title), el("p", { class: "soft" }, words.filter(Boolean).join(" \u00b7 "))),
			el(
				"div",
				{ class: "actions" },
				el("button", { onclick: () => window.print() }, "Print"),
				button("Settings as CSV", "text/csv", "-settings.csv", settingsCsv),
				button("Runs as CSV", "text/csv", "-runs.csv", runsCsv),
				button("Data as JSON", "application/json", "-data.json", () => document.getElementById("jm-data").textContent),
			),
		);
	}

	function banners() {
		const out = [],
			failed = JM.allRuns.filter((i) => !JM.run("ok", i)).length;
		const origin = S.not_measured;
		const why = {
			simulated: "Simulated: the power and speed of this node come from a model of published figures. Nothing here was measured on hardware.",
			estimated: "Estimated: the energy comes from processor time and a stated model of watts, not from a sensor. It cannot tell which setting is best.",
			replayed: "Replayed: the power comes from a recorded trace.",
		};
		// Which systems that is, where it is not all of them: " (train gpt on cpu)".
		const whose = (word) => {
			const list = S.series.filter((s) => s.origin === word);
			return list.length && list.length < S.series.length ? " (" + (list.length > 3 ? list.length + " systems" : list.map((s) => s.title).join(", ")) + ")" : "";
		};
		for (const word of origin.split(", ").filter((w) => why[w]))
			out.push(
				el(
					"div",
					{ class: "banner" },
					el("b", {}, why[word].split(":")[0] + whose(word) + ":"),
					why[word].slice(word.length + 1),
				),
			);
		if (S.added_watts > 0)
			out.push(
				el(
					"div",
					{ class: "banner" },
					el("b", {}, "Assumed: "),
					JM.plain(S.added_watts) +
						" W for the rest of the node are added to every run; they are assumed, not measured.",
				),
			);
		if (failed)
			out.push(
				el(
					"div",
					{ class: "banner bad" },
					el("b", {}, failed + " of " + S.runs.n + " runs failed. "),
					"Their reasons are in the table of all runs.",
				),
			);
		return out;
	}

	function card(s, v) {
		const best = v.kind === "best",
			answer = best ? v.text : "no clear best";
		const detail = v.kind === "tie" ? v.text.replace("no clear best: ", "") + ": " + v.why : v.why;
		let change = "";
		if (
			v.leading !== s.reference &&
			known(v.improvement_percent) &&
			!["energy_gain_percent", "gain_minus_loss"].includes(v.metric)
		)
			change =
				Math.abs(v.improvement_percent).toFixed(1) +
				"\u00a0% " +
				(v.improvement_percent < 0 ? "worse" : "better") +
				" than the reference";
		if (v.leading === s.reference) change = "that is the reference";
		return el(
			"div",
			{ class: "card " + v.kind },
			el("div", { class: "what" }, v.title[0].toUpperCase() + v.title.slice(1)),
			el("div", { class: "answer" + (answer.length > 16 ? " long" : "") }, answer),
			el("div", { class: "value" }, best ? "" : JM.named(s, s.points[v.leading]) + ": ", v.value),
			change && v.kind === "best" ? el("div", { class: "change good" }, change) : null,
			detail ? el("div", { class: "change" }, detail[0].toUpperCase() + detail.slice(1) + ".") : null,
			el("div", { class: "meaning" }, JM.meaning(s, v.metric)),
		);
	}

	// Questions that have no answer for the same reason share a card.
	function noAnswer(s) {
		const reasons = [...new Set(s.verdicts.filter((v) => v.kind === "none").map((v) => v.why))];
		return reasons.map((why) => {
			const alike = s.verdicts.filter((v) => v.kind === "none" && v.why === why);
			const by = alike.length === s.verdicts.length ? "any metric" : alike.map((v) => v.title).join(", ");
			return el(
				"div",
				{ class: "card none" },
				el("div", { class: "what" }, "No best setting by " + by),
				el("div", { class: "change" }, why[0].toUpperCase() + why.slice(1) + "."),
			);
		});
	}

	// Mean power of the devices that a knob like gpu.power caps, one figure per setting; NaN =
	// no device reports it.
	function cappedWatts(s) {
		return s.points.map((p) => (p.capped_watts === null ? NaN : p.capped_watts));
	}

	function charts(s) {
		const has = (name) => JM.column(s, name).any;
		const dims = JM.dims(s);
		const runs = Math.max(...s.points.map((p) => p.runs_ok));
		const note = runs > 1 ? "Mean of the runs with its 95\u00a0% interval. " : "At most one run of each setting. ";
		const out = [];
		if (s.points.length > 1) {
			if (has("throughput")) out.push(JM.chartSetting(s, "throughput", "throughput", note + "Higher is better."));
			if (has("joules_per_item"))
				out.push(JM.chartSetting(s, "joules_per_item", "joules_per_item", note + "Lower is better."));
			for (const name of ["ttft_p99_s", "tpot_p99_s"].filter(has)) out.push(JM.chartSetting(s, name, name, note + "Lower is better."));
			if (s.reference !== null && has("edp"))
				out.push(JM.chartProducts(s, ["edp", "ed2p"].filter((n) => s.metrics[n]).concat(S.eds_k.map((k) => "eds_k" + k))));
			if (dims.length === 1 && dims[0].knob && dims[0].unit === "W" && cappedWatts(s).some(known))
				out.push(JM.chartPower(s, cappedWatts(s)));
			const strips = JM.telemetry(s);
			if (strips.length) out.push(JM.chartTelemetry(s, strips));
		}
		const steps = S.steps.filter((r) => JM.run("series", r.run) === s.index);
		if (steps.length) out.push(JM.chartSteps(s, steps, firstShown(s, steps)));
		const tunes = S.visits.filter((t) => JM.run("series", t.run) === s.index);
		if (tunes.length) out.push(...JM.chartVisits(s, tunes));
		const budgets = S.budgets.filter((b) => JM.run("series", b.run) === s.index);
		if (budgets.length) out.push(JM.chartBudgets(s, budgets));
		if (runs > 1) out.push(JM.chartSpread(s));
		return out;
	}

	// Index of the run of the best setting among those that have a property of one run each.
	function firstShown(s, list) {
		const best = s.verdicts.find((v) => v.metric === "joules_per_item") || {};
		return Math.max(0, list.findIndex((x) => JM.run("point", x.run) === best.leading));
	}

	function traces(s) {
		const inside = new Set(S.details[s.index].meters.filter((m) => m.covered_by || m.elsewhere).map((m) => m.id));
		const list = S.traces
			.filter((t) => JM.run("series", t.run) === s.index)
			.map((t) => {
				const p = s.points[JM.run("point", t.run)];
				t.meters.sort((a, b) => inside.has(a.id) - inside.has(b.id));
				return Object.assign(t, {
					hidden: Object.fromEntries(t.meters.filter((m) => inside.has(m.id)).map((m) => [m.label, false])),
					lanes: JM.lanes(t.phases),
					phase: S.details[s.index].phase,
					point: p.index,
					caps: p.settings
						.filter((x, k) => S.dimensions[k].unit === "W")
						.flatMap((x) => [x.enforced_min, x.enforced_max]),
					label: JM.runName(s, t.run),
				});
			});
		if (!list.length) return null;
		const start = firstShown(s, list);
		const shown = new Set(list.map((t) => t.point)).size,
			all = s.points.filter((p) => p.runs_ok).length;
		const note =
			"One run, each meter (" + JM.run("origin", list[start].run) + "), below the phases of the work. A click on a name shows or hides its meter; the slider zooms." +
			(shown < all ? " The traces of " + shown + " of " + all + " settings are on this page." : "");
		return JM.chartTrace(s, list, start, note);
	}

	// ---- one system at a time -----------------------------------------------------------------------------------

	const place = el("div", { id: "system" });
	let open = []; // charts of the system that is shown

	function chooser(s) {
		return el(
			"select",
			{ "aria-label": "system", onchange: (e) => (location.hash = e.target.value) },
			JM.works.map((w) =>
				el(
					"optgroup",
					{ label: w.title },
					w.series.map((x) => el("option", { value: x.id, selected: x === s }, x.title)),
				),
			),
		);
	}

	function warnings(s) {
		const list = s.warnings.concat(s.soft);
		return list.length
			? el("div", { class: "banner" }, el("b", {}, "To note: "), el("ul", {}, list.map((w) => el("li", {}, w))))
			: null;
	}

	function showSystem(s) {
		const eds = S.eds_k.map((k) => "eds_k" + k);
		const small = charts(s),
			tall = traces(s),
			shares = JM.stepShares(s),
			residue = JM.residue(s, S.traces.filter((t) => JM.run("series", t.run) === s.index)),
			phases = JM.phases(s);
		for (const chart of open) chart.close();
		open = small.concat(tall || [], residue || [], shares || []);
		place.replaceChildren(
			...[
				el(
					"div",
					{ class: "head system", id: s.id },
					el("h2", {}, s.title, " ", JM.origin(s.origin)),
					S.series.length > 1 ? chooser(s) : null,
				),
				warnings(s),
				s.verdicts.length ? el("h3", {}, "Best setting by one metric alone") : null,
				s.verdicts.length
					? el(
							"div",
							{ class: "cards" },
							s.verdicts.filter((v) => v.kind !== "none" && !v.repeats).map((v) => card(s, v)),
							noAnswer(s),
						)
					: null,
				small.length ? el("div", { class: "grid charts" }, small.map((c) => c.node)) : null,
				tall && tall.node,
				JM.settings(s, eds),
				residue ? el("div", { class: "grid" }, residue.node, phases) : phases,
				JM.figures(s),
				shares && shares.node,
				JM.quality(s.grade, s.grade_reasons),
				JM.meters(s),
			]
				.flat(2)
				.filter(Boolean),
		);
		shownSystem = s;
	}
	let shownSystem = null;

	// ---- the whole ----------------------------------------------------------------------------------------------

	function contents(parts) {
		return el(
			"nav",
			{ "aria-label": "Contents", class: "contents" },
			parts.map(([id, title]) => el("a", { href: "#" + id }, title)),
		);
	}

	const systems = JM.systems("efficiency"),
		comparison = JM.comparison("comparison"),
		matrices = [...JM.matrices(), ...JM.scalings()],
		signatures = JM.signatures("signatures"),
		across = [comparison, ...matrices, signatures].filter(Boolean),
		table = JM.systemsTable(S),
		leading = JM.leading(S);
	const published = S.published.length || S.published_note;
	const parts = [
		leading && ["best", "Summary"],
		systems && ["efficiency", "Efficiency"],
		comparison && ["comparison", "Systems compared"],
		matrices.length && [matrices[0].node.id, "Two axes"],
		signatures && ["signatures", "Signatures"],
		table && ["systems", "All systems"],
		["system", S.series.length > 1 ? "One system" : "Charts"],
		["runs", "Runs"],
		published && ["published", "Published figures"],
		["behind", "Behind the figures"],
	].filter(Boolean);

	page.replaceChildren(
		...[
			top(),
			banners(),
			leading,
			contents(parts),
			systems && systems.node,
			across.length ? el("div", { class: "grid" }, across.map((c) => c.node)) : null,
			table,
			place,
			JM.runs(S),
		]
			.flat()
			.filter(Boolean),
	);
	if (published)
		page.append(
			el("h2", { id: "published" }, "Published, not measured here"),
			el(
				"p",
				{ class: "soft" },
				S.published_note ||
					"Reported by papers, on their machines; not part of any figure, mean or conclusion above.",
			),
			...S.published.map(JM.published),
		);
	page.append(
		el("h2", { id: "behind" }, "Behind the figures"),
		JM.provenance(S),
		JM.definitions(),
		el(
			"footer",
			{},
			"joulemark " +
				S.joulemark +
				". This page holds all its data and needs no network. Charts by Apache ECharts.",
		),
	);

	// At first the system that the message is about.
	const first = S.series.find((s) => s.within.kind === "best") || S.series[0];

	// #s3 shows the third system, #s3/power its chart of that name, #w2 the second work, others are ids.
	function follow() {
		const id = decodeURIComponent(location.hash.slice(1));
		const s = S.series.find((x) => x.id === id.split("/")[0]) || shownSystem || first,
			work = JM.works.find((w) => w.id === id);
		if (s !== shownSystem) showSystem(s);
		if (systems && (work || S.series.some((x) => x.id === id))) systems.show(work || s.work);
		const target = document.getElementById(work ? "efficiency" : id);
		if (id && target) requestAnimationFrame(() => target.scrollIntoView());
	}
	window.addEventListener("hashchange", follow);
	follow();
	document.documentElement.dataset.ready = "yes";
})();
