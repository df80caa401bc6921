/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface of a session: phases of the caller's own program, and their energy as
 * JSON. */
#include "base/clock.h"
#include "base/text/locale.h"
#include "marker.h"
#include "meter/source_list.h"
#include "power_rows.h"
#include "progress.h"
#include "session.h"
#include "session_report.h"

#include <stdlib.h>
#include <string.h>

struct jm_measurement {
	struct jm_session *session;
};

static int open_session(struct jm_ctx *ctx, const char *sources, int64_t interval_ns,
	struct jm_session **ret, struct jm_err *err)
{
	struct jm_session_options options = {.interval_ns = interval_ns};
	struct jm_source_list list = {0};
	int rc = sources ? jm_source_list_add(&list, sources, err) : 0;

	if (!rc && sources && !list.n)
		rc = jm_err_set(err, JM_EUSAGE, "The list of sources is empty; NULL means all.");
	options.sources = (const char *const *)list.name;
	if (!rc)
		rc = jm_session_open(ctx, &options, ret, err);
	jm_source_list_done(&list);
	return rc;
}

int jm_measurement_start(struct jm_ctx *ctx, const char *sources, int64_t interval_ns,
	struct jm_measurement **ret, struct jm_err *err)
{
	struct jm_measurement *m = calloc(1, sizeof(*m));
	locale_t before;
	int rc;

	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a measurement.");
	before = jm_locale_enter();
	rc = open_session(ctx, sources, interval_ns, &m->session, err);
	if (!rc)
		rc = jm_session_start(m->session, err);
	jm_locale_leave(before);
	if (rc) {
		jm_measurement_free(m);
		return rc;
	}
	*ret = m;
	return 0;
}

int jm_measurement_begin(struct jm_measurement *m, const char *name, struct jm_err *err)
{
	return jm_session_begin(m->session, name, 0, err);
}

void jm_measurement_end(struct jm_measurement *m, int phase)
{
	jm_session_end(m->session, phase, 0);
}

void jm_measurement_credit(struct jm_measurement *m, int phase, double items)
{
	jm_session_credit(m->session, phase, items);
}

int jm_measurement_stop(struct jm_measurement *m, struct jm_err *err)
{
	locale_t before = jm_locale_enter();
	int rc = jm_session_stop(m->session, err);

	jm_locale_leave(before);
	return rc;
}

static int put_json(struct jm_measurement *m, int phase, char **ret_text, struct jm_err *err)
{
	json_t *report = jm_session_report(m->session, phase, err);
	char *text;

	if (!report)
		return err && err->code ? err->code : JM_EBUG;
	text = json_dumps(report, JSON_INDENT(2));
	json_decref(report);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the report of a measurement.");
	*ret_text = text;
	return 0;
}

int jm_measurement_json(struct jm_measurement *m, int phase, char **ret_text, struct jm_err *err)
{
	locale_t before = jm_locale_enter();
	int rc = put_json(m, phase, ret_text, err);

	jm_locale_leave(before);
	return rc;
}

/* The index of a meter by its id; -1 = there is none. */
static int meter_of(const struct jm_meters *set, const char *id)
{
	for (int i = 0; i < set->n; i++)
		if (!strcmp(set->meter[i].id, id))
			return i;
	return -1;
}

int jm_measurement_power(struct jm_measurement *m, int phase, const char *meter,
	int64_t interval_ns, double **ret_watts, int *ret_rows, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(m->session);
	int n, i = meter_of(set, meter), signal = i < 0 ? -1 : jm_power_rows_signal(set, i), rc;
	const struct jm_phase *phases = jm_session_phases(m->session, &n);
	struct jm_power_rows rows;

	if (phase < 0 || phase >= n || phases[phase].t1_ns == JM_FOREVER)
		return jm_err_set(
			err, JM_EUSAGE, "Phase %d does not exist or has not ended.", phase);
	if (interval_ns <= 0)
		return jm_err_set(
			err, JM_EUSAGE, "The interval between rows of power must be above 0.");
	if (signal < 0)
		return jm_err_set(err, JM_ENOENT, "%s '%s'%s.",
			i < 0 ? "There is no meter" : "The meter", meter,
			i < 0 ? ""
			      : " does not report power; its energy may be known all the same");
	rc = jm_power_rows_of(jm_session_trace(m->session), &signal, 1, phases[phase].t0_ns,
		phases[phase].t1_ns, interval_ns, &rows, err);
	if (rc)
		return rc;
	*ret_rows = rows.n;
	*ret_watts = rows.value;
	rows.value = NULL;
	jm_power_rows_done(&rows);
	return 0;
}

void jm_measurement_free(struct jm_measurement *m)
{
	if (!m)
		return;
	jm_session_close(m->session);
	free(m);
}

int jm_mark(const char *name, double items, struct jm_err *err)
{
	return jm_progress_send(name, items, err);
}
