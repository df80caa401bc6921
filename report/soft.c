/* SPDX-License-Identifier: Apache-2.0 */
/* The line below a table about soft controls, without which a reader would take it for work at full speed, or under a cap. */
#include "grid.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

/* Of the runs that were to hold these watts, the one that is farthest from them; NULL = none was. */
static const json_t *worst_hold(const struct jm_grouping *g, const struct jm_group_point *p)
{
	const json_t *worst = NULL;
	double most = -1;

	for (int i = 0; i < g->n_cases; i++) {
		const json_t *soft = json_object_get(g->c[i].record, "soft");
		double wanted = jm_json_real(json_object_get(soft, "hold_watts"));
		double apart = fabs(jm_json_real(json_object_get(soft, "watts")) / wanted - 1);

		if (&g->point[g->c[i].point] != p || !g->c[i].ok || !(wanted > 0))
			continue;
		if (!worst || isnan(apart) || apart > most) {
			worst = soft;
			most = apart;
		}
	}
	return worst;
}

/* "300 W held", "50 W missed by +41 % (70.5 W)": how the power of each setting was held. */
static void write_holds(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	size_t used = 0;

	*out = '\0';
	for (int i = s->first_point; i < s->first_point + s->n_points && used < size; i++) {
		const json_t *soft = worst_hold(g, &g->point[i]);
		const char *state = jm_json_text(soft, "state");
		double wanted = jm_json_real(json_object_get(soft, "hold_watts"));
		double watts = jm_json_real(json_object_get(soft, "watts"));

		if (!state)
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s %.4g W %s", used ? "," : ":",
			wanted, strcmp(state, "unknown") ? state : "unknown whether held");
		if (!strcmp(state, "missed") && used < size)
			used += (size_t)snprintf(out + used, size - used, " by %+.3g %% (%.4g W)",
				100 * (watts / wanted - 1), watts);
	}
}

#define NO_LIMIT "; this is a soft control, no limit that a driver enforces"

void jm_text_soft(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	const json_t *soft = json_object_get(s->record, "soft");
	bool pauses = json_object_get(soft, "hold_watts") != NULL;
	bool share = json_object_get(soft, "units") != NULL;
	char holds[600], line[800];

	if (pauses) {
		write_holds(g, s, holds, sizeof(holds));
		snprintf(line, sizeof(line),
			"--hold-power: pauses between steps lower the mean power to the value "
			"asked for%s" NO_LIMIT,
			holds);
		jm_text_wrap(out, line, 2, 4, g->options.width);
	}
	if (share)
		jm_text_wrap(out,
			"--sm-share: the work ran on a part of the multiprocessors" NO_LIMIT, 2, 4,
			g->options.width);
}
