/* SPDX-License-Identifier: Apache-2.0 */
/* Threads inherit processors and NUMA nodes of the one that starts them: those of the sampler are
 * started while this one is bound to the sampler's, those of the work while it is bound to the
 * rank's. */
#include "worker_affinity.h"
#include "base/process/cpu_list.h"
#include "base/process/memory_nodes.h"

#include <string.h>

/* What somebody has chosen fails the case; a default that is not possible is only recorded. */
static int refuse(struct jm__worker *w, struct jm_err *why, struct jm_err *err)
{
	if (!strcmp(jm_json_text(w->affinity, "by"), "given"))
		return jm_err_set(err, why->code,
			"%s Give --affinity other CPUs, or none to bind nothing.", why->text);
	sched_setaffinity(0, sizeof(w->found_cpus), &w->found_cpus);
	if (!w->measures) /* the record is another rank's */
		jm_log(w->ctx, JM_WARNING, "Rank %d is not bound: %s", w->rank, why->text);
	json_object_set_new(w->affinity, "by", json_string("none"));
	json_object_set_new(w->affinity, "reason", json_string(why->text));
	json_array_clear(json_object_get(w->affinity, "ranks"));
	json_object_set_new(w->affinity, "sampler", json_null());
	return 0;
}

static int bind_to(struct jm__worker *w, const char *cpus, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;

	return *cpus && jm_cpu_list_bind(cpus, &why) ? refuse(w, &why, err) : 0;
}

int jm__worker_bind_sampler(struct jm__worker *w, struct jm_err *err)
{
	if (!w->find_affinity || json_object_get(w->parameters, "command"))
		return 0;
	if (sched_getaffinity(0, sizeof(w->found_cpus), &w->found_cpus))
		return 0; /* more than 1024 processors */
	w->affinity = w->find_affinity(w->parameters, json_object_get(w->job, "gang"), err);
	if (err->code)
		return err->code;
	if (w->measures)
		jm_record_set(w->record, "affinity", json_incref(w->affinity));
	return w->measures ? bind_to(w, jm_json_text(w->affinity, "sampler"), err) : 0;
}

/* Where this rank is to run; NULL = that is not said. */
static json_t *own_row(const struct jm__worker *w)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(w->affinity, "ranks"), i,
		row) if (json_integer_value(json_object_get(row, "rank")) == w->rank) return row;
	return NULL;
}

static const char *own_cpus(const struct jm__worker *w)
{
	return jm_json_text(own_row(w), "cpus");
}

static void note_unbound(struct jm__worker *w, json_t *row, const struct jm_err *why)
{
	json_object_set_new(row, "nodes", json_null());
	json_object_set_new(w->affinity, "reason", json_string(why->text));
}

/* The record is the measuring rank's: it tries the nodes of the other ranks of its host. */
static void note_others(struct jm__worker *w)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(w->affinity, "ranks"), i, row)
	{
		struct jm_err why = JM_ERR_INIT;
		const char *nodes = jm_json_text(row, "nodes");

		if (row != own_row(w) && *nodes && jm_memory_try(nodes, &why))
			note_unbound(w, row, &why);
	}
}

/* A default that is not possible, as in a container that forbids it, is only recorded. */
static int bind_memory(struct jm__worker *w, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	bool given = !strcmp(jm_json_text(w->affinity, "by"), "given");
	json_t *row = own_row(w);
	const char *nodes = jm_json_text(row, "nodes");

	if (w->measures && !given)
		note_others(w);
	if (!*nodes || !jm_memory_prefer(nodes, &why))
		return 0;
	if (given)
		return jm_err_set(err, why.code,
			"%s Give --affinity other nodes behind @, or none.", why.text);
	if (!w->measures)
		jm_log(w->ctx, JM_WARNING, "The memory of rank %d is not bound: %s", w->rank,
			why.text);
	note_unbound(w, row, &why);
	return 0;
}

int jm__worker_bind_work(struct jm__worker *w, struct jm_err *err)
{
	int rc = bind_to(w, own_cpus(w), err);

	return rc ? rc : bind_memory(w, err);
}

int jm__worker_sharing(const struct jm__worker *w)
{
	const char *own = own_cpus(w);
	const json_t *row;
	int n = 0;
	size_t i;

	if (!*own)
		return (int)json_integer_value(
			json_object_get(json_object_get(w->job, "gang"), "local"));
	json_array_foreach(json_object_get(w->affinity, "ranks"), i, row) n +=
		!strcmp(jm_json_text(row, "cpus"), own);
	return n;
}
