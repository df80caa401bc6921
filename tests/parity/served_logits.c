/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves one request of bytes and writes the logits of all its positions; for comparison with other
 * programs.
 *
 *	served_logits DEVICE PRECISION FROM TEXT LOGITS [f8e4m3] [pieces]
 *
 * FROM: a folder with config.json and safetensors of a LLaMA. Each byte of TEXT is a token. LOGITS:
 * raw f64, a row for each. f8e4m3: keys and values are kept in that. pieces: not in a single step,
 * but in steps of 1 to 7 rows, whose last block computes 8 rows alone; all pages of the cache hold
 * NaN before.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/layer_pages.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/weights_load.h"

#define MOST  4096
#define PIECE 8 /* rows of a piece at most, and one more */

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

static void feed(struct jm_program *p, const char *name, const int32_t *values)
{
	check(jm_program_write(p, jm_graph_find(p->graph, name), values, &err));
}

/* The pages of a request in reverse order, the same for all requests. */
static void feed_pages(struct jm_program *p)
{
	const struct jm_tensor *t = jm_graph_find(p->graph, "page");
	int32_t *page = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		page[i] = (int32_t)(t->dim[1] - 1 - i % t->dim[1]);
	feed(p, "page", page);
	free(page);
}

static void fill_cache_with_nan(struct jm_program *p)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_tensor *t = &p->graph->cell[i]->t;
		void *data;

		if (t->class != JM_CLASS_STATE || t->rank != 4)
			continue;
		data = malloc(t->bytes);
		for (int64_t k = 0; k < jm_tensor_count(t); k++)
			jm_element_set(t->type, data, k, NAN);
		check(jm_program_write(p, t, data, &err));
		free(data);
	}
}

/* Appends the logits of the first `rows` rows. */
static void write_logits(struct jm_program *p, int rows, FILE *f)
{
	const struct jm_tensor *t = jm_graph_find(p->graph, "logits");
	char *data = malloc(t->bytes);

	check(jm_program_read(p, t, data, &err));
	for (int64_t i = 0; i < rows * jm_tensor_width(t); i++) {
		double x = jm_element_get(t->type, data, i);

		if (!fwrite(&x, sizeof(x), 1, f))
			exit(1);
	}
	free(data);
}

/* One step: `rows` rows of the text from `from` on; the others of the n rows are padding. */
static void serve(
	struct jm_program *p, const unsigned char *text, int from, int rows, int n, FILE *f)
{
	static int32_t ids[MOST], position[MOST], request[MOST], last[MOST];

	for (int i = 0; i < n; i++) {
		ids[i] = i < rows ? text[from + i] : 0;
		position[i] = i < rows ? from + i : -1;
		last[i] = i;
	}
	feed(p, "ids", ids);
	feed(p, "position", position);
	feed(p, "request", request);
	feed(p, "last", last);
	check(jm_program_run(p, &err));
	write_logits(p, rows, f);
}

/* A step of n rows, of which each of the first `requests` is the last of a request, which has no
 * other rows but for the first one. */
static struct jm_program *plan(const struct jm_training *t, int64_t n, int64_t requests,
	bool narrow_cache, struct jm_device *device)
{
	const struct jm_step_shape shape = {.tokens = n,
		.requests = requests,
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
	bool narrow = false, pieces = false;
	const struct jm_preset *preset;
	struct jm_training t = {.batch = 1};
	struct jm_values dims;
	struct jm_device device;
	struct jm_program *p;
	struct jm_graph *g;
	FILE *f;
	int n;

	for (int i = 6; i < argc; i++) {
		narrow |= !strcmp(argv[i], "f8e4m3");
		pieces |= !strcmp(argv[i], "pieces");
	}
	if (argc != 6 + narrow + pieces)
		return 2;
	f = open_file(argv[4], "rb");
	check(jm_precision_set(&t, argv[2], &err));
	check(jm_model_find("llama", &t.model, &preset, &err));
	check(jm_weights_dims(t.model, NULL, argv[3], NULL, &dims, &err));
	t.dims = &dims;
	t.pure = true;
	check(jm_device_open(argv[1], 1, &device, &err));
	n = (int)fread(text, 1, sizeof(text), f);
	fclose(f);
	p = plan(&t, n, pieces && n > PIECE ? PIECE : n, narrow, &device);
	g = p->graph;
	load(p, &t, argv[3]);
	feed_pages(p);
	if (pieces)
		fill_cache_with_nan(p);
	f = open_file(argv[5], "wb");
	for (int from = 0, rows, i = 0; from < n; from += rows, i++) {
		rows = pieces ? 1 + i * 3 % 7 : n;
		rows = rows < n - from ? rows : n - from;
		serve(p, text, from, rows, n, f);
	}
	if (fclose(f))
		return 1;
	jm_program_free(p);
	jm_graph_free(g);
	jm_device_close(&device);
	jm_values_done(&dims);
	return 0;
}
