/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"
#include "base/text/json.h"
#include "result/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_SHORT 16 /* the longest id of a device that is shown whole */
#define ID_SHOWN 12 /* of a longer one: "GPU-8f000000" */

size_t jm_machine_id_shown(const char *id)
{
	size_t n = strlen(id);

	return n > ID_SHORT ? ID_SHOWN : n;
}

enum listing {
	EACH,	 /* "H100, H100" */
	COUNTED, /* "2 x H100" */
	ONCE,	 /* "H100" */
};

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static char *join(const char **words, size_t n, enum listing how)
{
	char *text = NULL;
	size_t size = 0, run;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	qsort(words, n, sizeof(*words), compare_words);
	for (size_t i = 0; i < n; i += run) {
		for (run = 1; how != EACH && i + run < n && !strcmp(words[i], words[i + run]);)
			run++;
		if (how == COUNTED)
			fprintf(out, "%s%zu x %s", i ? ", " : "", run, words[i]);
		else
			fprintf(out, "%s%s", i ? ", " : "", words[i]);
	}
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* "GPU 3 NVIDIA H100": without the index, which is the node's. */
static const char *model_of(const char *name)
{
	const char *digits = !strncmp(name, "GPU ", 4) ? name + 4 : "";
	size_t n = strspn(digits, "0123456789");

	return n && digits[n] == ' ' ? digits + n + 1 : name;
}

/* Of a path its end, of a long id its beginning. Owned by the caller. */
static char *short_id(const char *id)
{
	const char *slash = strrchr(id, '/');

	return slash && slash[1] ? strdup(slash + 1) : strndup(id, jm_machine_id_shown(id));
}

/* In the order of the whole ids: "GPU-8f000000, GPU-9a000000". */
static char *shorten(const char *ids)
{
	char *copy = strdup(ids), *text = NULL, *rest = copy, *id;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	while (out && copy && rest && *rest) {
		char *end = strstr(rest, ", ");

		if (end)
			*end = '\0';
		id = short_id(rest);
		fprintf(out, "%s%s", rest == copy ? "" : ", ", id ? id : "");
		free(id);
		rest = end ? end + 2 : NULL;
	}
	free(copy);
	if (out && !fclose(out))
		return text;
	free(text);
	return NULL;
}

/* Of every device of the record its id (EACH), or its model; "" for a record that names none. */
static char *list_devices(const json_t *provenance, enum listing how)
{
	const json_t *devices = json_object_get(provenance, "devices"), *device;
	const char **words = calloc(json_array_size(devices) + 1, sizeof(*words));
	char *text;
	size_t i;

	if (!words)
		return NULL;
	json_array_foreach(devices, i, device)
	{
		words[i] = how == EACH ? jm_json_text(device, "id")
				       : model_of(jm_json_text(device, "name"));
	}
	text = join(words, json_array_size(devices), how);
	free(words);
	return text;
}

/* "node1", or "node1, node2" of a case that ran on both. */
static char *list_hosts(const json_t *record, const json_t *provenance)
{
	const json_t *hosts = json_object_get(record, "hosts"), *host;
	const char **words = calloc(json_array_size(hosts) + 1, sizeof(*words));
	char *text;
	size_t i;

	json_array_foreach(hosts, i, host) if (words) words[i] = jm_json_text(host, "name");
	text = words && provenance && json_array_size(hosts)
		       ? join(words, json_array_size(hosts), EACH)
		       : strdup(jm_json_text(provenance, "host"));
	free(words);
	return text;
}

static char *list_drivers(const json_t *provenance)
{
	json_t *drivers = json_object_get(provenance, "drivers"), *version;
	const char **words = calloc(json_object_size(drivers) + 1, sizeof(*words)), *name;
	char *text = NULL;
	size_t n = 0;
	bool whole = words != NULL;

	json_object_foreach(drivers, name, version)
	{
		const char *v = json_string_value(version);
		char *word = NULL;

		whole = whole && asprintf(&word, "%s%s%s", name, v ? " " : "", v ? v : "") >= 0;
		if (whole)
			words[n++] = word;
	}
	if (whole)
		text = join(words, n, EACH);
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)words[i]);
	free(words);
	return text;
}

int jm_machine_of(const json_t *record, struct jm_machine *ret)
{
	const json_t *provenance = json_object_get(record, "provenance");
	struct jm_machine m;
	bool whole;

	if (jm_metric_simulated(record))
		provenance = NULL;
	m.part[JM_MACHINE_HOST] = list_hosts(record, provenance);
	m.part[JM_MACHINE_DEVICES] = list_devices(provenance, EACH);
	m.part[JM_MACHINE_DRIVERS] = list_drivers(provenance);
	m.models = list_devices(provenance, COUNTED);
	m.kinds = list_devices(provenance, ONCE);
	m.ids = m.part[JM_MACHINE_DEVICES] ? shorten(m.part[JM_MACHINE_DEVICES]) : NULL;
	m.cpu = strdup(jm_json_text(provenance, "cpu"));
	whole = m.models && m.kinds && m.cpu && m.ids;
	for (int i = 0; i < JM_MACHINE_PARTS; i++)
		whole = whole && m.part[i];
	if (!whole) {
		jm_machine_done(&m);
		return -1;
	}
	*ret = m;
	return 0;
}

void jm_machine_done(struct jm_machine *machine)
{
	for (int i = 0; i < JM_MACHINE_PARTS; i++)
		free(machine->part[i]);
	free(machine->models);
	free(machine->kinds);
	free(machine->ids);
	free(machine->cpu);
	*machine = (struct jm_machine){.models = NULL};
}

static char *key_of(const char *host, const char *devices, const char *drivers)
{
	char *key = NULL;

	return asprintf(&key, "%s\n%s\n%s", host, devices, drivers) < 0 ? NULL : key;
}

char *jm_machine_key(const struct jm_machine *m, bool models)
{
	return key_of(models ? m->cpu : m->part[JM_MACHINE_HOST],
		models ? m->models : m->part[JM_MACHINE_DEVICES], m->part[JM_MACHINE_DRIVERS]);
}

char *jm_machine_kind(const struct jm_machine *m)
{
	return key_of(m->cpu, m->kinds, m->part[JM_MACHINE_DRIVERS]);
}
