/* SPDX-License-Identifier: Apache-2.0 */
#include "run_tables.h"

#include "overlapped.h"
#include "report/format/text.h"
#include "serving_text.h"
#include "step_times.h"

static const struct jm_run_tables *const kinds[] = {
	&jm_served, &jm_served_split, &jm_overlapped, &jm_step_times};

void jm_run_tables_each(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_run_tables_to *out)
{
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	char caption[700];

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		if (!kinds[k]->runs(g, s))
			continue;
		if (kinds[k]->caption)
			jm_text_format(caption, sizeof(caption), "%s", kinds[k]->caption);
		else
			kinds[k]->explain(g, s, caption, sizeof(caption));
		out->begin(out->to, kinds[k]->title, caption);
		for (int i = 0; i < 2; i++) {
			if (!kinds[k]->table[i] || kinds[k]->table[i](g, s, &grid, &none))
				continue;
			out->put(out->to, &grid);
			jm_grid_done(&grid);
		}
	}
}
