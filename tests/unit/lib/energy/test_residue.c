/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a meter minus that of its parts, for sets of meters with known sums. */
#include "kit/test.h"

#include "energy/residue.h"

#include <stdio.h>

static struct jm_meters set;
static struct jm_energy energy[8];

static int add(enum jm_scope scope, enum jm_origin origin, const char *covers, double joules)
{
	struct jm_meter meter = {
		.source = "test", .scope = scope, .origin = origin, .covers = covers};
	struct jm_err err = JM_ERR_INIT;
	int i;

	snprintf(meter.id, sizeof(meter.id), "test:%d", set.n);
	i = jm_meters_add(&set, &meter, &err);
	assert_ok(i, err);
	energy[i] = jm_energy_unknown;
	energy[i].joules = joules;
	energy[i].error_sampling = 3 + i;
	energy[i].error_calibration = 0.01 * joules;
	return i;
}

static struct jm_residue rest_of(int meter)
{
	struct jm_residue rest;

	jm_meters_derive(&set);
	jm_residue_of(&set, energy, meter, &rest);
	return rest;
}

static int clear(void **state)
{
	(void)state;
	jm_meters_done(&set);
	set = (struct jm_meters){0};
	return 0;
}

/* Each level is less the one below it only; nothing is taken away twice. */
static void a_node_from_chip_to_outlet(void **state)
{
	int memory, gpu, cpu, node, psu, outlet;
	struct jm_residue rest;

	(void)state;
	memory = add(JM_SCOPE_GPU_MEMORY, JM_MEASURED, "gpu/a/memory", 80);
	gpu = add(JM_SCOPE_GPU, JM_MEASURED, "gpu/a", 400);
	node = add(JM_SCOPE_NODE, JM_MEASURED, "/", 900);
	cpu = add(JM_SCOPE_PACKAGE, JM_MEASURED, "cpu/0", 200);
	psu = add(JM_SCOPE_PSU, JM_MEASURED, "/", 940);
	outlet = add(JM_SCOPE_OUTLET, JM_MEASURED, "/", 1000);
	rest = rest_of(gpu);
	assert_int_equal(rest.parts, 1);
	assert_near(rest.joules, 320, 1e-9);
	assert_near(rest.error, sqrt(3 * 3 + 4 * 4 + 4.8 * 4.8), 1e-9);
	assert_near(rest_of(node).joules, 300, 1e-9);
	assert_int_equal(rest_of(node).parts, 2);
	assert_near(rest_of(psu).joules, 40, 1e-9);
	assert_near(rest_of(outlet).joules, 60, 1e-9);
	assert_int_equal(set.meter[outlet].covered_by, -1);
	assert_int_equal(set.meter[psu].covered_by, outlet);
	assert_int_equal(set.meter[node].covered_by, psu);
	assert_int_equal(rest_of(memory).parts, 0);
	assert_true(isnan(rest_of(cpu).joules));
}

static void unknown_and_overlapping_parts_leave_nothing_known(void **state)
{
	int gpu, memory, node;

	(void)state;
	node = add(JM_SCOPE_NODE, JM_MEASURED, "/", 900);
	gpu = add(JM_SCOPE_GPU, JM_MEASURED, "gpu/a", 400);
	memory = add(JM_SCOPE_GPU_MEMORY, JM_MEASURED, "gpu/a/memory", NAN);
	assert_true(isnan(rest_of(gpu).joules) && isnan(rest_of(gpu).error));
	assert_near(rest_of(node).joules, 500, 1e-9);
	assert_int_equal(rest_of(memory).parts, 0);
	/* a module that shares the GPU with its own meter */
	add(JM_SCOPE_MODULE, JM_MEASURED, "cpu/0 gpu/b", 300);
	add(JM_SCOPE_MODULE, JM_MEASURED, "gpu/b dram/0", 200);
	assert_true(isnan(rest_of(node).joules));
}

/* An estimate of a part is no measurement of the rest. */
static void estimates_are_no_parts_of_what_is_measured(void **state)
{
	int node;

	(void)state;
	node = add(JM_SCOPE_NODE, JM_MEASURED, "/", 900);
	add(JM_SCOPE_PACKAGE, JM_ESTIMATED, "cpu/0", 100);
	assert_int_equal(rest_of(node).parts, 0);
	assert_true(isnan(rest_of(node).joules));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_node_from_chip_to_outlet, clear),
		cmocka_unit_test_teardown(unknown_and_overlapping_parts_leave_nothing_known, clear),
		cmocka_unit_test_teardown(estimates_are_no_parts_of_what_is_measured, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
