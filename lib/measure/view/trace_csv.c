/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_csv.h"
#include "trace_watts.h"
#include "base/text/csv_fields.h"
#include "measure/session/session_private.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_number(FILE *f, double value)
{
	if (isfinite(value))
		fprintf(f, "%.17g", value);
}

static double seconds_or_nan(int64_t ns, bool known)
{
	return known ? (double)ns * 1e-9 : NAN;
}

static void put_signal(FILE *f, const struct jm_meters *set, int i)
{
	const struct jm_signal *s = &set->signal[i];
	const struct jm_meter *m = &set->meter[s->meter];
	const char *texts[] = {m->id, m->label, m->device, jm_scope_name(m->scope),
		jm_origin_name(m->origin), m->covers, jm_quantity_name(s->quantity),
		jm_quantity_unit(s->quantity)};
	const double numbers[] = {s->step > 0 ? s->step : NAN, s->wrap > 0 ? s->wrap : NAN,
		seconds_or_nan(s->refresh_ns, s->refresh_ns > 0),
		seconds_or_nan(s->window_ns, s->window_ns >= 0), s->accuracy};

	fprintf(f, "%d", i);
	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
		fputc(',', f);
		jm_csv_put_text(f, texts[k]);
	}
	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
		fputc(',', f);
		put_number(f, numbers[k]);
	}
	fprintf(f, ",%d\n", s->stamped);
}

static int put_meters(struct jm_session *s, FILE *f, struct jm_err *err)
{
	(void)err;
	fputs("signal,meter,label,device,scope,origin,covers,quantity,unit,step,wrap,refresh_s,"
	      "window_s,accuracy,stamped\n",
		f);
	for (int i = 0; i < s->set.n_signals; i++)
		put_signal(f, &s->set, i);
	return 0;
}

struct put_arg {
	FILE *f;
	int signal;
	int64_t start_ns;
};

static int put_reading(void *arg, struct jm_reading r)
{
	struct put_arg *to = arg;

	fprintf(to->f, "%d,", to->signal);
	jm_csv_put_time(to->f, r.t_ns - to->start_ns);
	fputc(',', to->f);
	put_number(to->f, r.value);
	fputc('\n', to->f);
	return ferror(to->f);
}

static int put_readings(struct jm_session *s, FILE *f, struct jm_err *err)
{
	int rc = 0;

	fputs("signal,t_s,value\n", f);
	for (int i = 0; !rc && i < s->set.n_signals; i++) {
		struct put_arg arg = {f, i, s->start_ns};

		rc = jm_trace_each(s->trace, i, INT64_MIN, INT64_MAX, put_reading, &arg, err);
	}
	return rc;
}

static int put_phases(struct jm_session *s, FILE *f, struct jm_err *err)
{
	(void)err;
	fputs("name,start_s,end_s,items\n", f);
	for (int i = 0; i < s->n_phases; i++) {
		jm_csv_put_text(f, s->phase[i].name);
		fputc(',', f);
		jm_csv_put_time(f, s->phase[i].t0_ns - s->start_ns);
		fputc(',', f);
		jm_csv_put_time(f, s->phase[i].t1_ns - s->start_ns);
		fputc(',', f);
		put_number(f, s->phase[i].items);
		fputc('\n', f);
	}
	return 0;
}

static int put_clock(struct jm_session *s, FILE *f, struct jm_err *err)
{
	(void)err;
	fputs("t_s,wall_ns\n", f);
	for (int i = 0; i < s->n_moments; i++) {
		jm_csv_put_time(f, s->moment[i].t_ns - s->start_ns);
		fprintf(f, ",%lld\n", (long long)s->moment[i].wall_ns);
	}
	return 0;
}

typedef int put_fn(struct jm_session *s, FILE *f, struct jm_err *err);

static int write_file(
	struct jm_session *s, const char *folder, const char *name, put_fn *put, struct jm_err *err)
{
	char path[PATH_MAX];
	int rc, failed;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "we");
	if (!f)
		return jm_err_set(err, errno == EACCES ? JM_EPERM : JM_EIO, "Cannot write %s: %s.",
			path, strerror(errno));
	rc = put(s, f, err);
	errno = 0;
	failed = ferror(f);
	failed |= fclose(f);
	if (!rc && failed)
		rc = jm_err_set(err, JM_EIO, "Cannot write %s: %s.", path,
			errno ? strerror(errno) : "the disk may be full");
	return rc;
}

int jm_csv_write(struct jm_session *s, const char *folder, struct jm_err *err)
{
	static const struct {
		const char *name;
		put_fn *put;
	} files[] = {
		{"meters.csv", put_meters},
		{"readings.csv", put_readings},
		{"watts.csv", jm__csv_put_watts},
		{"phases.csv", put_phases},
		{"clock.csv", put_clock},
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(files) / sizeof(files[0]); i++)
		rc = write_file(s, folder, files[i].name, files[i].put, err);
	return rc;
}
