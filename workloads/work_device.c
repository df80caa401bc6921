/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload does first with its device. */
#include "workloads/work_device.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/selftest.h"

static int clock_of(const void *arg, struct jm_work_time *ret, struct jm_err *err)
{
	struct jm_device_time t;
	int code = jm_device_clock(arg, &t, err);

	if (!code)
		*ret = (struct jm_work_time){t.device_ns, t.before_ns, t.after_ns};
	return code;
}

static void introduce(struct jm_work *work, const struct jm_device *d)
{
	snprintf(work->own.uuid, sizeof(work->own.uuid), "%s", d->props.uuid);
	snprintf(work->own.bus, sizeof(work->own.bus), "%s", d->props.bus);
	snprintf(work->own.name, sizeof(work->own.name), "%s", d->props.name);
	if (jm_device_has_clock(d)) {
		work->own.clock = clock_of;
		work->own.clock_arg = d;
	}
}

/* All multiprocessors where no share is asked for. */
static int take_share(struct jm_work *work, const struct jm_device *d, struct jm_err *err)
{
	double percent = jm_values_number(work->options, "sm-share");

	if (!(percent < 100))
		return 0;
	return jm_device_restrict(d, percent / 100, &work->own.units, &work->own.of, err);
}

int jm_work_device_open(
	struct jm_work *work, int threads, struct jm_device *ret, struct jm_err *err)
{
	int code = jm_device_open(work->device, threads, ret, err);

	if (!code) {
		introduce(work, ret);
		code = take_share(work, ret, err);
	}
	work->own.unusable = code;
	return code;
}

int jm_work_device_test(struct jm_work *work, const struct jm_device *d, const struct jm_graph *g,
	struct jm_err *err)
{
	struct jm_selftest_short r;
	int code;

	if (!(work->selftest_s > 0) || !strcmp(d->backend->name, "ref"))
		return 0;
	code = jm_selftest_short(work->device, d, g, work->selftest_s, &r, err);
	if (work->more)
		json_object_set_new(work->more, "selftest",
			json_pack("{s:b, s:i, s:i, s:i, s:o, s:f}", "passed", !code, "cases",
				r.n_cases, "refused", r.n_refused, "left_out", r.n_left_out,
				"worst", isfinite(r.worst) ? json_real(r.worst) : json_null(),
				"seconds", r.seconds));
	work->own.unusable = code == JM_ENOMEM ? 0 : code;
	return code;
}
