/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded trace as a source: "replay:DIR", where DIR is what `measure --csv DIR` wrote. Time
 * begins when the source is first read; its readings keep their distances. After the last one there
 * is nothing.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/csv_fields.h"
#include "base/text/number.h"
#include "meter/source.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define METER_COLUMNS 15

struct track {
	struct jm_reading *reading; /* t_ns since the recorded session began */
	bool never_negative;
	int n, room, at; /* at: the one shown last; -1 = none yet */
};

struct state {
	struct jm_ctx *ctx;
	const char *folder; /* option, while it is opened */
	struct track *track;
	int n;
	bool begun;
	int64_t offset, first_ns;
};

static void replay_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < s->n; i++)
		free(s->track[i].reading);
	if (s)
		free(s->track);
	free(s);
}

static int damaged(const char *path, int line, const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT, "%s, line %d: %s; it is not what 'measure --csv' wrote.",
		path, line, what);
}

/* Index of the name among those `name_of` gives for 0..n-1; -1 = none. */
#define FIND(text, name_of, n)                                                                     \
	({                                                                                         \
		int found_ = -1;                                                                   \
                                                                                                   \
		for (int i_ = 0; i_ < (n) && found_ < 0; i_++)                                     \
			if (!strcmp((text), name_of(i_)))                                          \
				found_ = i_;                                                       \
		found_;                                                                            \
	})

/* NAN = it is empty, or no number. */
static double number(const char *text)
{
	double value;

	return jm_number_real(text, &value) ? value : NAN;
}

/* A column that may be empty, which is not known, holds a number that is not negative. */
static bool is_amount(const char *text)
{
	return !*text || number(text) >= 0;
}

static int64_t to_ns(const char *text, int64_t unknown)
{
	double s = number(text);

	return s >= 0 && s < 1e9 ? llround(s * 1e9) : unknown;
}

static const char *scope_name(int i)
{
	return jm_scope_name((enum jm_scope)i);
}

static const char *quantity_name(int i)
{
	return jm_quantity_name((enum jm_quantity)i);
}

/* Recorded estimates and simulations keep their origin; everything else becomes "replayed". */
static enum jm_origin origin_of(const char *recorded)
{
	static const enum jm_origin kept[] = {JM_ESTIMATED, JM_SIMULATED};

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!strcmp(recorded, jm_origin_name(kept[i])))
			return kept[i];
	return JM_REPLAYED;
}

static int add_meter(char **field, struct jm_meters *set, struct jm_err *err)
{
	int scope = FIND(field[4], scope_name, JM_SCOPE_COUNT);
	struct jm_meter meter = {.source = "replay", .origin = origin_of(field[5])};

	if (scope < 0)
		return JM_EFORMAT;
	meter.scope = (enum jm_scope)scope;
	snprintf(meter.id, sizeof(meter.id), "replay:%.100s", field[1]);
	snprintf(meter.label, sizeof(meter.label), "%.63s", field[2]);
	snprintf(meter.device, sizeof(meter.device), "%.100s", field[3]);
	meter.covers = field[6];
	return jm_meters_add(set, &meter, err);
}

static int add_signal(char **field, struct jm_meters *set, struct jm_err *err)
{
	int quantity = FIND(field[7], quantity_name, JM_QUANTITY_COUNT);
	struct jm_signal signal = {
		.step = number(field[9]),
		.wrap = number(field[10]),
		.refresh_ns = to_ns(field[11], 0),
		.window_ns = to_ns(field[12], -1),
		.accuracy = number(field[13]),
		.stamped = !strcmp(field[14], "1"),
	};

	if (quantity < 0)
		return JM_EFORMAT;
	for (int i = 9; i <= 13; i++)
		if (!is_amount(field[i]))
			return JM_EFORMAT;
	signal.quantity = (enum jm_quantity)quantity;
	signal.step = signal.step > 0 ? signal.step : 0;
	signal.wrap = signal.wrap > 0 ? signal.wrap : 0;
	return jm_meters_add_signal(set, &signal, err);
}

/* Signals of one meter stand together; a new id begins a new meter. */
static int take_meter_row(char **field, int columns, char *last_id, size_t size,
	struct jm_meters *set, int first, struct jm_err *err)
{
	int rc = 0;

	if (columns != METER_COLUMNS || number(field[0]) != set->n_signals - first)
		return JM_EFORMAT;
	if (strcmp(last_id, field[1]) != 0)
		rc = add_meter(field, set, err);
	snprintf(last_id, size, "%s", field[1]);
	return rc < 0 ? rc : add_signal(field, set, err);
}

static FILE *open_file(
	const char *folder, const char *name, char *path, size_t size, struct jm_err *err)
{
	FILE *f;

	if ((size_t)snprintf(path, size, "%s/%s", folder, name) >= size) {
		jm_err_set(err, JM_EUSAGE, "The path of the recording is too long.");
		return NULL;
	}
	jm_csv_open(path, &f, err);
	return f;
}

static int read_meters(const char *folder, struct jm_meters *set, struct jm_err *err)
{
	char path[PATH_MAX], *line = NULL, *field[METER_COLUMNS], last_id[JM_ID_MAX] = "";
	FILE *f = open_file(folder, "meters.csv", path, sizeof(path), err);
	int n, rc = 0, at = 1, first = set->n_signals;
	size_t room = 0;

	if (!f)
		return err ? err->code : JM_ENOENT;
	if (jm_csv_row(f, &line, &room, field, METER_COLUMNS) != METER_COLUMNS ||
		strcmp(field[0], "signal") != 0)
		rc = damaged(path, at, "it has no heading", err);
	while (rc >= 0 && (n = jm_csv_row(f, &line, &room, field, METER_COLUMNS)) != 0) {
		rc = take_meter_row(field, n, last_id, sizeof(last_id), set, first, err);
		at++;
		if (rc == JM_EFORMAT)
			damaged(path, at, "a row of a signal is damaged", err);
	}
	if (rc >= 0 && set->n_signals == first)
		rc = damaged(path, at, "there are no signals", err);
	free(line);
	fclose(f);
	return rc < 0 ? rc : 0;
}

/* "-1.000000002" s in nanoseconds, exactly; false for anything else. */
static bool parse_time(const char *text, int64_t *ret)
{
	const char *digits = text + (*text == '-');
	long long whole;
	char *end;
	long nano;

	if (*digits < '0' || *digits > '9')
		return false;
	whole = strtoll(digits, &end, 10);
	if (*end != '.' || strspn(end + 1, "0123456789") != 9 || end[10] || whole > 1000000000)
		return false;
	nano = strtol(end + 1, NULL, 10);
	*ret = (whole * JM_SECOND + nano) * (*text == '-' ? -1 : 1);
	return true;
}

static int take_reading(struct state *s, char **field, int columns)
{
	double signal = columns == 3 ? number(field[0]) : NAN;
	struct jm_reading r = {.value = number(columns == 3 ? field[2] : "")};
	struct track *t;

	/* an empty field is a gap; anything else that is no number is damage */
	if (!(signal >= 0 && signal < s->n) || !parse_time(field[1], &r.t_ns) ||
		(*field[2] && !isfinite(r.value)))
		return JM_EFORMAT;
	t = &s->track[(int)signal];
	if (t->never_negative && r.value < 0)
		return JM_ERANGE;
	if (t->n && r.t_ns <= t->reading[t->n - 1].t_ns)
		return JM_EFORMAT;
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : 256;
		struct jm_reading *grown = reallocarray(t->reading, (size_t)room, sizeof(*grown));

		if (!grown)
			return JM_ENOMEM;
		t->reading = grown;
		t->room = room;
	}
	t->reading[t->n++] = r;
	if (r.t_ns < s->first_ns)
		s->first_ns = r.t_ns;
	return 0;
}

static int read_readings(struct state *s, struct jm_err *err)
{
	char path[PATH_MAX], *line = NULL, *field[3];
	FILE *f = open_file(s->folder, "readings.csv", path, sizeof(path), err);
	int n, rc = 0, at = 1;
	size_t room = 0;

	if (!f)
		return err ? err->code : JM_ENOENT;
	if (jm_csv_row(f, &line, &room, field, 3) != 3 || strcmp(field[0], "signal") != 0)
		rc = damaged(path, at, "it has no heading", err);
	while (!rc && (n = jm_csv_row(f, &line, &room, field, 3)) != 0) {
		rc = take_reading(s, field, n);
		at++;
		if (rc == JM_EFORMAT)
			damaged(path, at, "a reading is damaged or out of order", err);
		else if (rc == JM_ERANGE)
			rc = damaged(path, at, "energy or power is below 0", err);
		else if (rc)
			jm_err_set(err, rc, "Out of memory for %s.", path);
	}
	free(line);
	fclose(f);
	return rc;
}

static void init_track(struct track *t, enum jm_quantity quantity)
{
	t->at = -1;
	t->never_negative =
		quantity == JM_Q_ENERGY || quantity == JM_Q_POWER || quantity == JM_Q_POWER_AVERAGE;
}

static int replay_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s, opened = {.ctx = ctx, .first_ns = INT64_MAX};
	int first = set->n_signals, rc;

	JM_FILL(options, &opened);
	if (!opened.folder)
		return jm_err_set(err, JM_EUSAGE,
			"Source replay needs a recording: 'replay:DIR', as 'measure --csv DIR' "
			"wrote.");
	rc = read_meters(opened.folder, set, err);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (s) {
		*s = opened;
		s->track = calloc((size_t)(set->n_signals - first) + 1, sizeof(*s->track));
	}
	if (!s || !s->track) {
		free(s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a recording.");
	}
	s->n = set->n_signals - first;
	for (int i = 0; i < s->n; i++)
		init_track(&s->track[i], set->signal[first + i].quantity);
	rc = read_readings(s, err);
	if (rc)
		replay_close(s);
	else
		*ret_state = s;
	return rc;
}

/* Gives the reading that was given last, unless it was the recording's end, and all that followed
 * up to time `at_ns` of the recording, so that a late call loses none. Before the first reading and
 * after the last there is nothing. */
static void give_due(struct state *s, int signal, int64_t at_ns, struct jm_sink *sink)
{
	struct track *t = &s->track[signal];

	for (int i = t->at < 0 ? 0 : t->at; i < t->n && t->reading[i].t_ns <= at_ns; i++) {
		if (i > t->at || i + 1 < t->n)
			jm_give(sink, signal, t->reading[i].value, t->reading[i].t_ns + s->offset);
		t->at = i;
	}
	if (t->at < 0 || (t->at + 1 == t->n && at_ns > t->reading[t->at].t_ns))
		jm_give(sink, signal, NAN, at_ns + s->offset);
}

static int replay_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);

	(void)err;
	if (!s->begun)
		s->offset = now - (s->first_ns == INT64_MAX ? now : s->first_ns);
	s->begun = true;
	for (int i = 0; i < s->n; i++)
		give_due(s, i, now - s->offset, sink);
	return 0;
}

static const struct jm_option options[] = {
	{.name = "folder",
		JM_BIND(JM_TEXT, struct state, folder),
		.argument = "DIR",
		.help = "the recording, as measure --csv wrote it"},
	{0},
};

const struct jm_source jm_source_replay = {
	.name = "replay",
	.summary = "a recorded trace, as measure --csv wrote it",
	.options = options,
	.origin = JM_REPLAYED,
	.open = replay_open,
	.read = replay_read,
	.close = replay_close,
};
