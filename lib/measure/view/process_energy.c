/* SPDX-License-Identifier: Apache-2.0 */
#include "process_energy.h"
#include "measure/command/own_process.h"
#include "measure/command/processor_share.h"
#include "measure/session/session_private.h"

#include "base/process/process_identity.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK                                                                                       \
	(JM_SECOND - 50 * JM_MILLISECOND) /* a clock that is a little early is no reason to wait */
#define USES 256			  /* of one GPU */

struct process {
	struct jm_process_row row;
	unsigned long long
		start; /* clock ticks since the machine's start, so that an id is not taken for another */
	double cpu_s; /* processor time so far */
	bool metered; /* a meter reads something that it uses: its joules are not unknown */
};

struct list {
	struct process *process;
	int n, room;
};

struct uses {
	struct jm_device_use row[USES];
	int n;
};

struct jm_process_energy {
	struct jm_ctx *ctx;
	struct jm_session *session;
	struct jm_running *running;
	bool own_ids;	   /* the ids that drivers report are ours */
	int64_t looked_ns; /* 0 = not yet */
	double machine_s;  /* jm_machine_cpu_s at the look before */
	struct list before, now;
	struct jm_process_row *rows;
	char note[300];
	double joules[]; /* of each meter at the look before */
};

/* ---- the processes of the machine ---- */

static struct process *add(struct list *list, pid_t pid)
{
	if (list->n == list->room) {
		int room = list->room ? 2 * list->room : 256;
		struct process *more = reallocarray(list->process, (size_t)room, sizeof(*more));

		if (!more)
			return NULL;
		list->process = more;
		list->room = room;
	}
	list->process[list->n] = (struct process){
		.row = {.pid = pid, .processors = NAN, .use = NAN, .bytes = NAN, .device = -1}};
	return &list->process[list->n++];
}

/* false = it has ended. */
static bool read_times(const char *root, pid_t pid, struct process *ret)
{
	struct jm_process_times times;

	if (!jm_process_times(root, pid, &times))
		return false;
	snprintf(ret->row.name, sizeof(ret->row.name), "%s", times.name);
	ret->start = times.start;
	ret->cpu_s = times.cpu_s;
	return true;
}

static int by_id(const void *a, const void *b)
{
	const struct jm_process_row *x = &((const struct process *)a)->row,
				    *y = &((const struct process *)b)->row;

	if (x->outside != y->outside)
		return x->outside - y->outside;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static struct process *find(const struct list *list, pid_t pid, bool outside)
{
	struct process key = {.row = {.pid = pid, .outside = outside}};

	if (!list->n)
		return NULL;
	return bsearch(&key, list->process, (size_t)list->n, sizeof(key), by_id);
}

static int read_processes(struct jm_process_energy *p, struct jm_err *err)
{
	const char *root = p->ctx->root;
	struct dirent *entry;
	char path[300];
	int rc = 0;
	DIR *dir;

	p->now.n = 0;
	snprintf(path, sizeof(path), "%s/proc", root);
	dir = opendir(path);
	while (!rc && dir && (entry = readdir(dir))) {
		struct process *new;

		if (!isdigit((unsigned char)*entry->d_name))
			continue;
		new = add(&p->now, (pid_t)strtol(entry->d_name, NULL, 10));
		if (!new)
			rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the processes.");
		else if (!read_times(root, new->row.pid, new))
			p->now.n--;
	}
	if (dir)
		closedir(dir);
	if (p->now.n)
		qsort(p->now.process, (size_t)p->now.n, sizeof(struct process), by_id);
	return rc;
}

/* ---- division ---- */

/* Energy of this meter since the look before; NAN = unknown. */
static double joules_since(struct jm_process_energy *p, int meter)
{
	double now = jm_running_of(p->running, meter).joules, before = p->joules[meter];

	p->joules[meter] = isnan(now) ? 0 : now; /* NAN: it had no reading yet */
	return now - before;
}

/* Of all processor packages; *ret_any: a meter reads them. */
static double processor_joules(struct jm_process_energy *p, bool *ret_any)
{
	const struct jm_meters *set = jm_session_meters(p->session);
	double joules = 0;

	*ret_any = false;
	for (int i = 0; i < set->n; i++)
		if (jm_is_processor(set, i)) {
			joules += joules_since(p, i);
			*ret_any = true;
		}
	return joules;
}

/* The share of a process in the time of all, NAN = that is not known. Both are in ticks of 10 ms: a
 * little more than all is all. */
static double share_of(double own_s, double all_s)
{
	return own_s > all_s ? 1 : own_s / all_s;
}

/* A process that was not there at the look before has begun since then, with all of its processor
 * time. */
static void divide_processors(struct jm_process_energy *p, double seconds)
{
	bool any;
	double joules = processor_joules(p, &any), machine_s = jm_machine_cpu_s(p->ctx),
	       all_s = machine_s - p->machine_s;

	for (int i = 0; i < p->now.n; i++) {
		struct process *now = &p->now.process[i],
			       *before = find(&p->before, now->row.pid, false);
		bool same = before && before->start == now->start;
		double own_s = now->cpu_s - (same ? before->cpu_s : 0);

		now->row.joules = same ? before->row.joules : 0;
		now->metered = any || (same && before->metered);
		if (!p->looked_ns)
			continue;
		now->row.processors = own_s / seconds;
		if (own_s > 0)
			now->row.joules += joules * share_of(own_s, all_s);
	}
	p->machine_s = machine_s;
}

static void take(void *arg, const struct jm_device_use *use)
{
	struct uses *uses = arg;

	if (uses->n < USES)
		uses->row[uses->n++] = *use;
}

/* Of an instance (MIG) only the whole use is known, so that of its process is where there is
 * one. */
static double use_of(const struct uses *uses, const struct jm_device_use *row)
{
	double whole = NAN;
	int n = 0;

	if (row->instance < 0)
		return row->use;
	for (int i = 0; i < uses->n; i++) {
		if (uses->row[i].instance != row->instance)
			continue;
		if (uses->row[i].pid)
			n++;
		else
			whole = uses->row[i].use;
	}
	return n == 1 ? whole : NAN;
}

/* Unknown values are left out, unless there is no other. */
static double add_known(double sum, double value)
{
	return isnan(sum) ? value : isnan(value) ? sum : sum + value;
}

/* The process of a row; NULL without memory or where it has ended. An id of another namespace is
 * not looked up in ours. */
static struct process *user_of(struct jm_process_energy *p, pid_t pid)
{
	struct process *user = find(&p->now, pid, !p->own_ids);
	const struct process *before;

	if (user || p->own_ids)
		return user;
	user = add(&p->now, pid);
	if (!user)
		return NULL;
	user->row.outside = true;
	before = find(&p->before, pid, true);
	if (before)
		user->row.joules = before->row.joules;
	qsort(p->now.process, (size_t)p->now.n, sizeof(*user), by_id);
	return find(&p->now, pid, true);
}

static void divide_device(struct jm_process_energy *p, int meter, const struct uses *uses)
{
	double joules = joules_since(p, meter), all = 0;

	for (int i = 0; i < uses->n; i++)
		if (uses->row[i].instance < 0 || !uses->row[i].pid)
			all += uses->row[i].use;
	for (int i = 0; i < uses->n; i++) {
		const struct jm_device_use *row = &uses->row[i];
		struct process *user = row->pid ? user_of(p, row->pid) : NULL;
		double use = use_of(uses, row);

		if (!user)
			continue;
		if (user->row.device != meter)
			user->row.n_devices++;
		if (user->row.device < 0)
			user->row.device = meter;
		user->metered = true;
		user->row.use = add_known(user->row.use, use);
		user->row.bytes = add_known(user->row.bytes, row->bytes);
		if (p->looked_ns && use != 0)
			user->row.joules += joules * use / all;
	}
}

/* The energy of unused time belongs to no process. */
static void divide_devices(struct jm_process_energy *p)
{
	const struct jm_meters *set = jm_session_meters(p->session);

	for (int i = 0; i < p->session->n_sources; i++) {
		struct jm_open_source *open = &p->session->source[i];

		for (int meter = 0; open->source->uses && meter < set->n; meter++) {
			struct jm_err err = JM_ERR_INIT;
			struct uses uses = {.n = 0};
			int rc = JM_ENOENT;

			if (set->meter[meter].scope == JM_SCOPE_GPU)
				rc = jm__source_uses(open->source, open->state, &open->uses_left,
					meter, take, &uses, &err);
			if (!rc)
				divide_device(p, meter, &uses);
			else if (rc != JM_ENOENT && !*p->note)
				snprintf(p->note, sizeof(p->note), "%s: %.200s",
					set->meter[meter].label, err.text);
		}
	}
}

/* ---- looks ---- */

static int copy_rows(struct jm_process_energy *p, struct jm_err *err)
{
	free(p->rows);
	p->rows = calloc((size_t)p->now.n + 1, sizeof(*p->rows));
	if (!p->rows)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the processes.");
	for (int i = 0; i < p->now.n; i++) {
		p->rows[i] = p->now.process[i].row;
		if (!p->now.process[i].metered)
			p->rows[i].joules = NAN;
	}
	return 0;
}

int jm_process_energy_look(struct jm_process_energy *p, struct jm_err *err)
{
	int64_t now = jm_ctx_now(p->ctx);
	struct list before = p->before;
	int rc;

	if (p->looked_ns && now - p->looked_ns < LOOK)
		return 0;
	p->before = p->now;
	p->now = before;
	*p->note = '\0';
	rc = read_processes(p, err);
	if (rc)
		return rc;
	divide_processors(p, (double)(now - p->looked_ns) * 1e-9);
	divide_devices(p);
	p->looked_ns = now;
	return copy_rows(p, err);
}

int jm_process_energy_new(struct jm_ctx *ctx, struct jm_session *s, struct jm_running *running,
	struct jm_process_energy **ret, struct jm_err *err)
{
	int n = jm_session_meters(s)->n;
	struct jm_process_energy *p = calloc(1, sizeof(*p) + (size_t)n * sizeof(p->joules[0]));

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d meters.", n);
	p->ctx = ctx;
	p->session = s;
	p->running = running;
	p->own_ids = jm_own_process_ids(ctx);
	*ret = p;
	return 0;
}

const struct jm_process_row *jm_process_energy_rows(const struct jm_process_energy *p, int *ret_n)
{
	*ret_n = p->rows ? p->now.n : 0;
	return p->rows;
}

const char *jm_process_energy_note(const struct jm_process_energy *p)
{
	return p->note;
}

void jm_process_energy_free(struct jm_process_energy *p)
{
	if (!p)
		return;
	free(p->before.process);
	free(p->now.process);
	free(p->rows);
	free(p);
}
