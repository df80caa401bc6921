/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the energy of regions of a program.
 *
 *	cc regions.c $(pkg-config --cflags --libs joulemark) -o regions && ./regions [SOURCES]
 *
 * Prints the JSON of the meters for the region "work".
 */
#include <joulemark.h>

#include <stdio.h>
#include <stdlib.h>

static double work(long n)
{
	double sum = 0;

	for (long i = 1; i <= n; i++)
		sum += 1.0 / ((double)i * (double)i);
	return sum;
}

static int measure(struct jm_measurement *m, char **ret_text, struct jm_err *err)
{
	int phase = jm_measurement_begin(m, "work", err);
	double sum;
	int rc;

	if (phase < 0)
		return phase;
	sum = work(200 * 1000 * 1000);
	jm_measurement_credit(m, phase, 200e6);
	jm_measurement_end(m, phase);
	rc = jm_measurement_stop(m, err);
	fprintf(stderr, "sum %.9f\n", sum);
	return rc ? rc : jm_measurement_json(m, phase, ret_text, err);
}

int main(int argc, char **argv)
{
	struct jm_measurement *m = NULL;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx *ctx = NULL;
	char *text = NULL;
	int rc;

	rc = jm_ctx_new(&ctx, &err);
	if (!rc)
		rc = jm_measurement_start(ctx, argc > 1 ? argv[1] : NULL, 0, &m, &err);
	if (!rc)
		rc = measure(m, &text, &err);
	if (rc)
		fprintf(stderr, "regions: %s\n", err.text);
	else
		puts(text);
	free(text);
	jm_measurement_free(m);
	jm_ctx_free(ctx);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
