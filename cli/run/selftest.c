/* SPDX-License-Identifier: Apache-2.0 */
/* selftest: every op of a device against the reference. */
#include "cli/frame/cli.h"
#include "base/text/json.h"
#include "cli/frame/json_option.h"
#include "cli/frame/screen.h"
#include "engine/check/selftest.h"

#include <jansson.h>
#include <math.h>

#define NAME_COLUMN 36 /* the longest name of an operation */

struct rows {
	const struct jm_cli *cli;
	struct jm_selftest_request request; /* op: NULL = all ops */
	json_t *array;			    /* NULL: lines */
	int n, n_wrong;
};

static const struct jm_option options[] = {
	{.name = "device",
		JM_BIND(JM_TEXT, struct rows, request.device),
		.argument = "DEVICE",
		.fallback = "cpu",
		.help = "device to test: cpu, cuda:0"},
	{.name = "seed",
		JM_BIND(JM_INT, struct rows, request.seed),
		.argument = "N",
		.min = 0,
		.max = 1e9,
		.fallback = "1",
		.help = "seed of the random shapes and operands"},
	{.name = "op",
		JM_BIND(JM_TEXT, struct rows, request.op),
		.argument = "NAME",
		.help = "only operations whose name begins with NAME, with the shapes and operands "
			"that they have among all"},
	{.name = "exact",
		JM_BIND(JM_FLAG, struct rows, request.exact),
		.needs = "op",
		.help = "with --op, only the operation whose whole name is NAME"},
	JM_JSON_OPTION,
	{0},
};

static void print_row(const struct rows *rows, const struct jm_selftest_row *r)
{
	const struct jm_cli *cli = rows->cli;
	bool good = !r->n_wrong;

	if (!rows->n)
		fprintf(cli->out, "%-*s %6s %8s %8s\n", NAME_COLUMN, "op", "cases", "refused",
			"error");
	fprintf(cli->out, "%-*s %6d %8d %8.3f%s%s%s\n", NAME_COLUMN, r->name, r->n_cases,
		r->n_refused, r->worst, jm_screen_code(cli->colour, good ? JM_PLAIN : JM_RED),
		good ? "" : "  WRONG", jm_screen_code(cli->colour, JM_PLAIN));
	if (!good)
		fprintf(cli->out,
			"  The first of %d wrong cases: %s.\n"
			"  Repeat it with: joulemark selftest --device %s --seed %llu --op '%s' "
			"--exact\n",
			r->n_wrong, r->first_wrong, rows->request.device,
			(unsigned long long)rows->request.seed, r->name);
	fflush(cli->out);
}

static void tell(void *arg, const struct jm_selftest_row *r)
{
	struct rows *rows = arg;

	if (rows->array)
		json_array_append_new(
			rows->array, json_pack("{s:s, s:i, s:i, s:i, s:o, s:s?}", "op", r->name,
					     "cases", r->n_cases, "refused", r->n_refused, "wrong",
					     r->n_wrong, "error", jm_json_number(r->worst),
					     "first_wrong", r->n_wrong ? r->first_wrong : NULL));
	else
		print_row(rows, r);
	rows->n++;
	rows->n_wrong += r->n_wrong > 0;
}

static int run_selftest(struct jm_cli *cli)
{
	struct rows rows = {.cli = cli};
	int code;

	JM_FILL(&cli->values, &rows);
	if (!rows.request.op)
		rows.request.op = "";
	if (jm_json_wanted(cli))
		rows.array = json_array();
	code = jm_selftest(&rows.request, tell, &rows, &cli->err);
	if (!code && rows.array)
		code = jm_json_put(cli, json_incref(rows.array));
	json_decref(rows.array);
	if (code)
		return jm_cli_fail(cli);
	if (!cli->quiet && !rows.array)
		fprintf(cli->out, "%d of %d ops agree with ref on device %s\n",
			rows.n - rows.n_wrong, rows.n, rows.request.device);
	return rows.n_wrong ? 1 : 0;
}

const struct jm_command jm_command_selftest = {
	.name = "selftest",
	.summary = "compare every operation of a device with the reference",
	.usage = "[--device DEVICE] [--op NAME [--exact]] [--seed N] [--json[=FILE]]",
	.description =
		"Runs every operation that models are made of on the device and on the reference, "
		"in f32, bf16 and f16, products also in 8 bits and convolutions in tf32, with "
		"random operands on random shapes; activations, losses, norms and maxima also "
		"with infinities, NaN, very large and denormal numbers. The error is the largest "
		"difference of an "
		"element, as a multiple of the tolerance for rounding: above 1 the operation is "
		"wrong, and the types, shape and element of its first wrong case are shown. An "
		"operation that a device does not support is run in parts, or not at all.\n"
		"\n"
		"Exit status: 0 when all operations agree, 1 when one does not, 125 when the "
		"device cannot be used.",
	.example = "joulemark selftest --device cuda:0",
	.options = options,
	.run = run_selftest,
};
