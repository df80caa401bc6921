// SPDX-License-Identifier: Apache-2.0
// The parts of ECharts that report/page/page.js uses; everything else is left out of the bundle.
import * as echarts from "echarts/core";
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import {
	AriaComponent,
	DataZoomComponent,
	GridComponent,
	LegendComponent,
	MarkAreaComponent,
	MarkLineComponent,
	TooltipComponent,
} from "echarts/components";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";

echarts.use([
	CustomChart, LineChart, ScatterChart,
	AriaComponent, DataZoomComponent, GridComponent, LegendComponent,
	MarkAreaComponent, MarkLineComponent, TooltipComponent,
	LabelLayout, SVGRenderer,
]);

export const { init, version } = echarts;
