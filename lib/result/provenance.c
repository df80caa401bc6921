/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Provenance from the files of Linux that every user may read. Drivers are the modules bound to
 * display controllers and accelerators on PCI; libraries are the shared objects mapped into this
 * process: no vendor is named here.
 */
#include "result/provenance.h"
#include "base/text/json.h"
#include "base/ctx.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* First line of root + path; NULL when it cannot be read. */
static char *read_line(const struct jm_ctx *ctx, const char *path)
{
	char full[PATH_MAX], *line = NULL;
	size_t size = 0;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", ctx->root, path);
	f = fopen(full, "re");
	if (!f)
		return NULL;
	if (getline(&line, &size, f) < 0) {
		free(line);
		line = NULL;
	} else {
		line[strcspn(line, "\n")] = '\0';
	}
	fclose(f);
	return line;
}

/* What follows "key" and its separator in a file of such lines: 'model name<tab>: X',
 * 'PRETTY_NAME="X"'. */
static json_t *keyed_text(const struct jm_ctx *ctx, const char *path, const char *key)
{
	char full[PATH_MAX], *line = NULL;
	size_t size = 0, n = strlen(key);
	json_t *found = NULL;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", ctx->root, path);
	f = fopen(full, "re");
	if (!f)
		return json_null();
	while (!found && getline(&line, &size, f) >= 0) {
		char *value = line + n;

		if (strncmp(line, key, n) != 0 || !strchr(" \t:=", *value))
			continue;
		value += strspn(value, " \t:=\"");
		value[strcspn(value, "\"\n")] = '\0';
		found = json_string(value);
	}
	free(line);
	fclose(f);
	return found ? found : json_null();
}

static json_t *one_line(const struct jm_ctx *ctx, const char *path)
{
	char *line = read_line(ctx, path);
	json_t *text = line ? json_string(line) : NULL;

	free(line);
	return text ? text : json_null();
}

static json_t *memory_bytes(const struct jm_ctx *ctx)
{
	json_t *text = keyed_text(ctx, "/proc/meminfo", "MemTotal");
	long long kib = json_is_string(text) ? strtoll(json_string_value(text), NULL, 10) : 0;

	json_decref(text);
	return kib > 0 ? json_integer(kib * 1024) : json_null();
}

/* NULL: nothing of it is known. */
static json_t *hardware(const struct jm_hardware *h)
{
	static const char *const keys[] = {
#define X(name, key, unit, meaning) key,
		JM_HARDWARE(X)
#undef X
	};
	json_t *json = json_object();

	for (int i = 0; i < JM_HW_COUNT; i++)
		if (h->value[i] > 0)
			json_object_set_new(json, keys[i], json_real(h->value[i]));
	if (json_object_size(json))
		return json;
	json_decref(json);
	return NULL;
}

static json_t *devices(const struct jm_meters *meters)
{
	json_t *list = json_array();

	for (int i = 0; meters && i < meters->n; i++) {
		const struct jm_meter *m = &meters->meter[i];
		bool seen = !m->device[0];

		for (int k = 0; k < i && !seen; k++)
			seen = !strcmp(meters->meter[k].device, m->device);
		if (!seen)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s, s:o*}", "id", m->device, "name",
					      m->label, "source", m->source, "hardware",
					      hardware(&m->hardware)));
	}
	return list;
}

static void put_version(const struct jm_ctx *ctx, const char *driver, json_t *drivers)
{
	char path[PATH_MAX], *version;

	snprintf(path, sizeof(path), "/sys/module/%.200s/version", driver);
	version = read_line(ctx, path);
	json_object_set_new(drivers, driver, version ? json_string(version) : json_null());
	free(version);
}

/* PCI classes 03 (display) and 12 (processing accelerator). */
static void add_driver(const struct jm_ctx *ctx, const char *slot, json_t *drivers)
{
	char path[PATH_MAX], target[PATH_MAX], *class;
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", slot);
	class = read_line(ctx, path);
	if (class && (!strncmp(class, "0x03", 4) || !strncmp(class, "0x12", 4))) {
		snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/driver", ctx->root, slot);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		name = strrchr(target, '/');
		if (name)
			put_version(ctx, name + 1, drivers);
	}
	free(class);
}

static json_t *drivers(const struct jm_ctx *ctx)
{
	json_t *all = json_object();
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", ctx->root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			add_driver(ctx, entry->d_name, all);
	if (dir)
		closedir(dir);
	return all;
}

/* "/usr/lib/libdnnl.so.2.6" is "libdnnl": "2.6"; a file without a version in its name is left
 * out. */
static void add_library(json_t *all, char *path)
{
	char *name = strrchr(path, '/'), *so;

	path[strcspn(path, "\n")] = '\0';
	so = name ? strstr(name, ".so.") : NULL;
	if (!so)
		return;
	*so = '\0';
	json_object_set_new(all, name + 1, json_string(so + 4));
}

static json_t *libraries(void)
{
	json_t *all = json_object();
	char *line = NULL;
	size_t size = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && getline(&line, &size, f) >= 0) {
		char *path = strchr(line, '/');

		if (path)
			add_library(all, path);
	}
	free(line);
	if (f)
		fclose(f);
	return all;
}

json_t *jm_provenance(const struct jm_ctx *ctx, const struct jm_meters *meters, struct jm_err *err)
{
	struct utsname name;
	json_t *p;

	uname(&name);
	p = json_object();
	jm_json_set_text(&p, "joulemark", JM_VERSION);
	jm_json_set_text(&p, "host", name.nodename);
	jm_json_set_text(&p, "kernel", name.release);
	jm_json_set(&p, "cpu", keyed_text(ctx, "/proc/cpuinfo", "model name"));
	jm_json_set_int(&p, "cores", sysconf(_SC_NPROCESSORS_ONLN));
	jm_json_set(&p, "memory_bytes", memory_bytes(ctx));
	jm_json_set(&p, "os", keyed_text(ctx, "/etc/os-release", "PRETTY_NAME"));
	jm_json_set(&p, "boot_id", one_line(ctx, "/proc/sys/kernel/random/boot_id"));
	jm_json_set(&p, "devices", devices(meters));
	jm_json_set(&p, "drivers", drivers(ctx));
	jm_json_set(&p, "libraries", libraries());
	if (!p)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the provenance of a record.");
	return p;
}
