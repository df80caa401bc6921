/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The users of the fake NVML's GPUs. usersfile=FILE is read at each call; a line is
 *
 *	GPU PID SM [INSTANCE]	the process has used SM percent of the GPU, or of its instance,
 *				since the last call; it has 1 MiB of memory per percent, or of an
 *				instance 1 MiB
 *
 * and mig=0:3 divides GPU 0 into 3 instances with the numbers 1, 2, 3 and 16, 32, 48
 * multiprocessors; then, as with a real driver, it has no samples of processes; with activity=1 it
 * reports the activity of an instance.
 */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef OLD_DRIVER
struct user {
	int gpu, pid, sm, instance;
};

/* MIG device k of GPU i is the device MAX_GPUS + 8 i + k; it has instance k + 1. */
static struct nvml_device mig_device[MAX_GPUS * 8];

static int gpu_of(jm_nvml_device d)
{
	return d->index < MAX_GPUS ? d->index : (d->index - MAX_GPUS) / 8;
}

static unsigned int instance_of(jm_nvml_device d)
{
	return (unsigned int)(d->index - MAX_GPUS) % 8 + 1;
}

static bool is_mig(jm_nvml_device d)
{
	return d->index >= MAX_GPUS;
}

static int each_user(int gpu, int (*fn)(void *arg, const struct user *u), void *arg)
{
	FILE *f = *fake.users_file ? fopen(fake.users_file, "re") : NULL;
	char line[128];
	int n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		struct user u = {.instance = -1};

		if (sscanf(line, "%d %d %d %d", &u.gpu, &u.pid, &u.sm, &u.instance) >= 3 &&
			u.gpu == gpu)
			n += fn(arg, &u);
	}
	if (f)
		fclose(f);
	return n;
}

struct samples {
	struct jm_nvml_process_sample *row;
	unsigned int n, room;
};

static int add_sample(void *arg, const struct user *u)
{
	struct samples *s = arg;
	struct timespec now;

	if (!u->sm)
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	if (s->n < s->room)
		s->row[s->n] = (struct jm_nvml_process_sample){.pid = (unsigned int)u->pid,
			.stamp_us = (unsigned long long)(now.tv_sec * 1000000 + now.tv_nsec / 1000),
			.sm = (unsigned int)u->sm,
			.memory = 7};
	s->n++;
	return 1;
}

API int nvmlDeviceGetProcessUtilization(jm_nvml_device d, struct jm_nvml_process_sample *row,
	unsigned int *n, unsigned long long since_us)
{
	struct samples s = {row, 0, *n};

	(void)since_us;
	fake_lag(fake.use_lag[d->index]);
	if (!*fake.users_file || fake.mig[d->index] > 0)
		return JM_NVML_NOT_SUPPORTED;
	each_user(d->index, add_sample, &s);
	*n = s.n;
	if (!s.n)
		return JM_NVML_NOT_FOUND;
	return s.n > s.room ? JM_NVML_INSUFFICIENT_SIZE : 0;
}

API int nvmlDeviceGetMigMode(jm_nvml_device d, unsigned int *current, unsigned int *pending)
{
	*current = *pending = fake.mig[d->index] > 0;
	return 0;
}

API int nvmlDeviceGetMaxMigDeviceCount(jm_nvml_device d, unsigned int *n)
{
	*n = fake.mig[d->index] > 0 ? 7 : 0;
	return 0;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(jm_nvml_device d, unsigned int i, jm_nvml_device *mig)
{
	int k = 8 * d->index + (int)i;

	if (i >= (unsigned int)fake.mig[d->index])
		return JM_NVML_NOT_FOUND;
	mig_device[k].index = MAX_GPUS + k;
	*mig = &mig_device[k];
	return 0;
}

bool fake_mig_uuid(jm_nvml_device d, char *uuid, unsigned int size)
{
	if (is_mig(d))
		snprintf(uuid, size, "MIG-%08x-fa4e-4000-8000-%012x", (unsigned int)gpu_of(d),
			instance_of(d));
	return is_mig(d);
}

API int nvmlDeviceGetGpuInstanceId(jm_nvml_device mig, unsigned int *id)
{
	*id = instance_of(mig);
	return is_mig(mig) ? 0 : JM_NVML_INVALID_ARGUMENT;
}

API int nvmlDeviceGetAttributes_v2(jm_nvml_device mig, struct jm_nvml_attributes *a)
{
	*a = (struct jm_nvml_attributes){.multiprocessors = 16 * instance_of(mig)};
	return 0;
}

struct processes {
	int instance; /* -1 = of an undivided GPU */
	unsigned int n, room;
	struct jm_nvml_process *row;
};

static int add_process(void *arg, const struct user *u)
{
	struct processes *p = arg;

	if (u->instance != p->instance)
		return 0;
	if (p->n < p->room)
		p->row[p->n] = (struct jm_nvml_process){.pid = (unsigned int)u->pid,
			.memory = (1ULL << 20) * (unsigned long long)(u->instance < 0 ? u->sm : 1),
			.gpu_instance = (unsigned int)p->instance};
	p->n++;
	return 1;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(
	jm_nvml_device d, unsigned int *n, struct jm_nvml_process *row)
{
	struct processes p = {
		.instance = is_mig(d) ? (int)instance_of(d) : -1, .room = *n, .row = row};

	each_user(gpu_of(d), add_process, &p);
	*n = p.n;
	return p.n > p.room ? JM_NVML_INSUFFICIENT_SIZE : 0;
}

/* ---- activity: a sample holds how busy the instance is at that moment ---- */

static int add_busy(void *arg, const struct user *u)
{
	struct nvml_gpm_sample *s = arg;

	s->sm += (unsigned int)u->instance == s->instance ? (unsigned int)u->sm : 0;
	return 0;
}

API int nvmlGpmMigSampleGet(jm_nvml_device d, unsigned int instance, jm_nvml_sample sample)
{
	if (instance > (unsigned int)fake.mig[d->index])
		return JM_NVML_INVALID_ARGUMENT;
	*sample = (struct nvml_gpm_sample){.gpu = d->index, .t = fake_now(), .instance = instance};
	each_user(d->index, add_busy, sample);
	return 0;
}

#else

bool fake_mig_uuid(jm_nvml_device d, char *uuid, unsigned int size)
{
	(void)d, (void)uuid, (void)size;
	return false;
}

#endif
