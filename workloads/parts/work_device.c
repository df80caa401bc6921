/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload does first with its device. */
#include "work_device.h"
#include "base/text/json.h"
#include "engine/device/backend_clock.h"
#include "engine/device/backend_find.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/check/selftest.h"
#include "engine/graph/model.h"
#include "engine/graph/tensor.h"

#define LOOKS		 5 /* at what runs on the processors */
#define BETWEEN_LOOKS_NS 2000000L

static int clock_of(const void *arg, struct jm_work_time *ret, struct jm_err *err)
{
	struct jm_device_time t;
	int code = jm_device_clock(arg, &t, err);

	if (!code)
		*ret = (struct jm_work_time){t.device_ns, t.before_ns, t.after_ns};
	return code;
}

static void introduce(struct jm_own *own, const struct jm_device *d)
{
	snprintf(own->uuid, sizeof(own->uuid), "%s", d->props.uuid);
	snprintf(own->bus, sizeof(own->bus), "%s", d->props.bus);
	snprintf(own->name, sizeof(own->name), "%s", d->props.name);
}

static void lend_clock(struct jm_work *work, const struct jm_device *d)
{
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

void jm_work_device_note(struct jm_work *work, const struct jm_device *d, enum jm_dtype type)
{
	if (!d->props.native[type])
		jm_work_note(work,
			"This device (%s) has no instructions for %s: the arithmetic is "
			"emulated, and its speed is not that of a device that has them.",
			d->props.name, jm_dtype_name(type));
}

/* Tasks that run or wait for a processor, without this one; -1 = unknown. */
static long others_running(const char *root)
{
	char path[300], line[256];
	long running = -1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/stat", root);
	file = fopen(path, "re");
	while (file && running < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, "procs_running ", 14))
			running = strtol(line + 14, NULL, 10) - 1;
	if (file)
		fclose(file);
	return running;
}

/* Threads of OpenMP spin where they wait for each other, and so keep the processors from the one
 * that they wait for if there are fewer processors than tasks. */
static void warn_of_spinning(const struct jm_work *work)
{
	long fewest = LONG_MAX;

	if (work->rank || strncmp(work->device, "cpu", 3) != 0 ||
		secure_getenv("OMP_WAIT_POLICY") || secure_getenv("GOMP_SPINCOUNT"))
		return;
	for (int i = 0; i < LOOKS && fewest > 0; i++) {
		long running = others_running(work->ctx->root);

		fewest = running < fewest ? running : fewest;
		nanosleep(&(struct timespec){.tv_nsec = BETWEEN_LOOKS_NS}, NULL);
	}
	if (fewest > 0)
		jm_log(work->ctx, JM_WARNING,
			"Other processes use the processors (%ld task%s). This run can then be "
			"many times slower, because its threads spin while they wait for each "
			"other; OMP_WAIT_POLICY=passive in the environment prevents that.",
			fewest, fewest == 1 ? " runs" : "s run");
}

int jm_work_device_check(const char *device, const char *precision, struct jm_err *err)
{
	struct jm_training t;
	int code = jm_precision_set(&t, precision, err);

	if (!code && t.precision == JM_F64 && strcmp(device, "ref") != 0)
		code = jm_err_set(err, JM_EUSAGE,
			"f64 is available on device ref only; use --device ref, or another "
			"--precision on %s.",
			device);
	return code ? code : jm_device_check(device, err);
}

int jm_work_device_open(
	struct jm_work *work, int threads, struct jm_device *ret, struct jm_err *err)
{
	int code = jm_device_open(work->device, threads, ret, err);

	if (!code) {
		introduce(&work->own, ret);
		lend_clock(work, ret);
		code = take_share(work, ret, err);
	}
	work->own.unusable = code;
	if (!code)
		warn_of_spinning(work);
	return code;
}

/* "cuda" and "cuda:0" are one device. */
static int check_different(const struct jm_work *work, const struct jm_device *own,
	const struct jm_device *peer, struct jm_err *err)
{
	const char *uuid = own->props.uuid;

	if (strcmp(work->device, work->peer) != 0 &&
		(!*uuid || strcmp(uuid, peer->props.uuid) != 0))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"%s and %s are one device, but copies between devices need two; give --device "
		"cuda:0,cuda:1, for example.",
		work->device, work->peer);
}

static void record_peer(struct jm_work *work, bool direct)
{
	const struct jm_own *own = &work->own_peer;

	if (work->more)
		json_object_set_new(work->more, "peer",
			json_pack("{s:s, s:s?, s:s?, s:s, s:b}", "device", work->peer, "uuid",
				*own->uuid ? own->uuid : NULL, "bus", *own->bus ? own->bus : NULL,
				"name", own->name, "access", direct));
}

int jm_work_device_open_peer(struct jm_work *work, const struct jm_device *own,
	struct jm_device *ret, bool *ret_direct, struct jm_err *err)
{
	int code;

	if (!work->peer || strchr(work->peer, ','))
		code = jm_err_set(err, JM_EUSAGE,
			"Copies between devices need two of them, and --device names %s; give "
			"--device cuda:0,cuda:1, for example.",
			work->peer ? "more" : "one");
	else
		code = jm_device_open(work->peer, 0, ret, err);
	if (!code)
		code = check_different(work, own, ret, err);
	if (!code)
		code = jm_device_peer_open(own, ret, ret_direct, err);
	work->own.unusable = code;
	if (code)
		return code;
	introduce(&work->own_peer, ret);
	record_peer(work, *ret_direct);
	return 0;
}

int jm_work_device_planned(struct jm_work *work, int code)
{
	if (code == JM_EVERSION || code == JM_EBUSY)
		work->own.unusable = code;
	return code;
}

int jm_work_device_test(struct jm_work *work, const struct jm_device *d, const struct jm_graph *g,
	struct jm_err *err)
{
	struct jm_selftest_short r;
	json_t *json;
	int code;

	if (!(work->selftest_s > 0) || !strcmp(d->backend->name, "ref"))
		return 0;
	code = jm_selftest_short(work->device, d, g, work->selftest_s, &r, err);
	if (work->more) {
		json = json_object();
		jm_json_set_bool(&json, "passed", !code);
		jm_json_set_int(&json, "cases", r.n_cases);
		jm_json_set_int(&json, "refused", r.n_refused);
		jm_json_set_int(&json, "left_out", r.n_left_out);
		jm_json_set_number(&json, "worst", r.worst);
		jm_json_set_number(&json, "seconds", r.seconds);
		json_object_set_new(work->more, "selftest", json);
	}
	work->own.unusable = code == JM_ENOMEM ? 0 : code;
	return code;
}
