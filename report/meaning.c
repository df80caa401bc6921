/* SPDX-License-Identifier: Apache-2.0 */
/* What the words of a table mean: metrics with a name of their own, the reference, the grade. */
#include "grid.h"

#include <stdio.h>
#include <string.h>

#define TWICE 100 /* percent of time loss from which the multiple is given too */

static const struct {
	int metric;
	const char *text;
} rows[] = {
	{JM_M_EDP, "EDP: energy times time per @; lower is better"},
	{JM_M_ED2P, "ED2P: energy times the square of the time per @; lower is better"},
	{JM_M_ZEUS,
		"energy and time per @ as one energy, time at the power limit; lower is better"},
	{JM_M_GAIN, "energy saved per @, compared with the reference"},
	{JM_M_LOSS, "additional time per @, compared with the reference; 100 % is twice the time"},
	{JM_M_GAIN_LOSS, "energy saved less additional time per @, in percentage points"},
	{JM_M_MFU, "model FLOPs utilisation: FLOP/s of the model, divided by the dense peak"},
	{JM_M_HFU, "hardware FLOPs utilisation: executed FLOP/s, divided by the dense peak"},
};

void jm_text_meaning(
	const struct jm_grouping *g, const char *item, int metric, char *out, size_t size)
{
	char text[240];
	double k;

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].metric == metric)
			jm_text_item(rows[i].text, item, out, size);
	if (metric < JM_M_EDS)
		return;
	k = g->options.k[metric - JM_M_EDS];
	snprintf(text, sizeof(text),
		"Energy Delay Sum: %.2g × energy + %.2g × time per @, relative to the reference, "
		"which has 1; lower is better",
		1 - 1 / k, 1 / k);
	jm_text_item(text, item, out, size);
}

void jm_text_products(const struct jm_group_series *s, char *out, size_t size)
{
	jm_text_format(out, size,
		"The energy delay product (EDP) is the energy times the time per %s. EDS k, the "
		"Energy Delay Sum, is (1 - 1/k) of the energy + 1/k of the time per %s, both "
		"relative to the reference, which has 1; a small k gives more weight to the time. "
		"Lower values of both are better.",
		s->item, s->item);
}

const char *jm_text_reference(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return strncmp(g->point[s->reference].label, "default", strlen("default"))
		       ? "the setting that was found before the run"
		       : "the default setting of the device";
}

/* The setting with the largest time loss, where the work takes more than twice the time; NULL = none. */
static const struct jm_group_point *slowest(
	const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_point *found = NULL;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		const struct jm_group_point *p = &g->point[i];

		if (p->stat[JM_M_LOSS].n && p->stat[JM_M_LOSS].mean > TWICE &&
			(!found || p->stat[JM_M_LOSS].mean > found->stat[JM_M_LOSS].mean))
			found = p;
	}
	return found;
}

void jm_text_relative(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	const struct jm_group_point *p = slowest(g, s);
	char part[120] = "";

	jm_text_format(out, size,
		"Gain is the energy saved per %s, loss the additional time per %s, both compared "
		"with the reference",
		s->item, s->item);
	if (p)
		snprintf(part, sizeof(part), " (a loss of %.0f %% is %.3g times the time)",
			p->stat[JM_M_LOSS].mean, 1 + p->stat[JM_M_LOSS].mean / 100);
	jm_text_append(out, size, "", part);
	jm_text_append(out, size, "", ".");
}

bool jm_text_paired(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	bool blocks = false;

	for (int i = 0; i < g->n_cases; i++)
		blocks = blocks || (g->c[i].series == (int)(s - g->series) && g->c[i].block >= 0);
	if (!blocks || s->reference < 0 || g->point[s->reference].n_ok < 2)
		return false;
	snprintf(out, size,
		"Gain and loss compare runs of the same block (one repeat of all settings), so "
		"that "
		"changes between blocks cancel; their intervals can therefore be narrower than "
		"those of the other columns.");
	return true;
}
