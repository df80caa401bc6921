/* SPDX-License-Identifier: Apache-2.0 */
#include "jpwr_tables.h"
#include "base/clock.h"
#include "base/files/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY	 "jpwr" /* in HDF5 */
#define COUNTERS "energy_from_counter"
#define WH	 3600.0 /* J */

const struct jm_jpwr_method jm_jpwr_methods[JM_JPWR_METHODS] = {
	{"pynvml", "nvml", JM_SCOPE_GPU, false, "NVIDIA GPUs", false},
	{"gh", "hwmon", JM_SCOPE_NODE, true, "NVIDIA Grace", false},
	{"rocm", "amdsmi", JM_SCOPE_GPU, true, "AMD GPUs", true},
	{"gc", "gcipuinfo", JM_SCOPE_GPU, true, "Graphcore IPUs", false},
};

/* ---- columns ---- */

/* jpwr calls a GPU by its index on the node, which is the first number of its label, and a sensor
 * of Grace by its label. */
static void name_column(
	struct jm_jpwr_column *c, const struct jm_jpwr_method *m, const struct jm_meter *meter)
{
	const char *gpu = strstr(meter->label, "GPU ");
	int index;

	if (gpu && sscanf(gpu, "GPU %d", &index) == 1)
		snprintf(c->name, sizeof(c->name), "%s:%d", m->name, index);
	else
		snprintf(c->name, sizeof(c->name), "%s:%s", m->name, meter->label);
}

static void add_columns(struct jm_jpwr *j, const struct jm_jpwr_method *m)
{
	const struct jm_meters *set = jm_session_meters(j->session);

	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *meter = &set->meter[i];
		struct jm_jpwr_column *c = &j->column[j->n_columns];

		if (strcmp(meter->source, m->source) || (!m->any_scope && meter->scope != m->scope))
			continue;
		*c = (struct jm_jpwr_column){
			.meter = i, .signal = jm_power_rows_signal(set, i), .method = m};
		if (c->signal < 0) {
			jm_log(&j->cli->ctx, JM_WARNING,
				"%s does not report power and has no column; 'joulemark measure' "
				"reports its energy.",
				meter->label);
			continue;
		}
		name_column(c, m, meter);
		j->n_columns++;
	}
}

int jm_jpwr_choose_columns(struct jm_jpwr *j)
{
	int n = jm_session_meters(j->session)->n;

	j->column = calloc((size_t)n + 1, sizeof(*j->column));
	if (!j->column)
		return jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for %d columns.", n);
	for (int i = 0; i < j->n_chosen; i++)
		add_columns(j, &jm_jpwr_methods[j->order[i]]);
	if (j->n_columns)
		return 0;
	return jm_err_set(&j->cli->err, JM_ENOENT,
		"None of the sensors that --methods names reports power; 'joulemark doctor' lists "
		"what they report.");
}

/* ---- files ---- */

int jm_jpwr_path(struct jm_jpwr *j, const char *table, char out[PATH_MAX])
{
	const char *type = j->hdf5 ? "h5" : "csv";

	if (snprintf(out, PATH_MAX, "%s/%s.%s.%s", j->folder, table, j->suffix, type) >= PATH_MAX)
		return jm_err_set(&j->cli->err, JM_EUSAGE, "--df-out is too long a path.");
	return 0;
}

static bool put_csv(const void *what, FILE *out)
{
	return jm_columns_write_csv(what, out);
}

static int write_file(struct jm_jpwr *j, const char *table, const struct jm_columns *columns)
{
	char path[PATH_MAX];
	int rc = jm_jpwr_path(j, table, path);

	if (rc)
		return rc;
	fprintf(j->cli->out, "Writing %s df to %s\n", table, path);
	if (j->hdf5)
		return jm_columns_write_hdf5(columns, KEY, path, &j->cli->err);
	return jm_output_by(path, put_csv, columns, &j->cli->err);
}

/* ---- tables ---- */

static double *cell(struct jm_jpwr *j, int row, int column)
{
	return &j->rows.value[(size_t)row * (size_t)j->n_columns + (size_t)column];
}

/* The sum that jpwr makes, with intervals that have no reading taken as the reading after them. NAN
 * = none. */
static double joules_of_rows(struct jm_jpwr *j, int column)
{
	double sum = 0, last = NAN;
	int64_t from = j->rows.t_ns[0];

	for (int row = 1; row < j->rows.n; row++) {
		double watts = *cell(j, row, column);

		if (isnan(watts))
			continue;
		sum += watts * (double)(j->rows.t_ns[row] - from) * 1e-9;
		from = j->rows.t_ns[row];
		last = watts;
	}
	/* after the last reading there is no power for the rest */
	return isnan(last) ? NAN : sum;
}

static int fill_column(struct jm_jpwr *j, int i)
{
	struct jm_jpwr_column *c = &j->column[i];
	int rc =
		jm_session_energy(j->session, c->meter, j->outcome.phase, &c->energy, &j->cli->err);

	for (int row = 1; row < j->rows.n; row++)
		c->missing += isnan(*cell(j, row, i));
	if (!rc && j->ignore_errors && isnan(c->energy.joules)) {
		c->energy.joules = joules_of_rows(j, i);
		c->energy.error = NAN;
		c->summed = !isnan(c->energy.joules);
	}
	return rc;
}

static int fill_tables(struct jm_jpwr *j)
{
	int *signal = calloc((size_t)j->n_columns, sizeof(*signal));
	int rc;

	if (!signal)
		return jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for the tables.");
	for (int i = 0; i < j->n_columns; i++)
		signal[i] = j->column[i].signal;
	rc = jm_power_rows_of(jm_session_trace(j->session), signal, j->n_columns,
		j->outcome.start_ns, j->outcome.end_ns, j->interval_ms * JM_MILLISECOND, &j->rows,
		&j->cli->err);
	free(signal);
	for (int i = 0; !rc && i < j->n_columns; i++)
		rc = fill_column(j, i);
	return rc;
}

/* Seconds since 1970 in front of the watts, in rows of one column more. */
static double *add_times(struct jm_jpwr *j)
{
	size_t n = (size_t)j->n_columns + 1;
	double *all = calloc((size_t)j->rows.n * n, sizeof(*all)), *to = all;

	for (int row = 0; all && row < j->rows.n; row++, to += n) {
		*to = (double)(j->rows.t_ns[row] + j->wall_offset) * 1e-9;
		memcpy(to + 1, cell(j, row, 0), (n - 1) * sizeof(*all));
	}
	return all;
}

struct tables {
	struct jm_columns power, energy;
	struct jm_columns counters; /* n 0 = none */
};

static int put_tables(struct jm_jpwr *j, const struct tables *t)
{
	FILE *out = j->cli->out;
	int rc = 0;

	fputs("Power data:\n", out);
	jm_columns_print(&t->power, out);
	fputs("Energy data:\n", out);
	jm_columns_print(&t->energy, out);
	if (t->counters.n) {
		fputs("Additional data:\n" COUNTERS "\n", out);
		jm_columns_print(&t->counters, out);
	}
	if (!j->folder)
		return 0;
	fprintf(out, "Writing measurements to %s\n", j->folder);
	rc = write_file(j, "power", &t->power);
	if (!rc)
		rc = write_file(j, "energy", &t->energy);
	return rc || !t->counters.n ? rc : write_file(j, COUNTERS, &t->counters);
}

/* The tables of counters alone, where jpwr has one. Returns their number. */
static int take_counters(const struct jm_jpwr *j, const char **name, double *wh)
{
	int n = 0;

	for (int i = 0; i < j->n_columns; i++) {
		const struct jm_jpwr_column *c = &j->column[i];

		if (!c->method->counters || isnan(c->energy.joules_counter))
			continue;
		name[n] = c->name;
		wh[n++] = c->energy.joules_counter / WH;
	}
	return n;
}

static int put_all(struct jm_jpwr *j)
{
	/* of the power table with its times in front, then of the counters */
	const char **name = calloc(2 * (size_t)j->n_columns + 1, sizeof(*name));
	double *wh = calloc(2 * (size_t)j->n_columns, sizeof(*wh)), *all = add_times(j);
	int n = j->n_columns, rc = 0;

	if (!name || !wh || !all)
		rc = jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for the tables.");
	for (int i = 0; !rc && i < n; i++) {
		name[i + 1] = j->column[i].name;
		wh[i] = j->column[i].energy.joules / WH;
	}
	if (!rc) {
		const struct tables t = {{name, n + 1, j->rows.n, all, false},
			{name + 1, n, 1, wh, true},
			{name + n + 1, take_counters(j, name + n + 1, wh + n), 1, wh + n, false}};

		name[0] = "timestamps";
		rc = put_tables(j, &t);
	}
	free(name);
	free(wh);
	free(all);
	return rc;
}

int jm_jpwr_write_tables(struct jm_jpwr *j)
{
	int rc = fill_tables(j);

	return rc ? rc : put_all(j);
}

/* What jpwr cannot say: how far each figure may be off. */
static void say_bounds(const struct jm_jpwr *j)
{
	for (int i = 0; i < j->n_columns; i++) {
		const struct jm_energy *e = &j->column[i].energy;

		if (!isnan(e->joules) && !isnan(e->error))
			jm_log(&j->cli->ctx, JM_INFO, "%s: %.4g Wh, uncertainty %.2g Wh (95 %%).",
				j->column[i].name, e->joules / WH, e->error / WH);
	}
}

/* The first sensor whose energy is unknown, in the error; a warning each where that is allowed, and
 * for intervals that only have no reading of their own: a busy machine delays readings. */
int jm_jpwr_judge(struct jm_jpwr *j)
{
	int rc = 0;

	say_bounds(j);
	for (int i = 0; i < j->n_columns; i++) {
		const struct jm_jpwr_column *c = &j->column[i];
		bool failed = isnan(c->energy.joules);
		struct jm_err err = JM_ERR_INIT;

		if (!c->missing && !failed)
			continue;
		jm_err_set(&err, JM_EIO,
			"%s gave no reading in %d of %d intervals, and its energy is %s%s.",
			c->name, c->missing, j->rows.n - 1,
			failed	    ? "unknown"
			: c->summed ? "the sum of the others"
				    : "known from its counter or its other readings",
			failed && !j->ignore_errors
				? "; --ignore-measure-errors makes this a warning"
				: "");
		if (failed && !j->ignore_errors && !rc)
			rc = jm_err_set(&j->cli->err, err.code, "%s", err.text);
		else
			jm_log(&j->cli->ctx, JM_WARNING, "%s", err.text);
	}
	return rc;
}
