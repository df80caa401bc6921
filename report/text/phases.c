/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of one record as a table. Energy is that of the topmost meters of one origin. */
#include "phases.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "result/metric.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one row is made of. */
struct row {
	const json_t *phase, *meter; /* meter: NULL = the total */
	double seconds, joules, error, watts, items;
};

const char *jm_phases_origin(const json_t *record)
{
	enum jm_origin origin;

	return jm_metric_origin(record, &origin) ? jm_origin_name(origin) : NULL;
}

bool jm_phases_several(const json_t *record)
{
	return json_array_size(json_object_get(record, "phases")) > 1;
}

const json_t *jm_phases_meter(const json_t *record, const char *id)
{
	return jm_json_find(json_object_get(record, "meters"), "id", id);
}

/* "gpu.power=300W": what was in force in a phase of a case whose settings change with it; "" = it
 * has none. */
static void settings_of(const json_t *phase, char *out, size_t size)
{
	json_t *settings = json_object_get(phase, "settings"), *value;
	const char *name;

	*out = '\0';
	json_object_foreach(settings, name, value)
	{
		jm_text_append(out, size, *out ? " " : "", name);
		jm_text_append(
			out, size, "=", json_is_string(value) ? json_string_value(value) : "?");
	}
}

static struct row row_of(const json_t *phase)
{
	struct row row = {.phase = phase,
		.seconds = jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s"),
		.items = jm_json_real_of(phase, "items"),
		.joules = NAN,
		.error = NAN,
		.watts = NAN};

	return row;
}

static struct row total_row(const json_t *phase, const char *origin)
{
	const json_t *total = json_object_get(phase, "total");
	struct row row = row_of(phase);
	char key[40];

	if (!origin)
		return row;
	jm_text_format(key, sizeof(key), "joules_%s", origin);
	row.joules = jm_json_real_of(total, key);
	jm_text_format(key, sizeof(key), "error_%s_joules", origin);
	row.error = jm_json_real_of(total, key);
	row.watts = row.seconds > 0 ? row.joules / row.seconds : NAN;
	return row;
}

static struct row meter_row(const json_t *record, const json_t *phase, const json_t *of_meter)
{
	struct row row = row_of(phase);

	row.meter = jm_phases_meter(record, jm_json_text(of_meter, "id"));
	row.joules = jm_json_real_of(of_meter, "joules");
	row.error = jm_json_real_of(of_meter, "error_joules");
	row.watts = jm_json_real_of(of_meter, "watts_mean");
	return row;
}

static int compare_begin(const void *pa, const void *pb)
{
	const struct row *a = pa, *b = pb;
	double x = jm_json_real_of(a->phase, "start_s"), y = jm_json_real_of(b->phase, "start_s");

	if (x != y)
		return x < y ? -1 : 1;
	if (a->seconds != b->seconds)
		return a->seconds > b->seconds ? -1 : 1;
	return a < b ? -1 : 1;
}

/* What is left after the last line of a command that ended with it. */
static bool is_empty(const json_t *phase)
{
	const struct row row = row_of(phase);

	return !(row.seconds > 0 || isnan(row.seconds)) && !(row.items > 0);
}

/* All rows; NULL: no memory. */
static struct row *make_rows(const json_t *record, bool devices, int *ret_n)
{
	const json_t *phases = json_object_get(record, "phases"), *phase, *meter;
	size_t most = json_array_size(phases) *
		      (1 + json_array_size(json_object_get(record, "meters"))),
	       i, k;
	struct row *rows = calloc(most + 1, sizeof(*rows));
	const char *origin = jm_phases_origin(record);
	int n = 0;

	json_array_foreach(phases, i, phase)
	{
		if (!rows)
			break;
		if (is_empty(phase))
			continue;
		if (!devices)
			rows[n++] = total_row(phase, origin);
		json_array_foreach(json_object_get(phase, "meters"), k, meter)
		{
			if (devices && (size_t)n < most)
				rows[n++] = meter_row(record, phase, meter);
		}
	}
	if (rows)
		qsort(rows, (size_t)n, sizeof(*rows), compare_begin);
	*ret_n = n;
	return rows;
}

/* A column of energies: in one unit, which stands in its title, or each row in the unit that fits
 * it. */
struct column {
	bool per_item, own_units;
	const char *prefix; /* of the one unit, by the largest value */
	double factor;
	int places; /* JM_NO_PLACES: each row has its own */
};

static double items_of(const struct column *c, const struct row *row)
{
	return c->per_item ? row->items : 1;
}

#define PLACES_APART 2
#define VALUES_APART 1000 /* the same, where no error is known */

/* The decimals are such that no row loses a digit that is known; rows that differ by more than two
 * would get digits that mean nothing, and have units of their own. */
static struct column column_of(const struct row *rows, int n, bool per_item)
{
	struct column c = {.per_item = per_item, .places = JM_NO_PLACES};
	int most = JM_NO_PLACES, least = INT_MAX;
	double largest = 0, smallest = INFINITY;

	for (int i = 0; i < n; i++) {
		double x = fabs(rows[i].joules / items_of(&c, &rows[i]));

		largest = isfinite(x) && x > largest ? x : largest;
		smallest = x > 0 ? fmin(smallest, x) : smallest;
	}
	c.factor = jm_text_prefix("J", largest, &c.prefix);
	for (int i = 0; i < n; i++) {
		double by = c.factor * items_of(&c, &rows[i]);
		int places = jm_text_places(INT_MAX, rows[i].joules / by, rows[i].error / by);

		if (places == JM_NO_PLACES)
			continue;
		most = places > most ? places : most;
		least = places < least ? places : least;
	}
	c.own_units = most == JM_NO_PLACES ? largest > smallest * VALUES_APART
					   : most - least > PLACES_APART;
	if (!c.own_units)
		c.places = most;
	return c;
}

static int put_text(
	struct jm_grid *grid, int row, int *column, const char *text, struct jm_err *err)
{
	return jm_grid_set(grid, row, (*column)++, err, "%s", text);
}

static int put_number(struct jm_grid *grid, int row, int *column, double value, struct jm_err *err)
{
	char text[80];

	jm_text_estimate(value, NAN, text, sizeof(text));
	return put_text(grid, row, column, text, err);
}

static int put_energy(struct jm_grid *grid, int at, int *column, const struct row *row,
	const struct column *c, struct jm_err *err)
{
	double by = items_of(c, row), value = row->joules / by, error = row->error / by;
	char text[80];

	if (c->own_units && isfinite(value))
		jm_text_quantity(value, error, "J", text, sizeof(text));
	else if (c->places == JM_NO_PLACES || isnan(error))
		jm_text_estimate(value / c->factor, error / c->factor, text, sizeof(text));
	else
		jm_text_estimate_at(
			c->places, value / c->factor, error / c->factor, text, sizeof(text));
	return put_text(grid, at, column, text, err);
}

struct units {
	const char *item;
	struct column energy, per_item;
	bool devices, items, settings;
};

static int put_energy_title(struct jm_grid *grid, int *column, const struct column *c,
	const char *item, struct jm_err *err)
{
	char title[80];

	if (c->own_units)
		jm_text_format(title, sizeof(title), "energy%s%s", *item ? "/" : "", item);
	else
		jm_text_format(title, sizeof(title), "%sJ%s%s", c->prefix, *item ? "/" : "", item);
	return put_text(grid, -1, column, title, err);
}

static int put_titles(struct jm_grid *grid, const struct units *u, struct jm_err *err)
{
	char items[64];
	int column = 0, rc = put_text(grid, -1, &column, "phase", err);

	jm_text_format(items, sizeof(items), "%s%s", u->item, jm_text_plural(u->item));
	if (!rc && u->devices)
		rc = put_text(grid, -1, &column, "meter", err);
	if (!rc && u->settings)
		rc = put_text(grid, -1, &column, "settings", err);
	rc = rc ? rc : put_text(grid, -1, &column, "s", err);
	rc = rc ? rc : put_energy_title(grid, &column, &u->energy, "", err);
	rc = rc ? rc : put_text(grid, -1, &column, "mean W", err);
	if (!rc && u->items)
		rc = put_text(grid, -1, &column, items, err);
	return rc || !u->items ? rc : put_energy_title(grid, &column, &u->per_item, u->item, err);
}

static int put_row(struct jm_grid *grid, int at, const struct row *row, const struct units *u,
	struct jm_err *err)
{
	char items[40] = "-", settings[200];
	int column = 0, rc = put_text(grid, at, &column, jm_json_text(row->phase, "name"), err);

	if (isfinite(row->items)) {
		jm_text_format(items, sizeof(items), "%.10g", row->items);
		jm_text_apart(items, sizeof(items));
	}
	if (!rc && u->devices)
		rc = put_text(grid, at, &column, jm_json_text(row->meter, "label"), err);
	settings_of(row->phase, settings, sizeof(settings));
	if (!rc && u->settings)
		rc = put_text(grid, at, &column, *settings ? settings : "-", err);
	rc = rc ? rc : put_number(grid, at, &column, row->seconds, err);
	rc = rc ? rc : put_energy(grid, at, &column, row, &u->energy, err);
	rc = rc ? rc : put_number(grid, at, &column, row->watts, err);
	if (!rc && u->items)
		rc = put_text(grid, at, &column, items, err);
	return rc || !u->items ? rc : put_energy(grid, at, &column, row, &u->per_item, err);
}

static int fill(
	struct jm_grid *grid, const struct row *rows, const struct units *u, struct jm_err *err)
{
	int rc = put_titles(grid, u, err);

	grid->left[0] = true;
	for (int i = 1; i <= u->devices + u->settings; i++)
		grid->left[i] = true;
	grid->n_setting = 1 + u->devices + u->settings;
	for (int i = 0; i < grid->rows && !rc; i++)
		rc = put_row(grid, i, &rows[i], u, err);
	return rc;
}

int jm_phases_grid(const json_t *record, bool devices, const char *item, struct jm_grid *ret,
	struct jm_err *err)
{
	struct units u = {.item = *item ? item : "item", .devices = devices};
	struct jm_grid grid;
	int n, rc;
	struct row *rows = make_rows(record, devices, &n);

	if (!rows)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the phases of a record.");
	for (int i = 0; i < n; i++) {
		u.items = u.items || rows[i].items > 0;
		u.settings = u.settings || json_object_get(rows[i].phase, "settings");
	}
	u.energy = column_of(rows, n, false);
	u.per_item = column_of(rows, n, true);
	rc = jm_grid_new(&grid, n, 4 + devices + u.settings + 2 * u.items, err);
	if (!rc) {
		rc = fill(&grid, rows, &u, err);
		if (rc)
			jm_grid_done(&grid);
		else
			*ret = grid;
	}
	free(rows);
	return rc;
}

static bool has_phase(const json_t *record, const char *name)
{
	return jm_json_find(json_object_get(record, "phases"), "name", name);
}

void jm_phases_note(const json_t *record, FILE *out, int width)
{
	if (has_phase(record, "command") && has_phase(record, "marked"))
		jm_text_wrap(out,
			"command: from its start to its end; marked: from the first mark to the "
			"last, to "
			"which the rate of items applies",
			2, 4, width);
}
