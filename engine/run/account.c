/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <math.h>

static const char *const names[] = {
#define X(name, text) [JM_ACCOUNT_##name] = text,
	JM_ACCOUNT_KINDS(X)
#undef X
};

const char *jm_account_name(enum jm_account_kind kind)
{
	return names[kind];
}

int jm_account_new(const struct jm_device *d, const struct jm_account_counts *counts,
	struct jm_account *ret, struct jm_err *err)
{
	int code = jm_waits_new(d, JM_QUEUE_COMM, counts->beside, &ret->beside, err);

	if (!code)
		code = jm_waits_new(d, JM_QUEUE_COMPUTE, counts->waited, &ret->waited, err);
	if (!code)
		code = jm_waits_new(d, JM_QUEUE_COMPUTE, counts->alone, &ret->alone, err);
	return code;
}

void jm_account_free(struct jm_account *a)
{
	jm_waits_free(a->beside);
	jm_waits_free(a->waited);
	jm_waits_free(a->alone);
}

void jm_account_count_by(struct jm_account *a, const struct jm_waits *clock)
{
	jm_waits_count_by(a->beside, clock);
	jm_waits_count_by(a->waited, clock);
	jm_waits_count_by(a->alone, clock);
}

void jm_account_reset(struct jm_account *a)
{
	jm_waits_reset(a->beside);
	jm_waits_reset(a->waited);
	jm_waits_reset(a->alone);
}

struct jm_account_time jm_account_time(struct jm_account *a, long steps)
{
	double beside, waited, alone;
	long n = jm_waits_total(a->beside, &beside) + jm_waits_total(a->waited, &waited) +
		 jm_waits_total(a->alone, &alone);

	if (!n || !steps)
		return (struct jm_account_time){NAN, NAN};
	return (struct jm_account_time){
		(beside + alone) / (double)steps, (waited + alone) / (double)steps};
}
