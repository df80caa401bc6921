/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and reads the source nvml on the fake library. To be included by one file of a program. */
#ifndef JM_TEST_NVML_CASE_H
#define JM_TEST_NVML_CASE_H

#include "base/ctx.h"
#include "source_row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UUID0 "GPU-00000000-fa4e-4000-8000-000000000000"
#define UUID1 "GPU-10000001-fa4e-4000-8000-000000000001"
#define MAX   128
/* in double: cmocka compares floats */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

struct fixture {
	struct jm_ctx ctx;
	struct jm_meters set;
	void *state;
	struct jm_reading r[MAX];
	char log[1024];
};

static inline void keep_log(void *arg, enum jm_level level, const char *line)
{
	struct fixture *f = arg;

	(void)level;
	strncat(f->log, line, sizeof(f->log) - strlen(f->log) - 1);
}

static inline void use_library(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/peers/%s.so", getenv("JM_BUILD"), name);
	setenv("JM_NVML_LIB", path, 1);
}

static inline int setup(void **state)
{
	static const char *const variables[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
		"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "NVIDIA_VISIBLE_DEVICES"};
	struct fixture *f = calloc(1, sizeof(*f));

	jm_ctx_init(&f->ctx, NULL);
	f->ctx.log = keep_log;
	f->ctx.log_arg = f;
	use_library("libnvidia-ml-fake");
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->state)
		jm_source_find("nvml", NULL)->close(f->state);
	jm_meters_done(&f->set);
	free(f);
	return 0;
}

static inline int open_nvml(
	struct fixture *f, const char *config, const char *arg, struct jm_err *err)
{
	const struct jm_source *nvml = jm_source_find("nvml", NULL);

	assert_non_null(nvml);
	setenv("JM_FAKE_NVML", config, 1);
	return jm_source_open(nvml, &f->ctx, arg, &f->set, &f->state, err);
}

static inline void read_nvml(struct fixture *f)
{
	assert_int_equal(read_row(jm_source_find("nvml", NULL), f->state, f->r, NULL), 0);
}

static inline struct jm_reading reading(struct fixture *f, int meter, enum jm_quantity quantity)
{
	int i = jm_meter_signal(&f->set, meter, quantity);

	assert_in_range(i, 0, MAX - 1);
	return f->r[i];
}

static inline void close_nvml(struct fixture *f)
{
	jm_source_find("nvml", NULL)->close(f->state);
	f->state = NULL;
	jm_meters_done(&f->set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
