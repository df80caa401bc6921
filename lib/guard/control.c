/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/control.h"
#include "base/text.h"

#include <stdlib.h>

#include "base/member.h"

JM_DEFINE_FIND(control)

int jm_knobs_add(struct jm_knobs *set, const struct jm_knob *knob, struct jm_err *err)
{
	struct jm_knob *grown = reallocarray(set->knob, (size_t)set->n + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for knob %s of %s.", knob->name,
			knob->device);
	set->knob = grown;
	grown[set->n] = *knob;
	jm_text_tame(grown[set->n].name);
	jm_text_tame(grown[set->n].device);
	jm_text_tame(grown[set->n].label);
	return set->n++;
}

void jm_knobs_done(struct jm_knobs *set)
{
	free(set->knob);
	*set = (struct jm_knobs){0};
}
