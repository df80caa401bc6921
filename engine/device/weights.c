/* SPDX-License-Identifier: Apache-2.0 */
/* Weights apart from programs: a table by name, and the memory. */
#include "weights.h"

#include <stdlib.h>
#include <string.h>

struct jm_weights *jm_weights_new(struct jm_device *device)
{
	struct jm_weights *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->device = device;
	w->users = 1;
	return w;
}

struct jm_weights *jm_weights_share(struct jm_weights *w)
{
	w->users++;
	return w;
}

void jm_weights_free(struct jm_weights *w)
{
	if (!w || --w->users)
		return;
	w->device->backend->release(w->device->dev, w->memory);
	w->device->backend->release(w->device->dev, w->arena);
	free(w->item);
	free(w);
}

bool jm_weights_is_one(enum jm_class class)
{
	return class == JM_CLASS_PARAM || class == JM_CLASS_GRAD || class == JM_CLASS_OPT ||
	       class == JM_CLASS_STATE;
}

const struct jm_weight *jm_weights_find(const struct jm_weights *w, const char *name)
{
	for (int i = 0; i < w->n; i++)
		if (!strcmp(w->item[i].t.name, name))
			return &w->item[i];
	return NULL;
}

int jm_weights_add(
	struct jm_weights *w, const struct jm_tensor *t, size_t offset, struct jm_err *err)
{
	struct jm_weight *more = realloc(w->item, (size_t)(w->n + 1) * sizeof(*more));

	if (!more)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a table of weights.");
	w->item = more;
	w->item[w->n++] = (struct jm_weight){*t, offset};
	return 0;
}
