// SPDX-License-Identifier: Apache-2.0
// The tables and facts of the report page.
"use strict";
(function () {
	const { el, known, text } = JM;

	// columns: [{title, unit, left, of(item) -> text or element, mark(item) -> class}]; a row that
	// `whole` gives is put in place of the columns'.
	JM.table = function (columns, items, rowClass, whole) {
		const left = (c) => (c.left ? "l" : null);
		const head = (c) =>
			el("th", { class: left(c) }, c.title, c.unit ? el("span", { class: "unit" }, c.unit) : null);
		const cell = (c, item, i) =>
			el(
				"td",
				{ class: [left(c), c.mark && c.mark(item, i)].filter(Boolean).join(" ") },
				c.of(item, i),
			);
		const row = (item, i) =>
			el(
				"tr",
				{ class: rowClass && rowClass(item) },
				(whole && whole(item)) || columns.map((c) => cell(c, item, i)),
			);
		return el(
			"div",
			{ class: "scroll" },
			el(
				"table",
				{},
				el("thead", {}, el("tr", {}, columns.map(head))),
				el("tbody", {}, items.map(row)),
			),
		);
	};

	const ends = (x) =>
		!known(x.enforced_min)
			? "\u2013"
			: x.enforced_min === x.enforced_max
				? x.enforced_min
				: x.enforced_min + "\u2013" + x.enforced_max;

	function settingColumns(dims, full) {
		const unit = dims.length === 1 ? dims[0].unit : "";
		const first = (p) => p.settings[0] || {};
		const columns = [
			{
				title: dims.map((d) => d.name).join(", ") || "setting",
				left: true,
				of: (p) => p.label + (p.reference ? " (reference)" : ""),
			},
		];
		if (full && dims.some((d) => d.knob))
			columns.push(
				{ title: "accepted", unit: unit, of: (p) => text(first(p).accepted) },
				{ title: "enforced", unit: unit, of: (p) => ends(first(p)) },
				{ title: "state", left: true, of: (p) => text(p.state) },
			);
		if (full)
			columns.push({
				title: "runs",
				of: (p) =>
					p.runs_ok +
					(p.runs_failed ? " + " + p.runs_failed + " failed" : "") +
					(p.outliers ? "!" : ""),
			});
		return columns;
	}

	function metricColumn(s, col) {
		const best = s.verdicts.find((v) => v.metric === col.name && v.kind === "best");
		const value = (i) => JM.estimate(col.mean[i], col.half[i]);
		return {
			title: col.title,
			unit: col.unit === "1" ? "\u00a0" : col.unit,
			of: (p, i) => (p.state === "violated" && known(col.mean[i]) ? "(" + value(i) + ")" : value(i)),
			mark: (p, i) => (best && best.leading === i ? "win" : null),
		};
	}

	function settingsTable(s, dims, title, names, full) {
		const cols = names.map((n) => JM.column(s, n)).filter((c) => c.any);
		const columns = settingColumns(dims, full).concat(cols.map((c) => metricColumn(s, c)));
		const note =
			(s.machine ? s.machine + ". " : "") +
			s.energy[0].toUpperCase() +
			s.energy.slice(1) +
			". Mean \u00b1 half of the 95\u00a0% interval over the repeats" +
			(s.points.some((p) => p.state === "violated")
				? "; in parentheses where the device did not keep to the setting."
				: ".");
		if (!cols.length) return null;
		return el(
			"div",
			{ class: "panel" + (s.points.length > 20 ? " long" : "") },
			el("div", { class: "head" }, el("h3", {}, title), JM.origin(s.origin)),
			full ? el("p", { class: "soft small" }, note) : null,
			JM.table(columns, s.points, (p) =>
				p.state === "violated" ? "off" : p.reference ? "ref" : null,
			),
		);
	}

	JM.settings = function (s, dims, eds) {
		return [
			settingsTable(
				s,
				dims,
				"All settings",
				["throughput", "throughput_per_device", "watts_mean", "watts_median", "watts_max"],
				true,
			),
			settingsTable(
				s,
				dims,
				"Energy",
				["joules_per_item", "wh_per_item", "items_per_joule", "items_per_wh", "edp"],
				false,
			),
			settingsTable(
				s,
				dims,
				"Against the reference, block by block",
				eds.concat("energy_gain_percent", "time_loss_percent", "gain_minus_loss"),
				false,
			),
		];
	};

	JM.quality = function (grade, reasons) {
		const letter = grade || "none";
		return el(
			"div",
			{ class: "panel" },
			el("h3", {}, "Quality of the measurement"),
			el(
				"div",
				{ class: "grade" },
				el("div", { class: "letter " + letter }, letter),
				el(
					"div",
					{},
					el(
						"p",
						{ class: "small" },
						letter === "none"
							? "The runs satisfy no grade."
							: "The worst grade among the runs.",
					),
					el(
						"ul",
						{ class: "small" },
						reasons.map((r) => el("li", {}, r)),
					),
				),
			),
		);
	};

	JM.meters = function (record) {
		const list = record.meters || [];
		const label = (id) => (list.find((m) => m.id === id) || { label: id }).label;
		const words = [
			["meter", (m) => m.label || m.id],
			["scope", (m) => m.scope],
			["origin", (m) => m.origin],
			["inside", (m) => label(m.covered_by)],
		];
		const numbers = [
			["energy", "J", "joules"],
			["by counter", "J", "joules_counter"],
			["by integration", "J", "joules_integrated"],
			["sampling \u00b1", "J", "error_sampling_joules"],
			["calibration \u00b1", "J", "error_calibration_joules"],
			["covered", "s", "covered_s"],
		];
		const columns = words
			.map(([title, of]) => ({ title: title, left: true, of: (m) => text(of(m)) }))
			.concat(
				numbers.map(([title, unit, key]) => ({
					title: title,
					unit: unit,
					of: (m) => JM.plain(m[key]),
				})),
				{ title: "gaps", of: (m) => text(m.gaps) },
			);
		if (!list.length) return null;
		return el(
			"div",
			{ class: "panel" },
			el("h3", {}, "Meters and their uncertainty"),
			el(
				"p",
				{ class: "soft small" },
				"Of one run, phase " +
					text(record.phase) +
					". Totals add the topmost meters of one origin only.",
			),
			JM.table(columns, list),
		);
	};

	// Seconds, energy, power and items of each phase of one run; its energy is that of the topmost meters of one origin.
	JM.phases = function (record, origin) {
		const list = (record.phases || []).slice().sort((a, b) => a.start_s - b.start_s || b.end_s - a.end_s);
		const seconds = (p) => p.end_s - p.start_s;
		const joules = (p) => (p.total || {})["joules_" + origin];
		const error = (p) => (p.total || {})["error_" + origin + "_joules"];
		const item = record.unit || "item";
		if (list.length < 2) return null;
		const columns = [
			{ title: "phase", left: true, of: (p) => text(p.name) },
			{ title: "time", unit: "s", of: (p) => JM.plain(seconds(p)) },
			{ title: "energy", unit: "J", of: (p) => JM.estimate(joules(p), error(p)) },
			{ title: "mean power", unit: "W", of: (p) => JM.plain(joules(p) / seconds(p)) },
		];
		if (list.some((p) => p.items > 0))
			columns.push(
				{ title: item + "s", of: (p) => text(p.items) },
				{
					title: "energy per " + item,
					unit: "J",
					of: (p) => JM.estimate(joules(p) / p.items, error(p) / p.items),
				},
			);
		return el(
			"div",
			{ class: "panel" },
			el("h3", {}, "Phases"),
			el("p", { class: "soft small" }, "Of one run; energy of the " + origin + " meters."),
			JM.table(columns, list),
		);
	};

	JM.cases = function (S) {
		const series = (c) => S.series[c.series],
			label = (c) => series(c).points[c.point].label;
		const id = (c) => el("code", {}, text(c.id).slice(0, 8));
		const who = [
			{ title: "setting", left: true, of: (c) => label(c) + (c.outlier ? " (outlier)" : "") },
			{ title: "block", of: (c) => text(c.block) },
			{ title: "repeat", of: (c) => text(c.repeat) },
			{ title: "status", left: true, of: (c) => (c.ok ? "ok" : "failed") },
		];
		if (S.series.length > 1) who.unshift({ title: "work", left: true, of: (c) => series(c).title });
		const what = [
			{ title: "state", left: true, of: (c) => text(c.state) },
			{
				title: "throughput",
				of: (c) => JM.plain(c.values.throughput) + " " + series(c).metrics.throughput.unit,
			},
			{ title: "power", unit: "W", of: (c) => JM.plain(c.values.watts_mean) },
			{ title: "energy", unit: "J", of: (c) => JM.plain(c.joules) },
			{ title: "origin", left: true, of: (c) => text(c.origin) },
			{ title: "grade", left: true, of: (c) => text((c.quality || {}).grade) },
		];
		const failed = (c) =>
			c.ok
				? null
				: who
						.map((w) => el("td", { class: w.left ? "l" : null }, w.of(c)))
						.concat(
							el(
								"td",
								{ class: "l wrap", colspan: what.length },
								text(c.reason),
							),
							el("td", { class: "l" }, id(c)),
						);
		return el(
			"div",
			{ class: "panel long" },
			el(
				"details",
				{ open: S.cases.length <= 60 || S.cases.some((c) => !c.ok) },
				el("summary", {}, "All runs (" + S.cases.length + ")"),
				JM.table(
					who.concat(what, { title: "case", left: true, of: id }),
					S.cases,
					(c) => (c.ok ? null : "failed"),
					failed,
				),
			),
		);
	};

	const facts = (rows) =>
		el(
			"dl",
			{ class: "facts" },
			rows.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]),
		);
	const list = (...words) => text(words.filter(Boolean).join(", "));

	function machine(p) {
		const device = (d) => list(d.name, d.id, d.driver && "driver " + d.driver);
		const memory = known(p.memory_bytes) ? (p.memory_bytes / 2 ** 30).toFixed(1) + " GiB" : null;
		return facts([
			["host", text(p.host)],
			["system", list(p.os, p.kernel && "kernel " + p.kernel)],
			["processor", list(p.cpu, p.cores && p.cores + " cores")],
			["memory", text(memory)],
			["devices", text((p.devices || []).map(device).join("; "))],
			["libraries", list(...Object.entries(p.libraries || {}).map((x) => x[0] + " " + text(x[1])))],
			["joulemark", text(p.joulemark)],
		]);
	}

	const leaves = (o) =>
		Object.entries(o).flatMap(([k, v]) =>
			v !== null && typeof v === "object" && !Array.isArray(v) ? leaves(v) : [[k, v]],
		);

	JM.provenance = function (S, records) {
		const seen = new Map(
			records.map((r) => r.provenance || {}).map((p) => [JSON.stringify([p.host, p.boot_id]), p]),
		);
		const varied = (k) => S.dimensions.some((d) => d.name === k.split("@")[0]);
		const options = (s) =>
			facts(
				[["work", s.title]].concat(
					leaves(s.parameters || {})
						.filter(([k]) => !varied(k))
						.map(([k, v]) => [
							k,
							el(
								"code",
								{},
								typeof v === "object" ? JSON.stringify(v) : text(v),
							),
						]),
				),
			);
		return el(
			"div",
			{ class: "grid" },
			el(
				"div",
				{ class: "panel" },
				el("h3", {}, seen.size > 1 ? "Machines" : "Machine"),
				[...seen.values()].map(machine),
			),
			el(
				"div",
				{ class: "panel" },
				el("h3", {}, "Parameters"),
				S.series.map((s) => el("details", {}, el("summary", {}, s.title), options(s))),
			),
		);
	};

	// What papers report: apart from all that the records hold.
	JM.published = function (work) {
		const column = (title, unit, key, left) => ({
			title: title,
			unit: unit,
			left: left,
			key: key,
			of: (r) => (Number.isInteger(r[key]) || !known(r[key]) ? text(r[key]) : JM.plain(r[key])),
		});
		const columns = [
			column("device", "", "device", true),
			column("power cap", "W", "cap_watts"),
			column("batch", "", "batch"),
			column("precision", "", "precision", true),
			{
				title: "throughput per device",
				unit: work.unit + "/s",
				key: "items_per_s",
				of: (r) => (r.cap_kept === false ? "(" + text(r.items_per_s) + ")" : text(r.items_per_s)),
			},
			column("power", "W", "watts"),
			column(work.unit + "s per joule", work.unit + "/J", "items_per_joule"),
			column("source", "", "source", true),
		].filter((c) => work.rows.some((r) => r[c.key] !== null));
		return el(
			"div",
			{ class: "panel published" },
			el(
				"div",
				{ class: "head" },
				el("h3", {}, work.model + " training as papers report it"),
				el("span", { class: "mark" }, work.origin),
			),
			el("p", { class: "small" }, "The papers' input: " + work.shape + "."),
			work.why_not ? el("p", { class: "small" }, work.why_not) : JM.table(columns, work.rows),
			el(
				"ul",
				{ class: "small soft" },
				work.notes.map((n) => el("li", {}, n)),
			),
		);
	};

	JM.definitions = () =>
		el(
			"div",
			{ class: "panel" },
			el(
				"details",
				{},
				el("summary", {}, "What the words mean"),
				facts([
					["e, d", "energy and time per item, both of the same phase of the run"],
					["EDP", "e \u00b7 d"],
					[
						"EDS k",
						"(k\u22121)/k \u00b7 e/e_ref + 1/k \u00b7 d/d_ref; the reference has 1, lower is better; k is how many " +
							"times slower a run may be that needs no energy (DEPO, doi 10.1002/spe.3139)",
					],
					["energy gain", "100 \u00b7 (e_ref \u2212 e) / e_ref"],
					["time loss", "100 \u00b7 (d \u2212 d_ref) / d_ref"],
					[
						"gain \u2212 loss",
						"their difference, the same as 200 \u00b7 (1 \u2212 EDS 2)",
					],
					[
						"reference",
						"the reference of the same block, so that drift between blocks cancels",
					],
					[
						"median and maximum power",
						"of several meters: the sums of their own; the maxima need not fall together, so " +
							"their sum is an upper bound",
					],
					["95 % interval", "of the mean over the repeats, by Student's t"],
					[
						"best",
						"the best mean whose interval overlaps that of no other setting; settings that the device violated " +
							"take no part",
					],
					[
						"binding, not reached, violated",
						"the work took what the cap allows; never needed so much; the device drew " +
							"more than it was told to",
					],
				]),
			),
		);
})();
