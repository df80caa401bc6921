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

void jm_scaler_step(struct jm_scaler *s, struct jm_outcome outcome)
{
	bool finite = outcome.finite;

	s->in_a_row = finite ? 0 : s->in_a_row + 1;
	s->skipped += !finite;
	s->updates += finite;
	if (!s->dynamic)
		return;
	s->good = finite ? s->good + 1 : 0;
	if (!finite && outcome.scale <= s->scale)
		s->scale /= 2;
	if (s->good < JM_SCALER_INTERVAL)
		return;
	s->good = 0;
	if (s->scale * 2 <= JM_SCALER_MOST)
		s->scale *= 2;
}

static void heed_first(struct jm_scaler *s)
{
	jm_scaler_step(s, s->late[0]);
	s->n_late--;
	memmove(s->late, s->late + 1, sizeof(s->late) - sizeof(s->late[0]));
}

void jm_scaler_add(struct jm_scaler *s, struct jm_outcome outcome)
{
	if (!s->dynamic) {
		jm_scaler_step(s, outcome);
		return;
	}
	if (s->n_late == JM_SCALER_LATE)
		heed_first(s);
	s->late[s->n_late++] = outcome;
}

void jm_scaler_heed(struct jm_scaler *s, long step)
{
	while (s->n_late && s->late[0].step < step)
		heed_first(s);
}

struct jm_scaler jm_scaler_known(struct jm_scaler s)
{
	while (s.n_late)
		heed_first(&s);
	return s;
}

bool jm_scaler_forgives(const struct jm_scaler *s)
{
	struct jm_scaler known = jm_scaler_known(*s);

	return s->dynamic && known.in_a_row + 1 < JM_SCALER_IN_A_ROW;
}
