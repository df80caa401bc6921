/* SPDX-License-Identifier: Apache-2.0 */
/* Meters, their signals, and which meter includes which. */
#include "meter/meter.h"
#include "base/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTSIDE "outside" /* of the node: the first word of such a path */

static const char *const origins[] = {
#define X(name, text) text,
	JM_ORIGINS(X)
#undef X
};

static const char *const scopes[] = {
#define X(name, text) text,
	JM_SCOPES(X)
#undef X
};

static const struct {
	const char *name, *unit;
} quantities[] = {
#define X(name, text, unit) {text, unit},
	JM_QUANTITIES(X)
#undef X
};

const enum jm_origin jm_origin_order[JM_ORIGIN_COUNT] = {
	JM_MEASURED, JM_REPLAYED, JM_SIMULATED, JM_ESTIMATED};

const char *jm_origin_name(enum jm_origin origin)
{
	return origins[origin];
}

const char *jm_scope_name(enum jm_scope scope)
{
	return scopes[scope];
}

const char *jm_quantity_name(enum jm_quantity quantity)
{
	return quantities[quantity].name;
}

const char *jm_quantity_unit(enum jm_quantity quantity)
{
	return quantities[quantity].unit;
}

bool jm_quantity_is_counter(enum jm_quantity quantity)
{
	return quantity == JM_Q_ENERGY || !strcmp(quantities[quantity].unit, "s");
}

/* Does the path of `len` characters include the other one? "/" includes everything of the node. */
static bool path_includes(const char *a, size_t a_len, const char *b, size_t b_len)
{
	if (a_len == 1 && a[0] == '/')
		return !path_includes(OUTSIDE, strlen(OUTSIDE), b, b_len);
	return a_len <= b_len && !memcmp(a, b, a_len) && (a_len == b_len || b[a_len] == '/');
}

/* How many of b's component paths are included in a; *ret_n: how many b has. */
static int included(const char *a, const char *b, int *ret_n)
{
	int n = 0, hits = 0;

	for (size_t b_len; *b; b += b_len) {
		b += strspn(b, " ");
		b_len = strcspn(b, " ");
		if (!b_len)
			break;
		n++;
		for (size_t skip = 0, len; a[skip]; skip += len) {
			skip += strspn(a + skip, " ");
			len = strcspn(a + skip, " ");
			if (len && path_includes(a + skip, len, b, b_len)) {
				hits++;
				break;
			}
		}
	}
	*ret_n = n;
	return hits;
}

static bool is_outside(const struct jm_meter *m)
{
	int n;

	return included(OUTSIDE, m->covers, &n) == n && n;
}

int jm_meters_add(struct jm_meters *set, const struct jm_meter *meter, struct jm_err *err)
{
	struct jm_meter *grown = reallocarray(set->meter, (size_t)set->n + 1, sizeof(*grown));
	char *covers = strdup(meter->covers ? meter->covers : "");

	if (grown)
		set->meter = grown;
	if (!grown || !covers) {
		free(covers);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for meter %s.", meter->id);
	}
	jm_text_tame(covers);
	grown[set->n] = *meter;
	grown[set->n].covers = covers;
	jm_text_tame(grown[set->n].id);
	jm_text_tame(grown[set->n].label);
	jm_text_tame(grown[set->n].about);
	jm_text_tame(grown[set->n].device);
	grown[set->n].first_signal = set->n_signals;
	grown[set->n].n_signals = 0;
	grown[set->n].covered_by = -1;
	grown[set->n].overlaps = -1;
	grown[set->n].elsewhere = is_outside(&grown[set->n]);
	return set->n++;
}

int jm_meters_add_signal(struct jm_meters *set, const struct jm_signal *signal, struct jm_err *err)
{
	struct jm_signal *grown =
		reallocarray(set->signal, (size_t)set->n_signals + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a signal of meter %s.",
			set->meter[set->n - 1].id);
	set->signal = grown;
	grown[set->n_signals] = *signal;
	grown[set->n_signals].meter = set->n - 1;
	set->meter[set->n - 1].n_signals++;
	return set->n_signals++;
}

int jm_meters_add_whole(struct jm_meters *set, const struct jm_meter *meter,
	const struct jm_signal *signal, int n, struct jm_err *err)
{
	int rc = jm_meters_add(set, meter, err);

	for (int i = 0; rc >= 0 && i < n; i++)
		rc = jm_meters_add_signal(set, &signal[i], err);
	return rc < 0 ? rc : 0;
}

/* Simulated and replayed meters belong to another machine or another time than the others. */
static bool same_world(const struct jm_meter *a, const struct jm_meter *b)
{
	bool here_a = a->origin == JM_MEASURED || a->origin == JM_ESTIMATED;
	bool here_b = b->origin == JM_MEASURED || b->origin == JM_ESTIMATED;

	return a->origin == b->origin || (here_a && here_b);
}

/* The position of a node's meter in the supply chain: an outlet also includes the loss of the power
 * supply. */
static int nearness(const struct jm_meter *m)
{
	return m->scope == JM_SCOPE_OUTLET ? 2 : m->scope == JM_SCOPE_PSU;
}

static bool covers(const struct jm_meter *a, const struct jm_meter *b)
{
	int n, back;

	if (!same_world(a, b) || (a->origin == JM_ESTIMATED && b->origin != JM_ESTIMATED))
		return false;
	if (included(a->covers, b->covers, &n) < n || !n)
		return false;
	/* equal components: a measured meter covers an estimate, else the meter nearer the wall the
	 * other one, else the earlier one the later one */
	if (included(b->covers, a->covers, &back) < back)
		return true;
	if (a->origin != JM_ESTIMATED && b->origin == JM_ESTIMATED)
		return true;
	return nearness(a) == nearness(b) ? a < b : nearness(a) > nearness(b);
}

static bool overlaps(const struct jm_meter *a, const struct jm_meter *b)
{
	int n;

	return same_world(a, b) &&
	       (included(a->covers, b->covers, &n) > 0 || included(b->covers, a->covers, &n) > 0);
}

/* The smallest meter that includes all of meter i. */
static int smallest_over(const struct jm_meters *set, int i)
{
	int best = -1;

	for (int j = 0; j < set->n; j++)
		if (j != i && covers(&set->meter[j], &set->meter[i]) &&
			(best < 0 || covers(&set->meter[best], &set->meter[j])))
			best = j;
	return best;
}

/* Of the meters that share a part of meter i, one that a total would count in addition to it, if
 * there is one. */
static int sharing_with(const struct jm_meters *set, int i)
{
	const struct jm_meter *m = &set->meter[i];
	int best = -1, best_rank = -1;

	for (int j = 0; j < set->n; j++) {
		const struct jm_meter *other = &set->meter[j];
		int rank = 2 * (other->origin == m->origin) + (other->covered_by < 0);

		if (j == i || rank < best_rank || covers(other, m) || covers(m, other) ||
			!overlaps(m, other))
			continue;
		best = j;
		best_rank = rank;
	}
	return best;
}

void jm_meters_derive(struct jm_meters *set)
{
	for (int i = 0; i < set->n; i++)
		set->meter[i].covered_by = smallest_over(set, i);
	for (int i = 0; i < set->n; i++)
		set->meter[i].overlaps = sharing_with(set, i);
}

/* "0000:1b:00.0" and "00000000:1B:00.0" are one address. */
static bool same_bus(const char *a, const char *b)
{
	unsigned int x[4], y[4];

	return sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) == 4 &&
	       sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) == 4 &&
	       !memcmp(x, y, sizeof(x));
}

static int find_own(const struct jm_meters *set, const char *uuid, const char *bus, bool *ret_slice)
{
	*ret_slice = false;
	for (int i = 0; i < set->n; i++)
		if (set->meter[i].scope == JM_SCOPE_GPU && !strcasecmp(set->meter[i].device, uuid))
			return i;
	*ret_slice = true;
	for (int i = 0; i < set->n; i++)
		if (set->meter[i].scope == JM_SCOPE_GPU && same_bus(set->meter[i].bus, bus))
			return i;
	*ret_slice = false;
	return -1;
}

/* Does the meter cover GPUs, but nothing of the GPU with that id? */
static bool is_elsewhere(const struct jm_meter *m, const char *own)
{
	char gpu[JM_ID_MAX + 8];
	int n;

	snprintf(gpu, sizeof(gpu), "gpu/%s", own);
	return included("gpu", m->covers, &n) && !included(gpu, m->covers, &n) &&
	       !included(m->covers, gpu, &n);
}

int jm_meters_own(struct jm_meters *set, const char *uuid, const char *bus, bool *ret_slice)
{
	int own = find_own(set, uuid, bus, ret_slice);
	const char *device = own < 0 ? "" : set->meter[own].device;

	for (int i = 0; i < set->n; i++)
		set->meter[i].elsewhere =
			is_outside(&set->meter[i]) || is_elsewhere(&set->meter[i], device);
	return own;
}

int jm_meters_own_too(struct jm_meters *set, const char *uuid, const char *bus)
{
	bool slice;
	int own = find_own(set, uuid, bus, &slice);

	for (int i = 0; i < set->n && own >= 0; i++)
		if (set->meter[i].elsewhere && !is_outside(&set->meter[i]))
			set->meter[i].elsewhere =
				is_elsewhere(&set->meter[i], set->meter[own].device);
	return own;
}

int jm_meter_signal(const struct jm_meters *set, int meter, enum jm_quantity quantity)
{
	const struct jm_meter *m = &set->meter[meter];

	for (int i = m->first_signal; i < m->first_signal + m->n_signals; i++)
		if (set->signal[i].quantity == quantity)
			return i;
	return -1;
}

static int first_signal(const struct jm_meters *set, int meter, const enum jm_quantity order[3])
{
	int signal = -1;

	for (int i = 0; i < 3 && signal < 0; i++)
		signal = jm_meter_signal(set, meter, order[i]);
	return signal;
}

int jm_meter_energy_signal(const struct jm_meters *set, int meter)
{
	static const enum jm_quantity order[] = {JM_Q_ENERGY, JM_Q_POWER, JM_Q_POWER_AVERAGE};

	return first_signal(set, meter, order);
}

int jm_meter_power_signal(const struct jm_meters *set, int meter)
{
	static const enum jm_quantity order[] = {JM_Q_POWER, JM_Q_POWER_AVERAGE, JM_Q_ENERGY};

	return first_signal(set, meter, order);
}

int jm_meters_copy(const struct jm_meters *set, struct jm_meters *ret, struct jm_err *err)
{
	struct jm_meters copy = {0};
	int rc = 0;

	for (int i = 0; rc >= 0 && i < set->n; i++) {
		const struct jm_meter *m = &set->meter[i];

		rc = jm_meters_add_whole(
			&copy, m, &set->signal[m->first_signal], m->n_signals, err);
	}
	if (rc < 0)
		jm_meters_done(&copy);
	else
		*ret = copy;
	return rc < 0 ? rc : 0;
}

void jm_meters_cut(struct jm_meters *set, int n, int n_signals)
{
	for (int i = n; i < set->n; i++)
		free((char *)set->meter[i].covers);
	set->n = n;
	set->n_signals = n_signals;
}

void jm_meters_done(struct jm_meters *set)
{
	jm_meters_cut(set, 0, 0);
	free(set->meter);
	free(set->signal);
	*set = (struct jm_meters){0};
}
