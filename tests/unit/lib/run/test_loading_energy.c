/* SPDX-License-Identifier: Apache-2.0 */
/* The host's energy for loading, of phases with known joules. */
#include "base/text/json.h"
#include "kit/test.h"
#include "run/worker/loading_energy.h"

static void make_meters(struct jm_meters *set)
{
	static const struct jm_signal counter = {.quantity = JM_Q_ENERGY};
	struct jm_meter cpu = {.id = "t:cpu",
		.label = "CPU 0",
		.source = "t",
		.scope = JM_SCOPE_PACKAGE,
		.covers = "cpu/0"};
	struct jm_err err = JM_ERR_INIT;

	*set = (struct jm_meters){0};
	assert_false(jm_meters_add_whole(set, &cpu, &counter, 1, &err) < 0);
	jm_meters_derive(set);
}

static void add_phase(json_t *record, const char *name, double joules)
{
	json_array_append_new(json_object_get(record, "phases"),
		json_pack("{s:s, s:[{s:s, s:f}]}", "name", name, "meters", "id", "t:cpu", "joules",
			joules));
}

/* 10 threads loaded for 40 s, in which they computed for cpu_s. */
static json_t *record_of(double cpu_s)
{
	json_t *record = json_pack(
		"{s:[], s:{s:f, s:f}}", "phases", "data", "decode_s", 40.0, "decode_cpu_s", cpu_s);

	assert_non_null(record);
	add_phase(record, "setup", 1);
	add_phase(record, "settle", 2);
	add_phase(record, "warmup", 4);
	add_phase(record, "settle", 8);
	add_phase(record, "steady", 16);
	add_phase(record, "epoch 1", 1000); /* within steady */
	add_phase(record, "verify", 32);
	return record;
}

/* Of what jm__loading_energy makes of it, which is released. */
static double host_joules(json_t *record, double machine_cpu_s)
{
	const json_t *data = json_object_get(record, "data");
	struct jm_meters set;
	double joules;

	make_meters(&set);
	jm__loading_energy(record, &set, machine_cpu_s);
	assert_near(jm_json_real_of(data, "machine_cpu_s"), machine_cpu_s, 1e-12);
	joules = jm_json_real_of(data, "host_joules");
	jm_meters_done(&set);
	json_decref(record);
	return joules;
}

static void waiting_takes_no_energy(void **state)
{
	(void)state;
	assert_near(host_joules(record_of(5), 20), 63 * 5.0 / 20, 1e-9);
	assert_near(host_joules(record_of(19), 20), 63 * 19.0 / 20, 1e-9);
}

static void a_share_of_all_is_unknown(void **state)
{
	(void)state;
	assert_true(isnan(host_joules(record_of(20), 20)));
	assert_true(isnan(host_joules(record_of(21), 20)));
	assert_true(isnan(host_joules(record_of(0.01), 0.05))); /* a few ticks */
}

static void one_of_several_ranks_is_unknown(void **state)
{
	json_t *record = record_of(5);

	(void)state;
	json_object_set_new(record, "gang", json_pack("{s:i}", "ranks", 2));
	assert_true(isnan(host_joules(record, 20)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_takes_no_energy),
		cmocka_unit_test(a_share_of_all_is_unknown),
		cmocka_unit_test(one_of_several_ranks_is_unknown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
