/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a plan: what includes what, and the platform. */
#include "plan_layers.h"
#include "base/text/yaml_file.h"
#include "plan_lookup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct jm__plan_loader *l)
{
	return jm_err_set(l->err, JM_ENOMEM, "Out of memory for the plan.");
}

static int keep_document(struct jm__plan_loader *l, struct jm_yaml_document *d)
{
	struct jm_yaml_document **grown =
		reallocarray(l->file.document, (size_t)l->file.n_documents + 1, sizeof(*grown));

	if (!grown) {
		jm_yaml_free(d);
		return no_memory(l);
	}
	l->file.document = grown;
	grown[l->file.n_documents++] = d;
	return 0;
}

static int add_layer(struct jm__plan_loader *l, const struct jm_yaml *map, const char *path)
{
	struct jm__plan_layer *layer = &l->layer[l->n_layers];

	if (map->kind != JM_YAML_MAP)
		return jm_yaml_fail(map, JM_EUSAGE, l->err,
			"A plan is a mapping of keys to values, such as 'work: resnet50'.");
	if (l->n_layers == JM__PLAN_LAYERS)
		return jm_yaml_fail(map, JM_ERANGE, l->err, "More than %d files are included.",
			JM__PLAN_LAYERS);
	*layer = (struct jm__plan_layer){.map = map,
		.path = path ? strdup(path) : NULL,
		.used = calloc((size_t)map->n + 1, sizeof(bool))};
	l->n_layers++;
	return layer->used && (layer->path || !path) ? 0 : no_memory(l);
}

/* Relative to the folder of the file that names it. */
static int path_beside(
	struct jm__plan_loader *l, const struct jm_yaml *name, char *out, size_t size)
{
	const char *slash = strrchr(name->file, '/');
	int n = *name->text == '/' || !slash
			? snprintf(out, size, "%s", name->text)
			: snprintf(out, size, "%.*s/%s", (int)(slash - name->file), name->file,
				  name->text);

	if (n < 0 || (size_t)n >= size)
		return jm_yaml_fail(name, JM_ERANGE, l->err, "The path of the file is too long.");
	return 0;
}

/* "a.yaml includes b.yaml includes a.yaml" */
static int fail_of_cycle(struct jm__plan_loader *l, const struct jm_yaml *from, const char *real)
{
	char text[360] = "";
	size_t used = 0;
	int first = 0;

	while (strcmp(l->open[first], real) != 0)
		first++;
	for (int i = first; i < l->depth && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s includes ",
			strrchr(l->open[i], '/') + 1);
	return jm_yaml_fail(from, JM_EUSAGE, l->err,
		"The files include one another: %s%s; remove one of these includes.", text,
		strrchr(real, '/') + 1);
}

static int load_layers(struct jm__plan_loader *l, const char *path, const struct jm_yaml *from);

static int load_included(struct jm__plan_loader *l, const struct jm_yaml *name)
{
	char path[PATH_MAX];
	int rc = jm__plan_scalar(name, "include", l->err);

	if (!rc)
		rc = path_beside(l, name, path, sizeof(path));
	return rc ? rc : load_layers(l, path, name);
}

/* The last one is the strongest. */
static int load_includes(struct jm__plan_loader *l, const struct jm_yaml *include)
{
	int rc = 0;

	if (!include || include->kind == JM_YAML_SCALAR)
		return include ? load_included(l, include) : 0;
	if (include->kind == JM_YAML_MAP)
		return jm__plan_scalar(include, "include", l->err);
	for (int i = include->n - 1; i >= 0 && !rc; i--)
		rc = load_included(l, include->item[i]);
	return rc;
}

static int load_one(struct jm__plan_loader *l, const char *path, const char *real)
{
	struct jm_yaml_document *d;
	const struct jm_yaml *root;
	int rc = jm_yaml_load(path, &d, l->err);

	if (!rc)
		rc = keep_document(l, d);
	if (rc)
		return rc;
	root = jm_yaml_root(d);
	rc = add_layer(l, root, real);
	if (!rc && !l->platform)
		l->platform = jm_yaml_get(root, "platform");
	return rc ? rc : load_includes(l, jm_yaml_get(root, "include"));
}

/* A file that is loaded already keeps its place if it is stronger there. */
static int load_layers(struct jm__plan_loader *l, const char *path, const struct jm_yaml *from)
{
	char real[PATH_MAX];
	int rc;

	if (!realpath(path, real))
		return from ? jm_yaml_fail(from, JM_ENOENT, l->err,
				      "There is no file %.300s; check the path.", path)
			    : jm_err_set(l->err, JM_ENOENT,
				      "There is no file %.400s; check the path.", path);
	for (int i = 0; i < l->depth; i++)
		if (!strcmp(l->open[i], real))
			return fail_of_cycle(l, from, real);
	for (int i = 0; i < l->n_layers; i++)
		if (l->layer[i].path && !strcmp(l->layer[i].path, real))
			return 0;
	if (l->depth == JM__PLAN_LAYERS)
		return jm_yaml_fail(from, JM_ERANGE, l->err,
			"More than %d files include one another.", JM__PLAN_LAYERS);
	l->open[l->depth++] = real;
	rc = load_one(l, path, real);
	l->depth--;
	return rc;
}

/* What only a plan may have. */
static int check_platform(struct jm__plan_loader *l, const struct jm_yaml *map)
{
	const struct jm_yaml *runs = jm_yaml_get(map, "runs");
	const struct jm_yaml *platform = jm_yaml_get(map, "platform");

	if (runs)
		return jm_yaml_fail(
			runs, JM_EUSAGE, l->err, "A platform file has no runs; only a plan has.");
	if (platform)
		return jm_yaml_fail(platform, JM_EUSAGE, l->err,
			"A platform file names no platform; only a plan does. Remove this key, or "
			"name the other file with 'include'.");
	return 0;
}

/* Is it the plan file itself? Its values apply already, as those of a plan. */
static bool is_plan(const struct jm__plan_loader *l, const char *path)
{
	char real[PATH_MAX];

	return realpath(path, real) && l->layer[l->first].path &&
	       !strcmp(l->layer[l->first].path, real);
}

static int load_named_platform(struct jm__plan_loader *l)
{
	char path[PATH_MAX];
	int rc = jm__plan_scalar(l->platform, "platform", l->err);

	if (!rc)
		rc = path_beside(l, l->platform, path, sizeof(path));
	if (!rc && is_plan(l, path))
		rc = jm_yaml_fail(l->platform, JM_EUSAGE, l->err,
			"A plan cannot be its own platform; name the file that describes a "
			"machine, or remove this key.");
	return rc ? rc : load_layers(l, path, l->platform);
}

static int load_platform(struct jm__plan_loader *l)
{
	int first = l->n_layers, rc = 0;

	if (l->o->platform && is_plan(l, l->o->platform))
		return jm_err_set(l->err, JM_EUSAGE,
			"--platform names the plan itself; name the file that describes a "
			"machine.");
	if (l->o->platform)
		rc = load_layers(l, l->o->platform, NULL);
	else if (l->platform)
		rc = load_named_platform(l);
	for (int i = first; i < l->n_layers && !rc; i++)
		rc = check_platform(l, l->layer[i].map);
	return rc;
}

/* Values of the command line are read as YAML, of which JSON is a part. */
static int load_over(struct jm__plan_loader *l)
{
	char *text = json_object_size(l->o->over) ? json_dumps(l->o->over, 0) : NULL;
	struct jm_yaml_document *d;
	int rc = 0;

	if (!text)
		return 0;
	rc = jm_yaml_parse(text, strlen(text), "command line", &d, l->err);
	if (!rc)
		rc = keep_document(l, d);
	if (!rc)
		rc = add_layer(l, jm_yaml_root(d), NULL);
	free(text);
	return rc;
}

int jm__plan_layers(struct jm__plan_loader *l, const char *path)
{
	int rc = load_over(l);

	l->first = l->n_layers;
	if (!rc)
		rc = load_layers(l, path, NULL);
	return rc ? rc : load_platform(l);
}

void jm__plan_layers_done(struct jm__plan_loader *l)
{
	for (int i = 0; i < l->n_layers; i++) {
		free(l->layer[i].path);
		free(l->layer[i].used);
	}
}
