/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_lengths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

/* Where no length is given: so many steps at least, and as long as workload.h says. */
#define DEFAULT_STEPS 3
#define WARM_STEPS    2
#define EPOCH_STEPS   50 /* where neither the user nor the data says how long an epoch is */

static double parameter(const json_t *parameters, const char *name)
{
	return jm_json_real(json_object_get(parameters, name));
}

bool jm__lengths_by_epochs(const json_t *parameters)
{
	return parameter(parameters, "epochs") > 0 && isnan(parameter(parameters, "epoch_steps"));
}

/* steps: of an epoch. The first one is the warm-up, unless it is the only one or a warm-up (of 0
 * steps) is given. */
static void set_epochs(const json_t *parameters, struct jm__lengths *l, double steps)
{
	double epochs = parameter(parameters, "epochs");

	l->epoch_steps = (long)steps;
	l->warm_steps = epochs > 1 && !json_object_get(parameters, "warmup") ? steps : 0;
	l->steps = epochs * steps - l->warm_steps;
	l->seconds = NAN;
}

void jm__lengths_read(const json_t *parameters, struct jm__lengths *l, struct jm_err *err)
{
	const char *warm = json_string_value(json_object_get(parameters, "warmup"));

	*l = (struct jm__lengths){0};
	if (parameter(parameters, "epochs") > 0) {
		double steps = parameter(parameters, "epoch_steps");

		set_epochs(parameters, l, isnan(steps) ? EPOCH_STEPS : steps);
		return;
	}
	l->steps = parameter(parameters, "steps");
	l->seconds = parameter(parameters, "seconds");
	if (isnan(l->steps) && isnan(l->seconds)) {
		l->steps = DEFAULT_STEPS;
		l->seconds = JM_WORK_STEADY_S;
	}
	l->warm_steps = warm ? 0 : WARM_STEPS;
	l->warm_s = warm ? 0 : JM_WORK_WARM_S;
	if (!warm)
		return;
	if (warm[strspn(warm, "0123456789")])
		jm_parse_quantity(warm, "s", true, &l->warm_s, err);
	else
		l->warm_steps = strtod(warm, NULL);
}

/* What is counted from the first step is measured from there. */
static int fit_ending(const json_t *parameters, struct jm__lengths *l, struct jm_err *err)
{
	bool epochs = parameter(parameters, "epochs") > 0;

	if (!epochs && isnan(parameter(parameters, "steps")) &&
		isnan(parameter(parameters, "seconds")))
		return jm_err_set(err, JM_EUSAGE,
			"Nothing ends the run if --until is not reached; give --epochs, --steps or "
			"--seconds, too.");
	if (!epochs && json_object_get(parameters, "warmup"))
		return 0;
	l->steps += epochs ? l->warm_steps : 0;
	l->warm_steps = l->warm_s = 0;
	return 0;
}

int jm__lengths_fit(const json_t *parameters, const struct jm_work *work, struct jm__lengths *l,
	struct jm_err *err)
{
	if (jm__lengths_by_epochs(parameters) && work->epoch_steps)
		set_epochs(parameters, l, (double)work->epoch_steps);
	return work->may_end ? fit_ending(parameters, l, err) : 0;
}
