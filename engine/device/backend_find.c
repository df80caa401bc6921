/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading backends. */
#include "backend_find.h"
#include "backend_clock.h"
#include "backend_events.h"
#include "backends/rows.h"
#include "base/files/plugin_file.h"
#include "base/option.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct jm_backend jm_backend_ref;

typedef const struct jm_backend *entry_fn(void);

/* Names become part of a path: letters, digits, '-' and '_' only. */
static bool name_good(const char *name)
{
	return *name && strlen(name) < 32 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(name);
}

static const struct jm_plugin_kind backends = {.title = "Backend",
	.entry = "jm_backend_entry",
	.folder = "backends",
	.variable = "JM_BACKENDS"};

/* The reason why this build has no such plug-in; NULL = it has it, or the name is unknown. */
static const char *reason_absent(const char *name)
{
	for (size_t i = 0; i < sizeof(backend_rows) / sizeof(*backend_rows); i++)
		if (!strcmp(backend_rows[i].name, name) && *backend_rows[i].absent)
			return backend_rows[i].absent;
	return NULL;
}

static int not_there(const char *name, char path[JM_PLUGIN_PATHS][4096], struct jm_err *err)
{
	const char *reason = reason_absent(name);

	if (reason)
		return jm_err_set(err, JM_ENOENT,
			"Device '%s' was not built: %s. Install what is missing and build "
			"joulemark again, or use --device ref.",
			name, reason);
	return jm_err_set(err, JM_ENOENT,
		"Device '%s' is not available: neither %s%s%s exists; build joulemark with this "
		"backend or use --device ref.",
		name, path[0], *path[0] ? " nor " : "", path[JM_PLUGIN_PATHS - 1]);
}

static int find_entry(const char *name, void **ret, struct jm_err *err)
{
	char path[JM_PLUGIN_PATHS][4096];
	int code = jm_plugin_entry(&backends, name, path, ret, err);

	return code || *ret ? code : not_there(name, path, err);
}

/* True if the optional parts that there are have all of their functions. */
static bool parts_whole(const struct jm_backend *b)
{
	const struct jm_backend_events *e = b->events;
	const struct jm_backend_clock *c = b->clock;

	if (e && !(e->create && e->record && e->follow && e->wait && e->query && e->seconds &&
			 e->drop))
		return false;
	return !b->pinned_alloc == !b->pinned_release && (!c || (c->stamp && c->read));
}

static int check_table(const char *name, const struct jm_backend *b, struct jm_err *err)
{
	if (b->abi != JM_BACKEND_ABI)
		return jm_err_set(err, JM_EVERSION,
			"Plug-in %s.so was built for version %u of the backend contract, and this "
			"joulemark needs version %d; build the plug-in from the sources of this "
			"joulemark, or use another --device.",
			name, b->abi, JM_BACKEND_ABI);
	if (!b->name || !b->summary || !b->open || !b->props || !b->select || !b->build ||
		!b->run || !b->drop || !b->alloc || !b->release || !b->copy || !b->sync ||
		!b->close)
		return jm_err_set(
			err, JM_EBUG, "Backend %s lacks a function that is required.", name);
	if (!parts_whole(b))
		return jm_err_set(err, JM_EBUG,
			"Backend %s has only some of the functions of pinned memory, of events or "
			"of its clock; it needs all of them or none.",
			name);
	if (b->clock && !b->pinned_alloc)
		return jm_err_set(
			err, JM_EBUG, "The backend %s has a clock without pinned memory.", name);
	return 0;
}

int jm__backend_find(const char *name, const struct jm_backend **ret, struct jm_err *err)
{
	entry_fn *entry;
	int code;

	if (!strcmp(name, jm_backend_ref.name)) {
		*ret = &jm_backend_ref;
		return 0;
	}
	if (!name_good(name))
		return jm_err_set(
			err, JM_EUSAGE, "'%s' is not the name of a device; try cpu or ref.", name);
	code = find_entry(name, (void **)&entry, err);
	if (code)
		return code;
	*ret = entry();
	if (!*ret)
		return jm_err_set(err, JM_EBUG, "Plug-in %s.so gave no backend.", name);
	return check_table(name, *ret, err);
}

int jm__backend_split(
	const char *text, char *ret_name, size_t size, int *ret_index, struct jm_err *err)
{
	const char *colon = strchr(text, ':');
	char *end = NULL;
	long index = colon ? strtol(colon + 1, &end, 10) : 0;
	size_t n = colon ? (size_t)(colon - text) : strlen(text);

	if ((colon && (!isdigit((unsigned char)colon[1]) || *end || index > 1023)) || n >= size)
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is not a device that computes; write cpu, ref, or a name and an "
			"index as in cuda:0.",
			text);
	memcpy(ret_name, text, n);
	ret_name[n] = 0;
	*ret_index = (int)index;
	return 0;
}

int jm_backend_check(const char *name, struct jm_err *err)
{
	const struct jm_backend *b;

	return jm__backend_find(name, &b, err);
}

const char *jm_backend_name(size_t i)
{
	const size_t n = sizeof(backend_rows) / sizeof(*backend_rows);

	if (i < n)
		return backend_rows[i].name;
	return i == n ? jm_backend_ref.name : NULL;
}

static int unknown(const char *name, struct jm_err *err)
{
	const char *names[sizeof(backend_rows) / sizeof(*backend_rows) + 1], *near;
	size_t n = 0;

	for (; jm_backend_name(n); n++)
		names[n] = jm_backend_name(n);
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_err_set(
			err, JM_EUSAGE, "There is no device '%s'; did you mean '%s'?", name, near);
	return jm_err_set(err, JM_EUSAGE,
		"There is no device '%s'; 'joulemark list' lists the backends.", name);
}

/* True if the source tree has a backend of this name, built or not. */
static bool is_known(const char *name)
{
	for (size_t i = 0; i < sizeof(backend_rows) / sizeof(*backend_rows); i++)
		if (!strcmp(backend_rows[i].name, name))
			return true;
	return false;
}

int jm_device_check(const char *text, struct jm_err *err)
{
	char name[64], path[JM_PLUGIN_PATHS][4096];
	int index, code = jm__backend_split(text, name, sizeof(name), &index, err);

	if (code || !strcmp(name, jm_backend_ref.name))
		return code;
	if (!name_good(name))
		return unknown(name, err);
	jm_plugin_paths(&backends, name, path);
	for (int i = 0; i < JM_PLUGIN_PATHS; i++)
		if (*path[i] && !access(path[i], F_OK))
			return 0;
	return is_known(name) ? not_there(name, path, err) : unknown(name, err);
}
