/* SPDX-License-Identifier: Apache-2.0 */
#include "recording.h"

#include "base/text/csv_fields.h"
#include "base/text/number.h"
#include "base/printable.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIGNALS 1024
#define COLUMNS	     15 /* of meters.csv */

static int damaged(const struct jm_recording *r, const char *file, int line)
{
	return jm_err_set(r->err, JM_EFORMAT,
		"%s/%s, line %d is damaged; it is not what 'measure --csv' wrote.", r->folder, file,
		line);
}

static int no_memory(const struct jm_recording *r)
{
	return jm_err_set(r->err, JM_ENOMEM, "Out of memory for the recording %s.", r->folder);
}

typedef int row_fn(struct jm_recording *r, char **field, int n, void *arg);

/* Each row after the heading; a row that it refuses is damage. */
static int each_row(struct jm_recording *r, const char *file, int columns, const char *first,
	row_fn *row, void *arg)
{
	char path[PATH_MAX], *line = NULL, *field[COLUMNS];
	int n, rc = 0, at = 1;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", r->folder, file);
	rc = jm_csv_open(path, &f, r->err);
	if (rc)
		return rc;
	if (jm_csv_row(f, &line, &room, field, columns) != columns || strcmp(field[0], first) != 0)
		rc = damaged(r, file, at);
	while (!rc && (n = jm_csv_row(f, &line, &room, field, columns)) != 0) {
		at++;
		rc = n == columns ? row(r, field, n, arg) : JM_EFORMAT;
		if (rc == JM_EFORMAT)
			rc = damaged(r, file, at);
	}
	free(line);
	fclose(f);
	return rc;
}

static int64_t to_ns(const char *text)
{
	double s;

	return jm_number_real(text, &s) && fabs(s) < 1e9 ? llround(s * 1e9) : INT64_MIN;
}

static int take_signal(struct jm_recording *r, char **field, int n, void *arg)
{
	struct jm_recorded_signal *grown, *s;
	double window, number;

	(void)n;
	(void)arg;
	if (r->n_signals == MOST_SIGNALS || !jm_number_real(field[0], &number) ||
		number != r->n_signals)
		return JM_EFORMAT;
	grown = reallocarray(r->signal, (size_t)r->n_signals + 1, sizeof(*grown));
	if (!grown)
		return no_memory(r);
	r->signal = grown;
	s = &r->signal[r->n_signals++];
	*s = (struct jm_recorded_signal){
		.power = !strcmp(field[7], jm_quantity_name(JM_Q_POWER)),
		.about = {.quantity = JM_Q_POWER,
			.window_ns = -1,
			.stamped = !strcmp(field[14], "1")},
	};
	jm_text_tame(field[1]);
	jm_text_tame(field[2]);
	snprintf(s->meter, sizeof(s->meter), "%.127s", field[1]);
	snprintf(s->label, sizeof(s->label), "%.63s", field[2]);
	if (jm_number_real(field[12], &window) && window >= 0 && window < 1e6)
		s->about.window_ns = llround(window * 1e9);
	return 0;
}

static int take_reading(struct jm_recording *r, char **field, int n, void *arg)
{
	double number, value = NAN;
	int64_t t = to_ns(field[1]);
	struct jm_recorded_signal *s;

	(void)n;
	(void)arg;
	if (!jm_number_real(field[0], &number) || !(number >= 0 && number < r->n_signals) ||
		t == INT64_MIN || (*field[2] && !jm_number_real(field[2], &value)))
		return JM_EFORMAT;
	s = &r->signal[(int)number];
	if (!s->power)
		return 0;
	if (s->n && t < s->reading[s->n - 1].t_ns)
		return JM_EFORMAT;
	if (s->n == s->room) {
		int room = s->room ? 2 * s->room : 1024;
		struct jm_reading *grown = reallocarray(s->reading, (size_t)room, sizeof(*grown));

		if (!grown)
			return no_memory(r);
		s->reading = grown;
		s->room = room;
	}
	s->reading[s->n++] = (struct jm_reading){.value = value, .t_ns = t};
	return 0;
}

static int grow_runs(struct jm_recording *r)
{
	int room = r->room ? 2 * r->room : 256;
	int64_t *begin = reallocarray(r->begin, (size_t)room, sizeof(*begin)), *end;

	if (begin)
		r->begin = begin;
	end = begin ? reallocarray(r->end, (size_t)room, sizeof(*end)) : NULL;
	if (!end)
		return no_memory(r);
	r->end = end;
	r->room = room;
	return 0;
}

/* arg: the name of the phase */
static int take_run(struct jm_recording *r, char **field, int n, void *arg)
{
	int64_t begin = to_ns(field[1]), end = to_ns(field[2]);
	int i = r->runs.n, rc;

	(void)n;
	if (begin == INT64_MIN || end < begin)
		return JM_EFORMAT;
	jm_text_tame(field[0]);
	if (strcmp(field[0], arg) != 0)
		return 0;
	if (i && begin < r->end[i - 1])
		return JM_EFORMAT;
	rc = i == r->room ? grow_runs(r) : 0;
	if (rc)
		return rc;
	r->begin[i] = begin;
	r->end[i] = end;
	r->runs = (struct jm_fold_runs){r->begin, r->end, i + 1};
	return 0;
}

/* ---- which phase ---- */

struct most {
	json_t *count; /* name -> how often */
	const char *name;
	json_int_t times;
};

static int count_phase(struct jm_recording *r, char **field, int n, void *arg)
{
	struct most *m = arg;
	json_int_t times;

	(void)n;
	jm_text_tame(field[0]);
	times = json_integer_value(json_object_get(m->count, field[0])) + 1;
	if (json_object_set_new(m->count, field[0], json_integer(times)))
		return no_memory(r);
	return 0;
}

int jm_recording_phase(struct jm_recording *r, char *out, size_t size)
{
	struct most m = {.count = json_object()};
	const char *name;
	json_t *times;
	int rc = each_row(r, "phases.csv", 4, "name", count_phase, &m);

	json_object_foreach(m.count, name, times)
	{
		if (json_integer_value(times) <= m.times)
			continue;
		m.times = json_integer_value(times);
		snprintf(out, size, "%s", name);
	}
	json_decref(m.count);
	if (!rc && !m.times)
		rc = jm_err_set(r->err, JM_ENOENT,
			"The recording %s has no phases; mark each run of the work in the measured "
			"program.",
			r->folder);
	return rc;
}

int jm_recording_read(struct jm_recording *ret, const char *folder, struct jm_err *err)
{
	int rc;

	*ret = (struct jm_recording){.folder = folder, .err = err};
	rc = each_row(ret, "meters.csv", COLUMNS, "signal", take_signal, NULL);
	return rc ? rc : each_row(ret, "readings.csv", 3, "signal", take_reading, NULL);
}

int jm_recording_runs(struct jm_recording *r, const char *phase)
{
	r->runs.n = 0;
	return each_row(r, "phases.csv", 4, "name", take_run, (void *)(uintptr_t)phase);
}

void jm_recording_done(struct jm_recording *r)
{
	for (int i = 0; i < r->n_signals; i++)
		free(r->signal[i].reading);
	free(r->signal);
	free(r->begin);
	free(r->end);
}
