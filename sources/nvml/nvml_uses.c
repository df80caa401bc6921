/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses an NVIDIA GPU. Undivided: the driver keeps a sample of each process that ran kernels in
 * its last sampling period, between 1/6 s and 1 s. Divided (MIG): it has no such samples; from
 * Hopper on, its activity samples (GPM) tell how busy the multiprocessors of each instance were,
 * and each instance lists its processes.
 */
#include "nvml_uses.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_ROWS  256
#define SECOND_US 1000000 /* the longest sampling period */

static int fail(const struct jm_nvml *nvml, int rc, const char *what, struct jm_err *err)
{
	return jm_err_set(err, jm_nvml_code(rc), "The driver does not report %s: %s.", what,
		jm_nvml_text(nvml, rc));
}

static int lacks(const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP, "The driver's library has no call for %s.", what);
}

/* ---- an undivided GPU ---- */

/* The processes that have memory of a GPU, whether they ran kernels or not; none where the driver
 * does not say. */
struct owners {
	unsigned int n;
	struct jm_nvml_process row[MAX_ROWS]; /* pid 0: was given already */
};

static void read_owners(const struct jm_nvml *nvml, jm_nvml_device gpu, struct owners *ret)
{
	unsigned int n = MAX_ROWS;

	if (nvml->processes && !nvml->processes(gpu, &n, ret->row))
		ret->n = n < MAX_ROWS ? n : MAX_ROWS;
}

/* The library has all bits set where it does not know the memory. */
static double bytes_of(const struct jm_nvml_process *p)
{
	return p->memory == UINT64_MAX ? NAN : (double)p->memory;
}

static double take_bytes(struct owners *owners, unsigned int pid)
{
	for (unsigned int i = 0; i < owners->n; i++)
		if (owners->row[i].pid == pid) {
			owners->row[i].pid = 0;
			return bytes_of(&owners->row[i]);
		}
	return NAN;
}

/* Those that ran no kernel: nothing of the device's energy is theirs. */
static void give_idle(const struct owners *owners, jm_use_fn *give, void *arg)
{
	for (unsigned int i = 0; i < owners->n; i++)
		if (owners->row[i].pid)
			give(arg, &(struct jm_device_use){.instance = -1,
					  .name = "",
					  .pid = (pid_t)owners->row[i].pid,
					  .use = 0,
					  .bytes = bytes_of(&owners->row[i])});
}

static int read_processes(const struct jm_nvml *nvml, jm_nvml_device gpu, long long since_us,
	jm_use_fn *give, void *arg, struct jm_err *err)
{
	static const char what[] = "the use of the GPU by each process";
	struct jm_nvml_process_sample row[MAX_ROWS];
	unsigned int n = MAX_ROWS;
	struct owners owners = {0};
	int rc;

	if (!nvml->process_use)
		return lacks(what, err);
	rc = nvml->process_use(gpu, row, &n, (unsigned long long)since_us);
	if (rc == JM_NVML_NOT_FOUND) /* no process ran a kernel */
		n = 0;
	else if (rc)
		return fail(nvml, rc, what, err);
	read_owners(nvml, gpu, &owners);
	for (unsigned int i = 0; i < n && i < MAX_ROWS; i++)
		give(arg, &(struct jm_device_use){.instance = -1,
				  .name = "",
				  .pid = (pid_t)row[i].pid,
				  .use = row[i].sm > 100 ? NAN : row[i].sm / 100.0,
				  .bytes = take_bytes(&owners, row[i].pid)});
	give_idle(&owners, give, arg);
	return 0;
}

/* ---- instances ---- */

static struct jm_nvml_instance *instance_of(struct jm_nvml_uses *u, unsigned int id)
{
	for (int i = 0; i < u->n; i++)
		if (u->instance[i].id == id)
			return &u->instance[i];
	if (u->n == JM_NVML_INSTANCES)
		return NULL;
	u->instance[u->n] = (struct jm_nvml_instance){.id = id};
	return &u->instance[u->n++];
}

static int add_device(
	struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device mig, struct jm_err *err)
{
	struct jm_nvml_attributes attributes = {0};
	struct jm_nvml_instance *in;
	unsigned int id = 0;
	int rc = nvml->instance_id(mig, &id);

	if (!rc)
		rc = nvml->attributes(mig, &attributes);
	if (rc)
		return fail(nvml, rc, "the size of a MIG instance", err);
	in = instance_of(u, id);
	if (!in || in->n_devices == JM_NVML_INSTANCES)
		return jm_err_set(err, JM_ERANGE,
			"The GPU has more than %d MIG instances or devices in one; joulemark does "
			"not divide its energy.",
			JM_NVML_INSTANCES);
	in->multiprocessors += attributes.multiprocessors;
	in->device[in->n_devices++] = mig;
	if (!*in->name)
		nvml->uuid(mig, in->name, sizeof(in->name));
	return 0;
}

static int find_instances(
	struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device gpu, struct jm_err *err)
{
	unsigned int n = 0;
	int rc = nvml->mig_count(gpu, &n);

	if (rc)
		return fail(nvml, rc, "its MIG instances", err);
	rc = 0;
	for (unsigned int i = 0; !rc && i < n; i++) {
		jm_nvml_device mig;

		if (!nvml->mig_by_index(gpu, i, &mig))
			rc = add_device(u, nvml, mig, err);
	}
	return rc;
}

/* GPUs before Hopper have none. */
static int begin_samples(
	struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device gpu, struct jm_err *err)
{
	struct jm_nvml_gpm_support support = {.version = JM_NVML_GPM_VERSION};

	if (nvml->gpm_support(gpu, &support) || !support.supported)
		return jm_err_set(err, JM_ENOSUP,
			"This GPU does not report how busy each MIG instance is (GPM, from Hopper "
			"on).");
	for (int i = 0; i < u->n; i++)
		for (int k = 0; k < 2; k++)
			if (nvml->gpm_alloc(&u->instance[i].sample[k]))
				return jm_err_set(err, JM_ENOMEM,
					"The driver cannot allocate samples of its MIG instances.");
	return 0;
}

static bool has_calls(const struct jm_nvml *nvml)
{
	return nvml->mig_count && nvml->mig_by_index && nvml->instance_id && nvml->attributes &&
	       nvml->processes && nvml->gpm_support && nvml->gpm_alloc && nvml->gpm_free &&
	       nvml->gpm_instance_sample && nvml->gpm_metrics;
}

static int look(
	struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device gpu, struct jm_err *err)
{
	unsigned int now = 0, later = 0;
	int rc;

	u->divided = nvml->mig_mode && !nvml->mig_mode(gpu, &now, &later) && now;
	if (!u->divided)
		return 0;
	if (!has_calls(nvml))
		return lacks("the use of MIG instances", err);
	rc = find_instances(u, nvml, gpu, err);
	return rc ? rc : begin_samples(u, nvml, gpu, err);
}

/* Busy time of its multiprocessors between the two samples, as a number of multiprocessors. */
static int read_busy(const struct jm_nvml *nvml, const struct jm_nvml_instance *in, double *ret,
	struct jm_err *err)
{
	struct jm_nvml_gpm_get get = {
		.version = JM_NVML_GPM_VERSION,
		.n = 1,
		.from = in->sample[0],
		.to = in->sample[1],
		.metric = {{.id = JM_NVML_GPM_SM}},
	};
	int rc = nvml->gpm_metrics(&get);

	if (!rc)
		rc = get.metric[0].rc;
	if (rc)
		return fail(nvml, rc, "how busy a MIG instance was", err);
	*ret = in->multiprocessors * get.metric[0].value / 100;
	return 0;
}

static int give_processes(const struct jm_nvml *nvml, const struct jm_nvml_instance *in,
	jm_use_fn *give, void *arg, struct jm_err *err)
{
	struct jm_nvml_process row[MAX_ROWS];

	for (int d = 0; d < in->n_devices; d++) {
		unsigned int n = MAX_ROWS;
		int rc = nvml->processes(in->device[d], &n, row);

		if (rc)
			return fail(nvml, rc, "the processes of a MIG instance", err);
		for (unsigned int i = 0; i < n && i < MAX_ROWS; i++)
			give(arg, &(struct jm_device_use){.instance = (int)in->id,
					  .name = in->name,
					  .pid = (pid_t)row[i].pid,
					  .use = NAN,
					  .bytes = bytes_of(&row[i])});
	}
	return 0;
}

static int read_instance(struct jm_nvml_instance *in, bool first, const struct jm_nvml *nvml,
	jm_nvml_device gpu, jm_use_fn *give, void *arg, struct jm_err *err)
{
	jm_nvml_sample before = in->sample[0];
	double busy = 0;
	int rc;

	in->sample[0] = in->sample[1];
	in->sample[1] = before;
	rc = nvml->gpm_instance_sample(gpu, in->id, in->sample[1]);
	if (rc)
		return fail(nvml, rc, "how busy a MIG instance is", err);
	rc = first ? 0 : read_busy(nvml, in, &busy, err);
	if (rc)
		return rc;
	give(arg, &(struct jm_device_use){
			  .instance = (int)in->id, .name = in->name, .use = busy, .bytes = NAN});
	return give_processes(nvml, in, give, arg, err);
}

int jm_nvml_uses_read(struct jm_nvml_uses *u, const struct jm_nvml *nvml, jm_nvml_device gpu,
	long long now_us, jm_use_fn *give, void *arg, struct jm_err *err)
{
	bool first = !u->last_us;
	long long since = u->last_us < now_us - SECOND_US ? u->last_us : now_us - SECOND_US;
	int rc = 0;

	if (first)
		rc = look(u, nvml, gpu, err);
	if (rc)
		return rc;
	u->last_us = now_us;
	if (!u->divided)
		return read_processes(
			nvml, gpu, first ? now_us - SECOND_US : since, give, arg, err);
	for (int i = 0; !rc && i < u->n; i++)
		rc = read_instance(&u->instance[i], first, nvml, gpu, give, arg, err);
	return rc;
}

void jm_nvml_uses_done(struct jm_nvml_uses *u, const struct jm_nvml *nvml)
{
	for (int i = 0; i < u->n; i++)
		for (int k = 0; k < 2; k++)
			if (u->instance[i].sample[k])
				nvml->gpm_free(u->instance[i].sample[k]);
	*u = (struct jm_nvml_uses){0};
}
