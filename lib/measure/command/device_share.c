/* SPDX-License-Identifier: Apache-2.0 */
#include "device_share.h"
#include "measure/session/session_private.h"
#include "base/text/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INSTANCES 8
#define SHORT	      (150 * JM_MILLISECOND) /* GPM needs 100 ms between samples */

struct instance {
	int id;
	char name[JM_ID_MAX];
	double use;		/* in the current stretch */
	int n_own, n_other;	/* processes in it at this look */
	int had_own, had_other; /* and at the look before */
	double joules;		/* of the stretches so far */
};

/* A stretch whose energy is not known yet: the sensor reports the energy up to its end at the next
 * refresh. */
struct stretch {
	int64_t t0_ns, t1_ns; /* t1_ns = 0: none */
	double own;	      /* share of the processes that are measured; NAN = unknown */
	double instance[MAX_INSTANCES];
};

struct device {
	int meter;
	struct jm_open_source *source;
	bool divided;
	double use, own,
		unknown; /* in the current stretch: of all, of the measured, of unknown processes */
	struct instance instance[MAX_INSTANCES];
	int n;
	struct stretch last;
	double joules, own_joules; /* of the stretches so far; NAN = unknown */
	char reason[300];	   /* why the share is unknown; "" = it is known */
};

struct jm_device_share {
	struct jm_session *session;
	struct jm_device_share_options o;
	int64_t t0_ns; /* begin of the current stretch */
	int n;
	struct device device[];
};

static void drop(struct device *d, const char *why)
{
	d->joules = NAN;
	if (!*d->reason)
		snprintf(d->reason, sizeof(d->reason), "%s", why);
}

/* ---- one look ---- */

struct call {
	struct jm_device_share *share;
	struct device *device;
};

static struct instance *instance_of(struct device *d, const struct jm_device_use *use)
{
	for (int i = 0; i < d->n; i++)
		if (d->instance[i].id == use->instance)
			return &d->instance[i];
	if (d->n == MAX_INSTANCES)
		return NULL;
	d->instance[d->n] = (struct instance){.id = use->instance};
	snprintf(d->instance[d->n].name, sizeof(d->instance[d->n].name), "%s", use->name);
	return &d->instance[d->n++];
}

static void take_of_instance(struct device *d, const struct jm_device_use *use, int own)
{
	struct instance *in = instance_of(d, use);

	d->divided = true;
	if (!in) {
		drop(d, "It has more instances than joulemark can distinguish.");
	} else if (!use->pid) {
		in->use = use->use;
		d->use += use->use;
	} else if (own < 0) {
		in->n_own++; /* counted as both, so that the share of the instance is unknown */
		in->n_other++;
	} else {
		in->n_own += own;
		in->n_other += !own;
	}
}

static void take(void *arg, const struct jm_device_use *use)
{
	struct call *c = arg;
	struct device *d = c->device;
	const struct jm_device_share_options *o = &c->share->o;
	int own = use->pid && o->is_own && !o->blind ? o->is_own(o->arg, use->pid) : 0;

	if (use->instance >= 0) {
		take_of_instance(d, use, own);
		return;
	}
	d->use += use->use;
	if (own > 0)
		d->own += use->use;
	else if (own < 0)
		d->unknown += use->use;
}

static double share_of(double part, double all)
{
	return all > 0 ? part / all : isnan(all) ? NAN : 0;
}

/*
 * Of an instance only the processes that exist at a look are known, so those of both ends of the
 * stretch count. 1: only measured ones used it; 0: only others; NAN: the instance cannot be
 * divided.
 */
static double own_of_instance(struct device *d, const struct instance *in)
{
	bool own = in->n_own || in->had_own, other = in->n_other || in->had_other;

	if (own && other)
		snprintf(d->reason, sizeof(d->reason),
			"Several processes use the instance %.100s, and the driver does not report "
			"the use of each.",
			in->name);
	else if (!own && !other)
		snprintf(d->reason, sizeof(d->reason),
			"The instance %.100s was used, but no process was found in it: the "
			"process began and ended between two samples.",
			in->name);
	return own != other ? own : NAN;
}

/* The share of the measured processes in the use of instances. */
static double own_of_instances(struct device *d)
{
	double own = 0;

	for (int i = 0; i < d->n; i++)
		if (d->instance[i].use > 0)
			own += d->instance[i].use * own_of_instance(d, &d->instance[i]);
	return share_of(own, d->use);
}

static double own_of_processes(struct device *d)
{
	if (d->unknown > 0) {
		snprintf(d->reason, sizeof(d->reason),
			"A process that used it had ended before its control group could be "
			"read.");
		return NAN;
	}
	return share_of(d->own, d->use);
}

static double own_share(const struct jm_device_share *s, struct device *d)
{
	if (!s->o.is_own)
		return NAN;
	if (s->o.blind) {
		snprintf(d->reason, sizeof(d->reason), "%s", s->o.blind);
		return NAN;
	}
	return d->divided ? own_of_instances(d) : own_of_processes(d);
}

static void forget_look(struct device *d)
{
	d->use = d->own = d->unknown = 0;
	for (int i = 0; i < d->n; i++) {
		struct instance *in = &d->instance[i];

		in->use = 0;
		in->had_own = in->n_own;
		in->had_other = in->n_other;
		in->n_own = in->n_other = 0;
	}
}

/* Adds the energy of the last stretch, which is known by now, to the sums. */
static void add_last_stretch(struct jm_device_share *s, struct device *d)
{
	struct jm_energy e = jm_energy_unknown;
	struct stretch *last = &d->last;
	struct jm_err err = JM_ERR_INIT;

	if (!last->t1_ns)
		return;
	if (jm_session_energy_now(s->session, d->meter, last->t0_ns, last->t1_ns, &e, &err))
		drop(d, err.text);
	else if (isnan(e.joules))
		drop(d, "Its energy is not known for part of the time.");
	d->joules += e.joules;
	d->own_joules += e.joules * last->own;
	for (int i = 0; i < d->n; i++)
		d->instance[i].joules += e.joules * last->instance[i];
	last->t1_ns = 0;
}

static void look_at(struct jm_device_share *s, struct device *d, int64_t now)
{
	struct call call = {s, d};
	struct jm_err err = JM_ERR_INIT;

	if (d->last.t1_ns && now - s->t0_ns < SHORT) {
		d->last.t1_ns = now;
		return;
	}
	add_last_stretch(s, d);
	forget_look(d);
	if (*d->reason && isnan(d->joules))
		return;
	if (jm__source_uses(d->source->source, d->source->state, &d->source->uses_left, d->meter,
		    take, &call, &err)) {
		drop(d, err.text);
		return;
	}
	d->last = (struct stretch){.t0_ns = s->t0_ns, .t1_ns = now};
	d->last.own = own_share(s, d);
	for (int i = 0; i < d->n; i++)
		d->last.instance[i] = share_of(d->instance[i].use, d->use);
	if (isnan(d->use))
		drop(d, "The driver reported an impossible use of it.");
}

void jm_device_share_look(struct jm_device_share *s)
{
	int64_t now = jm_ctx_now(s->session->ctx);

	for (int i = 0; i < s->n; i++)
		look_at(s, &s->device[i], now);
	s->t0_ns = now;
}

/* ---- the whole ---- */

/* The first call of `uses` begins the observation, and returns the processes that exist; JM_ENOENT:
 * another source has the meter. */
static void add_device(struct jm_device_share *s, int meter)
{
	struct device *d = &s->device[s->n];

	for (int i = 0; i < s->session->n_sources; i++) {
		struct jm_open_source *open = &s->session->source[i];
		struct jm_err err = JM_ERR_INIT;
		struct call call = {s, d};
		int rc;

		*d = (struct device){.meter = meter, .source = open};
		rc = jm__source_uses(
			open->source, open->state, &open->uses_left, meter, take, &call, &err);
		if (rc == JM_ENOENT)
			continue;
		if (rc)
			drop(d, err.text);
		s->n++;
		return;
	}
}

static bool is_device(const struct jm_meters *set, int meter)
{
	return set->meter[meter].scope == JM_SCOPE_GPU && !set->meter[meter].elsewhere;
}

int jm_device_share_new(struct jm_session *session, const struct jm_device_share_options *o,
	struct jm_device_share **ret, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(session);
	struct jm_device_share *s = calloc(1, sizeof(*s) + (size_t)set->n * sizeof(s->device[0]));

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the shares of GPUs.");
	s->session = session;
	s->o = *o;
	for (int i = 0; i < set->n; i++)
		if (is_device(set, i))
			add_device(s, i);
	s->t0_ns = jm_ctx_now(session->ctx);
	*ret = s;
	return 0;
}

/* Of sums that were rounded; NAN stays. */
static double at_most_one(double share)
{
	return share > 1 ? 1 : share;
}

static json_t *instances_json(const struct device *d, double joules)
{
	json_t *list = json_array();

	for (int i = 0; i < d->n; i++) {
		double share = at_most_one(share_of(d->instance[i].joules, d->joules));

		json_array_append_new(
			list, json_pack("{s:s, s:o, s:o}", "name", d->instance[i].name, "share",
				      jm_json_number(share), "joules_estimated",
				      jm_json_number(share * joules)));
	}
	return list;
}

static json_t *device_json(
	struct jm_device_share *s, struct device *d, int phase, struct jm_err *err)
{
	const char *id = jm_session_meters(s->session)->meter[d->meter].id;
	struct jm_energy e = jm_energy_unknown;
	json_t *json;
	double share;

	add_last_stretch(s, d);
	if (jm_session_energy(s->session, d->meter, phase, &e, err))
		return NULL;
	share = s->o.is_own && d->joules > 0 ? at_most_one(d->own_joules / d->joules) : NAN;
	json = json_object();
	jm_json_set_text(&json, "meter", id);
	jm_json_set_text(
		&json, "method", d->divided ? "instance-utilisation" : "process-utilisation");
	jm_json_set_number(&json, "share", share);
	jm_json_set_number(&json, "joules_estimated", share * e.joules);
	jm_json_set(&json, "reason", jm_json_said(d->reason));
	jm_json_set(&json, "instances", instances_json(d, e.joules));
	return json;
}

json_t *jm_device_share_json(struct jm_device_share *s, int phase, struct jm_err *err)
{
	json_t *list = json_array();

	for (int i = 0; i < s->n; i++) {
		json_t *one = device_json(s, &s->device[i], phase, err);

		if (!one || json_array_append_new(list, one)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

void jm_device_share_free(struct jm_device_share *s)
{
	free(s);
}
