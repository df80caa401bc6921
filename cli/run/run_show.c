/* SPDX-License-Identifier: Apache-2.0 */
/* What `run` shows on standard error: a line per run of a case; on a terminal a bar with the time
 * left. */
#include "run_show.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/printable.h"
#include "cli/frame/screen.h"
#include "cli/frame/work_show.h"
#include "report/format/text.h"
#include "result/setting_state.h"
#include "result/case_id.h"
#include "result/metric.h"
#include "run_status.h"
#include "result/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR	  20
#define BAR_LEAST 5

static void clear_line(const struct jm_run_show *show)
{
	if (show->terminal && !show->quiet)
		jm_screen_clear_line();
}

void jm_run_show_init(struct jm_run_show *show, const struct jm_plan *plan, int width, bool quiet)
{
	*show = (struct jm_run_show){.plan = plan,
		.varying = jm_run_varying(plan),
		.origin = "",
		.terminal = isatty(STDERR_FILENO),
		.colour = jm_screen_colour(STDERR_FILENO),
		.width = width > 0		 ? width
			 : isatty(STDERR_FILENO) ? jm_screen_width(STDERR_FILENO)
						 : JM_WIDTH_MOST,
		.quiet = quiet,
		.start_ns = jm_clock_now(jm_clock_real())};
}

/* Adds the names whose values are not the same in both. */
static void add_differing(json_t *a, const json_t *b, json_t *names)
{
	const char *name;
	json_t *value;

	json_object_foreach(a, name, value)
	{
		if (!json_equal(value, json_object_get(b, name)))
			json_object_set_new(names, name, json_true());
	}
}

json_t *jm_run_varying(const struct jm_plan *plan)
{
	json_t *parameters = json_object(), *options = json_object();

	for (int i = 1; i < plan->n; i++) {
		json_t *a = plan->cases[0].parameters, *b = plan->cases[i].parameters;
		json_t *of_a = json_object_get(a, "options"), *of_b = json_object_get(b, "options");

		add_differing(a, b, parameters);
		add_differing(b, a, parameters);
		add_differing(of_a, of_b, options);
		add_differing(of_b, of_a, options);
	}
	return json_pack("{s:o, s:o}", "parameters", parameters, "options", options);
}

static void append(char *out, size_t size, const char *name, const char *equals, const char *value)
{
	size_t used = strlen(out);

	if (used < size)
		snprintf(out + used, size - used, "%s%s%s%s", used ? " " : "", name, equals, value);
}

void jm_run_case_label(const json_t *varying, const struct jm_plan_case *c, char *out, size_t size)
{
	const json_t *names = json_object_get(varying, "options"),
		     *axes_names = json_object_get(varying, "parameters");
	static const char *const axes[] = {"workload", "device", "precision"};
	json_t *options = json_object_get(c->parameters, "options"), *value;
	json_t *settings = json_object_get(c->parameters, "settings");
	const char *name;

	*out = '\0';
	json_object_foreach(settings, name, value)
	{
		const char *text = json_string_value(value);

		append(out, size, name, "=",
			text && !strcmp(text, JM_AS_FOUND) ? "unchanged" : text);
	}
	json_object_foreach(options, name, value)
	{
		if (json_object_get(names, name))
			append(out, size, name, "=", json_string_value(value));
	}
	for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++)
		if (json_object_get(axes_names, axes[i]))
			append(out, size, axes[i], "=",
				json_string_value(json_object_get(c->parameters, axes[i])));
	if (c->reference)
		append(out, size, "(reference)", "", "");
}

void jm_run_case_work(const struct jm_plan_case *c, char *out, size_t size)
{
	static const char *const keys[] = {"workload", "model", "device", "precision"};
	const json_t *options = json_object_get(c->parameters, "options"), *word;
	size_t i;

	*out = '\0';
	json_array_foreach(json_object_get(c->parameters, "command"), i, word)
		append(out, size, json_string_value(word), "", "");
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *text = jm_json_text(c->parameters, keys[i]);

		if (!*text)
			text = jm_json_text(options, keys[i]);
		if (*text)
			append(out, size, i > 1 ? keys[i] : "", i > 1 ? "=" : "", text);
	}
}

/* And the word for their origin; "" for measured. */
static double joules_of(const json_t *record, const char **ret_origin)
{
	enum jm_origin origin;
	double joules = jm_metric_joules(record, &origin);
	bool known = joules > 0;

	*ret_origin = known && origin != JM_MEASURED ? jm_origin_name(origin) : "";
	return known ? joules : NAN;
}

/* Items of the phase that the total applies to. */
static double items_of(const json_t *record)
{
	return jm_json_real_of(record, "items");
}

static const char *setting_state(const json_t *record)
{
	const json_t *one;
	const char *state = "";

	for (size_t i = 0; (one = jm_record_setting(record, i)); i++) {
		const char *s = json_string_value(json_object_get(one, "state"));

		if (s && (!*state || !strcmp(s, "violated")))
			state = s;
	}
	return state;
}

/* Joules per item with the prefix that the table of the report will have: that of the largest
 * figure so far. */
static void joules_text(
	const struct jm_run_show *show, double joules, const char *unit, char *out, size_t size)
{
	bool same = !strcmp(show->largest_unit, unit);
	const char *prefix;
	double factor =
		jm_text_prefix("J/item", same ? fmax(show->largest, joules) : joules, &prefix);
	char text[32];

	jm_text_estimate(joules / factor, NAN, text, sizeof(text));
	snprintf(out, size, "%s %sJ/%.32s", text, prefix, unit);
}

static void remember_largest(struct jm_run_show *show, double joules, const char *unit)
{
	bool same = !strcmp(show->largest_unit, unit);

	show->largest = same ? fmax(show->largest, joules) : joules;
	snprintf(show->largest_unit, sizeof(show->largest_unit), "%s", unit);
}

static void figures_of(struct jm_run_show *show, const json_t *record, char *out, size_t size)
{
	const char *unit = json_string_value(json_object_get(record, "unit")), *origin;
	const char *state = setting_state(record);
	double rate = jm_json_real_of(record, "throughput"), items = items_of(record);
	double joules = joules_of(record, &origin), wall = jm_json_real_of(record, "wall_s");
	char part[96], text[32];

	*out = '\0';
	if (!unit)
		unit = "item";
	jm_text_estimate(rate, NAN, text, sizeof(text));
	if (isfinite(rate))
		snprintf(part, sizeof(part), "%s %.32s/s", text, unit);
	else
		snprintf(part, sizeof(part), "%.4g s", wall);
	append(out, size, part, "", "");
	if (isfinite(joules) && items > 0) {
		remember_largest(show, joules / items, unit);
		joules_text(show, joules / items, unit, part, sizeof(part));
		append(out, size, " ", part, "");
	} else if (isfinite(joules)) {
		jm_text_quantity(joules, NAN, "J", text, sizeof(text));
		append(out, size, "", " ", text);
	}
	/* said where it begins; the table says it again */
	if (strcmp(origin, show->origin) != 0)
		append(out, size, " ", *origin ? origin : "measured", "");
	show->origin = origin;
	if (*state && strcmp(state, "binding") != 0)
		append(out, size, " ", state, "");
}

static int digits_of(int n)
{
	return n < 10 ? 1 : 1 + digits_of(n / 10);
}

static void head_of(
	const struct jm_run_show *show, const struct jm_run_event *e, char *out, size_t size)
{
	char label[256], repeat[32] = "";

	jm_run_case_label(show->varying, e->c, label, sizeof(label));
	if (show->plan->repeat > 1)
		snprintf(repeat, sizeof(repeat), "  repeat %d", e->repeat);
	snprintf(out, size, "[%*d/%d] %.*s%s%s%s", digits_of(e->total), e->number, e->total,
		show->plan->prefix, e->c->id, *label ? " " : "", label, repeat);
}

/* A note of the workload, once. */
static void print_note(struct jm_run_show *show, const json_t *record)
{
	const char *note = json_string_value(json_object_get(record, "note"));
	char line[300];

	if (!note || !strcmp(note, show->note))
		return;
	snprintf(show->note, sizeof(show->note), "%s", note);
	snprintf(line, sizeof(line), "joulemark: note: %s", note);
	jm_text_tame(line);
	jm_text_wrap(stderr, line, 0, 2, show->width);
}

static void print_end(struct jm_run_show *show, const struct jm_run_event *e)
{
	const char *reason = json_string_value(json_object_get(e->record, "reason"));
	char figures[256], head[400], line[1500];

	show->done++;
	if (!jm_record_is_ok(e->record)) {
		show->failed++;
		snprintf(figures, sizeof(figures), "FAILED:");
	} else {
		reason = NULL;
		figures_of(show, e->record, figures, sizeof(figures));
	}
	if (show->quiet)
		return;
	clear_line(show);
	print_note(show, e->record);
	head_of(show, e, head, sizeof(head));
	snprintf(line, sizeof(line), "%s  %s%s%s", head, figures, reason ? " " : "",
		reason ? reason : "");
	jm_text_tame(line);
	fputs(jm_screen_code(show->colour && reason, JM_RED), stderr);
	jm_text_wrap(stderr, line, 0, 4, show->width);
	fputs(jm_screen_code(show->colour && reason, JM_PLAIN), stderr);
}

static double share_of(const struct jm_run_event *e)
{
	return e->progress && isfinite(e->progress->share) ? e->progress->share : 0;
}

/* Of a first case: its measured phase goes on at its rate; each further case takes as long, and as
 * long to start. */
static double seconds_left_at_first(const struct jm_run_event *e, double elapsed)
{
	double phase_s = e->progress->seconds / share_of(e),
	       start_s = elapsed - e->progress->seconds;

	return phase_s - e->progress->seconds +
	       (e->total - e->number) * ((start_s > 0 ? start_s : 0) + phase_s);
}

/* By what was done so far in this call; NAN = nothing was. */
static double seconds_left(const struct jm_run_show *show, const struct jm_run_event *e)
{
	double elapsed = (double)(jm_clock_now(jm_clock_real()) - show->start_ns) / 1e9;
	double share = share_of(e), done = show->done + share;

	if (!show->done && share > 0)
		return seconds_left_at_first(e, elapsed);
	return done > 0 ? elapsed * (e->total - e->number + 1 - share) / done : NAN;
}

static void bar_text(double share, int length, char *out)
{
	int filled = (int)(share * length);

	for (int i = 0; i < length; i++)
		out[i] = i < filled ? '#' : '.';
	out[length] = '\0';
}

/* Appends a figure where it leaves room for the time left. */
static void append_figure(const struct jm_run_show *show, char *state, size_t size,
	const char *figure, const char *tail)
{
	if ((int)(strlen(state) + strlen(figure) + strlen(tail)) + 3 <= show->width)
		append(state, size, " ", figure, "");
}

/* Watts now with their origin, items per second so far, and what an item costs at these. */
static void append_figures(const struct jm_run_show *show, const struct jm_case_progress *p,
	char *state, size_t size, const char *tail)
{
	double rate = p->seconds > 0 && p->items > 0 ? p->items / p->seconds : NAN;
	char part[96], text[32];

	if (!isnan(p->watts)) {
		snprintf(part, sizeof(part), "%.4g W %s", p->watts, jm_origin_name(p->origin));
		append_figure(show, state, size, part, tail);
	}
	if (isnan(rate))
		return;
	jm_text_estimate(rate, NAN, text, sizeof(text));
	snprintf(part, sizeof(part), "%s %.32s/s", text, p->unit);
	append_figure(show, state, size, part, tail);
	if (isnan(p->watts))
		return;
	joules_text(show, p->watts / rate, p->unit, part, sizeof(part));
	append_figure(show, state, size, part, tail);
}

/* One line that leaves the last column free, or the next redraw would begin on a new one. What does
 * not fit is left out: the bar first, then the end of the text. */
static void put_live_line(
	const struct jm_run_show *show, const char *head, double share, const char *tail)
{
	int room = show->width - 1 - (int)strlen(head) - (int)strlen(tail) - 3;
	char bar[BAR + 1], line[700];

	bar_text(share, room < BAR ? room < BAR_LEAST ? 0 : room : BAR, bar);
	snprintf(line, sizeof(line), "%s%s%s%s%s", head, *bar ? " [" : "", bar, *bar ? "]" : "",
		tail);
	fprintf(stderr, "%.*s", show->width - 1, line);
	fflush(stderr);
}

/* The bar shows the whole plan; the time left is of what this call still has to do. */
static void print_live(const struct jm_run_show *show, const struct jm_run_event *e)
{
	double share = share_of(e), left = seconds_left(show, e);
	char head[400], state[480], time[32], tail[48] = "";

	head_of(show, e, head, sizeof(head));
	snprintf(state, sizeof(state), "%s  %s", head,
		e->progress		  ? e->progress->phase
		: e->kind == JM_RUN_COOLS ? "cools down"
					  : "starts");
	if (!isnan(left)) {
		jm_work_time_text(left, time, sizeof(time));
		snprintf(tail, sizeof(tail), " %s left", time);
	}
	if (e->progress)
		append_figures(show, e->progress, state, sizeof(state), tail);
	clear_line(show);
	put_live_line(show, state, (e->number - 1 + share) / e->total, tail);
}

static void put_status(const struct jm_run_show *show, const struct jm_run_event *e)
{
	char label[120];

	jm_run_case_label(show->varying, e->c, label, sizeof(label));
	jm_run_status_put(show, e, label, seconds_left(show, e));
}

void jm_run_show_event(void *arg, const struct jm_run_event *e)
{
	struct jm_run_show *show = arg;

	if (e->kind != JM_RUN_WAS_THERE && jm_work_writer_due(show->writer))
		put_status(show, e);
	if (e->kind == JM_RUN_ENDS)
		print_end(show, e);
	else if (e->kind != JM_RUN_WAS_THERE && show->terminal && !show->quiet)
		print_live(show, e);
}

void jm_run_show_done(struct jm_run_show *show)
{
	clear_line(show);
	jm_work_writer_free(show->writer);
	json_decref(show->varying);
}
