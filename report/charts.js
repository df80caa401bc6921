// SPDX-License-Identifier: Apache-2.0
// The charts of the report page, by ECharts. Each takes a series of the summary and gives a panel.
"use strict";
(function () {
	const { el, known, panel, axis, valueAxis, base, setting, settingAxis, parts } = JM,
		{ offPoints, referencePoints, tip, whiskers, band, bestOf } = JM;

	// Means of one metric against the setting, with the reference as a dashed level.
	JM.chartSetting = function (series, dims, metric, verdict, note) {
		const s = setting(series, dims),
			col = JM.column(series, metric);

		if (series.reference !== null) note += " Dashed: the reference.";
		return panel(col.title[0].toUpperCase() + col.title.slice(1), note, function (c) {
			const part = parts(series),
				best = bestOf(series, verdict);
			const has = (i) => known(col.mean[i]);
			const item = (i) => ({
				value: [s.x[i], col.mean[i]],
				index: i,
				label: {
					show: best.at.includes(i) && best.text === "best",
					formatter: "best",
					color: c.best,
					position: "top",
					fontWeight: "bold",
					distance: 8,
				},
				itemStyle:
					best.at.includes(i) && series.points[i].eligible
						? {
								color: best.text === "best" ? c.best : c.main,
								borderColor: c.best,
								borderWidth: 2.5,
							}
						: undefined,
				symbolSize: best.at.includes(i) ? 11 : 7,
			});
			const spread = (list) =>
				list
					.filter((i) => has(i) && col.half[i] > 0)
					.map((i) => [s.x[i], col.mean[i] - col.half[i], col.mean[i] + col.half[i]]);
			const ref = part.reference.filter(has),
				option = base(c);
			option.xAxis = settingAxis(c, s);
			option.yAxis = valueAxis(c, col.unit, { boundaryGap: [0, "12%"] });
			option.tooltip.formatter = tip(series, [col]);
			option.series = [
				band(c.band, spread(part.curve)),
				whiskers(c, c.main, spread(part.curve)),
				whiskers(c, c.off, spread(part.off)),
				{
					type: "line",
					data: part.curve.filter(has).map(item),
					color: c.main,
					symbol: "circle",
					z: 4,
					lineStyle: { width: s.numeric ? 2 : 0, color: c.main },
				},
				offPoints(c, part.off.filter(has).map(item)),
				referencePoints(c, ref.map(item), {
					markLine: ref.length
						? {
								silent: true,
								symbol: "none",
								lineStyle: {
									type: "dashed",
									color: c.ref,
									opacity: 0.8,
								},
								label: { show: false },
								data: [{ yAxis: col.mean[ref[0]] }],
							}
						: undefined,
				}),
			];
			return option;
		});
	};

	// Mean power of a device against its cap: under the dashed line the cap was kept, above it was not.
	JM.chartPower = function (series, dims, per) {
		const s = setting(series, dims);
		const col = { title: "mean power per device", unit: "W", mean: per, half: [] };
		return panel(
			"Power against the cap",
			"Mean power per device; on the dashed line the work takes all that the cap allows.",
			function (c) {
				const part = parts(series),
					option = base(c);
				const has = (i) => known(per[i]) && known(s.x[i]);
				const item = (i) => ({ value: [s.x[i], per[i]], index: i });
				const xs = s.x.filter(known),
					low = Math.min(...xs),
					high = Math.max(...xs);
				option.xAxis = settingAxis(c, s);
				option.yAxis = valueAxis(c, "W");
				option.tooltip.formatter = tip(series, [col]);
				option.series = [
					{
						type: "line",
						silent: true,
						symbol: "none",
						data: [
							[low, low],
							[high, high],
						],
						lineStyle: { type: "dashed", color: c.off, width: 1.5 },
						endLabel: {
							show: true,
							formatter: "cap",
							color: c.off,
							offset: [-72, -6],
						},
					},
					{
						type: "line",
						data: part.curve.filter(has).map(item),
						symbol: "circle",
						symbolSize: 7,
						color: c.main,
						lineStyle: { width: 2, color: c.main },
						z: 4,
					},
					offPoints(c, part.off.filter(has).map(item), {
						label: {
							show: true,
							formatter: "not kept",
							position: "top",
							color: c.off,
							fontSize: 11,
						},
					}),
					referencePoints(c, part.reference.filter(has).map(item)),
				];
				return option;
			},
		);
	};

	// EDP and each EDS relative to the reference; 1 is the reference, lower is better.
	JM.chartProducts = function (series, dims, names) {
		const s = setting(series, dims),
			ref = series.points[series.reference];
		const cols = names.map((n) => JM.column(series, n)).filter((col) => col.any);
		for (const col of cols) {
			const one = col.mean[series.reference];
			if (!col.name.startsWith("eds"))
				Object.assign(col, {
					unit: "of the reference",
					mean: col.mean.map((v) => v / one),
					half: col.half.map((v) => v / one),
				});
			else col.unit = "";
		}
		return panel(
			"Energy and delay together",
			"EDP and EDS relative to the reference (" +
				ref.label +
				"), the dashed line at 1; lower is better. The vertical axis need not start at 0.",
			function (c) {
				const part = parts(series),
					option = base(c);
				option.color = c.many;
				option.legend = {
					top: 0,
					right: 0,
					textStyle: { color: c.soft },
					itemWidth: 16,
					itemHeight: 8,
				};
				option.xAxis = settingAxis(c, s);
				option.yAxis = axis(c, "", { scale: true, boundaryGap: ["6%", "10%"] });
				option.tooltip.formatter = (p) =>
					p.data && p.data.index !== undefined ? tip(series, [cols[p.data.col]])(p) : "";
				option.series = cols.map((col, k) => ({
					type: "line",
					name: col.name.startsWith("eds") ? col.title : "EDP",
					data: part.curve
						.filter((i) => known(col.mean[i]))
						.map((i) => ({
							value: [s.x[i], col.mean[i]],
							index: i,
							col: k,
						})),
					symbol: ["circle", "rect", "triangle", "roundRect"][k % 4],
					symbolSize: 7,
					lineStyle: { width: 2 },
					markLine: k
						? undefined
						: {
								silent: true,
								symbol: "none",
								label: { show: false },
								lineStyle: { type: "dashed", color: c.ref },
								data: [{ yAxis: 1 }],
							},
				}));
				return option;
			},
		);
	};

	const shade = (c, name, i) =>
		c.phase[{ warmup: 0, setup: 1, cooldown: 1, steady: 2, command: 2, verify: 3 }[name] ?? i % 4];

	// Shaded areas. The name of a phase within another, as of an epoch in the steady phase, stands one line lower.
	function phases(c, t) {
		const long = (p) => p.end_s - p.start_s;
		const within = (p, i) =>
			t.phases.some(
				(q, k) =>
					q.start_s <= p.start_s &&
					q.end_s >= p.end_s &&
					(long(q) > long(p) || k < i),
			);
		return t.phases.map((p, i) => [
			{
				name: p.name,
				xAxis: p.start_s,
				label: {
					show: long(p) > 0.05 * (t.end_s - t.start_s),
					distance: within(p, i) ? 20 : 5,
				},
				itemStyle: { color: shade(c, p.name, i) },
			},
			{ xAxis: p.end_s },
		]);
	}

	// Power over time of one run, with its phases shaded; trace: see report/trace.c.
	JM.chartTrace = function (trace) {
		const state = { trace: trace };
		const chart = panel(
			"Power over time",
			"",
			function (c) {
				const t = state.trace,
					option = base(c);
				const caps = [...new Set((t.caps || []).filter(known))];
				option.color = c.many;
				option.grid.top = 52;
				option.grid.bottom = 70;
				option.legend = {
					type: "scroll",
					selected: t.hidden,
					top: 0,
					left: 0,
					right: 0,
					textStyle: { color: c.soft },
					itemWidth: 12,
					itemHeight: 12,
					icon: "circle",
					pageTextStyle: { color: c.soft },
					pageIconColor: c.soft,
					pageIconInactiveColor: c.line,
				};
				option.xAxis = axis(c, "seconds", {
					min: t.start_s,
					max: t.end_s,
					nameGap: 24,
					axisLabel: { color: c.soft, hideOverlap: true, showMaxLabel: false },
				});
				option.yAxis = valueAxis(c, "W", { nameGap: 8, boundaryGap: [0, "8%"] });
				option.tooltip = Object.assign(option.tooltip, {
					trigger: "axis",
					axisPointer: { lineStyle: { color: c.soft } },
					formatter: (list) =>
						el(
							"div",
							{},
							el("b", {}, list[0].value[0].toFixed(2) + " s"),
							list
								.filter((p) => p.data.index !== undefined)
								.slice(0, 12)
								.map((p) => [
									el("br"),
									p.seriesName +
										": " +
										p.value[1].toFixed(1) +
										" W",
								]),
						),
				});
				option.dataZoom = [
					{ type: "inside", filterMode: "none" },
					{
						type: "slider",
						height: 18,
						bottom: 6,
						filterMode: "none",
						borderColor: c.line,
						textStyle: { color: c.soft },
						fillerColor: c.band,
						handleStyle: { color: c.card, borderColor: c.soft },
						dataBackground: {
							lineStyle: { opacity: 0 },
							areaStyle: { opacity: 0 },
						},
					},
				];
				option.series = t.meters.map((m, k) => ({
					type: "line",
					name: m.label,
					symbol: "none",
					step: "end",
					lineStyle: { width: 1.3 },
					data: m.points.map((d) => ({ value: d, index: k })),
					connectNulls: false,
					markArea: k
						? undefined
						: {
								silent: true,
								label: {
									color: c.soft,
									fontSize: 11,
									position: "insideTop",
								},
								data: phases(c, t),
							},
					markLine:
						k || !caps.length
							? undefined
							: {
									silent: true,
									symbol: "none",
									lineStyle: {
										type: "dashed",
										color: c.ref,
									},
									label: {
										formatter: "cap {c} W",
										position: "insideEndTop",
										color: c.ref,
										fontSize: 11,
									},
									data: caps.map((w) => ({ yAxis: w })),
								},
				}));
				return option;
			},
			true,
		);
		chart.show = function (other) {
			state.trace = other;
			JM.redraw(chart);
		};
		return chart;
	};
})();
