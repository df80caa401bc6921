/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload does first with its device. */
#include "workloads/work_device.h"

#include <stdio.h>

static void introduce(struct jm_work *work, const struct jm_device *d)
{
	snprintf(work->own.uuid, sizeof(work->own.uuid), "%s", d->props.uuid);
	snprintf(work->own.bus, sizeof(work->own.bus), "%s", d->props.bus);
	snprintf(work->own.name, sizeof(work->own.name), "%s", d->props.name);
}

int jm_work_device_open(
	struct jm_work *work, int threads, struct jm_device *ret, struct jm_err *err)
{
	int code = jm_device_open(work->device, threads, ret, err);

	work->own.unusable = code;
	if (!code)
		introduce(work, ret);
	return code;
}
