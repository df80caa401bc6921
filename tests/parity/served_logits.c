/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves one request of bytes in a single step and writes the logits of all its positions; for
 * comparison with other programs.
 *
 *	served_logits DEVICE PRECISION FROM TEXT LOGITS [f8e4m3]
 *
 * FROM: a folder with config.json and safetensors of a LLaMA. Each byte of TEXT is a token. LOGITS:
 * raw f64, a row for each. f8e4m3: keys and values are kept in that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/layer_pages.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/weights_load.h"

#define MOST 4096

static struct jm_err err;

static void check(int code)
{
	if (!code)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static FILE *open_file(const char *path, const char *mode)
{
	FILE *f = fopen(path, mode);

	if (f)
		return f;
	fprintf(stderr, "%s cannot be opened\n", path);
	exit(1);
}

/* values: NULL = 0, 1, 2 ... */
static void feed(struct jm_program *p, const char *name, const unsigned char *values)
{
	struct jm_tensor *t = jm_graph_find(p->graph, name);
	int32_t *data = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		data[i] = values ? values[i] : (int32_t)i;
	check(jm_program_write(p, t, data, &err));
	free(data);
}

static void write_logits(struct jm_program *p, const char *path)
{
	const struct jm_tensor *t = jm_graph_find(p->graph, "logits");
	char *data = malloc(t->bytes);
	FILE *f = open_file(path, "wb");

	check(jm_program_read(p, t, data, &err));
	for (int64_t i = 0; i < jm_tensor_count(t); i++) {
		double x = jm_element_get(t->type, data, i);

		fwrite(&x, sizeof(x), 1, f);
	}
	if (fclose(f))
		exit(1);
	free(data);
}

/* A step of n rows, of which each is the last of a request that has no other rows but for the first
 * one. */
static struct jm_program *plan(
	const struct jm_training *t, int64_t n, bool narrow_cache, struct jm_device *device)
{
	const struct jm_step_shape shape = {.tokens = n,
		.requests = n,
		.pages = (n + JM_PAGE_TOKENS - 1) / JM_PAGE_TOKENS,
		.pages_each = (n + JM_PAGE_TOKENS - 1) / JM_PAGE_TOKENS,
		.narrow_cache = narrow_cache,
		.keeps_logits = true};
	struct jm_program *p;
	struct jm_graph *g;

	check(jm_model_step(t, &shape, &g, &err));
	check(jm_program_plan(g, device, &p, &err));
	check(jm_program_build(p, &err));
	return p;
}

static void load(struct jm_program *p, const struct jm_training *t, const char *from)
{
	struct jm_weights_loaded found;
	struct jm_safetensors s = {0};

	check(jm_safetensors_open(from, &s, &err));
	check(jm_weights_load(p, (struct jm_network){t->model, t->dims}, &s, 1, &found, &err));
	jm_safetensors_close(&s);
}

int main(int argc, char **argv)
{
	static unsigned char text[MOST];
	static const unsigned char none[MOST];
	const struct jm_preset *preset;
	struct jm_training t = {.batch = 1};
	struct jm_values dims;
	struct jm_device device;
	struct jm_program *p;
	struct jm_graph *g;
	FILE *f;

	if (argc != 6 && (argc != 7 || strcmp(argv[6], "f8e4m3") != 0))
		return 2;
	f = open_file(argv[4], "rb");
	check(jm_precision_set(&t, argv[2], &err));
	check(jm_model_find("llama", &t.model, &preset, &err));
	check(jm_weights_dims(t.model, NULL, argv[3], NULL, &dims, &err));
	t.dims = &dims;
	t.pure = true;
	check(jm_device_open(argv[1], 1, &device, &err));
	p = plan(&t, (int64_t)fread(text, 1, sizeof(text), f), argc == 7, &device);
	fclose(f);
	g = p->graph;
	load(p, &t, argv[3]);
	feed(p, "ids", text);
	feed(p, "position", NULL);
	feed(p, "request", none);
	feed(p, "page", NULL);
	feed(p, "last", NULL);
	check(jm_program_run(p, &err));
	write_logits(p, argv[5]);
	jm_program_free(p);
	jm_graph_free(g);
	jm_device_close(&device);
	jm_values_done(&dims);
	return 0;
}
