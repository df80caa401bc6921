// SPDX-License-Identifier: Apache-2.0
// The report page: verdicts, charts, tables, quality and provenance from the embedded data.
"use strict";
(function () {
	const data = JSON.parse(document.getElementById("jm-data").textContent);
	const S = data.summary,
		dims = S.dimensions,
		el = JM.el,
		known = JM.known;
	const page = document.getElementById("jm-page");
	const fileName =
		document.title
			.toLowerCase()
			.replace(/[^a-z0-9]+/g, "-")
			.replace(/^-|-$/g, "") || "joulemark";

	function top() {
		const first = data.records[0] || {},
			host = (first.provenance || {}).host;
		const days = [
			...new Set(data.records.map((r) => (r.started || "").slice(0, 10)).filter(Boolean)),
		].sort();
		const ok = S.cases.filter((c) => c.ok).length;
		const facts = [
			ok + (ok === 1 ? " run" : " runs"),
			host && "on " + host,
			days.length && (days.length > 1 ? days[0] + " to " + days[days.length - 1] : days[0]),
		];
		return el(
			"div",
			{ class: "top" },
			el(
				"div",
				{},
				el("h1", {}, document.title),
				el("p", { class: "soft" }, facts.filter(Boolean).join(" \u00b7 ")),
			),
			el(
				"div",
				{ class: "actions" },
				el("button", { onclick: () => window.print() }, "Print"),
				el(
					"button",
					{
						onclick: () =>
							JM.download(
								fileName + "-settings.csv",
								"text/csv",
								data.settings_csv,
							),
					},
					"Settings as CSV",
				),
				el(
					"button",
					{
						onclick: () =>
							JM.download(
								fileName + "-cases.csv",
								"text/csv",
								data.cases_csv,
							),
					},
					"Cases as CSV",
				),
				!data.brief &&
					el(
						"button",
						{
							onclick: () =>
								JM.download(
									fileName + "-records.json",
									"application/json",
									JSON.stringify(data.records, null, 1),
								),
						},
						"Records as JSON",
					),
			),
		);
	}

	function banners() {
		const out = [],
			failed = S.cases.filter((c) => !c.ok).length;
		const origin = S.not_measured;
		const why = {
			simulated: "Simulated: the power and speed of this node come from a model of published figures. Nothing here was measured on hardware.",
			estimated: "Estimated: the energy comes from processor time and a stated model of watts, not from a sensor. It yields no verdict.",
			replayed: "Replayed: the power comes from a recorded trace.",
		};
		for (const word of origin.split(", ").filter((w) => why[w]))
			out.push(
				el(
					"div",
					{ class: "banner" },
					el("b", {}, why[word].split(":")[0] + ":"),
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
		if (data.brief)
			out.push(
				el(
					"div",
					{ class: "banner" },
					el("b", {}, S.cases.length + " runs: "),
					"too many for one page to hold all that was recorded. Details of each run, such as the energy of its phases, stay in the files that this page was made from; a report on fewer runs shows them.",
				),
			);
		if (failed)
			out.push(
				el(
					"div",
					{ class: "banner bad" },
					el("b", {}, failed + " of " + S.cases.length + " runs failed. "),
					"Their reasons are in the table of all runs.",
				),
			);
		return out;
	}

	function card(s, v) {
		const best = v.kind === "best",
			answer = best ? v.text : v.kind === "tie" ? "no clear best" : "no verdict";
		const detail = v.kind === "tie" ? v.text.replace("no clear best: ", "") + ": " + v.why : v.why;
		let change = "";
		if (
			v.kind !== "none" &&
			v.leading !== s.reference &&
			known(v.improvement_percent) &&
			!["energy_gain_percent", "gain_minus_loss"].includes(v.metric)
		)
			change =
				Math.abs(v.improvement_percent).toFixed(1) +
				"\u00a0% " +
				(v.improvement_percent < 0 ? "worse" : "better") +
				" than the reference";
		if (v.kind !== "none" && v.leading === s.reference) change = "that is the reference";
		return el(
			"div",
			{ class: "card " + v.kind },
			el("div", { class: "what" }, v.title[0].toUpperCase() + v.title.slice(1)),
			el("div", { class: "answer" + (answer.length > 16 ? " long" : "") }, answer),
			v.kind === "none"
				? null
				: el(
						"div",
						{ class: "value" },
						v.kind === "tie" ? s.points[v.leading].label + ": " : "",
						v.value,
					),
			change && v.kind === "best" ? el("div", { class: "change good" }, change) : null,
			detail ? el("div", { class: "change" }, detail[0].toUpperCase() + detail.slice(1) + ".") : null,
		);
	}

	// Mean power of the devices that a knob like gpu.power caps, one figure per setting; NaN where none tells.
	function cappedWatts(s, index) {
		const scope = dims[0].name.split(".")[0],
			mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
		const watts = (c) =>
			(data.records[c.record].meters || [])
				.filter((m) => m.scope === scope && m.origin === s.origin && known(m.watts_mean))
				.map((m) => m.watts_mean);
		return s.points.map((p, i) =>
			mean(S.cases.filter((c) => c.series === index && c.point === i && c.ok).flatMap(watts)),
		);
	}

	function charts(s, index) {
		const has = (name) => JM.column(s, name).any;
		const note = "Mean of the repeats with its 95 % interval. ";
		const out = [];
		if (s.points.length < 2) return out;
		if (has("throughput"))
			out.push(JM.chartSetting(s, dims, "throughput", "throughput", note + "Higher is better."));
		if (has("items_per_joule"))
			out.push(
				JM.chartSetting(
					s,
					dims,
					"items_per_joule",
					"joules_per_item",
					note + "Higher is better.",
				),
			);
		if (has("joules_per_item"))
			out.push(
				JM.chartSetting(
					s,
					dims,
					"joules_per_item",
					"joules_per_item",
					note + "Lower is better.",
				),
			);
		if (s.reference !== null && has("edp"))
			out.push(JM.chartProducts(s, dims, ["edp"].concat(S.eds_k.map((k) => "eds_k" + k))));
		if (
			has("watts_mean") &&
			dims.length === 1 &&
			dims[0].knob &&
			dims[0].unit === "W" &&
			s.points.every((p) => known(p.x)) &&
			cappedWatts(s, index).some(known)
		)
			out.push(JM.chartPower(s, dims, cappedWatts(s, index)));
		return out.length
			? [
					el(
						"div",
						{ class: "grid" },
						out.map((c) => c.node),
					),
				]
			: [];
	}

	function traces(s, index) {
		const mine = [];
		for (const t of (data.traces || []).filter(Boolean)) {
			const of = S.cases.find((c) => c.record === t.record),
				r = data.records[t.record];
			const inside = (m) =>
				(r.meters || []).some((x) => x.id === m.id && (x.covered_by || x.elsewhere));
			if (of && of.series === index) {
				t.meters.sort((a, b) => inside(a) - inside(b));
				mine.push(
					Object.assign(t, {
						hidden: Object.fromEntries(
							t.meters.filter(inside).map((m) => [m.label, false]),
						),
						of: of,
						origin: of.origin,
						phases: r.phases || [],
						caps: (r.settings || [])
							.filter((x) => x.unit === "W")
							.map((x) => x.enforced),
						label:
							s.points[of.point].label +
							(s.points[of.point].reference ? " (reference)" : "") +
							(of.repeat === undefined ? "" : ", repeat " + of.repeat),
					}),
				);
			}
		}
		if (!mine.length) return null;
		const best = s.verdicts.find((v) => v.metric === "joules_per_item") || {};
		const start = Math.max(
			0,
			mine.findIndex((t) => t.of.point === best.leading),
		);
		const chart = JM.chartTrace(mine[start]);
		const choice = el(
			"select",
			{ "aria-label": "run", onchange: (e) => chart.show(mine[e.target.value]) },
			mine.map((t, i) => el("option", { value: i, selected: i === start }, t.label)),
		);
		const note = chart.node.querySelector("p");
		note.textContent =
			"One run, each meter; the phases of the work are shaded. A click on a name shows or hides its meter; drag or scroll to zoom. ";
		const shown = new Set(mine.map((t) => t.of.point)).size,
			all = s.points.filter((p) => p.runs_ok).length;
		if (shown < all) note.append("The traces of " + shown + " of " + all + " settings are on this page. ");
		note.append(JM.origin(mine[start].origin));
		chart.node.insertBefore(el("div", {}, choice), note.nextSibling);
		return chart.node;
	}

	function body(s, index) {
		const mine = S.cases.filter((c) => c.series === index),
			one = mine.find((c) => c.ok) || mine[0];
		return [
			S.series.length > 1 ? el("h2", { id: "s" + (index + 1) }, s.title, " ", JM.origin(s.origin)) : null,
			s.verdicts.length
				? el(
						"div",
						{ class: "cards" },
						s.verdicts.map((v) => card(s, v)),
					)
				: null,
			charts(s, index),
			traces(s, index),
			JM.settings(
				s,
				dims,
				S.eds_k.map((k) => "eds_k" + k),
			),
			JM.quality(s.grade, s.grade_reasons),
			JM.phases(data.records[one.record], one.origin),
			JM.meters(data.records[one.record]),
		]
			.flat(2)
			.filter(Boolean);
	}

	// Where there are several series: links to each, by fragment.
	function contents() {
		if (S.series.length < 2) return null;
		return el(
			"nav",
			{ "aria-label": "Contents", class: "contents" },
			S.series.map((s, i) => el("a", { href: "#s" + (i + 1) }, s.title)),
			el("a", { href: "#behind" }, "Behind the figures"),
		);
	}

	page.replaceChildren(
		...[top(), banners(), JM.leading(S), contents(), JM.systems(S)].flat().filter(Boolean),
	);
	S.series.forEach((s, index) => page.append(...body(s, index)));
	if (S.published.length || S.published_note)
		page.append(
			el("h2", {}, "Published, not measured here"),
			el(
				"p",
				{ class: "soft" },
				S.published_note ||
					"Reported by papers, on their machines; not part of any figure, mean or verdict above.",
			),
			...S.published.map(JM.published),
		);
	page.append(
		el("h2", { id: "behind" }, "Behind the figures"),
		JM.cases(S),
		JM.provenance(S, data.brief ? data.records.filter((r) => r.provenance) : data.records),
		JM.definitions(),
		el(
			"footer",
			{},
			"joulemark " +
				S.joulemark +
				". This page holds all its data and needs no network. Charts by Apache ECharts.",
		),
	);
	if (location.hash.length > 1)
		(document.getElementById(location.hash.slice(1)) || page).scrollIntoView();
	document.documentElement.dataset.ready = "yes";
})();
