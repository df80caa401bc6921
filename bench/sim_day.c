/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A day of a simulated node at work: 100 readings a second of 8 GPUs with 11 signals each, through
 * the source's own interface in simulated time, without a sampler or a trace around it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/ctx.h"
#include "base/clock.h"
#include "sim/registers.h"
#include "../tests/kit/source_row.h"

extern const struct jm_source jm_source_sim;

#define READS (86400 * 100)

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* The day; returns the joules of GPU 0. */
static double pass_a_day(struct jm_ctx *ctx, struct jm_err *err)
{
	struct jm_sim_load load = {.response = 3, .seed = 1};
	struct jm_reading all[128];
	struct jm_meters set = {0};
	struct jm_sim_registers *registers = NULL;
	struct jm_sleeper sleeper;
	void *source = NULL;
	double before = 0;
	int rc = jm_source_open(&jm_source_sim, ctx, "h100x8", &set, &source, err);

	if (!rc)
		rc = jm_sim_registers_open(ctx, "h100x8", &registers, err);
	if (!rc)
		rc = jm_sim_registers_load(registers, &load, err);
	jm_sleeper_init(&sleeper, ctx->clock);
	for (int i = 0; !rc && i <= READS; i++) {
		jm_sleep_until(&sleeper, i * 10 * JM_MILLISECOND);
		rc = read_row(&jm_source_sim, source, all, err);
		if (!i)
			before = all[0].value;
	}
	jm_sleeper_done(&sleeper);
	jm_sim_registers_close(registers);
	jm_source_sim.close(source);
	jm_meters_done(&set);
	return rc ? 0 : all[0].value - before;
}

int main(void)
{
	char folder[] = "/tmp/joulemark-bench.XXXXXX", file[64];
	struct jm_err err = JM_ERR_INIT;
	struct rusage usage;
	struct jm_ctx ctx;
	double start, joules, took;

	if (!mkdtemp(folder) || setenv("JM_STATE", folder, 1) || jm_ctx_init(&ctx, &err))
		return 1;
	ctx.clock = jm_clock_new_simulated(0);
	start = seconds();
	joules = pass_a_day(&ctx, &err);
	took = seconds() - start;
	jm_clock_free(ctx.clock);
	snprintf(file, sizeof(file), "%s/sim/h100x8.knobs", folder);
	unlink(file);
	snprintf(file, sizeof(file), "%s/sim", folder);
	rmdir(file);
	rmdir(folder);
	if (err.code) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("a simulated day at 100 Hz x 8 GPUs: %.2f s, %.0f ns per GPU and reading, %ld KiB "
	       "resident\n",
		took, took / READS / 8 * 1e9, usage.ru_maxrss);
	printf("mean power of GPU 0 by its counter: %.2f W (cap 700 W)\n", joules / 86400);
	return 0;
}
