// SPDX-License-Identifier: Apache-2.0
// The report page: verdicts, charts, tables, quality and provenance from the embedded data.
"use strict";
(function () {
const data = JSON.parse(document.getElementById("jm-data").textContent);
const S = data.summary, dims = S.dimensions, el = JM.el, known = JM.known;
const page = document.getElementById("jm-page");
const fileName = document.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "joulemark";
const text = (v) => v === null || v === undefined || v === "" ? "\u2013" : String(v);

function top() {
	const first = data.records[0] || {}, host = (first.provenance || {}).host;
	const days = [...new Set(data.records.map((r) => (r.started || "").slice(0, 10)).filter(Boolean))].sort();
	const ok = S.cases.filter((c) => c.ok).length;
	const facts = [ok + (ok === 1 ? " run" : " runs"), host && "on " + host,
		days.length && (days.length > 1 ? days[0] + " to " + days[days.length - 1] : days[0])];
	return el("div", { class: "top" },
		el("div", {}, el("h1", {}, document.title), el("p", { class: "soft" }, facts.filter(Boolean).join(" \u00b7 "))),
		el("div", { class: "actions" },
			el("button", { onclick: () => window.print() }, "Print"),
			el("button", { onclick: () => JM.download(fileName + "-settings.csv", "text/csv", data.settings_csv) }, "Settings as CSV"),
			el("button", { onclick: () => JM.download(fileName + "-cases.csv", "text/csv", data.cases_csv) }, "Cases as CSV"),
			el("button", { onclick: () => JM.download(fileName + "-records.json", "application/json",
				JSON.stringify(data.records, null, 1)) }, "Records as JSON")));
}

function banners() {
	const out = [], failed = S.cases.filter((c) => !c.ok).length;
	const origin = S.not_measured;
	const why = {
		simulated: "Simulated: the power and speed of this node come from a model of published figures. Nothing here was measured on hardware.",
		estimated: "Estimated: the energy comes from processor time and a stated model of watts, not from a sensor. It yields no verdict.",
		replayed: "Replayed: the power comes from a recorded trace.",
	};
	for (const word of origin.split(", ").filter((w) => why[w]))
		out.push(el("div", { class: "banner" }, el("b", {}, why[word].split(":")[0] + ":"), why[word].slice(word.length + 1)));
	if (S.added_watts > 0)
		out.push(el("div", { class: "banner" }, el("b", {}, "Assumed: "), JM.plain(S.added_watts) +
			" W for the rest of the node are added to every run; no meter saw them."));
	if (failed)
		out.push(el("div", { class: "banner bad" }, el("b", {}, failed + " of " + S.cases.length + " runs failed. "),
			"Their reasons stand in the table of all runs."));
	return out;
}

function headline(s) {
	const v = s.verdicts.find((x) => x.metric === "gain_minus_loss");
	if (!v || v.kind === "none" || s.reference === null)
		return null;
	const p = s.points[v.leading], m = p.metrics;
	if (p.reference || !(m.gain_minus_loss.mean > 0))
		return el("p", { class: "headline" }, "No setting saves more energy in percent than it costs in time. ", JM.origin(s.origin));
	if (v.tied.includes(s.reference))
		return el("p", { class: "headline" }, "No setting is clearly better than the reference (" + s.points[s.reference].label +
			") in energy gain minus time loss. ", JM.origin(s.origin));
	const time = m.time_loss_percent.mean;
	const speed = Math.abs(time) < 0.05 ? "at the same speed" :
		Math.abs(time).toFixed(1) + "\u00a0% " + (time > 0 ? "slower" : "faster");
	return el("p", { class: "headline" }, "Best balance of energy and time: ", el("b", {}, p.label), ", ",
		el("b", {}, m.energy_gain_percent.mean.toFixed(1) + "\u00a0% less energy"), " per " + s.item + ", ",
		el("b", {}, speed), " than the reference (" + s.points[s.reference].label + "). ",
		v.kind === "tie" ? "Other settings cannot be told from it. " : "", JM.origin(s.origin));
}

function card(s, v) {
	const best = v.kind === "best", answer = best ? v.text : v.kind === "tie" ? "no clear best" : "no verdict";
	const detail = v.kind === "tie" ? v.text.replace("no clear best: ", "") + ": " + v.why : v.why;
	let change = "";
	if (v.kind !== "none" && v.leading !== s.reference && known(v.improvement_percent) &&
	    !["energy_gain_percent", "gain_minus_loss"].includes(v.metric))
		change = Math.abs(v.improvement_percent).toFixed(1) + "\u00a0% " +
			(v.improvement_percent < 0 ? "worse" : "better") + " than the reference";
	if (v.kind !== "none" && v.leading === s.reference)
		change = "that is the reference";
	return el("div", { class: "card " + v.kind },
		el("div", { class: "what" }, v.title[0].toUpperCase() + v.title.slice(1)),
		el("div", { class: "answer" + (answer.length > 16 ? " long" : "") }, answer),
		v.kind === "none" ? null : el("div", { class: "value" }, v.kind === "tie" ? s.points[v.leading].label + ": " : "", v.value, s.origin === "measured" ? null : [" ", JM.origin(s.origin)]),
		change && v.kind === "best" ? el("div", { class: "change good" }, change) : null,
		detail ? el("div", { class: "change" }, detail[0].toUpperCase() + detail.slice(1) + ".") : null);
}

function charts(s) {
	const has = (name) => JM.column(s, name).any;
	const note = "Mean of the repeats with its 95 % interval. ";
	const out = [];
	if (s.points.length < 2)
		return out;
	if (has("items_per_joule") && has("throughput"))
		out.push(JM.chartTrade(s, dims));
	if (has("throughput"))
		out.push(JM.chartSetting(s, dims, "throughput", "throughput", note + "Higher is better."));
	if (has("items_per_joule"))
		out.push(JM.chartSetting(s, dims, "items_per_joule", "joules_per_item", note + "Higher is better."));
	if (has("joules_per_item"))
		out.push(JM.chartSetting(s, dims, "joules_per_item", "joules_per_item", note + "Lower is better."));
	if (s.reference !== null && has("edp"))
		out.push(JM.chartProducts(s, dims, ["edp"].concat(S.eds_k.map((k) => "eds_k" + k))));
	if (has("watts_mean") && dims.length === 1 && dims[0].knob && dims[0].unit === "W" &&
	    s.points.every((p) => known(p.x)))
		out.push(JM.chartPower(s, dims));
	return out.length ? [el("div", { class: "grid" }, out.map((c) => c.node))] : [];
}

function traces(s, index) {
	const mine = [];
	for (const t of (data.traces || []).filter(Boolean)) {
		const of = S.cases.find((c) => c.record === t.record), r = data.records[t.record];
		const inside = (m) => (r.meters || []).some((x) => x.id === m.id && x.covered_by);
		if (of && of.series === index) {
			t.meters.sort((a, b) => inside(a) - inside(b));
			mine.push(Object.assign(t, { hidden: Object.fromEntries(t.meters.filter(inside).map((m) => [m.label, false])), of: of, origin: of.origin, phases: r.phases || [],
				caps: (r.settings || []).filter((x) => x.unit === "W").map((x) => x.enforced),
				label: s.points[of.point].label + (s.points[of.point].reference ? " (reference)" : "") +
					(of.repeat === undefined ? "" : ", repeat " + of.repeat) }));
		}
	}
	if (!mine.length)
		return null;
	const best = s.verdicts.find((v) => v.metric === "joules_per_item") || {};
	const start = Math.max(0, mine.findIndex((t) => t.of.point === best.leading));
	const chart = JM.chartTrace(mine[start]);
	const choice = el("select", { "aria-label": "run", onchange: (e) => chart.show(mine[e.target.value]) },
		mine.map((t, i) => el("option", { value: i, selected: i === start }, t.label)));
	const note = chart.node.querySelector("p");
	note.textContent = "One run, each meter; the phases of the work are shaded. A click on a name shows or hides its meter; drag or scroll to zoom. ";
	note.append(JM.origin(mine[start].origin));
	chart.node.insertBefore(el("div", {}, choice), note.nextSibling);
	return chart.node;
}

function cell(value, cls) {
	return el("td", { class: cls }, value);
}

function settingsTable(s, title, names, full) {
	const cols = names.map((n) => JM.column(s, n)).filter((c) => c.any);
	const knob = full && dims.some((d) => d.knob), unit = dims.length === 1 ? dims[0].unit : "";
	const top = (name, i) => s.verdicts.some((v) => v.metric === name && v.kind === "best" && v.leading === i);
	const range = (x) => !known(x.enforced_min) ? "\u2013" : x.enforced_min === x.enforced_max ?
		x.enforced_min : x.enforced_min + "\u2013" + x.enforced_max;
	const row = function (p, i) {
		const off = p.state === "violated", x = p.settings[0] || {};
		const value = (c) => JM.estimate(c.mean[i], c.half[i]);
		return el("tr", { class: off ? "off" : p.reference ? "ref" : null },
			cell(p.label + (p.reference ? " (reference)" : ""), "l"),
			knob ? [cell(text(x.accepted)), cell(range(x)), cell(text(p.state), "l")] : null,
			full ? cell(p.runs_ok + (p.runs_failed ? " + " + p.runs_failed + " failed" : "") + (p.outliers ? "!" : "")) : null,
			cols.map((c) => cell(off && known(c.mean[i]) ? "(" + value(c) + ")" : value(c), top(c.name, i) ? "win" : null)));
	};
	if (!cols.length)
		return null;
	return el("div", { class: "panel" + (s.points.length > 20 ? " long" : "") }, el("div", { class: "head" }, el("h3", {}, title), JM.origin(s.origin)),
		full ? el("p", { class: "soft small" }, s.energy[0].toUpperCase() + s.energy.slice(1) + ". Mean \u00b1 half of the 95\u00a0% interval over the repeats" +
			(s.points.some((p) => p.state === "violated") ? "; in parentheses where the device did not keep to the setting." : ".")) : null,
		el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {},
			el("th", { class: "l" }, dims.map((d) => d.name).join(", ") || "setting"),
			knob ? [el("th", {}, "accepted", el("span", { class: "unit" }, unit)),
				el("th", {}, "enforced", el("span", { class: "unit" }, unit)), el("th", { class: "l" }, "state")] : null,
			full ? el("th", {}, "runs") : null,
			cols.map((c) => el("th", {}, c.title, el("span", { class: "unit" }, c.unit === "1" ? "\u00a0" : c.unit))))),
			el("tbody", {}, s.points.map(row)))));
}

function settingsTables(s) {
	const relative = [].concat(S.eds_k.map((k) => "eds_k" + k), ["energy_gain_percent", "time_loss_percent", "gain_minus_loss"]);
	return [settingsTable(s, "All settings", ["throughput", "throughput_per_device", "watts_mean", "watts_median", "watts_max"], true),
		settingsTable(s, "Energy", ["joules_per_item", "wh_per_item", "items_per_joule", "items_per_wh", "edp"], false),
		settingsTable(s, s.reference === null ? "Energy and delay" : "Against the reference, block by block", relative, false)];
}

function quality(s, index) {
	const reasons = [...new Set(S.cases.filter((c) => c.series === index && c.quality)
		.flatMap((c) => c.quality.reasons || []))];
	return el("div", { class: "panel" }, el("h3", {}, "Quality of the measurement"),
		el("div", { class: "grade", style: "margin-top:8px" }, el("div", { class: "letter " + (s.grade || "none") }, s.grade || "none"),
			el("div", {}, el("p", { class: "small" }, s.grade && s.grade !== "none" ? "The worst grade among the runs." :
				"The runs satisfy no grade."), reasons.length ? el("ul", { class: "small" }, reasons.map((r) => el("li", {}, r))) :
				el("p", { class: "soft small" }, "No reasons were recorded."))));
}

function meters(s, index) {
	const best = S.cases.findIndex((c) => c.series === index && c.ok);
	const r = data.records[best < 0 ? 0 : S.cases[best].record] || {}, list = r.meters || [];
	if (!list.length)
		return null;
	const label = (id) => (list.find((m) => m.id === id) || { label: id }).label;
	return el("div", { class: "panel" }, el("h3", {}, "Meters and their doubt"),
		el("p", { class: "soft small" }, "Of one run, phase " + text(r.phase) + ". Totals add the topmost meters of one origin only."),
		el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["meter", "scope", "origin", "inside"].map((h) => el("th", { class: "l" }, h)),
			["energy", "by counter", "by integration", "sampling \u00b1", "calibration \u00b1"].map((h) => el("th", {}, h, el("span", { class: "unit" }, "J"))),
			el("th", {}, "covered", el("span", { class: "unit" }, "s")), el("th", {}, "gaps"))),
			el("tbody", {}, list.map((m) => el("tr", {}, cell(text(m.label || m.id), "l"), cell(text(m.scope), "l"), cell(text(m.origin), "l"),
				cell(text(label(m.covered_by)), "l"), [m.joules, m.joules_counter, m.joules_integrated, m.error_sampling_joules,
					m.error_calibration_joules, m.covered_s].map((v) => cell(JM.plain(v))), cell(text(m.gaps))))))));
}

function casesTable() {
	const units = (c) => S.series[c.series].metrics;
	const many = S.series.length > 1;
	const label = (c) => S.series[c.series].points[c.point].label;
	return el("div", { class: "panel long" }, el("details", { open: S.cases.length <= 60 || S.cases.some((c) => !c.ok) },
		el("summary", {}, "All runs (" + S.cases.length + ")"), el("div", { class: "scroll" }, el("table", {},
			el("thead", {}, el("tr", {}, many ? el("th", { class: "l" }, "work") : null, el("th", { class: "l" }, "setting"), el("th", {}, "block"), el("th", {}, "repeat"),
				el("th", { class: "l" }, "status"), el("th", { class: "l" }, "state"), el("th", {}, "throughput"), el("th", {}, "power", el("span", { class: "unit" }, "W")),
				el("th", {}, "energy", el("span", { class: "unit" }, "J")), el("th", { class: "l" }, "origin"), el("th", { class: "l" }, "grade"), el("th", { class: "l" }, "case"))),
			el("tbody", {}, S.cases.map((c) => c.ok ?
				el("tr", {}, many ? cell(S.series[c.series].title, "l") : null, cell(label(c) + (c.outlier ? " (outlier)" : ""), "l"), cell(text(c.block)), cell(text(c.repeat)), cell("ok", "l"), cell(text(c.state), "l"),
					cell(JM.plain(c.values.throughput) + " " + units(c).throughput.unit), cell(JM.plain(c.values.watts_mean)), cell(JM.plain(c.joules)), cell(text(c.origin), "l"),
					cell(text((c.quality || {}).grade), "l"), el("td", { class: "l" }, el("code", {}, text(c.id).slice(0, 8)))) :
				el("tr", { class: "failed" }, many ? cell(S.series[c.series].title, "l") : null, cell(label(c), "l"), cell(text(c.block)), cell(text(c.repeat)), cell("failed", "l"),
					el("td", { class: "l wrap", colspan: 6 }, text(c.reason)), el("td", { class: "l" }, el("code", {}, text(c.id).slice(0, 8))))))))));
}

function bytes(n) {
	return known(n) ? (n / 2 ** 30).toFixed(1) + " GiB" : null;
}

const leaves = (o) => Object.entries(o).flatMap(([k, v]) =>
	v !== null && typeof v === "object" && !Array.isArray(v) ? leaves(v) : [[k, v]]);

function provenance() {
	const seen = new Map();
	for (const r of data.records) {
		const p = r.provenance || {};
		seen.set(JSON.stringify([p.host, p.boot_id]), p);
	}
	const one = (p) => el("dl", { class: "facts" }, [["host", p.host], ["system", [p.os, p.kernel && "kernel " + p.kernel].filter(Boolean).join(", ")],
		["processor", [p.cpu, p.cores && p.cores + " cores"].filter(Boolean).join(", ")], ["memory", bytes(p.memory_bytes)],
		["devices", (p.devices || []).map((d) => [d.name, d.id, d.driver && "driver " + d.driver].filter(Boolean).join(", ")).join("; ")],
		["libraries", Object.entries(p.libraries || {}).map((x) => x[0] + " " + text(x[1])).join(", ")], ["joulemark", p.joulemark]]
		.map(([k, v]) => [el("dt", {}, k), el("dd", {}, text(v))]));
	const options = S.series.map((s) => el("dl", { class: "facts" }, el("dt", {}, "work"), el("dd", {}, s.title),
		leaves(s.parameters || {}).filter(([k]) => !dims.some((d) => d.name === k.split("@")[0]))
			.map(([k, v]) => [el("dt", {}, k), el("dd", {}, el("code", {}, typeof v === "object" ? JSON.stringify(v) : text(v)))])));
	return el("div", { class: "grid" },
		el("div", { class: "panel" }, el("h3", {}, seen.size > 1 ? "Machines" : "Machine"), [...seen.values()].map(one)),
		el("div", { class: "panel" }, el("h3", {}, "Parameters"), options));
}

function definitions() {
	const rows = [["e, d", "energy and time per item, both of the same phase of the run"],
		["EDP", "e \u00b7 d"],
		["EDS k", "(k\u22121)/k \u00b7 e/e_ref + 1/k \u00b7 d/d_ref; the reference has 1, lower is better; k is how many times slower a run may be that needs no energy (DEPO, doi 10.1002/spe.3139)"],
		["energy gain", "100 \u00b7 (e_ref \u2212 e) / e_ref"], ["time loss", "100 \u00b7 (d \u2212 d_ref) / d_ref"],
		["gain \u2212 loss", "their difference, the same as 200 \u00b7 (1 \u2212 EDS 2)"],
		["reference", "the reference of the same block, so that drift between blocks cancels"],
		["median and maximum power", "of several meters: the sums of their own; the maxima need not fall together, so their sum is an upper bound"],
		["95 % interval", "of the mean over the repeats, by Student's t"],
		["best", "the best mean whose interval overlaps that of no other setting; settings that the device violated take no part"],
		["binding, not reached, violated", "the work took what the cap allows; never needed so much; the device drew more than it was told to"]];
	return el("div", { class: "panel" }, el("details", {}, el("summary", {}, "What the words mean"),
		el("dl", { class: "facts" }, rows.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]))));
}

page.replaceChildren(top(), ...banners());
S.series.forEach(function (s, index) {
	const body = [S.series.length > 1 || s.title !== document.title ? el("h2", {}, s.title, " ", JM.origin(s.origin)) : null,
		headline(s), s.verdicts.length ? el("div", { class: "cards" }, s.verdicts.map((v) => card(s, v))) : null,
		charts(s), traces(s, index), settingsTables(s), quality(s, index), meters(s, index)];
	for (const node of body.flat(2))
		if (node)
			page.append(node);
});
page.append(el("h2", {}, "Behind the figures"), casesTable(), provenance(), definitions(),
	el("footer", {}, "joulemark " + S.joulemark + ". This page holds all its data and needs no network. Charts by Apache ECharts."));
document.documentElement.dataset.ready = "yes";
})();
