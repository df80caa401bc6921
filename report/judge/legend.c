/* SPDX-License-Identifier: Apache-2.0 */
/* What a table's "±" and the signs beside its settings and figures mean. */
#include "legend.h"
#include "series_table.h"

void jm_text_spread(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	int n = g->point[s->first_point].n_ok;

	*out = '\0';
	if (!s->n_ok)
		return;
	if (jm_series_table_says_runs(g, s))
		snprintf(out, size, "; mean ± half of the 95 %% interval over n runs");
	else if (n > 1)
		snprintf(out, size, "; mean ± half of the 95 %% interval over %d runs", n);
	else
		snprintf(out, size, "; one run of each setting, so the repeats give no interval");
}

static bool has_state(
	const struct jm_grouping *g, const struct jm_group_series *s, enum jm_group_state state)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].state == state)
			return true;
	return false;
}

static bool has_outliers(const struct jm_grouping *g, const struct jm_group_series *s)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].n_outliers)
			return true;
	return false;
}

const struct jm_text_sign *jm_text_signs(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_text_sign *ret)
{
	int n = 0;

	if (has_state(g, s, JM_STATE_NOT_REACHED))
		ret[n++] = (struct jm_text_sign){
			"°", "the work never drew as much power as the setting allows"};
	if (has_state(g, s, JM_STATE_UNKNOWN))
		ret[n++] =
			(struct jm_text_sign){"?", "whether the setting was violated is unknown"};
	if (has_state(g, s, JM_STATE_VIOLATED))
		ret[n++] = (struct jm_text_sign){"()", "violated: the device took more than the "
						       "setting allows; not eligible as best"};
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].late) {
			ret[n++] = (struct jm_text_sign){">",
				"the 99th percentile of a latency exceeds --ttft or --tpot; "
				"the setting is not eligible as best"};
			break;
		}
	if (has_outliers(g, s))
		ret[n++] = (struct jm_text_sign){
			"!", "one of the repeats is an outlier; it is included"};
	ret[n] = (struct jm_text_sign){NULL, NULL};
	return ret;
}
