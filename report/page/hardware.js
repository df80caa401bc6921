// SPDX-License-Identifier: Apache-2.0
// The table of the hardware: a column for each kind of device, a row for each of its figures.
"use strict";
(function () {
	const { el, known } = JM;

	const peak = (type, unit, key) => ["peak " + type, unit, "peak_" + (key || type + "_flops_per_s"), 1e-12];
	const FIGURES = [
		["compute capability", "", "compute_capability", 1],
		["memory", "GB", "memory_bytes", 1e-9],
		["memory bandwidth", "TB/s", "memory_bytes_per_s", 1e-12],
		["power limit by default", "W", "power_default_watts", 1],
		["lowest power limit", "W", "power_min_watts", 1],
		["highest power limit", "W", "power_max_watts", 1],
		["multiprocessors", "", "sm_count", 1],
		["highest clock", "MHz", "sm_clock_max_hz", 1e-6],
		["highest memory clock", "MHz", "memory_clock_max_hz", 1e-6],
		...["f64", "f32", "tf32", "f16", "bf16", "f8"].map((type) => peak(type, "TFLOP/s")),
		peak("int8", "TOP/s", "i8_ops_per_s"),
	];

	// Devices with the same name and figures are one kind: [{name, n of one machine, figures}].
	function kinds(machines) {
		const all = new Map();
		for (const machine of machines) {
			const here = new Map();
			for (const d of (machine.devices || []).filter((x) => x.hardware)) {
				const kind = { name: d.name.replace(/^GPU \d+ /, ""), figures: d.hardware },
					key = JSON.stringify(kind);
				here.set(key, { ...kind, n: (here.has(key) ? here.get(key).n : 0) + 1 });
			}
			for (const [key, kind] of here) if (!all.has(key) || all.get(key).n < kind.n) all.set(key, kind);
		}
		return [...all.values()];
	}

	const shown = (value, factor) => (known(value) ? JM.apart(String(+(value * factor).toPrecision(4))) : "\u2013");

	// Null: no source knows the hardware.
	JM.hardware = function (machines) {
		const list = kinds(machines),
			rows = FIGURES.filter(([, , key]) => list.some((d) => known(d.figures[key])));
		if (!rows.length) return null;
		return el(
			"section",
			{ class: "panel", "aria-label": "Hardware" },
			el("h3", {}, "Hardware"),
			el(
				"p",
				{ class: "soft small" },
				"Of one device. Bandwidth and peaks are computed from the highest clocks; data sheets take a lower clock for some of them.",
			),
			JM.table(
				[
					{ title: "", left: true, of: ([title]) => title },
					{ title: "unit", left: true, of: ([, unit]) => unit },
					...list.map((d) => ({
						title: (d.n > 1 ? d.n + " \u00d7 " : "") + d.name,
						of: ([, , key, factor]) => shown(d.figures[key], factor),
					})),
				],
				rows,
				{ csv: "hardware" },
			),
		);
	};
})();
