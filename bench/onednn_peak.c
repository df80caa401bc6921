/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the highest rate of oneDNN on this machine: one large matrix product on request, so that
 * bench/step.py can alternate.
 *
 *	onednn_peak PRECISION    f32 or bf16; OMP_NUM_THREADS threads
 *
 * Prints oneDNN's version and the size, then answers each line with the seconds and the FLOPs of a
 * product whose second operand has oneDNN's preferred layout.
 */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE 3072

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void check(dnnl_status_t status)
{
	if (status == dnnl_success)
		return;
	fprintf(stderr, "onednn_peak: oneDNN's status is %d.\n", (int)status);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dnnl_memory_desc_t matrix(dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	const dnnl_dims_t dims = {SIZE, SIZE};
	dnnl_memory_desc_t desc;

	check(dnnl_memory_desc_init_by_tag(&desc, 2, dims, type, tag));
	return desc;
}

/* Numbers of both signs and about one in size, as the type has them; padding stays 0. */
static dnnl_memory_t filled(const dnnl_memory_desc_t *desc)
{
	static const float values[] = {0.75f, -1.5f, 1.25f, -0.5f, 2, -1, 0.875f};
	size_t width = dnnl_data_type_size(desc->data_type);
	dnnl_memory_t memory;
	void *data;

	check(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE));
	check(dnnl_memory_get_data_handle(memory, &data));
	for (size_t i = 0; i < dnnl_memory_desc_get_size(desc) / width; i++) {
		const char *value = (const char *)&values[i * 2654435761u % 7];

		/* bf16 is the upper half of f32 */
		memcpy((char *)data + i * width, value + sizeof(float) - width, width);
	}
	return memory;
}

static dnnl_primitive_t product(dnnl_data_type_t type, dnnl_exec_arg_t ret_args[3])
{
	dnnl_memory_desc_t a = matrix(type, dnnl_ab), b = matrix(type, dnnl_format_tag_any);
	dnnl_memory_desc_t c = matrix(dnnl_f32, dnnl_ab);
	dnnl_matmul_desc_t desc;
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t primitive;

	check(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c));
	check(dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL));
	check(dnnl_primitive_create(&primitive, pd));
	b = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
	ret_args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, filled(&a)};
	ret_args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, filled(&b)};
	ret_args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, filled(&c)};
	check(dnnl_primitive_desc_destroy(pd));
	return primitive;
}

static double seconds_of(dnnl_primitive_t primitive, const dnnl_exec_arg_t *args)
{
	double start = now();

	check(dnnl_primitive_execute(primitive, stream, 3, args));
	check(dnnl_stream_wait(stream));
	return now() - start;
}

int main(int argc, char **argv)
{
	const dnnl_version_t *version = dnnl_version();
	dnnl_exec_arg_t args[3];
	dnnl_primitive_t primitive;
	char line[64];

	if (argc != 2 || (strcmp(argv[1], "f32") && strcmp(argv[1], "bf16"))) {
		fprintf(stderr, "usage: onednn_peak f32|bf16\n");
		return 2;
	}
	check(dnnl_engine_create(&engine, dnnl_cpu, 0));
	check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
	primitive = product(strcmp(argv[1], "f32") ? dnnl_bf16 : dnnl_f32, args);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("oneDNN %d.%d.%d %d\n", version->major, version->minor, version->patch, SIZE);
	while (fgets(line, sizeof(line), stdin))
		printf("%.6f %.0f\n", seconds_of(primitive, args), 2. * SIZE * SIZE * SIZE);
	for (int i = 0; i < 3; i++)
		check(dnnl_memory_destroy(args[i].memory));
	check(dnnl_primitive_destroy(primitive));
	check(dnnl_stream_destroy(stream));
	check(dnnl_engine_destroy(engine));
	return 0;
}
