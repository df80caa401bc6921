/* SPDX-License-Identifier: Apache-2.0 */
#include "processor_share.h"

#include "base/ctx.h"
#include "base/text/json.h"

#include <linux/magic.h>
#include <math.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Is it the kernel's file, of the whole machine? lxcfs mounts one of the container's own time over
 * it. A root of a test has plain files. */
static bool is_of_machine(const struct jm_ctx *ctx, FILE *f)
{
	struct statfs st;

	return *ctx->root || (!fstatfs(fileno(f), &st) && st.f_type == PROC_SUPER_MAGIC);
}

/* user, nice, system, irq and softirq of proc(5) */
double jm_machine_cpu_s(const struct jm_ctx *ctx)
{
	unsigned long long user, nice, system, irq, softirq;
	char path[300];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/stat", ctx->root);
	f = fopen(path, "re");
	if (f && is_of_machine(ctx, f))
		n = fscanf(f, "cpu %llu %llu %llu %*u %*u %llu %llu", &user, &nice, &system, &irq,
			&softirq);
	if (f)
		fclose(f);
	return n == 5 ? (double)(user + nice + system + irq + softirq) /
				(double)sysconf(_SC_CLK_TCK)
		      : NAN;
}

bool jm_is_processor(const struct jm_meters *set, int i)
{
	if (set->meter[i].scope != JM_SCOPE_PACKAGE)
		return false;
	for (int above = set->meter[i].covered_by; above >= 0; above = set->meter[above].covered_by)
		if (set->meter[above].scope == JM_SCOPE_PACKAGE)
			return false;
	return true;
}

int jm_processor_joules(
	struct jm_session *s, int phase, json_t *ids, double *ret, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(s);
	double sum = 0;
	int rc = 0;

	for (int i = 0; !rc && i < set->n; i++) {
		struct jm_energy e = jm_energy_unknown;

		if (!jm_is_processor(set, i))
			continue;
		if (phase >= 0)
			rc = jm_session_energy(s, i, phase, &e, err);
		sum += e.joules;
		json_array_append_new(ids, json_string(set->meter[i].id));
	}
	*ret = json_array_size(ids) ? sum : NAN;
	return rc;
}

/* Of the meter's first reading of power, which the session's start has waited for anyway. */
static double watts_now(struct jm_session *s, int meter)
{
	const struct jm_meters *set = jm_session_meters(s);
	int signal = jm_meter_signal(set, meter, JM_Q_POWER);

	if (signal < 0)
		signal = jm_meter_signal(set, meter, JM_Q_POWER_AVERAGE);
	return signal < 0 ? (double)NAN : jm_session_newest(s, signal).value;
}

/* Of the meters that count, where all have the origin that says most; NAN = one is not known. */
static double all_watts(struct jm_session *s)
{
	const struct jm_meters *set = jm_session_meters(s);

	for (int k = 0; k < JM_ORIGIN_COUNT; k++) {
		double sum = 0;
		int n = 0;

		for (int i = 0; i < set->n; i++)
			if (jm_meter_counts(set, i) && set->meter[i].origin == jm_origin_order[k]) {
				sum += watts_now(s, i);
				n++;
			}
		if (n)
			return sum;
	}
	return NAN;
}

void jm_own_share_begin(struct jm_own_share *o, struct jm_session *s, const struct jm_ctx *ctx)
{
	o->watts_before = all_watts(s);
	o->machine_begin_s = jm_machine_cpu_s(ctx);
}

void jm_own_share_end(struct jm_own_share *o, const struct jm_ctx *ctx)
{
	o->machine_s += jm_machine_cpu_s(ctx) - o->machine_begin_s;
}

json_t *jm_own_share_json(const struct jm_own_share *o, double cpu_s, struct jm_session *s,
	int phase, struct jm_err *err)
{
	/* the machine's time has ticks of 10 ms: a short command has no share, and none is above
	 * 1 */
	double share = o->machine_s >= 0.1 ? fmin(cpu_s / o->machine_s, 1) : NAN, joules = NAN;
	json_t *ids = json_array(), *json;

	if (jm_processor_joules(s, phase, ids, &joules, err)) {
		json_decref(ids);
		return NULL;
	}
	json = json_object();
	jm_json_set_number(&json, "cpu_s", cpu_s);
	jm_json_set_number(&json, "machine_cpu_s", o->machine_s);
	jm_json_set_number(&json, "share", share);
	jm_json_set_number(&json, "joules_estimated", share * joules);
	jm_json_set(&json, "meters", ids);
	jm_json_set_number(&json, "watts_before", phase < 0 ? NAN : o->watts_before);
	return json;
}
