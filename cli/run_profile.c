/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of a run as a table: which kinds of node take the time, and how near the roofline they are. */
#include "run_parts.h"

#include <math.h>
#include <stdio.h>

#define MOST_LINES 24
#define NAME_WIDTH 44

static double number(const json_t *line, const char *key)
{
	const json_t *value = json_object_get(line, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Right-aligned in its column; a dash where it is unknown. */
static void print_number(FILE *out, int width, double x, const char *format)
{
	char text[32] = "-";

	if (isfinite(x))
		snprintf(text, sizeof(text),
			*format == '1'	 ? "%.1f"
			: *format == '3' ? "%.3f"
					 : "%.0f",
			x);
	fprintf(out, " %*s", width, text);
}

static void print_line(FILE *out, const json_t *line, bool energy)
{
	fprintf(out, "%-*.*s", NAME_WIDTH, NAME_WIDTH,
		json_string_value(json_object_get(line, "name")));
	print_number(out, 6, number(line, "calls"), "0");
	print_number(out, 10, 1e3 * number(line, "seconds"), "3");
	print_number(out, 6, 100 * number(line, "share"), "1");
	print_number(out, 9, number(line, "flops_per_s") / 1e9, "1");
	print_number(out, 7, number(line, "bytes_per_s") / 1e9, "1");
	print_number(out, 9, 100 * number(line, "roofline"), "1");
	if (energy)
		print_number(out, 9, number(line, "joules_model"), "1");
	fputc('\n', out);
}

static void print_profile(FILE *out, const json_t *record, const json_t *profile)
{
	const json_t *kinds = json_object_get(profile, "kinds"), *line;
	const json_t *energy = json_object_get(profile, "energy");
	size_t i;

	fprintf(out, "\nWhere a step of %.8s goes (%.1f ms, waited for after each node):\n",
		json_is_string(json_object_get(record, "id"))
			? json_string_value(json_object_get(record, "id"))
			: "the run",
		1e3 * number(profile, "step_s"));
	fprintf(out, "%-*s %6s %10s %6s %9s %7s %9s%s\n", NAME_WIDTH, "node", "calls", "ms", "%",
		"GFLOP/s", "GB/s", "roofline%", energy ? "  J model" : "");
	json_array_foreach(kinds, i, line)
	{
		if (i < MOST_LINES)
			print_line(out, line, energy);
	}
	if (json_array_size(kinds) > MOST_LINES)
		fprintf(out, "and %zu kinds more; --json has all, node by node\n",
			json_array_size(kinds) - MOST_LINES);
	if (energy)
		fprintf(out, "J model: %s (%s).\n",
			json_string_value(json_object_get(energy, "model")),
			json_string_value(json_object_get(energy, "origin")));
}

void jm_run_print_profiles(FILE *out, const json_t *records)
{
	const json_t *record;
	size_t i;

	json_array_foreach(records, i, record)
	{
		const json_t *profile = json_object_get(record, "profile");

		if (profile)
			print_profile(out, record, profile);
	}
}
