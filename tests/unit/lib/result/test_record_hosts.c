/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of one machine: each meter counts once, whichever of them reads it. */
#include "kit/test.h"

#include "result/record_hosts.h"

static json_t *meter(const char *id, const char *covered_by, bool elsewhere, double joules)
{
	json_t *m = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:f, s:f}", "id", id, "label", id,
		"scope", "gpu", "origin", "measured", "covered_by", covered_by, "joules", joules,
		"error_joules", joules / 100);

	if (elsewhere)
		json_object_set_new(m, "elsewhere", json_true());
	return m;
}

static json_t *record(json_t *meters, double joules)
{
	json_t *total = json_pack(
		"{s:f, s:f}", "joules_measured", joules, "error_measured_joules", joules / 100);

	return json_pack(
		"{s:s, s:s, s:o, s:o, s:[{s:s, s:f, s:f, s:o, s:o}], s:{s:[]}, s:{s:s, s:[]}}",
		"status", "ok", "phase", "steady", "meters", meters, "total", total, "phases",
		"name", "steady", "start_s", 0.0, "end_s", 10.0, "meters", json_deep_copy(meters),
		"total", json_deep_copy(total), "provenance", "devices", "quality", "grade", "A",
		"reasons");
}

/* Joins b, of the same machine, to a, and frees both; of the total and of the phase. */
static void join(json_t *a, json_t *b, double *ret_joules, double *ret_of_phase)
{
	struct jm_host_part part[] = {
		{.host = "a", .machine = "m", .record = a, .ranks = json_array()},
		{.host = "b", .machine = "m", .record = b, .ranks = json_array()}};
	struct jm_err err = JM_ERR_INIT;
	const json_t *phase = json_array_get(json_object_get(a, "phases"), 0);

	assert_int_equal(jm_record_join(a, part, 2, &err), 0);
	*ret_joules =
		json_number_value(json_object_get(json_object_get(a, "total"), "joules_measured"));
	*ret_of_phase = json_number_value(
		json_object_get(json_object_get(phase, "total"), "joules_measured"));
	json_decref(a);
	json_decref(b);
}

/* Only host b may read the node, in which the package lies that both read. */
static void a_meter_within_another_ones_counts_once(void **state)
{
	json_t *a = record(json_pack("[o]", meter("package", NULL, false, 100)), 100);
	json_t *b = record(json_pack("[o, o]", meter("node", NULL, false, 300),
				   meter("package", "node", false, 100)),
		300);
	double joules, of_phase;

	(void)state;
	join(a, b, &joules, &of_phase);
	assert_near(joules, 300, 1e-9);
	assert_near(of_phase, 300, 1e-9);
}

/* The same, and it does not matter who is first. */
static void the_order_of_hosts_does_not_matter(void **state)
{
	json_t *a = record(json_pack("[o, o]", meter("node", NULL, false, 300),
				   meter("package", "node", false, 100)),
		300);
	json_t *b = record(json_pack("[o]", meter("package", NULL, false, 100)), 100);
	double joules, of_phase;

	(void)state;
	join(a, b, &joules, &of_phase);
	assert_near(joules, 300, 1e-9);
	assert_near(of_phase, 300, 1e-9);
}

/* Each host reads both GPUs and works on one of them. */
static void a_gpu_that_another_host_uses_counts(void **state)
{
	json_t *a = record(
		json_pack("[o, o]", meter("gpu0", NULL, false, 60), meter("gpu1", NULL, true, 50)),
		60);
	json_t *b = record(
		json_pack("[o, o]", meter("gpu0", NULL, true, 60), meter("gpu1", NULL, false, 50)),
		50);
	double joules, of_phase;

	(void)state;
	join(a, b, &joules, &of_phase);
	assert_near(joules, 110, 1e-9);
	assert_near(of_phase, 110, 1e-9);
}

/* A board and a node both have the GPU; what else they have in common is unknown. */
static void meters_that_share_a_twin_have_no_sum(void **state)
{
	json_t *a = record(json_pack("[o, o]", meter("board", NULL, false, 200),
				   meter("gpu0", "board", false, 60)),
		200);
	json_t *b = record(json_pack("[o, o]", meter("node", NULL, false, 300),
				   meter("gpu0", "node", false, 60)),
		300);
	double joules, of_phase;

	(void)state;
	json_incref(a);
	join(a, b, &joules, &of_phase);
	assert_true(json_is_null(json_object_get(json_object_get(a, "total"), "joules_measured")));
	json_decref(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_meter_within_another_ones_counts_once),
		cmocka_unit_test(the_order_of_hosts_does_not_matter),
		cmocka_unit_test(a_gpu_that_another_host_uses_counts),
		cmocka_unit_test(meters_that_share_a_twin_have_no_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
