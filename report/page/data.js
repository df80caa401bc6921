// SPDX-License-Identifier: Apache-2.0
// The embedded data (joulemark.page/1, report/page/page_data.c) in the form that charts and tables take.
"use strict";
(function () {
	const { known } = JM;
	const S = JSON.parse(document.getElementById("jm-data").textContent);
	JM.S = S;
	JM.limited = S.objective === "slowdown";
	JM.limitName = S.slowdown_percent + "\u00a0% slower";
	// The lowest throughput that the best setting may have, by that of the reference.
	JM.limit = (throughput) => throughput / (1 + S.slowdown_percent / 100);

	const statistic = ([n, mean, half, median, sd, min, max]) => ({
		n: n,
		mean: mean,
		half: known(half) ? half : NaN,
		low95: known(half) ? mean - half : null,
		high95: known(half) ? mean + half : null,
		median: n === 1 ? mean : median,
		sd: sd,
		min: n === 1 ? mean : min,
		max: n === 1 ? mean : max,
	});
	const PERCENT = ["energy_gain_percent", "time_loss_percent", "gain_minus_loss"];
	// The lower end of a bar: what is never negative is not drawn below 0, where an interval of few runs may end.
	JM.lowEnd = (metric, mean, half) => (PERCENT.includes(metric) || mean < 0 ? mean - half : Math.max(0, mean - half));
	const widened = (stat) => ({
		...stat,
		half: stat.half > 0 ? Math.max(stat.half, S.percent_least) : stat.half,
		places: Math.round(-Math.log10(S.percent_least)),
	});
	S.series.forEach((s, index) => {
		s.index = index;
		for (const v of s.verdicts) v.value = JM.apart(v.value);
		s.id = "s" + (index + 1);
		s.points.forEach((p, i) => {
			p.index = i;
			for (const name of Object.keys(p.metrics)) {
				const stat = statistic(p.metrics[name]);

				p.metrics[name] = PERCENT.includes(name) ? widened(stat) : stat;
			}
		});
	});

	// What a metric means whose name does not say it; "" of the others.
	JM.meaning = (s, name) => (S.meanings[name] || "").replaceAll("@", s.item);

	// A property of one run; one that all runs have alike is kept once.
	const at = (name, i) => (Array.isArray(S.runs[name]) ? S.runs[name][i] : S.runs[name]);
	JM.run = at;
	// Indices of the runs of a series, or of one of its points.
	const ofPoint = S.series.map((s) => s.points.map(() => []));
	for (let i = 0; i < S.runs.n; i++) ofPoint[at("series", i)][at("point", i)].push(i);
	JM.runsOf = (s, point) => ofPoint[s.index][point];
	JM.allRuns = Array.from({ length: S.runs.n }, (_, i) => i);

	// The label of a point without a setting.
	const ALL = "all";

	// "300 W (reference), repeat 2"
	JM.runName = function (s, i) {
		const p = s.points[at("point", i)],
			repeat = at("repeat", i);
		const name = p.label === ALL ? "" : JM.named(s, p) + (p.reference ? " (reference)" : "");
		return [name, known(repeat) ? "repeat " + repeat : ""].filter(Boolean).join(", ") || ALL;
	};

	// "Of one run (300 W)"
	JM.ofOneRun = function (s, i) {
		const p = s.points[at("point", i)];
		return "Of one run" + (p.label === ALL ? "" : " (" + JM.named(s, p) + ")");
	};

	JM.mean = (list) => {
		const some = list.filter(known);
		return some.length ? some.reduce((a, b) => a + b, 0) / some.length : NaN;
	};

	// Points [s, W or null] of a meter's trace; the code is described in report/page/page_trace.h.
	JM.points = function (meter) {
		if (meter.decoded) return meter.decoded;
		const bytes = atob(meter.points),
			out = [];
		let k = 0,
			ms = 0,
			watts = 0;
		const varint = () => {
			let v = 0,
				scale = 1,
				byte;
			do {
				byte = bytes.charCodeAt(k++);
				v += (byte & 0x7f) * scale;
				scale *= 128;
			} while (byte & 0x80);
			return v;
		};
		for (let i = 0; i < meter.n; i++) {
			ms += varint();
			const v = varint();
			if (v > 0) watts += v % 2 ? (v - 1) / 2 : -v / 2;
			out.push([ms / 1000, v > 0 ? watts / 10 : null]);
		}
		return (meter.decoded = out);
	};

	// Leaves of the parameters of a series: [[path, name, value]].
	const leaves = (o, path) =>
		Object.entries(o || {}).flatMap(([k, v]) =>
			v !== null && typeof v === "object" && !Array.isArray(v)
				? leaves(v, path + k + "/")
				: [[path + k, k, v]],
		);
	JM.swept = (name) => S.dimensions.some((d) => d.name === name.split("@")[0]);
	JM.parameters = (s) => leaves(s.parameters, "").filter(([, name]) => !JM.swept(name));

	// Identity of a series: the item and those parameters that count.
	JM.identity = (s, counts) =>
		JSON.stringify([
			s.item,
			JM.parameters(s)
				.filter(counts)
				.map(([path, , v]) => [path, v])
				.sort(),
		]);
	// Lists of the series that have the same key, in order of appearance.
	JM.grouped = function (key) {
		const groups = new Map();
		for (const s of S.series) {
			const k = key(s);
			if (groups.has(k)) groups.get(k).push(s);
			else groups.set(k, [s]);
		}
		return [...groups.values()];
	};

	// The same work: the parameters without the machine and without what is swept.
	const groups = JM.grouped((s) =>
		JM.identity(s, ([path]) => !/^(device|source|control|settings\/.*)$/.test(path)),
	);
	const plain = (s) => s.title.replace(/ on .*$/, "");
	JM.works = groups.map((list, i) => {
		// what distinguishes works of one name follows the machine in the title
		const same = groups.filter((g) => plain(g[0]) === plain(list[0])).length > 1;
		return { id: "w" + (i + 1), series: list, title: same && list.length === 1 ? list[0].title : plain(list[0]) };
	});
	for (const w of JM.works) for (const s of w.series) s.work = w;

	// Names of systems: the text after " on " in the title if it is unique, else the whole
	// title.
	JM.systemNames = function (list) {
		const short = list.map((s) => s.title.replace(/^.*? on /, ""));
		return new Set(short).size === list.length ? short : list.map((s) => s.title);
	};
})();
