/* SPDX-License-Identifier: Apache-2.0 */
/* The file's name is HOST-BOOT-PIDSPACE-PID-START.json, so that removing what a killed process left
 * never hits the file of a later process with the same id. */
#include "work_status.h"

#include "base/clock.h"
#include "base/text/json.h"
#include "base/files/private_file.h"
#include "base/process/process_identity.h"
#include "base/files/state_folder.h"
#include "base/printable.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FOLDER	 "running"
#define MAX_FILE 8192 /* bytes */
#define MAX_WORK 256  /* entries of a list */
#define FOREIGN	 (60 * JM_SECOND)

/* Which kernel's process ids they are. */
struct place {
	char host[65], boot[40];
	unsigned long long pid_space; /* inode of the namespace; 0 = unknown */
};

struct jm_work_writer {
	int folder;
	mode_t mode;
	char name[192];
	struct place place;
	struct jm_process process;
	int64_t started_ns, due_ns; /* due_ns: machine's clock */
};

/* ---- places and names ---- */

/* The place as part of a file's name: only characters that are allowed everywhere, without '-', the
 * separator. */
static struct place named(struct place p)
{
	for (char *host = p.host; *host; host++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._",
			    *host))
			*host = '_';
	return p;
}

static struct place own_place(void)
{
	struct place p = {{0}, {0}, 0};
	struct utsname machine;
	struct stat st;

	jm_process_boot("", p.boot, sizeof(p.boot));
	if (!uname(&machine))
		snprintf(p.host, sizeof(p.host), "%.64s", machine.nodename);
	if (!stat("/proc/self/ns/pid", &st))
		p.pid_space = st.st_ino;
	return p;
}

static bool same_kernel(const struct place *a, const struct place *b)
{
	return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot) &&
	       a->pid_space == b->pid_space;
}

static int64_t wall_now(void)
{
	return jm_clock_wall(jm_clock_real());
}

/* What a file's name says. */
struct name {
	char host[65], boot[9];
	unsigned long long pid_space;
	struct jm_process process; /* pid 0 = no name of a status */
	bool unfinished;	   /* a kill left it between writing and renaming */
};

static void make_name(
	const struct place *own, const struct jm_process *process, char *out, size_t n)
{
	struct place p = named(*own);

	snprintf(out, n, "%s-%.8s-%llu-%d-%llu.json", p.host, *p.boot ? p.boot : "0", p.pid_space,
		(int)process->pid, process->start);
}

static struct name parse_name(const char *text)
{
	struct name name = {{0}, {0}, 0, {0}, false};
	int pid = 0, end = 0;
	unsigned long long start = 0;

	if (sscanf(text, "%64[A-Za-z0-9._]-%8[0-9a-f]-%19llu-%9d-%19llu.json%n", name.host,
		    name.boot, &name.pid_space, &pid, &start, &end) != 5 ||
		!end || pid <= 0)
		return name;
	name.unfinished = !strcmp(text + end, ".new");
	if (!text[end] || name.unfinished)
		name.process = (struct jm_process){.pid = pid, .start = start};
	return name;
}

/* ---- writing ---- */

/* Root's may be read by all, as its settings may; any other user's by that user alone. */
static mode_t folder_mode(void)
{
	return geteuid() ? 0700 : 0755;
}

static void clean(int folder, const struct place *own);

struct jm_work_writer *jm_work_writer_new(const struct jm_ctx *ctx)
{
	struct jm_work_writer *w = calloc(1, sizeof(*w));
	char path[PATH_MAX];

	if (!w)
		return NULL;
	if (jm_state_folder(ctx, FOLDER, path, sizeof(path), NULL) ||
		jm_private_folder(path, folder_mode(), &w->folder, NULL)) {
		free(w);
		return NULL;
	}
	w->mode = geteuid() ? 0600 : 0644;
	w->place = own_place();
	w->process = jm_process_of(getpid());
	w->started_ns = wall_now();
	make_name(&w->place, &w->process, w->name, sizeof(w->name));
	clean(w->folder, &w->place);
	return w;
}

bool jm_work_writer_due(const struct jm_work_writer *w)
{
	return w && jm_clock_now(jm_clock_real()) >= w->due_ns;
}

static json_t *text_json(const char *text)
{
	char tame[300];

	snprintf(tame, sizeof(tame), "%s", text);
	jm_text_tame(tame);
	return json_string(tame);
}

static json_t *status_json(const struct jm_work_writer *w, const struct jm_work_status *s)
{
	json_t *json = json_object();

	jm_json_set_text(&json, "host", w->place.host);
	jm_json_set_text(&json, "boot", w->place.boot);
	jm_json_set_int(&json, "pid_space", w->place.pid_space);
	jm_json_set_int(&json, "pid", w->process.pid);
	jm_json_set_int(&json, "start", w->process.start);
	jm_json_set_int(&json, "started_ns", w->started_ns);
	jm_json_set_int(&json, "written_ns", wall_now());
	jm_json_set(&json, "command", text_json(s->command));
	jm_json_set(&json, "work", text_json(s->work));
	jm_json_set(&json, "phase", text_json(s->phase));
	jm_json_set(&json, "store", text_json(s->store));
	jm_json_set_int(&json, "number", s->number);
	jm_json_set_int(&json, "total", s->total);
	jm_json_set_int(&json, "failed", s->failed);
	jm_json_set_number(&json, "share", s->share);
	jm_json_set_number(&json, "items_per_s", s->items_per_s);
	jm_json_set_number(&json, "watts", s->watts);
	jm_json_set_number(&json, "joules", s->joules);
	jm_json_set_number(&json, "left_s", s->left_s);
	jm_json_set_text(&json, "origin", jm_origin_name(s->origin));
	jm_json_set(&json, "unit", text_json(s->unit));
	return json;
}

void jm_work_writer_put(struct jm_work_writer *w, const struct jm_work_status *status)
{
	json_t *json;
	char *text;

	if (!w)
		return;
	w->due_ns = jm_clock_now(jm_clock_real()) + JM_SECOND;
	json = status_json(w, status);
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	if (text)
		jm_private_publish(w->folder, w->name, text, strlen(text), w->mode, NULL);
	free(text);
	json_decref(json);
}

void jm_work_writer_free(struct jm_work_writer *w)
{
	if (!w)
		return;
	unlinkat(w->folder, w->name, 0);
	close(w->folder);
	free(w);
}

/* ---- reading ---- */

static void take_text(const json_t *json, const char *key, char *out, size_t size)
{
	const char *text = jm_json_text(json, key);

	snprintf(out, size, "%s", text);
	if (strlen(text) >= size)
		jm_text_shorten(out, size);
	jm_text_tame(out);
}

static int take_count(const json_t *json, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(json, key));

	return n < 0 || n > INT_MAX ? 0 : (int)n;
}

/* ns since 1970; 0 = unknown */
static int64_t take_time(const json_t *json, const char *key)
{
	json_int_t t = json_integer_value(json_object_get(json, key));

	return t > 0 ? t : 0;
}

/* Not negative, or unknown. */
static double take_amount(const json_t *json, const char *key)
{
	double value = jm_json_real_of(json, key);

	return value >= 0 ? value : NAN;
}

static enum jm_origin take_origin(const json_t *json)
{
	const char *name = jm_json_text(json, "origin");

	for (int i = 0; i < JM_ORIGIN_COUNT; i++)
		if (!strcmp(name, jm_origin_name((enum jm_origin)i)))
			return (enum jm_origin)i;
	return JM_ESTIMATED; /* an unknown word is no claim of a measurement */
}

static struct jm_work_status take_status(const json_t *json)
{
	struct jm_work_status s = {
		.number = take_count(json, "number"),
		.total = take_count(json, "total"),
		.failed = take_count(json, "failed"),
		.share = take_amount(json, "share"),
		.items_per_s = take_amount(json, "items_per_s"),
		.watts = take_amount(json, "watts"),
		.joules = take_amount(json, "joules"),
		.left_s = take_amount(json, "left_s"),
		.origin = take_origin(json),
		.pid = take_count(json, "pid"),
		.started_ns = take_time(json, "started_ns"),
		.written_ns = take_time(json, "written_ns"),
	};

	take_text(json, "command", s.command, sizeof(s.command));
	take_text(json, "work", s.work, sizeof(s.work));
	take_text(json, "phase", s.phase, sizeof(s.phase));
	take_text(json, "store", s.store, sizeof(s.store));
	take_text(json, "host", s.host, sizeof(s.host));
	take_text(json, "unit", s.unit, sizeof(s.unit));
	return s;
}

static struct place take_place(const json_t *json)
{
	struct place p = {{0}, {0}, 0};

	take_text(json, "host", p.host, sizeof(p.host));
	take_text(json, "boot", p.boot, sizeof(p.boot));
	p.pid_space = (unsigned long long)json_integer_value(json_object_get(json, "pid_space"));
	return p;
}

/* Of work on another kernel only the time of its last write is known; work of an earlier boot of
 * this host has ended. */
static bool runs(const json_t *json, const struct jm_work_status *s, const struct place *own)
{
	struct place place = take_place(json);
	struct jm_process process = {.pid = s->pid,
		.start = (unsigned long long)json_integer_value(json_object_get(json, "start"))};
	int64_t now = wall_now();

	if (same_kernel(own, &place))
		return process.pid > 0 && jm_process_runs(&process);
	if (!strcmp(own->host, place.host) && strcmp(own->boot, place.boot) != 0)
		return false;
	return s->written_ns <= now && s->written_ns > now - FOREIGN;
}

static void note_unreadable(struct jm_work_list *list, const char *name, const char *why)
{
	if (!list->n_unreadable++)
		snprintf(list->why, sizeof(list->why), "%.100s: %.180s", name, why);
	jm_text_tame(list->why);
}

static json_t *load(int folder, const char *name, struct jm_err *err)
{
	char *text = NULL;
	json_t *json;
	size_t n;

	if (jm_private_read(folder, name, MAX_FILE, &text, &n, err))
		return NULL;
	json = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	free(text);
	if (!json_is_object(json)) {
		json_decref(json);
		jm_err_set(err, JM_EFORMAT, "it holds no status that joulemark wrote.");
		return NULL;
	}
	return json;
}

static int add(struct jm_work_list *list, const struct jm_work_status *s)
{
	struct jm_work_status *grown =
		reallocarray(list->work, (size_t)list->n + 1, sizeof(*grown));

	if (!grown)
		return JM_ENOMEM;
	list->work = grown;
	grown[list->n++] = *s;
	return 0;
}

/* One that ended between listing and reading is no error. */
static int take_file(
	struct jm_work_list *list, int folder, const char *name, const struct place *own)
{
	struct jm_err why = JM_ERR_INIT;
	json_t *json = load(folder, name, &why);
	struct jm_work_status s;
	int rc = 0;

	if (!json && why.code != JM_ENOENT)
		note_unreadable(list, name, why.text);
	if (!json)
		return 0;
	s = take_status(json);
	if (runs(json, &s, own))
		rc = add(list, &s);
	json_decref(json);
	return rc;
}

static int take_folder(struct jm_work_list *list, int folder, const struct place *own)
{
	DIR *dir = jm_private_list(folder);
	const struct dirent *e;
	int rc = 0;

	while (dir && !rc && list->n < MAX_WORK && (e = readdir(dir))) {
		struct name name = parse_name(e->d_name);

		if (name.process.pid && !name.unfinished)
			rc = take_file(list, folder, e->d_name, own);
	}
	if (dir)
		closedir(dir);
	return rc;
}

/* Decides by the name alone, so that a damaged file is removed, too. An earlier boot of this host
 * is over; of another host, or of a container with its own process ids, nothing is known. own: as
 * in names of files. */
static bool is_leftover(const struct name *name, const struct place *own)
{
	if (!name->process.pid || strcmp(name->host, own->host) != 0 || !*own->boot)
		return false;
	if (strncmp(name->boot, own->boot, 8) != 0)
		return true;
	return name->pid_space == own->pid_space && name->process.pid != getpid() &&
	       !jm_process_runs(&name->process);
}

static void clean(int folder, const struct place *own)
{
	const struct place in_names = named(*own);
	DIR *dir = jm_private_list(folder);
	const struct dirent *e;

	while (dir && (e = readdir(dir))) {
		struct name name = parse_name(e->d_name);

		if (is_leftover(&name, &in_names))
			unlinkat(folder, e->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

static int read_own(const struct jm_ctx *ctx, const struct place *here, struct jm_work_list *list,
	struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	char path[PATH_MAX];
	int fd, rc = jm_state_path(ctx, FOLDER, path, sizeof(path), err);
	bool own;

	if (rc)
		return rc;
	own = !jm_private_folder(path, folder_mode(), &fd, &why);
	if (why.code == JM_ENOENT || (!own && jm_public_folder(path, &fd, NULL)))
		return 0; /* no joulemark ever ran here, or the folder is not readable */
	if (own)
		clean(fd, here);
	rc = take_folder(list, fd, here);
	close(fd);
	return rc;
}

static int read_root(const struct jm_ctx *ctx, const struct place *here, struct jm_work_list *list)
{
	char path[PATH_MAX];
	int fd, rc;

	if (!jm_state_path_of_root(ctx, FOLDER, path, sizeof(path)) ||
		jm_public_folder(path, &fd, NULL))
		return 0;
	rc = take_folder(list, fd, here);
	close(fd);
	return rc;
}

static int by_start(const void *a, const void *b)
{
	const struct jm_work_status *x = a, *y = b;

	return (x->started_ns > y->started_ns) - (x->started_ns < y->started_ns);
}

int jm_work_list_read(const struct jm_ctx *ctx, struct jm_work_list *ret, struct jm_err *err)
{
	const struct place here = own_place();
	struct jm_work_list list = {0};
	int rc = read_own(ctx, &here, &list, err);

	if (!rc)
		rc = read_root(ctx, &here, &list);
	if (rc) {
		jm_work_list_done(&list);
		return err && err->code ? rc
					: jm_err_set(err, rc, "Out of memory for running work.");
	}
	if (list.n)
		qsort(list.work, (size_t)list.n, sizeof(*list.work), by_start);
	*ret = list;
	return 0;
}

void jm_work_list_done(struct jm_work_list *list)
{
	free(list->work);
	*list = (struct jm_work_list){0};
}
