/* SPDX-License-Identifier: Apache-2.0 */
#include "train_until.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"

static const char *const figure_names[] = {"", "top1", "loss"};

static enum jm_until_figure find(const char *text, size_t n)
{
	for (int i = JM_UNTIL_TOP1; i <= JM_UNTIL_LOSS; i++)
		if (strlen(figure_names[i]) == n && !strncmp(text, figure_names[i], n))
			return (enum jm_until_figure)i;
	return JM_UNTIL_NOTHING;
}

int jm_until_parse(struct jm_until *u, struct jm_err *err)
{
	const char *equals = u->given ? strchr(u->given, '=') : NULL;
	struct jm_err why = JM_ERR_INIT;

	u->best = NAN;
	if (!u->given)
		return 0;
	u->figure = find(u->given, equals ? (size_t)(equals - u->given) : 0);
	if (u->figure && !jm_parse_quantity(equals + 1, "", false, &u->target, &why) &&
		u->target > 0 && (u->figure != JM_UNTIL_TOP1 || u->target <= 1))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--until %.40s is no figure to reach; give top1=SHARE, such as top1=0.98 (above 0, "
		"at "
		"most 1), or loss=X.",
		u->given);
}

int jm_until_check(const char *text, struct jm_err *err)
{
	struct jm_until u = {.given = text};

	return jm_until_parse(&u, err);
}

const char *jm_until_text(const struct jm_until *u, char *out, size_t size)
{
	snprintf(out, size, "%s of %g", figure_names[u->figure], u->target);
	return out;
}

bool jm_until_judge(struct jm_until *u, const struct jm_evaluated *e, long steps)
{
	bool top1 = u->figure == JM_UNTIL_TOP1;
	double found = top1 ? e->top1 : e->loss;
	bool enough = top1 ? found >= u->target : found <= u->target;

	if (!u->figure || isnan(found))
		return false;
	u->best = top1 ? fmax(u->best, found) : fmin(u->best, found);
	if (enough && !u->steps)
		u->steps = steps;
	return enough;
}

/* Its energy is that of the phase "until". epoch_steps 0: its epochs are unknown. */
static json_t *to_json(
	const struct jm_until *u, const struct jm_work_window *window, long epoch_steps)
{
	bool reached = u->steps > 0;
	double seconds = reached ? 1e-9 * (double)(window->t1_ns - window->t0_ns) : (double)NAN;
	double epochs =
		reached && epoch_steps ? (double)u->steps / (double)epoch_steps : (double)NAN;

	json_t *json = json_object();

	jm_json_set_text(&json, "figure", figure_names[u->figure]);
	jm_json_set_number(&json, "target", u->target);
	jm_json_set_bool(&json, "reached", reached);
	jm_json_set_number(&json, "best", u->best);
	jm_json_set(&json, "steps", reached ? json_integer(u->steps) : json_null());
	jm_json_set_number(&json, "epochs", epochs);
	jm_json_set_number(&json, "seconds", seconds);
	jm_json_set(&json, "joules", json_null());
	return json;
}

void jm_until_keep(const struct jm_until *u, struct jm_work *work, long steps)
{
	char what[48], best[48] = "there was no evaluation";

	if (!u->figure)
		return;
	jm_until_text(u, what, sizeof(what));
	if (!isnan(u->best))
		snprintf(best, sizeof(best), "the best was %.6g", u->best);
	if (!work->ended)
		jm_work_note(work, "A %s was not reached in %ld steps: %s.", what, steps, best);
	if (work->more)
		json_object_set_new(
			work->more, "until", to_json(u, work->window, work->epoch_steps));
}
