/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a record: hand-computed values, and the identities between them. */
#include "kit/test.h"

#include "result/metric.h"

static json_t *meter(const char *id, const char *origin, const char *covered_by, double joules)
{
	return json_pack("{s:s, s:s, s:s?, s:f, s:f, s:f}", "id", id, "origin", origin,
		"covered_by", covered_by, "joules", joules, "watts_mean", joules / 10, "watts_max",
		joules / 5);
}

/* 1000 tokens in 10 s of steady phase; a package (with its core inside), a GPU, and an estimate. */
static json_t *record(void)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:f, s:i, s:f, s:[o, o, o, o], "
			 "s:[{s:s, s:f, s:f, s:f}, {s:s, s:f, s:f, s:f}]}",
		"schema", "joulemark.run/1", "status", "ok", "phase", "steady", "unit", "token",
		"throughput", 100.0, "devices", 2, "items", 1500.0, "meters",
		meter("rapl:0", "measured", NULL, 400),
		meter("rapl:0/core", "measured", "rapl:0", 300),
		meter("gpu", "measured", NULL, 600), meter("estimate", "estimated", NULL, 7),
		"phases", "name", "warmup", "start_s", 0.0, "end_s", 5.0, "items", 500.0, "name",
		"steady", "start_s", 5.0, "end_s", 15.0, "items", 1000.0);
}

static void costs_by_hand(void **state)
{
	json_t *r = record();
	struct jm_measured m;

	(void)state;
	jm_metric_measure(r, 0, false, &m);
	assert_int_equal(m.origin, JM_MEASURED);
	assert_int_equal(m.n_meters, 2);
	assert_near(m.joules, 1000, 1e-9); /* the core is inside the package */
	assert_near(m.value[JM_M_WATTS], 100, 1e-9);
	assert_near(m.value[JM_M_WATTS_MAX], 200, 1e-9);
	assert_near(m.value[JM_M_THROUGHPUT_DEVICE], 50, 1e-9);
	assert_near(m.value[JM_M_JOULES_ITEM], 1, 1e-12);
	assert_near(m.value[JM_M_ITEMS_JOULE], 1, 1e-12);
	assert_near(m.value[JM_M_ITEMS_WH], 3600, 1e-9);
	assert_near(m.value[JM_M_WH_ITEM], 1 / 3600.0, 1e-12);
	assert_near(m.value[JM_M_EDP], 0.01, 1e-12);
	assert_true(isnan(m.value[JM_M_GAIN]) && isnan(m.value[JM_M_EDS]));
	assert_true(isnan(m.value[JM_M_WATTS_MEDIAN]));
	json_decref(r);
}

static json_t *gpu(const char *id, double watts, double load, bool elsewhere)
{
	return json_pack("{s:s, s:s, s:s, s:n, s:f, s:f, s:b, s:[{s:s, s:f}, {s:s, s:f}]}", "id",
		id, "scope", "gpu", "origin", "measured", "covered_by", "joules", 10 * watts,
		"watts_mean", watts, "elsewhere", elsewhere, "signals", "quantity", "clock", "mean",
		1e9, "quantity", "utilisation", "mean", load);
}

/* Ten seconds; 1000 J of meters that are no GPU; two GPUs of 300 and 500 W, and one on which no
 * work ran. */
static void figures_of_a_run_and_its_gpus(void **state)
{
	json_t *r = record(), *meters = json_object_get(r, "meters");
	struct jm_measured m;

	(void)state;
	jm_metric_measure(r, 0, false, &m);
	assert_true(isnan(m.value[JM_M_WH_GPU_HOUR]) && isnan(m.value[JM_M_GPU_LOAD]));
	json_array_append_new(meters, gpu("a", 300, 0.9, false));
	json_array_append_new(meters, gpu("b", 500, 0.5, false));
	json_array_append_new(meters, gpu("c", 70, 0, true));
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.value[JM_M_HOURS], 10 / 3600.0, 1e-12);
	assert_near(m.value[JM_M_KWH], 9000 / 3.6e6, 1e-12);
	assert_near(m.value[JM_M_WH_GPU_HOUR], 400, 1e-9);
	assert_near(m.value[JM_M_GPU_LOAD], 70, 1e-9);
	json_object_del(json_array_get(meters, 5), "signals");
	json_object_set_new(json_array_get(meters, 5), "watts_mean", json_null());
	jm_metric_measure(r, 0, false, &m);
	assert_true(isnan(m.value[JM_M_WH_GPU_HOUR]) && isnan(m.value[JM_M_GPU_LOAD]));
	json_decref(r);
}

/* A module and a rail that feeds a part of it: neither their joules nor their watts may be
 * added. */
static void meters_that_share_a_part_have_no_sum(void **state)
{
	json_t *r = record(), *meters = json_object_get(r, "meters");
	struct jm_measured m;

	(void)state;
	json_object_set_new(json_array_get(meters, 0), "overlaps", json_string("estimate"));
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.value[JM_M_WATTS], 100, 1e-9); /* the estimate is not added anyway */
	json_object_set_new(json_array_get(meters, 0), "overlaps", json_string("gpu"));
	json_object_set_new(json_array_get(meters, 2), "overlaps", json_string("rapl:0"));
	jm_metric_measure(r, 0, false, &m);
	assert_true(isnan(m.joules) && isnan(m.value[JM_M_WATTS]));
	assert_true(isnan(m.value[JM_M_WATTS_MAX]) && isnan(m.value[JM_M_JOULES_ITEM]));
	json_decref(r);
}

/* The rest of the node adds 100 W x 10 s. */
static void added_watts_count_over_the_phase(void **state)
{
	json_t *r = record();
	struct jm_measured m;

	(void)state;
	jm_metric_measure(r, 100, false, &m);
	assert_near(m.joules, 2000, 1e-9);
	assert_near(m.value[JM_M_WATTS], 200, 1e-9);
	assert_near(m.value[JM_M_JOULES_ITEM], 2, 1e-12);
	json_decref(r);
}

/* Three hosts, two of which are one machine: 2 x 100 W x 10 s. */
static void added_watts_are_those_of_each_node(void **state)
{
	json_t *r = record();
	struct jm_measured m;

	(void)state;
	json_object_set_new(r, "hosts",
		json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "name", "a", "machine", "x", "name",
			"b", "machine", "y", "name", "c", "machine", "x"));
	jm_metric_measure(r, 100, false, &m);
	assert_near(m.joules, 3000, 1e-9);
	assert_near(m.value[JM_M_WATTS], 300, 1e-9);
	json_decref(r);
}

static void an_unknown_part_makes_the_sum_unknown(void **state)
{
	json_t *r = record(), *gpu = json_array_get(json_object_get(r, "meters"), 2);
	struct jm_measured m;

	(void)state;
	json_object_set_new(gpu, "joules", json_null());
	jm_metric_measure(r, 0, false, &m);
	assert_true(m.has_energy && m.origin == JM_MEASURED); /* the estimate does not step in */
	assert_true(isnan(m.joules) && isnan(m.value[JM_M_JOULES_ITEM]));
	assert_true(isnan(m.value[JM_M_EDP]));
	assert_near(m.value[JM_M_THROUGHPUT], 100, 0);
	json_decref(r);
}

/* One order for all who ask: the same origin for the table, a profile's energy and the phases. */
static void the_origin_that_speaks(void **state)
{
	static const char *const best[] = {"measured", "replayed", "simulated", "estimated", NULL};
	enum jm_origin origin = JM_ESTIMATED;
	json_t *r = json_pack("{s:s, s:[]}", "status", "failed", "meters"), *meters;

	(void)state;
	meters = json_object_get(r, "meters");
	assert_false(jm_metric_origin(r, &origin));
	assert_true(isnan(jm_metric_joules(r, &origin)));
	for (int i = 3; i >= 0; i--) {
		json_array_append_new(meters, meter(best[i], best[i], NULL, 10 * (i + 1)));
		assert_true(jm_metric_origin(r, &origin));
		assert_string_equal(jm_origin_name(origin), best[i]);
		assert_near(jm_metric_joules(r, &origin), 10 * (i + 1), 0);
	}
	json_object_set_new(r, "clock", json_string("simulated"));
	assert_near(jm_metric_joules(r, &origin), 30, 0);
	assert_int_equal(origin, JM_SIMULATED);
	/* what is best but unknown is not replaced by what is worse */
	json_object_set_new(r, "clock", json_string("real"));
	json_object_set_new(json_array_get(meters, 3), "joules", json_null());
	assert_true(isnan(jm_metric_joules(r, &origin)));
	assert_int_equal(origin, JM_MEASURED);
	json_decref(r);
}

static void origins_are_never_added(void **state)
{
	json_t *r = record(), *meters = json_object_get(r, "meters");
	struct jm_measured m;

	(void)state;
	json_array_append_new(meters, meter("sim:0", "simulated", NULL, 5000));
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.joules, 1000, 1e-9);
	json_object_set_new(r, "device", json_string("sim:h100x4"));
	jm_metric_measure(r, 0, false, &m);
	assert_int_equal(m.origin, JM_SIMULATED);
	assert_near(m.joules, 5000, 1e-9);
	json_decref(r);
}

static void a_total_of_the_session_has_authority(void **state)
{
	json_t *r = record();
	struct jm_measured m;

	(void)state;
	json_object_set_new(
		r, "total", json_pack("{s:f, s:n}", "joules_measured", 900.0, "joules_simulated"));
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.joules, 900, 1e-9);
	json_object_set_new(r, "total", json_pack("{s:n}", "joules_measured"));
	jm_metric_measure(r, 0, false, &m);
	assert_true(isnan(m.joules));
	json_decref(r);
}

static void a_command_is_one_run(void **state)
{
	json_t *r = json_pack("{s:i, s:f, s:s, s:[o]}", "exit_status", 0, "wall_s", 20.0, "phase",
		"command", "meters", meter("gpu", "measured", NULL, 500));
	struct jm_measured m;

	(void)state;
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.value[JM_M_THROUGHPUT], 0.05, 1e-12);
	assert_near(m.value[JM_M_JOULES_ITEM], 500, 1e-9);
	assert_near(m.value[JM_M_EDP], 10000, 1e-9);
	json_object_set_new(r, "exit_status", json_integer(3));
	jm_metric_measure(r, 0, false, &m);
	assert_true(isnan(m.value[JM_M_THROUGHPUT]) && isnan(m.joules));
	json_decref(r);
}

/* `measure`: 100 items and 500 J in 20 s, of which marks span 4 s. Nothing mixes 20 and 4 s. */
static void a_measured_command_is_one_stretch(void **state)
{
	json_t *r = json_pack(
		"{s:f, s:s, s:f, s:f, s:f, s:[o], s:[{s:s, s:f, s:f, s:f}, {s:s, s:f, s:f, s:f}]}",
		"wall_s", 20.0, "phase", "command", "items", 100.0, "throughput", 25.0,
		"throughput_per_device", 25.0, "meters", meter("gpu", "measured", NULL, 500),
		"phases", "name", "command", "start_s", 1.0, "end_s", 21.0, "items", 100.0, "name",
		"train", "start_s", 9.0, "end_s", 13.0, "items", 100.0);
	struct jm_measured m;

	(void)state;
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.value[JM_M_THROUGHPUT], 5, 1e-12);
	assert_true(isnan(m.value[JM_M_THROUGHPUT_DEVICE])); /* the number of devices is unknown */
	assert_near(m.value[JM_M_WATTS], 25, 1e-12);
	assert_near(m.value[JM_M_ITEMS_JOULE], 0.2, 1e-12);
	assert_near(m.value[JM_M_EDP], 5 * 0.2, 1e-12);
	/* as `run` records it: the 500 J are those of the 4 s */
	json_object_set_new(r, "phase", json_string("train"));
	jm_metric_measure(r, 0, false, &m);
	assert_near(m.value[JM_M_THROUGHPUT], 25, 1e-12);
	assert_near(m.value[JM_M_WATTS], 125, 1e-12);
	assert_near(m.value[JM_M_EDP], 5 * 0.04, 1e-12);
	json_decref(r);
}

/* EDS_k = 1 - ((k-1) dE - dT) / k and gain - loss = 200 (1 - EDS_2), dE and dT worked out
 * directly. */
static void eds_and_gain_minus_loss_are_one(void **state)
{
	(void)state;
	srand48(3);
	for (int i = 0; i < 1000; i++) {
		double e_ref = 0.1 + drand48(), d_ref = 0.1 + drand48(), k = 1.01 + 4 * drand48();
		double e = 2 * drand48(), d = 3 * drand48();
		double gain = (e_ref - e) / e_ref, loss = (d - d_ref) / d_ref;
		double eds = (k - 1) / (k * e_ref) * e + 1 / (k * d_ref) * d;
		double both = jm_metric_gain_minus_loss(e / e_ref, d / d_ref);

		assert_near(jm_metric_eds(k, e / e_ref, d / d_ref), eds, 1e-11);
		assert_near(eds, 1 - ((k - 1) * gain - loss) / k, 1e-11);
		assert_near(both, 100 * gain - 100 * loss, 1e-9);
		assert_near(both, 200 * (1 - jm_metric_eds(2, e / e_ref, d / d_ref)), 1e-9);
	}
	for (double k = 1.1; k < 5; k += 0.3)
		assert_near(jm_metric_eds(k, 1, 1), 1, 1e-12);
	assert_near(jm_metric_eds(2.5, 0, 2.5), 1, 1e-12); /* k times slower for no energy at all */
}

/*
 * Table 1 and Fig. 7 of doi 10.1007/978-3-031-48803-0_1, 8 GPUs at 170 W: 93.6 s against 85.6 s;
 * EDP 17.32 % better, which gives the energy; then EDS (k = 2) is 7.52 % and gain - loss 15.03 %
 * better.
 */
static void the_papers_table_comes_out(void **state)
{
	struct jm_measured ref = {.seconds_item = 85.6}, m = {.seconds_item = 93.6};
	const double k[] = {1.5, 2.0};

	(void)state;
	ref.value[JM_M_JOULES_ITEM] = 1;
	m.value[JM_M_JOULES_ITEM] = (1 - 0.1732) * 85.6 / 93.6;
	jm_metric_relate(&m, &ref, k, 2);
	assert_near(100 * (1 - m.value[JM_M_EDS + 1]), 7.52, 0.06); /* times have 3 digits */
	assert_near(m.value[JM_M_GAIN_LOSS], 15.03, 0.11);
	assert_near(m.value[JM_M_GAIN] - m.value[JM_M_LOSS], m.value[JM_M_GAIN_LOSS], 1e-9);
}

static void no_reference_no_relation(void **state)
{
	struct jm_measured m;
	json_t *r = record();

	(void)state;
	jm_metric_measure(r, 0, false, &m);
	jm_metric_relate(&m, NULL, NULL, 0);
	assert_true(isnan(m.value[JM_M_GAIN]) && isnan(m.value[JM_M_LOSS]));
	json_decref(r);
}

static void garbage_is_unknown(void **state)
{
	static const char *const texts[] = {"{}", "{\"meters\": 3, \"phases\": {}, \"unit\": 7}",
		"{\"throughput\": -1, \"unit\": \"x\", \"items\": \"many\", \"meters\": [1, {}]}"};
	struct jm_measured m;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		json_t *r = json_loads(texts[i], 0, NULL);

		jm_metric_measure(r, 0, false, &m);
		assert_true(isnan(m.value[JM_M_THROUGHPUT]) && isnan(m.value[JM_M_JOULES_ITEM]));
		json_decref(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_by_hand),
		cmocka_unit_test(figures_of_a_run_and_its_gpus),
		cmocka_unit_test(meters_that_share_a_part_have_no_sum),
		cmocka_unit_test(added_watts_count_over_the_phase),
		cmocka_unit_test(added_watts_are_those_of_each_node),
		cmocka_unit_test(an_unknown_part_makes_the_sum_unknown),
		cmocka_unit_test(the_origin_that_speaks),
		cmocka_unit_test(origins_are_never_added),
		cmocka_unit_test(a_total_of_the_session_has_authority),
		cmocka_unit_test(a_command_is_one_run),
		cmocka_unit_test(a_measured_command_is_one_stretch),
		cmocka_unit_test(eds_and_gain_minus_loss_are_one),
		cmocka_unit_test(the_papers_table_comes_out),
		cmocka_unit_test(no_reference_no_relation),
		cmocka_unit_test(garbage_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
