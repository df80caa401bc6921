/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a native work runs on: its meter, and its clock relative to the run's. */
#include "worker_device.h"
#include "measure/session/session_gpus.h"
#include "base/ctx.h"
#include "run/workload.h"
#include "worker_phases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Meters of other GPUs do not count in the energy of this work. */
void jm__worker_own(struct jm__worker *w, const struct jm_work *work)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	bool slice;

	if (!*work->own.uuid || !w->measures)
		return;
	w->own_meter = jm_session_own(w->session, work->own.uuid, work->own.bus, &slice);
	jm_record_set(w->record, "ran_on",
		json_pack("{s:s, s:s?, s:s, s:s?, s:b}", "uuid", work->own.uuid, "bus",
			*work->own.bus ? work->own.bus : NULL, "name", work->own.name, "meter",
			w->own_meter < 0 ? NULL : set->meter[w->own_meter].id, "slice", slice));
	for (int r = 0; work->gang && r < w->world; r++)
		if (r != w->rank && *work->gang[r].uuid)
			jm_session_own_too(w->session, work->gang[r].uuid, work->gang[r].bus);
	for (int i = 0; i < work->n_also; i++)
		jm_session_own_too(w->session, work->also[i].uuid, work->also[i].bus);
	if (*work->own_peer.uuid)
		jm_session_own_too(w->session, work->own_peer.uuid, work->own_peer.bus);
	if (w->own_meter < 0)
		jm_log(w->ctx, JM_WARNING,
			"No meter reads %s, which computes; 'joulemark doctor' shows the sensors. "
			"The energy of other GPUs is not counted.",
			work->own.uuid);
	else if (slice)
		jm_log(w->ctx, JM_WARNING,
			"%s is a part of %s (MIG): power and energy are those of the whole GPU, "
			"including what other processes run on it.",
			work->own.uuid, set->meter[w->own_meter].label);
}

const char *jm__device_of_rank(const char *list, int rank, char *out, size_t size)
{
	const char *at = list;

	for (int r = 0; at && r < rank && strchr(at, ','); r++)
		at = strchr(at, ',') + 1;
	snprintf(out, size, "%.*s", at ? (int)strcspn(at, ",") : 0, at ? at : "");
	return at ? out : NULL;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Simulated time is independent of a device's clock. */
int jm__worker_anchor(struct jm__worker *w, const struct jm_work *work, struct jm_err *err)
{
	struct jm_work_time t;
	int rc;

	if (!work->own.clock || jm_clock_simulated(w->ctx->clock))
		return 0;
	rc = work->own.clock(work->own.clock_arg, &t, err);
	if (!rc)
		jm_alignment_add(&w->alignment, &t);
	return rc;
}

void jm__worker_end_at(struct jm__worker *w, int phase, int64_t device_ns)
{
	struct jm__end *grown = reallocarray(w->end, (size_t)w->n_ends + 1, sizeof(*grown));

	jm__worker_end(w, phase);
	if (!grown)
		return;
	w->end = grown;
	if (phase >= 0 && device_ns)
		grown[w->n_ends++] = (struct jm__end){phase, device_ns};
}

/* Phases end when the device had finished, not when the host noticed. Returns by how much the main
 * one ended earlier. */
double jm__worker_align(struct jm__worker *w)
{
	const struct jm_alignment *a = &w->alignment;
	double late = 0;
	int n;
	const struct jm_phase *phase = jm_session_phases(w->session, &n);

	if (a->n < 2 || !w->n_ends)
		return 0;
	for (int i = 0; i < w->n_ends; i++) {
		const struct jm_phase *p = &phase[w->end[i].phase];
		int64_t t1 = jm_alignment_host(a, w->end[i].device_ns);

		if (t1 <= p->t0_ns || t1 > p->t1_ns)
			continue; /* a contradictory clock is not used */
		if (w->end[i].phase == w->main_phase)
			late = 1e-9 * (double)(p->t1_ns - t1);
		jm_session_end(w->session, w->end[i].phase, t1);
	}
	jm_record_set(w->record, "alignment",
		json_pack("{s:o, s:o, s:i, s:o}", "error_ns", jm_json_number(jm_alignment_error(a)),
			"drift_ppm", jm_json_number(jm_alignment_drift(a)), "anchors", a->n,
			"noticed_late_ns", jm_json_number(1e9 * late)));
	return late;
}

json_t *jm__worker_gang(const struct jm__worker *w, const struct jm_work *work)
{
	const char *devices = json_string_value(json_object_get(w->parameters, "device"));
	json_t *ranks = json_array();
	char device[64];

	for (int r = 0; r < w->world; r++) {
		const struct jm_own *own = work->gang ? &work->gang[r] : NULL;

		json_array_append_new(
			ranks, json_pack("{s:i, s:s?, s:s?, s:s?, s:s*}", "rank", r, "device",
				       jm__device_of_rank(devices, r, device, sizeof(device)),
				       "uuid", own && *own->uuid ? own->uuid : NULL, "name",
				       own ? own->name : NULL, "host",
				       own && *own->host ? own->host : NULL));
	}
	return json_pack("{s:i, s:i, s:o?, s:o}", "world", w->world, "rank", w->rank, "launcher",
		json_incref(json_object_get(json_object_get(w->job, "gang"), "launcher")), "ranks",
		ranks);
}
