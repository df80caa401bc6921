// SPDX-License-Identifier: Apache-2.0
// Elements, numbers and units of the report page. Text only ever enters as text nodes.
"use strict";
const JM = {};

JM.el = function (tag, attrs, ...children) {
	const node = document.createElement(tag);
	for (const [key, value] of Object.entries(attrs || {})) {
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else if (value !== undefined && value !== null && value !== false)
			node.setAttribute(key, value === true ? "" : value);
	}
	for (const child of children.flat(3))
		if (child !== null && child !== undefined && child !== false) node.append(child);
	return node;
};

const known = (JM.known = (v) => typeof v === "number" && isFinite(v));
// What is unknown is null in the data, with which JavaScript computes as with 0.
JM.number = (v) => (known(v) ? v : NaN);

JM.decimals = function (value, digits) {
	if (!known(value) || value === 0) return 0;
	return Math.min(12, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)))));
};

// The rule of report/format/text.c: a comma groups the thousands of numbers from 10,000 on, and from 1,000 on in a text that has
// such a number.
JM.apartAll = (t) => t.replace(/(?<![\w.])\d{4,}/g, (d) => d.replace(/\B(?=(\d{3})+$)/g, ","));
// With a real minus sign.
const apart = (JM.apart = (t) => {
	const signed = t.replace(/^-/, "\u2212");
	return /(?<![\w.])\d{5}/.test(signed) ? JM.apartAll(signed) : signed;
});
JM.isApart = (t) => /\d,\d{3}(?!\d)/.test(t);
JM.together = (t) => t.replace(/(\d),(?=\d{3}(?!\d))/g, "$1");

// The same rule as the terminal's (report/format/text.h): the first one or two digits of the half width, decimals up to the
// fourth digit of the mean, and no more of them than `most`.
JM.estimate = function (mean, half, most = 12) {
	if (!known(mean)) return "\u2013";
	if (!(half > 1e-6 * Math.abs(mean))) return apart(mean.toFixed(Math.min(most, mean === 0 ? 1 : JM.decimals(mean, 4))));
	const exponent = Math.floor(Math.log10(half));
	let places = half / 10 ** (exponent - 1) < 35 ? 1 - exponent : -exponent;
	if (mean !== 0) places = Math.min(places, JM.decimals(mean, 4));
	if (half > Math.abs(mean)) places = Math.max(places, JM.decimals(mean, 2)); // or nothing of the mean would be left
	places = Math.min(places, most);
	const shown = (v) => {
		const unit = 10 ** -places;
		return (Math.round(v / unit) * unit).toFixed(Math.max(places, 0));
	};
	return apart(shown(mean) + "\u00a0\u00b1\u00a0" + shown(Math.max(half, 0.51 * 10 ** -places)));
};

// Of a statistic of a point, in its own unit.
JM.estimateOf = (stat) => JM.estimate(stat.mean, stat.half, stat.places);

JM.plain = (v) => (known(v) ? apart(v.toFixed(v === 0 ? 0 : JM.decimals(v, 4))) : "\u2013");

const prefixes = [
	["M", 1e6],
	["k", 1e3],
	["", 1],
	["m", 1e-3],
	["\u00b5", 1e-6],
	["n", 1e-9],
	["p", 1e-12],
	["f", 1e-15],
];
JM.scale = function (unit, values) {
	const largest = Math.max(0, ...values.filter(known).map(Math.abs));
	if (!(/^(J|Wh)/.test(unit) || (/^s(\/|$)/.test(unit) && largest < 1)) || largest === 0) return { factor: 1, unit: unit };
	const [prefix, factor] = prefixes.find((p) => largest >= p[1]) || prefixes[prefixes.length - 1];
	return { factor: factor, unit: prefix + unit };
};

// The mean of a metric in each point, in one fitting unit.
JM.column = function (series, name) {
	const row = series.metrics[name] || { title: name, unit: "" };
	const stats = series.points.map((p) => p.metrics[name] || {});
	const s = JM.scale(
		row.unit,
		stats.map((x) => x.mean),
	);
	return {
		name: name,
		title: row.title,
		unit: s.unit,
		better: row.better,
		factor: s.factor,
		mean: stats.map((x) => (known(x.mean) ? x.mean / s.factor : NaN)),
		half: stats.map((x) => x.half / s.factor),
		low: stats.map((x) => JM.lowEnd(name, x.mean, x.half) / s.factor),
		places: (stats[0] || {}).places,
		any: stats.some((x) => known(x.mean)),
	};
};

JM.download = function (name, type, text) {
	const url = URL.createObjectURL(new Blob([text], { type: type }));
	const a = JM.el("a", { href: url, download: name });
	document.body.append(a);
	a.click();
	a.remove();
	setTimeout(() => URL.revokeObjectURL(url), 1000);
};

JM.origin = (origin) =>
	JM.el("span", { class: "mark" + (origin === "measured" ? " measured" : "") }, origin || "no energy");

// No line ends before a percent sign.
JM.nbsp = (text) => text.replaceAll(" %", "\u00a0%");

JM.text = (v) => (v === null || v === undefined || v === "" ? "\u2013" : String(v));
