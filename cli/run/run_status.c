/* SPDX-License-Identifier: Apache-2.0 */
/* What `joulemark status` shows of a running `run`. */
#include "run_status.h"
#include "base/text/json.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>

/* Its workload with the model if the label does not name it, or its command. */
static void name_work(const struct jm_plan_case *c, const json_t *varying, char *out, size_t size)
{
	const json_t *command = json_object_get(c->parameters, "command"), *word;
	size_t i;

	snprintf(out, size, "%s", jm_json_text(c->parameters, "workload"));
	if (*out) {
		if (!json_object_get(json_object_get(varying, "options"), "model"))
			jm_text_append(out, size, " ",
				jm_json_text(json_object_get(c->parameters, "options"), "model"));
		return;
	}
	json_array_foreach(command, i, word)
	{
		jm_text_append(out, size, i ? " " : "", json_string_value(word));
	}
}

static void name_phase(const struct jm_run_event *e, char *out, size_t size)
{
	snprintf(out, size, "%s",
		e->progress		  ? e->progress->phase
		: e->kind == JM_RUN_COOLS ? "cools down"
		: e->kind == JM_RUN_ENDS  ? "ends"
					  : "starts");
}

static void take_progress(const struct jm_case_progress *p, struct jm_work_status *s)
{
	s->share = p->share;
	snprintf(s->unit, sizeof(s->unit), "%s", p->unit);
	s->items_per_s = p->seconds > 0 && p->items > 0 ? p->items / p->seconds : NAN;
	s->watts = p->watts;
	s->origin = p->origin;
}

void jm_run_status_put(const struct jm_run_show *show, const struct jm_run_event *e,
	const char *label, double left_s)
{
	struct jm_work_status s = {
		.command = "run",
		.number = e->number,
		.total = e->total,
		.failed = show->failed,
		.share = NAN,
		.items_per_s = NAN,
		.watts = NAN,
		.joules = NAN,
		.left_s = left_s,
	};

	name_work(e->c, show->varying, s.work, sizeof(s.work));
	if (*label)
		jm_text_append(s.work, sizeof(s.work), " ", label);
	name_phase(e, s.phase, sizeof(s.phase));
	snprintf(s.store, sizeof(s.store), "%s", show->store ? show->store : "");
	if (e->progress)
		take_progress(e->progress, &s);
	jm_work_writer_put(show->writer, &s);
}
