/* SPDX-License-Identifier: Apache-2.0 */
/* A source: the signals that it opens are described completely and equally each time, and readings
 * are real. */
#include "contract.h"
#include "base/ctx.h"
#include "guard/control_doctor.h"
#include "../kit/source_row.h"

#include <time.h>

static void check_covers(const char *id, const char *covers)
{
	char paths[256];
	char *save = NULL;
	int n = 0;

	strncpy(paths, covers, sizeof(paths) - 1);
	paths[sizeof(paths) - 1] = '\0';
	for (char *p = strtok_r(paths, " ", &save); p; p = strtok_r(NULL, " ", &save), n++)
		if (strcmp(p, "/") && (p[0] == '/' || p[strlen(p) - 1] == '/' || strstr(p, "//")))
			fail_msg("meter %s covers '%s', which is no component path", id, p);
	if (!n)
		fail_msg("meter %s covers nothing", id);
}

static void check_meter(const struct jm_source *source, const struct jm_meters *set, int i)
{
	const struct jm_meter *m = &set->meter[i];

	if (strncmp(m->id, source->name, strlen(source->name)) ||
		m->id[strlen(source->name)] != ':')
		fail_msg("meter '%s' is not named '%s:...'", m->id, source->name);
	if (!m->label[0] || !m->source || strcmp(m->source, source->name))
		fail_msg("meter %s has no label or another source", m->id);
	assert_int_equal(m->origin, source->origin);
	assert_true(m->scope >= JM_SCOPE_NODE && m->scope < JM_SCOPE_COUNT);
	if (m->scope != JM_SCOPE_CONTEXT)
		check_covers(m->id, m->covers);
	else if (*m->covers)
		fail_msg("%s is context and draws no power, but covers '%s'", m->id, m->covers);
	if (!m->n_signals)
		fail_msg("meter %s has no signal", m->id);
	for (int j = 0; j < i; j++)
		if (!strcmp(set->meter[j].id, m->id))
			fail_msg("two meters are called %s", m->id);
}

static void check_signal(const struct jm_meters *set, int i)
{
	const struct jm_signal *s = &set->signal[i];
	const char *id = set->meter[s->meter].id, *name = jm_quantity_name(s->quantity);

	if (s->step < 0 || s->wrap < 0 || s->refresh_ns < 0 || s->window_ns < -1)
		fail_msg("%s %s: step, wrap, refresh or window is negative", id, name);
	if (!isnan(s->accuracy) && (s->accuracy < 0 || s->accuracy >= 1))
		fail_msg("%s %s: accuracy %g is no share", id, name, s->accuracy);
	if (s->wrap > 0 && s->quantity != JM_Q_ENERGY)
		fail_msg("%s %s: only a counter wraps", id, name);
	if (jm_meter_signal(set, s->meter, s->quantity) != i)
		fail_msg("%s has two signals of %s", id, name);
}

static void check_value(const struct jm_signal *s, const char *id, double v)
{
	const char *name = jm_quantity_name(s->quantity);
	double max = 1e12;

	if (isnan(v))
		return;
	if (s->quantity == JM_Q_POWER || s->quantity == JM_Q_POWER_AVERAGE)
		max = 1e6;
	if (s->quantity == JM_Q_UTILISATION)
		max = 1;
	if (s->quantity == JM_Q_ENERGY)
		max = 1e15;
	if (v < (s->quantity == JM_Q_TEMPERATURE ? -100 : 0) || v > max)
		fail_msg("%s %s: %g cannot be", id, name, v);
	if (v == 0 && (s->quantity == JM_Q_POWER || s->quantity == JM_Q_POWER_AVERAGE ||
			      s->quantity == JM_Q_LIMIT))
		fail_msg("%s %s: 0 W stands for 'unknown'; that is NAN", id, name);
}

/* One round of readings, into a place with a wall behind it. */
static void check_read(const struct jm_source *source, void *state, const struct jm_ctx *ctx,
	const struct jm_meters *set, double *energy)
{
	struct jm_reading *out = calloc((size_t)set->n_signals + 1, sizeof(*out));
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i <= set->n_signals; i++)
		out[i] = (struct jm_reading){.value = 1e300, .t_ns = -77};
	assert_ok(read_row(source, state, out, &err), err);
	for (int i = 0; i < set->n_signals; i++) {
		const struct jm_signal *s = &set->signal[i];
		const char *id = set->meter[s->meter].id;

		if (out[i].value == 1e300 || isinf(out[i].value))
			fail_msg(
				"%s %s: no reading was written", id, jm_quantity_name(s->quantity));
		check_value(s, id, out[i].value);
		if (source->origin != JM_REPLAYED && !isnan(out[i].value) &&
			(out[i].t_ns < 0 || out[i].t_ns > jm_ctx_now(ctx)))
			fail_msg("%s %s: its time is not the clock's", id,
				jm_quantity_name(s->quantity));
		if (s->quantity != JM_Q_ENERGY || isnan(out[i].value))
			continue;
		if (out[i].value < energy[i] && s->wrap == 0)
			fail_msg("%s: the counter runs backwards", id);
		energy[i] = out[i].value;
	}
	assert_int_equal(out[set->n_signals].t_ns, -77);
	free(out);
}

static void check_opened(const struct jm_source *source, void *state, const struct jm_ctx *ctx,
	struct jm_meters *set)
{
	double *energy = calloc((size_t)set->n_signals + 1, sizeof(*energy));
	struct timespec ts = {.tv_nsec = 2000000};

	for (int i = 0; i < set->n; i++)
		check_meter(source, set, i);
	for (int i = 0; i < set->n_signals; i++)
		check_signal(set, i);
	for (int i = 0; i < 3; i++) {
		check_read(source, state, ctx, set, energy);
		nanosleep(&ts, NULL);
	}
	jm_meters_derive(set);
	free(energy);
}

/* A second user, behind another source's meters, finds the same meters and disturbs nothing. */
static void check_again(const struct jm_source *source, struct jm_ctx *ctx, const char *arg,
	const struct jm_meters *first)
{
	struct jm_meter before = {.id = "before", .source = "before"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	void *state = NULL;

	assert_int_equal(jm_meters_add(&set, &before, &err), 0);
	assert_ok(jm_source_open(source, ctx, arg, &set, &state, &err), err);
	assert_int_equal(set.n, first->n + 1);
	assert_int_equal(set.n_signals, first->n_signals);
	assert_string_equal(set.meter[0].id, "before");
	for (int i = 0; i < first->n; i++)
		assert_string_equal(set.meter[i + 1].id, first->meter[i].id);
	source->close(state);
	jm_meters_done(&set);
}

void contract_sources(void **unused)
{
	(void)unused;
	for (int i = 0; jm_sources[i]; i++) {
		const struct jm_source *source = jm_sources[i];
		const char *arg = contract_argument(source->name);
		struct jm_err err = JM_ERR_INIT;
		struct jm_meters set = {0};
		struct jm_ctx ctx;
		void *state = NULL;
		int rc;

		contract_name("source", source->name, source->summary);
		assert_true(source->open && source->read && source->close);
		assert_ok(jm_ctx_init(&ctx, &err), err);
		source->close(NULL);
		rc = jm_source_open(source, &ctx, arg, &set, &state, &err);
		if (rc < 0) {
			contract_error(source->name, rc, &err);
			print_message("           %s: not here: %s\n", source->name, err.text);
		} else {
			assert_true(set.n > 0);
			check_opened(source, state, &ctx, &set);
			check_again(source, &ctx, arg, &set);
			source->close(state);
			print_message("           %s: %d meters, %d signals\n", source->name, set.n,
				set.n_signals);
		}
		jm_meters_done(&set);
	}
}

void contract_source_arguments(void **unused)
{
	static const char *const bad[] = {"/no/such/thing", "%s%n", "x1e9", ",,"};

	(void)unused;
	for (int i = 0; jm_sources[i]; i++) {
		for (int k = 0; k < 4 && jm_sources[i]->options; k++) {
			struct jm_err err = JM_ERR_INIT;
			struct jm_meters set = {0};
			struct jm_ctx ctx;
			void *state = NULL;

			assert_ok(jm_ctx_init(&ctx, &err), err);
			contract_error(jm_sources[i]->name,
				jm_source_open(jm_sources[i], &ctx, bad[k], &set, &state, &err),
				&err);
			jm_meters_done(&set);
		}
	}
}

static void heard(void *arg, const struct jm_finding *f)
{
	int *n = arg;

	if (!f->what || !*f->what || !f->why || !*f->why || !f->mend)
		fail_msg("doctor says something without words");
	else if (!f->ok && !*f->mend && strlen(f->why) < 20)
		fail_msg("doctor says of %s neither why nor how to mend it", f->what);
	++*n;
}

void contract_doctor(void **unused)
{
	(void)unused;
	for (int i = 0; jm_sources[i]; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_ctx ctx;
		int n = 0;

		assert_ok(jm_ctx_init(&ctx, &err), err);
		if (jm_sources[i]->doctor)
			jm_sources[i]->doctor(&ctx, heard, &n);
		if (jm_sources[i]->doctor && !n)
			fail_msg("doctor says nothing of %s", jm_sources[i]->name);
	}
	for (int i = 0; jm_controls[i]; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_ctx ctx;
		int n = 0;

		assert_ok(jm_ctx_init(&ctx, &err), err);
		jm_control_doctor(jm_controls[i], &ctx, heard, &n);
		if (!n)
			fail_msg("doctor says nothing of %s", jm_controls[i]->name);
	}
}
