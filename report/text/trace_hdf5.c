/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /	schema, started, joulemark (attributes); "record": the record as JSON
 * /phases	"name", "start_s", "end_s", "items"
 * /s0, /s1...	a signal: meter, label, device, scope, origin, quantity, unit, refresh_s, window_s
 *		(attributes); "t_s", "value"
 * Times are seconds since the measurement began; unknown is NAN. A value holds until the next one.
 */
#include "trace_hdf5.h"
#include "base/text/json.h"
#include "vendor/hdf5_file.h"

#include <stdio.h>
#include <stdlib.h>

struct series {
	double *t_s, *value;
	size_t n, room;
	int64_t start_ns;
};

static int take(void *arg, struct jm_reading r)
{
	struct series *s = arg;

	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 1024;
		double *t_s = reallocarray(s->t_s, room, sizeof(*t_s));
		double *value = reallocarray(s->value, room, sizeof(*value));

		s->t_s = t_s ? t_s : s->t_s;
		s->value = value ? value : s->value;
		if (!t_s || !value)
			return 1;
		s->room = room;
	}
	s->t_s[s->n] = (double)(r.t_ns - s->start_ns) * 1e-9;
	s->value[s->n++] = r.value;
	return 0;
}

static void describe(struct jm_hdf5 *h, hid_t group, const struct jm_meters *set, int signal)
{
	const struct jm_signal *s = &set->signal[signal];
	const struct jm_meter *m = &set->meter[s->meter];
	const char *const row[][2] = {
		{"meter", m->id},
		{"label", m->label},
		{"device", m->device},
		{"scope", jm_scope_name(m->scope)},
		{"origin", jm_origin_name(m->origin)},
		{"quantity", jm_quantity_name(s->quantity)},
		{"unit", jm_quantity_unit(s->quantity)},
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		jm_hdf5_text(h, group, row[i][0], row[i][1]);
	jm_hdf5_real(h, group, "refresh_s", s->refresh_ns > 0 ? (double)s->refresh_ns * 1e-9 : NAN);
	jm_hdf5_real(h, group, "window_s", s->window_ns >= 0 ? (double)s->window_ns * 1e-9 : NAN);
}

static void put_doubles(
	struct jm_hdf5 *h, hid_t group, const char *name, size_t n, const double *value)
{
	static const double none;

	jm_hdf5_data_done(h, jm_hdf5_doubles(h, group, name, n, 0, n ? value : &none));
}

static int put_signal(struct jm_hdf5 *h, const struct jm_trace *trace, const struct jm_meters *set,
	int signal, int64_t start_ns, struct jm_err *err)
{
	struct series s = {.start_ns = start_ns};
	char name[32];
	hid_t group;
	int rc = jm_trace_each(trace, signal, INT64_MIN, INT64_MAX, take, &s, err);

	snprintf(name, sizeof(name), "s%d", signal);
	if (!rc) {
		group = jm_hdf5_group(h, h->file, name);
		describe(h, group, set, signal);
		put_doubles(h, group, "t_s", s.n, s.t_s);
		put_doubles(h, group, "value", s.n, s.value);
		jm_hdf5_group_done(h, group);
	}
	free(s.t_s);
	free(s.value);
	return rc;
}

static void put_phases(struct jm_hdf5 *h, const json_t *phases)
{
	static const char *const columns[] = {"start_s", "end_s", "items"};
	size_t n = json_array_size(phases);
	const char **name = calloc(n + 1, sizeof(*name));
	double *value = calloc(n + 1, sizeof(*value));
	hid_t group = jm_hdf5_group(h, h->file, "phases");

	h->failed = h->failed || !name || !value;
	for (size_t i = 0; name && i < n; i++)
		name[i] = jm_json_text(json_array_get(phases, i), "name");
	if (!h->failed)
		jm_hdf5_data_done(h, jm_hdf5_texts(h, group, "name", n, name));
	for (size_t k = 0; !h->failed && k < sizeof(columns) / sizeof(columns[0]); k++) {
		for (size_t i = 0; i < n; i++)
			value[i] = jm_json_real_of(json_array_get(phases, i), columns[k]);
		put_doubles(h, group, columns[k], n, value);
	}
	jm_hdf5_group_done(h, group);
	free(name);
	free(value);
}

static void put_record(struct jm_hdf5 *h, const json_t *record)
{
	char *text = json_dumps(record, JSON_REAL_PRECISION(15));
	const char *const one[] = {text};

	h->failed = h->failed || !text;
	if (!h->failed)
		jm_hdf5_data_done(h, jm_hdf5_texts(h, h->file, "record", 1, one));
	free(text);
	jm_hdf5_text(h, h->file, "schema", "joulemark.trace/1");
	jm_hdf5_text(h, h->file, "joulemark", JM_VERSION);
	jm_hdf5_text(h, h->file, "started", jm_json_text(record, "started"));
}

int jm_trace_write_hdf5(const struct jm_trace *trace, const struct jm_meters *set,
	const json_t *record, const char *path, struct jm_err *err)
{
	int64_t start_ns = json_integer_value(json_object_get(record, "start_ns"));
	struct jm_hdf5 h;
	int rc = jm_hdf5_open(&h, err);

	if (rc)
		return rc;
	put_record(&h, record);
	put_phases(&h, json_object_get(record, "phases"));
	for (int i = 0; !rc && i < set->n_signals; i++)
		rc = put_signal(&h, trace, set, i, start_ns, err);
	if (!rc)
		rc = jm_hdf5_write(&h, path, err);
	jm_hdf5_close(&h);
	return rc;
}
