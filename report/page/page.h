/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the page, made from the files of those names by embed.py. */
#ifndef JM_PAGE_H
#define JM_PAGE_H

extern const char jm_page_page_html[], jm_page_page_css[], jm_page_page_js[], jm_page_format_js[],
	jm_page_data_js[], jm_page_plot_js[], jm_page_all_systems_js[], jm_page_timeline_js[],
	jm_page_residue_js[], jm_page_steps_js[], jm_page_visits_js[], jm_page_budgets_js[],
	jm_page_signatures_js[], jm_page_hardware_js[], jm_page_charts_js[], jm_page_tables_js[],
	jm_page_overview_js[], jm_page_echarts_min_js[], jm_page_echarts_LICENSE[];

#endif
