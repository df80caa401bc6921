/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_config.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIMS_BYTES 1024

/* JSON of at most 1 MB, which must be an object. */
static int read_object(const char *file, json_t **ret, struct jm_err *err)
{
	static const off_t most = 1000000;
	json_error_t why = {.text = "it is no object"};
	struct stat st;
	json_t *json;
	FILE *f;

	/* opening a pipe would wait for its writer */
	if (!stat(file, &st) && (!S_ISREG(st.st_mode) || st.st_size > most))
		return jm_err_set(err, JM_EFORMAT,
			"%s is no regular file of at most 1 MB, so it describes no network; fetch "
			"it again.",
			file);
	f = fopen(file, "re");
	if (!f)
		return jm_err_set(err, JM_EPERM, "%s cannot be opened: %s.", file, strerror(errno));
	json = json_loadf(f, 0, &why);
	fclose(f);
	if (json_is_object(json)) {
		*ret = json;
		return 0;
	}
	json_decref(json);
	return jm_err_set(err, JM_EFORMAT,
		"%s is damaged: it is not a JSON object (%.100s); fetch it again.", file, why.text);
}

static bool is_same(const struct jm_value *a, const struct jm_value *b)
{
	return a->option->type == JM_INT || a->option->type == JM_REAL ? a->number == b->number
								       : !strcmp(a->text, b->text);
}

/* Is the network of the file that of the preset? */
static int check_preset(const struct jm_model *model, const struct jm_preset *preset,
	const char *file, const struct jm_values *found, struct jm_err *err)
{
	struct jm_values named;
	int code = jm_model_dims(model, preset, NULL, &named, err);

	if (code)
		return code;
	for (int i = 0; i < found->n && !code; i++) {
		const struct jm_value *a = &found->value[i], *b = &named.value[i];

		if (a->text && b->text && strcmp(a->option->name, "context") != 0 && !is_same(a, b))
			code = jm_err_set(err, JM_EUSAGE,
				"The network of %s has %s %s, but %s has %s; name the model %s "
				"instead, which takes its dimensions from the file.",
				file, a->option->name, a->text, preset->name, b->text, model->name);
	}
	jm_values_done(&named);
	return code;
}

/* "layers=12 hidden=768", as presets have it. */
static int write_dims(
	const struct jm_values *v, const char *file, char ret[DIMS_BYTES], struct jm_err *err)
{
	size_t n = 0;

	ret[0] = 0;
	for (int i = 0; i < v->n; i++)
		if (v->value[i].text && n < DIMS_BYTES)
			n += (size_t)snprintf(ret + n, DIMS_BYTES - n, "%s=%s ",
				v->value[i].option->name, v->value[i].text);
	return n < DIMS_BYTES
		       ? 0
		       : jm_err_set(err, JM_EBUG, "The dimensions of %s are too many.", file);
}

static int read_dims(const struct jm_model *model, const struct jm_preset *preset, const char *file,
	char ret[DIMS_BYTES], struct jm_err *err)
{
	struct jm_values v;
	json_t *config = NULL;
	int code = read_object(file, &config, err);

	if (code)
		return code;
	code = jm_values_init(&v, model->options, err);
	if (!code) {
		code = model->config(file, config, &v, err);
		if (!code && preset)
			code = check_preset(model, preset, file, &v, err);
		if (!code)
			code = write_dims(&v, file, ret, err);
		jm_values_done(&v);
	}
	json_decref(config);
	return code;
}

/* In place of the option that is missing: without a config.json the weights do not give it. */
static int no_config(const struct jm_model *model, const char *from, struct jm_err *err)
{
	*err = (struct jm_err)JM_ERR_INIT;
	if (access(from, F_OK) != 0)
		return jm_err_set(err, JM_ENOENT,
			"Weights %s cannot be opened: %s; check the path.", from, strerror(errno));
	return jm_err_set(err, JM_EUSAGE,
		"Weights %s have no config.json with the dimensions of model %s; name a folder "
		"that has one, a preset, or give all dimensions.",
		from, model->name);
}

int jm_weights_dims(const struct jm_model *model, const struct jm_preset *preset, const char *from,
	const struct jm_values *given, struct jm_values *ret, struct jm_err *err)
{
	char file[PATH_MAX], dims[DIMS_BYTES];
	struct jm_preset found = {.dims = dims};
	int code;

	if (!from || !model->config ||
		snprintf(file, sizeof(file), "%s/config.json", from) >= PATH_MAX ||
		access(file, F_OK) != 0) {
		code = jm_model_dims(model, preset, given, ret, err);
		return code && from && model->config && !preset ? no_config(model, from, err)
								: code;
	}
	code = read_dims(model, preset, file, dims, err);
	return code ? code : jm_model_dims(model, &found, given, ret, err);
}
