/* SPDX-License-Identifier: Apache-2.0 */
/* Sources are found and opened; calls of them that may never return are made in threads of their
 * own. */
#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/driver_call.h"
#include "source_calls.h"

#include <stdlib.h>
#include <string.h>

#define USES_LIMIT_NS (2 * JM_SECOND) /* its caller asks once a second, and does other things */

const struct jm_source *jm__source_find(
	const struct jm_source *const *table, const char *name, struct jm_err *err)
{
	if (!table)
		return jm_source_find(name, err);
	for (int i = 0; table[i]; i++)
		if (!strcmp(table[i]->name, name))
			return table[i];
	jm_err_set(err, JM_EUSAGE, "There is no source '%s' in this table.", name);
	return NULL;
}

/* A record distinguishes meters by their ids. */
static int check_ids(const struct jm_meters *set, int first, const char *source, struct jm_err *err)
{
	for (int i = first; i < set->n; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(set->meter[i].id, set->meter[k].id))
				return jm_err_set(err, JM_EUSAGE,
					"The meter %s is opened twice, the second time by '%s'; "
					"omit one of the two sources.",
					set->meter[i].id, source);
	return 0;
}

/* What opening a source fills, in a thread that may never return: meters of its own until it
 * has. */
struct opening {
	const struct jm_source *source;
	struct jm_ctx *ctx;
	char *options;
	struct jm_meters set;
	void *state;
	int rc;
	struct jm_err err;
};

static void open_in_thread(void *arg)
{
	struct opening *o = arg;

	o->rc = jm_source_open(o->source, o->ctx, o->options, &o->set, &o->state, &o->err);
}

static struct opening *new_opening(struct jm_ctx *ctx, const struct jm_source *source,
	const char *options, const struct jm_meters *set, struct jm_err *err)
{
	struct opening *o = calloc(1, sizeof(*o));

	if (o)
		*o = (struct opening){.source = source,
			.ctx = ctx,
			.options = strdup(options),
			.err = JM_ERR_INIT};
	if (o && o->options && !jm_meters_copy(set, &o->set, err))
		return o;
	jm_err_set(err, JM_ENOMEM, "Out of memory to open %s.", source->name);
	if (o)
		free(o->options);
	free(o);
	return NULL;
}

/* Takes over what was opened. */
static int end_opening(
	struct opening *o, struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	int rc = o->rc ? jm_err_set(err, o->rc, "%s", o->err.text) : 0;

	if (!rc) {
		rc = check_ids(&o->set, set->n, o->source->name, err);
		if (rc)
			o->source->close(o->state);
	}
	if (!rc) {
		struct jm_meters before = *set;

		*set = o->set;
		o->set = before;
		*ret_state = o->state;
	}
	jm_meters_done(&o->set);
	free(o->options);
	free(o);
	return rc;
}

int jm__source_open(struct jm_ctx *ctx, const struct jm_source *source, const char *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	struct opening *o = new_opening(ctx, source, options, set, err);

	if (!o)
		return JM_ENOMEM;
	if (source->keeps_time)
		open_in_thread(o);
	else if (!jm_driver_call_once(ctx, open_in_thread, o))
		return jm_err_set(err, JM_EIO,
			"The driver has not returned for %.0f s from a call that looks for its "
			"sensors; see the kernel's log.",
			(double)JM_DRIVER_LIMIT_NS * 1e-9);
	return end_opening(o, set, ret_state, err);
}

/* ---- the users of a device ---- */

struct uses {
	const struct jm_source *source;
	void *state;
	int meter;
	struct jm_device_use *row; /* with names of their own */
	size_t n, room;
	int rc;
	struct jm_err err;
};

static void keep_use(void *arg, const struct jm_device_use *use)
{
	struct uses *u = arg;

	if (u->n == u->room) {
		size_t room = u->room ? 2 * u->room : 16;
		struct jm_device_use *grown = reallocarray(u->row, room, sizeof(*grown));

		if (!grown) {
			u->rc = JM_ENOMEM;
			return;
		}
		u->row = grown;
		u->room = room;
	}
	u->row[u->n] = *use;
	u->row[u->n].name = use->name ? strdup(use->name) : NULL;
	if (use->name && !u->row[u->n].name)
		u->rc = JM_ENOMEM;
	else
		u->n++;
}

static void uses_in_thread(void *arg)
{
	struct uses *u = arg;
	int rc = u->source->uses(u->state, u->meter, keep_use, u, &u->err);

	if (rc)
		u->rc = rc;
	else if (u->rc)
		jm_err_set(&u->err, u->rc, "Out of memory for the users of a device.");
}

static int hand_out_uses(struct uses *u, jm_use_fn *give, void *arg, struct jm_err *err)
{
	int rc = u->rc ? jm_err_set(err, u->rc, "%s", u->err.text) : 0;

	for (size_t i = 0; i < u->n; i++) {
		if (!rc)
			give(arg, &u->row[i]);
		free((char *)u->row[i].name);
	}
	free(u->row);
	free(u);
	return rc;
}

bool jm__source_waits(struct jm_driver_call **left)
{
	if (*left && jm_driver_call_returned(*left))
		*left = NULL;
	return *left != NULL;
}

int jm__source_uses(const struct jm_source *source, void *state, struct jm_driver_call **left,
	int meter, jm_use_fn *give, void *arg, struct jm_err *err)
{
	struct jm_driver_call *call;
	struct uses *u;

	if (!source->uses)
		return jm_err_set(err, JM_ENOENT, "%s tells no users of a device.", source->name);
	if (!jm__source_waits(left)) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return jm_err_set(
				err, JM_ENOMEM, "Out of memory for the users of a device.");
		u->source = source;
		u->state = state;
		u->meter = meter;
		if (jm_driver_call(uses_in_thread, u, USES_LIMIT_NS, &call))
			return hand_out_uses(u, give, arg, err);
		*left = call;
	}
	return jm_err_set(err, JM_EIO,
		"The driver does not return from a call for the users of its devices; see the "
		"kernel's log.");
}
