/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale of each step. */
#include "scaler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DYNAMIC "dynamic"

static bool read_scale(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && *ret >= 1 && *ret <= JM_SCALER_MOST;
}

int jm_scaler_parse(const char *text, struct jm_scaler *ret, struct jm_err *err)
{
	struct jm_scaler s = {.dynamic = !strncmp(text, DYNAMIC, strlen(DYNAMIC))};
	const char *number = s.dynamic ? text + strlen(DYNAMIC) : text;
	bool good;

	s.scale = JM_SCALER_START;
	if (s.dynamic && !*number)
		good = true;
	else
		good = (!s.dynamic || *number++ == ':') && read_scale(number, &s.scale);
	if (!good)
		return jm_err_set(err, JM_EUSAGE,
			"--loss-scale '%s' is not a scale: give a number from 1 to 2^100, "
			"'dynamic', or 'dynamic:' with the number to start from.",
			text);
	s.start = s.scale;
	*ret = s;
	return 0;
}

void jm_scaler_step(struct jm_scaler *s, double used, bool finite)
{
	s->in_a_row = finite ? 0 : s->in_a_row + 1;
	s->skipped += !finite;
	if (!s->dynamic)
		return;
	s->good = finite ? s->good + 1 : 0;
	if (!finite && used <= s->scale)
		s->scale /= 2;
	if (s->good < JM_SCALER_INTERVAL)
		return;
	s->good = 0;
	if (s->scale * 2 <= JM_SCALER_MOST)
		s->scale *= 2;
}

bool jm_scaler_forgives(const struct jm_scaler *s)
{
	return s->dynamic && s->in_a_row + 1 < JM_SCALER_IN_A_ROW;
}
