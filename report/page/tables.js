// SPDX-License-Identifier: Apache-2.0
// The tables and facts of the report page.
"use strict";
(function () {
	const { el, known, text } = JM;

	// ---- a table that can be sorted, filtered and downloaded ----------------------------------------------------

	// What a cell says, for sorting and CSV: a number where it begins with one.
	const words = (content) =>
		[content].flat(3).map((x) => (x instanceof Node ? x.textContent : x === null || x === undefined || x === false ? "" : String(x))).join("");
	const number = (t) => parseFloat(t.replace(/^\(/, "").replace(/\u2212/g, "-"));
	function compare(a, b) {
		const x = number(a),
			y = number(b);
		if (known(x) && known(y) && x !== y) return x - y;
		if (known(x) !== known(y)) return known(x) ? -1 : 1;
		return a.localeCompare(b, "en", { numeric: true });
	}
	const quoted = (t) => (/[",\n]/.test(t) ? '"' + t.replace(/"/g, '""') + '"' : t);
	// In columns of numbers a comma is only ever between thousands; names keep theirs.
	const cellWords = (column, item, i) => {
		const t = words(column.of(item, i));
		return column.left ? t : JM.together(t);
	};
	const ascii = (t) => t.replace(/\u2212/g, "-").replace(/\u00a0/g, " ").replace(/^\u2013$/, "");
	function csvOf(columns, items) {
		const rows = [columns.map((c) => c.title + (c.unit && c.unit.trim() ? " (" + c.unit + ")" : ""))].concat(
			items.map((item, i) => columns.map((c) => ascii(cellWords(c, item, i)))),
		);
		return rows.map((row) => row.map(quoted).join(",") + "\r\n").join("");
	}
	JM.csvOf = csvOf;

	// columns: [{title, unit, left, of(item) -> text or element, mark(item) -> class, hint(item)}].
	// more: {rowClass(item), whole(item) -> cells in place of the columns', filter, limit, csv: name of the file}.
	JM.table = function (columns, items, more) {
		more = more || {};
		const state = { sort: -1, down: false, words: "", all: !more.limit || items.length <= more.limit + 3 };
		const text = new Map();
		const cellText = (item, c) => words(columns[c].of(item));
		const rowText = (item) => {
			if (!text.has(item)) text.set(item, columns.map((_, c) => cellText(item, c)).join(" ").toLowerCase());
			return text.get(item);
		};
		const left = (c) => (c.left ? "l" : null);
		const grouped = (content) => (typeof content === "string" ? JM.apartAll(content) : content);
		let large = new Set(); // the columns that show a number from 10,000 on
		const cell = (c, item, i) =>
			el(
				"td",
				{ class: [left(c), c.mark && c.mark(item, i)].filter(Boolean).join(" "), title: c.hint && c.hint(item) },
				large.has(c) ? grouped(c.of(item, i)) : c.of(item, i),
			);
		const row = (item, i) =>
			el(
				"tr",
				{ class: more.rowClass && more.rowClass(item) },
				(more.whole && more.whole(item)) || columns.map((c) => cell(c, item, i)),
			);
		const body = el("tbody", {}),
			status = el("p", { class: "small soft rows", role: "status" });
		const heads = columns.map((c, k) => {
			const button = el("button", { class: "sort", onclick: () => sort(k) }, c.title);
			return el("th", { class: left(c), scope: "col" }, items.length > 1 ? button : c.title, c.unit ? el("span", { class: "unit" }, c.unit) : null);
		});
		function chosen() {
			let list = items;
			if (state.words) {
				const wanted = state.words.toLowerCase().split(/\s+/);
				list = list.filter((item) => wanted.every((w) => rowText(item).includes(w)));
			}
			if (state.sort >= 0) {
				const keyed = list.map((item) => [cellWords(columns[state.sort], item), item]);
				keyed.sort((a, b) => (state.down ? -1 : 1) * compare(a[0], b[0]));
				list = keyed.map((x) => x[1]);
			}
			return list;
		}
		function draw() {
			const list = chosen(),
				shown = state.all ? list : list.slice(0, more.limit);
			large = new Set(columns.filter((c) => !c.left && shown.some((item, i) => JM.isApart(words(c.of(item, i))))));
			body.replaceChildren(...shown.map(row));
			heads.forEach((th, k) => {
				if (k === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
				else th.removeAttribute("aria-sort");
			});
			status.replaceChildren(
				...(shown.length < list.length
					? [
							shown.length + " of " + list.length + " rows. ",
							el("button", { class: "more", onclick: () => all(list.length) }, list.length > 1000 ? "Show 1000" : "Show all"),
						]
					: state.words
						? [list.length + " of " + items.length + " rows."]
						: []),
			);
		}
		function all(n) {
			if (n > 1000 && more.limit < 1000) more.limit = 1000;
			else state.all = true;
			draw();
		}
		function sort(k) {
			state.down = state.sort === k && !state.down;
			state.sort = k;
			draw();
		}
		const search = more.filter
			? el("input", {
					type: "search",
					placeholder: "Filter: words",
					"aria-label": "Show only rows with these words",
					oninput: (e) => {
						state.words = e.target.value.trim();
						draw();
					},
				})
			: null;
		const csv = more.csv
			? el(
					"button",
					{
						class: "save",
						"aria-label": "Download the table as CSV",
						onclick: () => JM.download(JM.fileName + "-" + more.csv + ".csv", "text/csv", csvOf(columns, chosen())),
					},
					"CSV",
				)
			: null;
		draw();
		return el(
			"div",
			{ class: "table" },
			search ? el("div", { class: "tools" }, search) : null,
			el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)),
			el("div", { class: "under" }, status, csv),
		);
	};

	// A table of the terminal (report/page/page_tables.h). shown: more columns behind its own, whose items have the row's number.
	const typeset = (t) => (t === "-" ? "\u2013" : t.replace(/^(\(?)-(?=\d)/, "$1\u2212").replaceAll(" \u00b1 ", "\u00a0\u00b1\u00a0"));
	JM.grid = (table, more, shown) =>
		JM.table(
			table.titles.map((title, k) => ({ title: title, left: table.left[k], of: (item) => typeset(item.cells[k]) })).concat(shown || []),
			table.rows.map((cells, row) => ({ cells: cells, row: row })),
			more,
		);

	const ends = (x) =>
		!known(x.enforced_min)
			? "\u2013"
			: x.enforced_min === x.enforced_max
				? x.enforced_min
				: x.enforced_min + "\u2013" + x.enforced_max;

	const settingTitle = (s) =>
		JM.dims(s)
			.map((d) => d.name)
			.join(", ") || "setting";
	const settingColumn = (s) => ({
		title: settingTitle(s),
		unit: s.per,
		left: true,
		of: (p) => (p.state === "violated" ? "(" + p.label + ")" : p.label) + (p.late ? " >" : "") + (p.reference ? " (reference)" : ""),
	});
	const first = (s, p) => p.settings[(JM.dims(s)[0] || { index: 0 }).index] || {};

	function metricColumn(s, name) {
		const col = JM.column(s, name);
		const best = s.verdicts.find((v) => v.metric === name && v.kind === "best");
		const value = (i) => JM.estimate(col.mean[i], col.half[i], col.places);
		return col.any
			? {
					title: col.title,
					unit: col.unit === "1" ? "\u00a0" : col.unit + (/^watts_/.test(name) && s.sum_of ? ", " + s.sum_of : ""),
					meaning: JM.meaning(s, name),
					of: (p) => (p.state === "violated" && known(col.mean[p.index]) ? "(" + value(p.index) + ")" : value(p.index)),
					mark: (p) => (best && best.leading === p.index ? "win" : null),
				}
			: null;
	}
	const rowClass = (p) => (p.state === "violated" ? "off" : p.reference ? "ref" : null);

	// What the columns mean whose titles do not say it, below their table.
	function terms(s, columns) {
		const list = columns.filter((c) => c.meaning),
			relative = columns.some((c) => /saved|slowdown/.test(c.title)) ? s.meanings : [];
		return list.length
			? el(
					"div",
					{ class: "small soft terms" },
					el("dl", {}, list.map((c) => [el("dt", {}, c.title), el("dd", {}, c.meaning)])),
					relative.map((text) => el("p", {}, text)),
				)
			: null;
	}
	const settingsTable = (s, columns, more) =>
		el(
			"div",
			{},
			JM.table([settingColumn(s)].concat(columns), s.points, Object.assign({ rowClass: rowClass, csv: "settings" }, more)),
			terms(s, columns),
		);
	JM.pointTable = (s, columns) => settingsTable(s, columns, {});
	JM.metricTable = (s, names) => JM.pointTable(s, names.map((n) => metricColumn(s, n)).filter(Boolean));

	const runsColumn = {
		title: "runs",
		of: (p) => p.runs_ok + (p.runs_failed ? " + " + p.runs_failed + " failed" : "") + (p.outliers ? "!" : ""),
	};
	function knobColumns(s) {
		const unit = (JM.dims(s)[0] || {}).unit;
		return JM.dims(s).some((d) => d.knob)
			? [
					{ title: "accepted", unit: unit, of: (p) => text(first(s, p).accepted) },
					{ title: "enforced", unit: unit, of: (p) => ends(first(s, p)) },
					{
						title: "state",
						left: true,
						meaning: "binding: the work took what the cap allows; not reached: it never needed so much; violated: the device took more",
						of: (p) => text(p.state),
					},
				]
			: [];
	}
	const paretoColumn = {
		title: "Pareto front",
		left: true,
		meaning: "yes: no other setting is better in throughput or efficiency without being worse in the other",
		of: (p) => (p.pareto === undefined ? "\u2013" : p.pareto ? "yes" : "no"),
	};

	// What is shown of the settings: one table, several choices of columns.
	const VIEWS = [
		["Speed, power, energy", (s) => [runsColumn, ...metrics(s, ["throughput", "throughput_per_device", "watts_mean", "watts_max", "joules_per_item", "items_per_joule"])]],
		["Time and energy of a run", (s) => [runsColumn, ...metrics(s, ["hours", "kwh", "watts_mean", "gpu_load_percent", "wh_per_gpu_hour"])]],
		["Against the reference", (s, eds) => [...metrics(s, ["energy_gain_percent", "time_loss_percent", "gain_minus_loss", ...eds]), paretoColumn]],
		["Energy and delay", (s, eds) => metrics(s, ["joules_per_item", "wh_per_item", "items_per_wh", "edp", "ed2p", "zeus_cost", ...eds])],
		["Caps and states", (s) => [...knobColumns(s), runsColumn, ...metrics(s, ["watts_mean", "watts_median", "watts_p99", "watts_max"])]],
		["Statistics of throughput", (s) => statistics(s, "throughput")],
		["Statistics of energy per item", (s) => statistics(s, "joules_per_item")],
		["Utilisation", (s) => metrics(s, ["mfu_percent", "hfu_percent", "mfu_measured_percent", "hfu_measured_percent"])],
		["Latency of requests", (s) => metrics(s, ["ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "latency_p99_s", "goodput_per_s"])],
		["Cost and carbon", (s) => metrics(s, ["cost_per_million", "carbon_g_per_million", "zeus_cost"])],
		["Nodes of a rack", (s) => rackColumns(s)],
	];
	function rackColumns(s) {
		if (!s.points.some((p) => p.capacity)) return [];
		const of = (key) => (p) => text((p.capacity || {})[key]);
		const by = [["rated", "rated power"], ["max", "maximum"], ["p99", "99th percentile"], ["mean", "mean power"]];
		return by.flatMap(([key, name]) => [
			{ title: "nodes by " + name, of: of("nodes_" + key) },
			{ title: name + " of a node", unit: "W", of: (p) => JM.plain((p.capacity || {})[key + "_watts"]) },
			{ title: JM.S.figures.racks > 1 ? "throughput of the racks" : "throughput of the rack", unit: s.item + "/s", of: (p) => JM.plain((p.capacity || {})["throughput_" + key]) },
		]);
	}
	// The user's figures from which cost and carbon are computed, with their source.
	function figures() {
		const f = JM.S.figures;
		const list = [
			known(f.price_per_kwh) && JM.plain(f.price_per_kwh) + " " + (f.currency || "units of money") + " per kWh",
			known(f.carbon_g_per_kwh) && JM.plain(f.carbon_g_per_kwh) + " gCO2e per kWh",
			f.pue > 1 && "PUE " + f.pue,
			f.from && "source: " + f.from,
			known(f.peak_flops_per_device) && "peak of a device " + f.peak_flops_per_device.toExponential(3) + " FLOP/s",
			known(f.rack_watts) && (f.racks > 1 ? f.racks + " racks that share their power, each of " : "rack of ") + JM.plain(f.rack_watts) + " W" + (f.rack_reserve_percent > 0 ? " with a reserve of " + JM.plain(f.rack_reserve_percent) + "\u00a0%" : ""),
		].filter(Boolean);
		return list.length ? " Given by the user: " + list.join(", ") + "." : "";
	}
	const metrics = (s, names) => names.map((n) => s.metrics[n] && metricColumn(s, n)).filter(Boolean);
	const statistics = (s, name) => {
		const col = JM.column(s, name);
		const scaled = (key) => ({
			title: key === "sd" ? "standard deviation" : key,
			unit: col.unit,
			of: (p) => JM.plain(p.metrics[name][key] / col.factor),
		});
		return col.any
			? [{ title: "n", of: (p) => String(p.metrics[name].n) }, ...["mean", "median", "sd", "min", "max"].map(scaled), { title: "outliers", of: (p) => String(p.outliers) }]
			: [];
	};

	JM.settings = function (s, eds) {
		const views = VIEWS.map(([title, of]) => [title, of(s, eds)]).filter(([, columns]) => columns.length > 1 || (columns.length && s.points.length));
		const place = el("div", {}),
			usable = views.filter(([, columns]) => columns.length);
		const show = (k) => place.replaceChildren(settingsTable(s, usable[k][1], { limit: 20, filter: s.points.length > 20 }));
		const note =
			(s.machine ? s.machine + ". " : "") +
			s.energy[0].toUpperCase() +
			s.energy.slice(1) +
			(s.points.some((p) => p.runs_ok > 1)
				? ". Mean \u00b1 half of the 95\u00a0% interval over the repeats"
				: s.points.every((p) => p.runs_ok === 1)
					? ". One run of each setting"
					: "") +
			(s.points.some((p) => p.state === "violated")
				? "; in parentheses where the setting was violated"
				: "") +
			(s.points.some((p) => p.late)
				? "; > where the 99th percentile of a latency exceeds --ttft or --tpot, so that the setting cannot be the best"
				: "") +
			"." +
			figures();
		show(0);
		return el(
			"section",
			{ class: "panel" + (s.points.length > 20 ? " long" : ""), id: s.id + "/settings", "aria-label": "All settings" },
			el(
				"div",
				{ class: "head" },
				el("h3", {}, "All settings ", JM.origin(s.origin)),
				el(
					"select",
					{ "aria-label": "columns", onchange: (e) => show(e.target.value) },
					usable.map(([title], k) => el("option", { value: k }, title)),
				),
			),
			el("p", { class: "soft small" }, note),
			place,
		);
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
							? "Even the lowest grade, D, needs energy that a sensor measured. Grades go from A, the best, to D; these reasons prevent them:"
							: "The worst grade among the runs; grades go from A, the best, to D, or none. " +
								(reasons.length ? "These reasons prevent a better one:" : ""),
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

	JM.meters = function (s) {
		const detail = JM.S.details[s.index],
			list = detail.meters;
		const label = (id) => (list.find((m) => m.id === id) || { label: id }).label;
		const names = [
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
			["mean power", "W", "watts_mean"],
			["covered", "s", "covered_s"],
		];
		const columns = names
			.map(([title, of]) => ({ title: title, left: true, of: (m) => text(of(m)) }))
			.concat(
				numbers.map(([title, unit, key]) => ({ title: title, unit: unit, of: (m) => JM.plain(m[key]) })),
				{ title: "gaps", of: (m) => text(m.gaps) },
			);
		if (!list.length) return null;
		return el(
			"section",
			{ class: "panel long" },
			el(
				"details",
				{},
				el("summary", {}, "Meters and their uncertainty (" + list.length + ")"),
				el(
					"p",
					{ class: "soft small" },
					"Of one run, phase " + text(detail.phase) + ". Totals add only meters that no other meter includes, all of one origin, so that nothing is counted twice.",
				),
				JM.table(columns, list, { csv: "meters" }),
			),
		);
	};

	JM.phases = function (s) {
		const detail = JM.S.details[s.index];
		if (!detail.phase_table) return null;
		return el(
			"section",
			{ class: "panel", id: s.id + "/phases", "aria-label": "Phases" },
			el("h3", {}, "Phases"),
			el(
				"p",
				{ class: "soft small" },
				JM.ofOneRun(s, detail.run) + "; " +
					(detail.origin ? "energy of the " + detail.origin + " meters with its uncertainty" : "it had no meters") +
					". Phases may lie within others.",
			),
			JM.grid(detail.phase_table, { limit: 12, csv: "phases" }),
		);
	};

	// What a training has learnt; tables of runs that serve, overlap or train by several ranks.
	JM.figures = function (s) {
		const detail = JM.S.details[s.index];
		const learnt = detail.learnt
			? el("section", { class: "panel", "aria-label": "Learnt" }, el("h3", {}, "Learnt"),
					el("p", {}, detail.learnt), el("p", { class: "soft small" }, JM.ofOneRun(s, detail.run) + "."))
			: null;
		const tables = s.tables.map((t) =>
			el(
				"section",
				{ class: "panel", "aria-label": t.title },
				el("h3", {}, t.title),
				el("p", { class: "soft small" }, t.caption),
				t.tables.map((table) => JM.grid(table, { limit: 12, csv: t.title.toLowerCase().replaceAll(" ", "-") })),
			),
		);
		return [learnt, ...tables];
	};

	// ---- runs -------------------------------------------------------------------------------------------------

	const facts = (rows) =>
		el(
			"dl",
			{ class: "facts" },
			rows.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]),
		);

	const seriesOf = (i) => JM.S.series[JM.run("series", i)];
	const pointOf = (i) => seriesOf(i).points[JM.run("point", i)];
	const code = (v) => el("code", {}, typeof v === "object" ? JSON.stringify(v) : text(v));

	// All that is known of one run, when it is asked for.
	function about(i) {
		const s = seriesOf(i),
			p = pointOf(i),
			rows = [
				["work", s.title],
				...JM.S.dimensions.map((d, k) => [d.name, text(p.settings[k].text)]),
				["case", code(JM.run("id", i))],
				["repeat, block, position", ["repeat", "block", "position"].map((k) => text(JM.run(k, i))).join(", ")],
				["started", text(JM.run("started", i))],
				["state, grade", text(JM.run("state", i)) + ", " + text(JM.run("grade", i))],
			];
		const measured = [
			["throughput", "throughput", s.item + "/s"], ["mean power", "watts_mean", "W"], ["maximum power", "watts_max", "W"],
			["energy", "joules", "J"], ["items", "items", ""], ["time", "seconds", "s"],
			["energy per " + s.item, "joules_per_item", "J"], ["energy saved", "energy_gain_percent", "%"], ["slowdown", "time_loss_percent", "%"],
		];
		for (const [title, key, unit] of measured)
			if (known(JM.run(key, i))) rows.push([title, JM.plain(JM.run(key, i)) + " " + unit]);
		if (JM.run("reason", i)) rows.push(["reason", JM.run("reason", i)]);
		return facts(rows.concat(JM.parameters(s).map(([, k, v]) => [k, code(v)])));
	}

	JM.runs = function (S) {
		const many = S.series.length > 1;
		const id = (i) =>
			el(
				"button",
				{
					class: "id",
					title: "parameters of this run",
					"aria-expanded": "false",
					onclick: (e) => {
						const tr = e.target.closest("tr"),
							open = e.target.getAttribute("aria-expanded") === "true";
						e.target.setAttribute("aria-expanded", String(!open));
						if (open) tr.nextSibling.remove();
						else tr.after(el("tr", { class: "about" }, el("td", { class: "l", colspan: "12" }, about(i))));
					},
				},
				text(JM.run("id", i)) === "\u2013" ? "run " + (i + 1) : JM.run("id", i),
			);
		const column = (title, unit, key) => ({ title: title, unit: unit, of: (i) => JM.plain(JM.run(key, i)) });
		const who = [
			many ? { title: "work", left: true, of: (i) => seriesOf(i).title } : null,
			{ title: "setting", left: true, of: (i) => JM.named(seriesOf(i), pointOf(i)) + (JM.run("outlier", i) ? " (outlier)" : "") },
			{ title: "block", of: (i) => text(JM.run("block", i)) },
			{ title: "repeat", of: (i) => text(JM.run("repeat", i)) },
			{ title: "status", left: true, of: (i) => (JM.run("ok", i) ? "ok" : "failed") },
		].filter(Boolean);
		const what = [
			{ title: "state", left: true, of: (i) => text(JM.run("state", i)) },
			many
				? { title: "throughput", of: (i) => JM.plain(JM.run("throughput", i)) + " " + seriesOf(i).item + "/s" }
				: column("throughput", S.series[0].item + "/s", "throughput"),
			column("power", "W", "watts_mean"),
			column("energy", "J", "joules"),
			{ title: "origin", left: true, of: (i) => text(JM.run("origin", i)) },
			{ title: "grade", left: true, of: (i) => text(JM.run("grade", i)) },
		];
		const columns = who.concat(what, { title: "case", left: true, of: id });
		const failed = (i) =>
			JM.run("ok", i)
				? null
				: who
						.map((w) => el("td", { class: w.left ? "l" : null }, w.of(i)))
						.concat(
							el("td", { class: "l wrap", colspan: what.length }, text(JM.run("reason", i))),
							el("td", { class: "l" }, id(i)),
						);
		return el(
			"section",
			{ class: "panel long", id: "runs", "aria-label": "All runs" },
			el("h3", {}, "All runs (" + S.runs.n + ")"),
			el("p", { class: "soft small" }, "A click on the last column shows the parameters of a run. Grade: quality of the measurement, from A, the best, to D, or none."),
			JM.table(columns, JM.allRuns.slice().sort((a, b) => JM.run("ok", a) - JM.run("ok", b)), {
				rowClass: (i) => (JM.run("ok", i) ? null : "failed"),
				whole: failed,
				filter: S.runs.n > 12,
				limit: 10,
				csv: "runs",
			}),
		);
	};

	const list = (...words) => text(words.filter(Boolean).join(", "));

	function machine(p) {
		const device = (d) => list(d.name, d.id, d.driver && "driver " + d.driver);
		const memory = known(p.memory_bytes) ? (p.memory_bytes / 2 ** 30).toFixed(1) + " GiB" : null;
		return facts([
			[p.hosts ? "hosts" : "host", text(p.hosts || p.host)],
			["system", list(p.os, p.kernel && "kernel " + p.kernel)],
			["processor", list(p.cpu, p.cores && p.cores + " cores")],
			["memory", text(memory)],
			["devices", text((p.devices || []).map(device).join("; "))],
			["libraries", list(...Object.entries(p.libraries || {}).map((x) => x[0] + " " + text(x[1])))],
			["joulemark", text(p.joulemark)],
		]);
	}

	JM.provenance = function (S) {
		const options = (s) => facts([["work", s.title]].concat(JM.parameters(s).map(([, k, v]) => [k, code(v)])));
		const seen = S.machines;
		return el(
			"div",
			{ class: "grid" },
			el(
				"section",
				{ class: "panel", "aria-label": "Machines" },
				el("h3", {}, seen.length > 1 ? "Machines (" + seen.length + ")" : "Machine"),
				seen.map((p) =>
					seen.length > 1 ? el("details", {}, el("summary", { class: "plain" }, list(p.host, (p.devices || []).map((d) => d.name)[0])), machine(p)) : machine(p),
				),
			),
			el(
				"section",
				{ class: "panel", "aria-label": "Parameters" },
				el("h3", {}, "Parameters"),
				S.series.slice(0, 60).map((s) => el("details", {}, el("summary", { class: "plain" }, s.title), options(s))),
				S.series.length > 60 ? el("p", { class: "small soft" }, "Of the other systems: in the table of all runs.") : null,
			),
			JM.hardware(seen),
		);
	};

	// Own throughput per device by that of the paper, at the same cap: one column for each own system.
	function ratios(work) {
		const names_it = (s) => s.title.includes(work.workload + " " + work.model) || s.title.includes("sim " + work.response);
		const own = JM.S.series.filter((s) => s.item === work.unit && names_it(s)).slice(0, 4);
		const names = JM.systemNames(own);
		const at = (s, r) =>
			s.points.find((p) =>
				r.cap_watts === null
					? p.reference
					: p.state !== "violated" && p.settings.some((x, k) => JM.S.dimensions[k].unit === "W" && x.x === r.cap_watts),
			);
		const value = (s, r) => {
			const p = at(s, r);
			return p && known(r.items_per_s) ? p.metrics.throughput_per_device.mean / r.items_per_s : NaN;
		};
		return own
			.map((s, k) => ({
				title: names[k] + " / published",
				unit: s.origin && s.origin !== "measured" ? s.origin : "throughput",
				of: (item) => (known(value(s, work.rows[item.row])) ? value(s, work.rows[item.row]).toFixed(2) : "\u2013"),
				any: work.rows.some((r) => known(value(s, r))),
			}))
			.filter((c) => c.any);
	}

	// What papers report: apart from all that the records hold.
	JM.published = function (work) {
		return el(
			"div",
			{ class: "panel published" },
			el(
				"div",
				{ class: "head" },
				el("h3", {}, (work.model ? work.model + " " : "") + work.task + " as papers report it"),
				el("span", { class: "mark" }, work.origin),
			),
			el("p", { class: "small" }, "The papers' input: " + work.shape + "."),
			work.why_not ? el("p", { class: "small" }, work.why_not) : JM.grid(work.table, {}, ratios(work)),
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
					["EDP, ED2P", "e \u00b7 d; e \u00b7 d\u00b2"],
					["ZeusCost", "\u03b7 e + (1\u2212\u03b7) P_max d; P_max is the power limit of the reference, \u03b7 is " + JM.S.figures.zeus_eta + " (Zeus, NSDI 2023)"],
					["Pareto front", "settings that no other one beats in throughput or efficiency without losing in the other"],
					["outlier", "a run more than 10 \u00b7 1.4826 \u00b7 MAD from the median of its setting; it stays in all figures"],
					[
						"EDS k",
						"(k\u22121)/k \u00b7 e/e_ref + 1/k \u00b7 d/d_ref; the reference has 1, lower is better; k is how many " +
							"times slower a run may be that needs no energy (DEPO, doi 10.1002/spe.3139)",
					],
					["energy saved", "100 \u00b7 (e_ref \u2212 e) / e_ref"],
					["slowdown", "100 \u00b7 (d \u2212 d_ref) / d_ref"],
					[
						"energy saved minus slowdown",
						"their difference, the same as 200 \u00b7 (1 \u2212 EDS 2)",
					],
					[
						"reference",
						"the setting that others are compared with, by default the unchanged one; the reference of the same block, so that drift between blocks cancels",
					],
					[
						"median and maximum power",
						"of several meters: the sums of their own; the maxima need not fall together, so " +
							"their sum is an upper bound",
					],
					["95 % interval", "of the mean over the repeats, by Student's t"],
					[
						"best",
						"the best mean whose interval overlaps that of no other setting; violated settings, and those " +
							"that exceed --ttft or --tpot, take no part",
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
