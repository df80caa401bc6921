/* SPDX-License-Identifier: Apache-2.0 */
/* Grades: a perfect measurement gets A; each flaw costs what the table says, with its reason. */
#include "kit/test.h"
#include "energy/quality.h"

#include <stdio.h>

#define REFRESH INT64_C(100000000)

struct bench {
	struct jm_meters set;
	struct jm_energy energy[2];
	double drift[2], seconds;
	unsigned int throttle[2];
};

static void add(struct bench *b, enum jm_scope scope, const char *covers)
{
	struct jm_meter m = {.label = "Meter", .scope = scope, .origin = JM_MEASURED};
	struct jm_signal counter = {.quantity = JM_Q_ENERGY, .refresh_ns = REFRESH};
	int i;

	m.covers = covers;
	i = jm_meters_add(&b->set, &m, NULL);
	jm_meters_add_signal(&b->set, &counter, NULL);
	b->energy[i] = (struct jm_energy){.joules = 1000,
		.joules_counter = 1000,
		.joules_integrated = 1001,
		.error_sampling = 5,
		.error_calibration = 10,
		.covered_s = 10};
	b->drift[i] = NAN;
}

/* A node's meter over a GPU's, for ten seconds: the measurement that each test spoils in one
 * way. */
static int perfect(void **state)
{
	static struct bench bench;

	bench = (struct bench){.seconds = 10};
	add(&bench, JM_SCOPE_NODE, "/");
	add(&bench, JM_SCOPE_GPU, "gpu/0");
	jm_meters_derive(&bench.set);
	*state = &bench;
	return 0;
}

static int done(void **state)
{
	struct bench *b = *state;

	jm_meters_done(&b->set);
	return 0;
}

static void expect(const struct bench *b, const char *grade, int n)
{
	struct jm_quality_facts facts = {.set = &b->set,
		.energy = b->energy,
		.drift = b->drift,
		.throttle = b->throttle,
		.seconds = b->seconds};
	json_t *reasons = json_array();

	assert_string_equal(jm_quality_judge(&facts, reasons), grade);
	assert_int_equal(json_array_size(reasons), n);
	json_decref(reasons);
}

static void a_perfect_measurement_is_an_a(void **state)
{
	struct bench *b = *state;

	expect(b, "A", 0);
}

static void an_unknown_part_of_a_known_node_costs_nothing(void **state)
{
	struct bench *b = *state;

	b->energy[1].joules = NAN;
	expect(b, "A", 0);
}

static void gaps_cost_two_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].gaps = 2;
	expect(b, "C", 1);
}

static void an_error_of_a_tenth_costs_two_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].error_sampling = 100;
	expect(b, "C", 1);
}

static void an_error_of_a_half_costs_three_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].error_sampling = 500;
	expect(b, "D", 1);
}

static void few_power_readings_cost_three_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].few_readings = true;
	expect(b, "D", 1);
}

static void each_fault_costs_two_grades(void **state)
{
	struct bench *b = *state;

	for (int kind = JM_FAULT_COUNTER_STUCK; kind <= JM_FAULT_DIFFER; kind++) {
		b->energy[0].fault.kind = (enum jm_fault_kind)kind;
		expect(b, "C", 1);
	}
}

static void a_difference_of_counter_and_integral_is_told_once(void **state)
{
	struct bench *b = *state;

	b->energy[0].joules_integrated = 1200;
	b->energy[0].fault.kind = JM_FAULT_DIFFER;
	expect(b, "C", 1);
}

static void power_of_zero_costs_two_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].fault.power_zero_s = 2;
	expect(b, "C", 1);
}

static void a_reset_costs_two_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].resets = 1;
	expect(b, "C", 1);
}

static void a_change_of_place_costs_two_grades(void **state)
{
	struct bench *b = *state;

	b->energy[0].places = 2;
	expect(b, "C", 1);
}

static void ten_refreshes_are_few(void **state)
{
	struct bench *b = *state;

	b->seconds = 1;
	expect(b, "C", 1);
}

static void a_counter_that_is_not_used_costs_a_grade(void **state)
{
	struct bench *b = *state;

	b->energy[0].joules_counter = NAN;
	expect(b, "B", 1);
	b->energy[0].resets = 1; /* one reason, why it is not used, is enough */
	expect(b, "C", 1);
}

/* A node's power sensor: 31 values are few where its refresh is unknown. */
static void few_values_of_an_unknown_refresh_cost_two_grades(void **state)
{
	struct jm_meter m = {.label = "Node", .scope = JM_SCOPE_NODE, .covers = "/"};
	struct jm_signal power = {.quantity = JM_Q_POWER};
	struct bench *b = *state;

	jm_meters_done(&b->set);
	jm_meters_add(&b->set, &m, NULL);
	jm_meters_add_signal(&b->set, &power, NULL);
	b->energy[0].joules_counter = NAN;
	b->energy[0].samples = 31;
	jm_meters_derive(&b->set);
	expect(b, "C", 2); /* it has no counter, either */
	b->energy[0].samples = 32;
	expect(b, "B", 1);
	b->energy[0].samples = 1;
	b->set.signal[0].refresh_ns = REFRESH;
	expect(b, "B", 1);
}

static void refreshes_are_counted_whole(void **state)
{
	struct bench *b = *state;

	b->seconds = 3.196; /* 31.96 of them: 31, and 32 are needed */
	expect(b, "C", 1);
}

static void drift_and_heat_cost_one_grade_together(void **state)
{
	struct bench *b = *state;

	b->drift[0] = -0.1;
	b->throttle[0] = JM_THROTTLE_THERMAL | JM_THROTTLE_POWER_CAP;
	expect(b, "B", 2);
}

static void a_power_brake_costs_a_grade(void **state)
{
	struct bench *b = *state;

	b->throttle[0] = JM_THROTTLE_POWER_BRAKE;
	expect(b, "B", 1);
}

static void a_power_cap_that_holds_costs_nothing(void **state)
{
	struct bench *b = *state;

	b->throttle[0] = JM_THROTTLE_POWER_CAP;
	expect(b, "A", 0);
}

static void an_outlet_includes_the_node(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].scope = JM_SCOPE_OUTLET;
	expect(b, "A", 0);
}

static void one_of_two_supplies_costs_a_grade(void **state)
{
	struct bench *b = *state;

	jm_meters_done(&b->set);
	*b = (struct bench){.seconds = 10};
	add(b, JM_SCOPE_PSU, "psu/0 gpu/0");
	add(b, JM_SCOPE_GPU, "gpu/0");
	jm_meters_derive(&b->set);
	expect(b, "B", 1);
}

static void a_part_of_two_meters_is_a_d_and_told_once(void **state)
{
	struct bench *b = *state;

	jm_meters_done(&b->set);
	*b = (struct bench){.seconds = 10};
	add(b, JM_SCOPE_NODE, "cpu/0 gpu/0");
	add(b, JM_SCOPE_NODE, "gpu/0 gpu/1");
	jm_meters_derive(&b->set);
	expect(b, "D", 1);
}

/* The reasons: no joules at all, and none of this meter. */
static void nothing_known_has_no_grade(void **state)
{
	struct bench *b = *state;

	b->energy[0].joules = NAN;
	expect(b, "none", 2);
}

static void simulated_joules_have_no_grade(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = b->set.meter[1].origin = JM_SIMULATED;
	expect(b, "none", 1);
}

static void estimated_joules_have_no_grade(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = b->set.meter[1].origin = JM_ESTIMATED;
	expect(b, "none", 1);
}

static void an_estimate_has_no_refreshes_to_wait_for(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = b->set.meter[1].origin = JM_ESTIMATED;
	b->seconds = 0.001;
	expect(b, "none", 1);
}

/* It is negligible beside the error of its model. */
static void an_estimates_sampling_error_is_not_told(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = b->set.meter[1].origin = JM_ESTIMATED;
	b->energy[0].error_sampling = 500;
	expect(b, "none", 1);
}

static void an_estimate_covers_nothing_that_is_measured(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = JM_ESTIMATED;
	jm_meters_derive(&b->set);
	expect(b, "B", 1);
}

static void an_unknown_estimate_spoils_nothing_that_is_measured(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = JM_ESTIMATED;
	jm_meters_derive(&b->set);
	b->energy[0].joules = NAN;
	expect(b, "B", 1);
}

static void a_simulated_meter_among_measured_ones_is_a_d(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = JM_SIMULATED;
	expect(b, "D", 1);
}

static void replayed_joules_are_a_c(void **state)
{
	struct bench *b = *state;

	b->set.meter[0].origin = b->set.meter[1].origin = JM_REPLAYED;
	expect(b, "C", 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, perfect, done)
	const struct CMUnitTest tests[] = {
		TEST(a_perfect_measurement_is_an_a),
		TEST(an_unknown_part_of_a_known_node_costs_nothing),
		TEST(gaps_cost_two_grades),
		TEST(an_error_of_a_tenth_costs_two_grades),
		TEST(an_error_of_a_half_costs_three_grades),
		TEST(few_power_readings_cost_three_grades),
		TEST(each_fault_costs_two_grades),
		TEST(a_difference_of_counter_and_integral_is_told_once),
		TEST(power_of_zero_costs_two_grades),
		TEST(a_reset_costs_two_grades),
		TEST(a_change_of_place_costs_two_grades),
		TEST(ten_refreshes_are_few),
		TEST(a_counter_that_is_not_used_costs_a_grade),
		TEST(few_values_of_an_unknown_refresh_cost_two_grades),
		TEST(refreshes_are_counted_whole),
		TEST(drift_and_heat_cost_one_grade_together),
		TEST(a_power_brake_costs_a_grade),
		TEST(a_power_cap_that_holds_costs_nothing),
		TEST(an_outlet_includes_the_node),
		TEST(one_of_two_supplies_costs_a_grade),
		TEST(a_part_of_two_meters_is_a_d_and_told_once),
		TEST(nothing_known_has_no_grade),
		TEST(simulated_joules_have_no_grade),
		TEST(estimated_joules_have_no_grade),
		TEST(an_estimate_has_no_refreshes_to_wait_for),
		TEST(an_estimates_sampling_error_is_not_told),
		TEST(an_estimate_covers_nothing_that_is_measured),
		TEST(an_unknown_estimate_spoils_nothing_that_is_measured),
		TEST(a_simulated_meter_among_measured_ones_is_a_d),
		TEST(replayed_joules_are_a_c),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
