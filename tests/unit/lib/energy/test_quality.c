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

/* A node's meter over a GPU's. */
static void perfect(struct bench *b)
{
	*b = (struct bench){.seconds = 10};
	add(b, JM_SCOPE_NODE, "/");
	add(b, JM_SCOPE_GPU, "gpu/0");
	jm_meters_derive(&b->set);
}

static void expect(struct bench *b, const char *grade, int n)
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
	jm_meters_done(&b->set);
}

static void grades(void **state)
{
	struct bench b;

	(void)state;
	perfect(&b);
	expect(&b, "A", 0);
	perfect(&b);
	b.energy[1].joules = NAN; /* a part of the node's, which is known */
	expect(&b, "A", 0);
	perfect(&b);
	b.energy[0].gaps = 2;
	expect(&b, "C", 1);
	perfect(&b);
	b.energy[0].error_sampling = 100;
	expect(&b, "C", 1);
	perfect(&b);
	b.energy[0].error_sampling = 500;
	expect(&b, "D", 1);
	perfect(&b);
	b.energy[0].joules_integrated = 1200;
	b.energy[0].fault.kind = JM_FAULT_DIFFER;
	expect(&b, "C", 1);
	for (int kind = JM_FAULT_COUNTER_STUCK; kind <= JM_FAULT_DIFFER; kind++) {
		perfect(&b);
		b.energy[0].fault.kind = (enum jm_fault_kind)kind;
		expect(&b, "C", 1);
	}
	perfect(&b);
	b.energy[0].fault.power_zero_s = 2;
	expect(&b, "C", 1);
	perfect(&b);
	b.energy[0].resets = 1;
	expect(&b, "C", 1);
	perfect(&b);
	b.energy[0].places = 2;
	expect(&b, "C", 1);
	perfect(&b);
	b.seconds = 1;
	expect(&b, "C", 1);
	perfect(&b);
	b.drift[0] = -0.1;
	b.throttle[0] = JM_THROTTLE_THERMAL | JM_THROTTLE_POWER_CAP;
	expect(&b, "B", 2);
	perfect(&b);
	b.throttle[0] = JM_THROTTLE_POWER_BRAKE;
	expect(&b, "B", 1);
	perfect(&b);
	b.throttle[0] = JM_THROTTLE_POWER_CAP; /* that is what a cap is for */
	expect(&b, "A", 0);
	perfect(&b);
	b.set.meter[0].scope = JM_SCOPE_OUTLET; /* it includes the node */
	expect(&b, "A", 0);
	b = (struct bench){.seconds = 10};
	add(&b, JM_SCOPE_PSU, "psu/0 gpu/0"); /* one of two */
	add(&b, JM_SCOPE_GPU, "gpu/0");
	jm_meters_derive(&b.set);
	expect(&b, "B", 1);
}

static void a_shared_part(void **state)
{
	struct bench b = {.seconds = 10};

	(void)state;
	add(&b, JM_SCOPE_NODE, "cpu/0 gpu/0");
	add(&b, JM_SCOPE_NODE, "gpu/0 gpu/1");
	jm_meters_derive(&b.set);
	expect(&b, "D", 1); /* said once, not by both */
}

static void origins(void **state)
{
	struct bench b;

	(void)state;
	perfect(&b);
	b.energy[0].joules = NAN;
	expect(&b, "none", 2); /* nothing known, and this one not */
	perfect(&b);
	b.set.meter[0].origin = b.set.meter[1].origin = JM_SIMULATED;
	expect(&b, "none", 1);
	perfect(&b);
	b.set.meter[0].origin = b.set.meter[1].origin = JM_ESTIMATED;
	b.seconds = 0.001;		  /* no sensor, no refreshes to wait for */
	b.energy[0].error_sampling = 500; /* negligible against the error of its model */
	expect(&b, "none", 1);
	perfect(&b);
	b.set.meter[0].origin = JM_ESTIMATED;
	jm_meters_derive(
		&b.set); /* an estimate covers nothing that is measured, and spoils none of it */
	expect(&b, "B", 1);
	perfect(&b);
	b.set.meter[0].origin = JM_ESTIMATED;
	jm_meters_derive(&b.set);
	b.energy[0].joules = NAN;
	expect(&b, "B", 1);
	perfect(&b);
	b.set.meter[0].origin = JM_SIMULATED;
	expect(&b, "D", 1);
	perfect(&b);
	b.seconds = 3.196; /* 31.96 refreshes are 31, not 32 */
	expect(&b, "C", 1);
	perfect(&b);
	b.set.meter[0].origin = b.set.meter[1].origin = JM_REPLAYED;
	expect(&b, "C", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grades),
		cmocka_unit_test(a_shared_part),
		cmocka_unit_test(origins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
