/* SPDX-License-Identifier: Apache-2.0 */
#include "scaling.h"
#include "base/text/json.h"
#include "report/model/dimension.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Options that say how many devices there are, or what each has to do. */
static const char *const counts[] = {"ranks", "gpus", "batch", NULL};

/* ---- what may be compared -------------------------------------------------------------------- */

/* How much of a device's name is its kind: "cuda" of "cuda:0,cuda:1", "sim:h100" of
 * "sim:h100x4". */
static int kind_length(const char *device)
{
	size_t n = strlen(device);

	if (strncmp(device, "sim:", 4))
		return (int)strcspn(device, ":,");
	while (n && isdigit((unsigned char)device[n - 1]))
		n--;
	return (int)n;
}

/* That was given, or of "max" the batch that was found. -1: there is none of a known size. */
static int find_batch(const json_t *record, double *ret)
{
	const json_t *given = jm_dim_parameter(record, "batch");

	*ret = jm_dim_number(given);
	if (given && isnan(*ret))
		*ret = jm_json_real_of(json_object_get(record, "plan"), "batch");
	return given && isnan(*ret) ? -1 : 0;
}

static double option_of(const json_t *record, const char *name, double fallback)
{
	double x = jm_dim_number(json_object_get(json_object_get(record, "options"), name));

	return x > 0 ? x : fallback;
}

/* All that is the same for one work, as text. NULL: no memory. */
static char *key_of(const json_t *record, const char *machine, double ranks_per_device)
{
	const char *device = jm_json_text(record, "device");
	json_t *options = json_deep_copy(json_object_get(record, "options")), *key;
	char *text;

	for (const char *const *name = counts; *name; name++)
		json_object_del(options, *name);
	key = json_pack("[s, s, s, s%, s, f, o*]", jm_json_text(record, "workload"),
		jm_json_text(record, "unit"), jm_json_text(record, "precision"), device,
		(size_t)kind_length(device), machine, ranks_per_device, options);
	text = key ? json_dumps(key, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
	json_decref(key);
	return text;
}

static bool stands_for_its_devices(
	const struct jm_grouping *g, const struct jm_group_case *c, bool knobs)
{
	const struct jm_group_series *s = &g->series[c->series];
	int first = s->reference >= 0 ? s->reference : s->first_point;

	return c->ok && (!knobs || c->point == first) && *jm_json_text(c->record, "workload") &&
	       jm_json_real_of(c->record, "devices") > 0 &&
	       !isnan(g->point[c->point].stat[JM_M_THROUGHPUT].mean);
}

static int add(struct jm_scalings *s, const struct jm_grouping *g, const struct jm_group_case *c)
{
	size_t hosts = json_array_size(json_object_get(c->record, "hosts"));
	double devices = jm_json_real_of(c->record, "devices"), batch,
	       ranks = option_of(c->record, "ranks", devices);
	char *machine, *key;

	if (find_batch(c->record, &batch))
		return 0;
	machine = jm_machine_kind(&g->machine[c->machine]);
	key = machine ? key_of(c->record, machine, ranks / devices) : NULL;
	free(machine);
	if (!key)
		return -1;
	s->of[s->n_of++] = (struct jm_scaled){.point = &g->point[c->point],
		.record = c->record,
		.devices = devices,
		.models = ranks / option_of(c->record, "tp", 1) / option_of(c->record, "pp", 1),
		.batch = batch,
		.hosts = hosts ? (int)hosts : 1,
		.key = key};
	return 0;
}

/* One for each point, by its first run that succeeded. */
static int collect(struct jm_scalings *s, const struct jm_grouping *g)
{
	bool knobs = jm_dim_has_knob(g), *seen = calloc((size_t)g->n_points + 1, sizeof(*seen));
	int rc = seen ? 0 : -1;

	for (int i = 0; i < g->n_cases && !rc; i++) {
		const struct jm_group_case *c = &g->c[i];

		if (!stands_for_its_devices(g, c, knobs) || seen[c->point])
			continue;
		seen[c->point] = true;
		rc = add(s, g, c);
	}
	free(seen);
	return rc;
}

/* ---- one work -------------------------------------------------------------------------------- */

/* The batch that all of them have; NAN = there are none. */
static double size_of(const struct jm_scaled *x, bool strong)
{
	return x->batch * (strong ? x->models : 1);
}

static bool belong(const struct jm_scaled *a, const struct jm_scaled *b, bool strong)
{
	double x = size_of(a, strong), y = size_of(b, strong);

	return (x == y || (!strong && isnan(x) && isnan(y))) && a->key && b->key &&
	       !strcmp(a->key, b->key);
}

static int by_devices(const void *a, const void *b)
{
	const struct jm_scaled *x = *(const struct jm_scaled *const *)a;
	const struct jm_scaled *y = *(const struct jm_scaled *const *)b;

	if (x->devices != y->devices)
		return x->devices > y->devices ? 1 : -1;
	if (x->hosts != y->hosts)
		return x->hosts > y->hosts ? 1 : -1;
	return (x > y) - (x < y); /* in the order of the records */
}

/* Of all that belong to number i, if it is the first of them. */
static int find(struct jm_scalings *s, int i, bool strong)
{
	struct jm_scaling one = {.strong = strong};

	for (int k = 0; k < i; k++)
		if (belong(&s->of[i], &s->of[k], strong))
			return 0;
	one.at = calloc((size_t)s->n_of, sizeof(*one.at));
	if (!one.at)
		return -1;
	for (int k = 0; k < s->n_of; k++)
		if (belong(&s->of[i], &s->of[k], strong))
			one.at[one.n++] = &s->of[k];
	if (one.n)
		qsort(one.at, (size_t)one.n, sizeof(*one.at), by_devices);
	if (one.n && one.at[0]->devices < one.at[one.n - 1]->devices)
		s->all[s->n++] = one;
	else
		free(one.at);
	return 0;
}

int jm_scalings_init(struct jm_scalings *s, const struct jm_grouping *g, struct jm_err *err)
{
	int rc;

	*s = (struct jm_scalings){0};
	s->of = calloc((size_t)g->n_points + 1, sizeof(*s->of));
	s->all = calloc(2 * (size_t)g->n_points + 1, sizeof(*s->all));
	if (!s->of || !s->all) {
		jm_scalings_done(s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the scaling over devices.");
	}
	rc = collect(s, g);
	for (int i = 0; i < s->n_of && !rc; i++)
		rc = find(s, i, false) || find(s, i, true);
	if (!rc)
		return 0;
	jm_scalings_done(s);
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the scaling over devices.");
}

void jm_scalings_done(struct jm_scalings *s)
{
	for (int i = 0; s->all && i < s->n; i++)
		free(s->all[i].at);
	for (int i = 0; s->of && i < s->n_of; i++)
		free(s->of[i].key);
	free(s->all);
	free(s->of);
}

double jm_scaling_of_ideal(const struct jm_scaling *s, int i)
{
	const struct jm_scaled *first = s->at[0], *x = s->at[i];

	return 100 * x->point->stat[JM_M_THROUGHPUT].mean * first->devices /
	       (first->point->stat[JM_M_THROUGHPUT].mean * x->devices);
}
