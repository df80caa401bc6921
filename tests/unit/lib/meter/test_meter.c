/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"
#include "meter/meter.h"

#include <stdio.h>

struct row {
	const char *id;
	enum jm_origin origin;
	const char *covers;
	const char *covered_by, *overlaps; /* what must come out; NULL = none */
};

static void add_all(struct jm_meters *set, const struct row *rows, int n)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < n; i++) {
		struct jm_meter m = {.origin = rows[i].origin};

		strncpy(m.id, rows[i].id, sizeof(m.id) - 1);
		m.covers = rows[i].covers;
		assert_int_equal(jm_meters_add(set, &m, &err), i);
	}
}

static const char *id_of(const struct jm_meters *set, int i)
{
	return i < 0 ? "none" : set->meter[i].id;
}

/* The containment is the same in whatever order the meters were found. */
static void check(const struct row *rows, int n)
{
	struct row turned[16];

	for (int turn = 0; turn < n; turn++) {
		struct jm_meters set = {0};

		for (int i = 0; i < n; i++)
			turned[i] = rows[(i + turn) % n];
		add_all(&set, turned, n);
		jm_meters_derive(&set);
		for (int i = 0; i < n; i++) {
			const char *by = turned[i].covered_by, *over = turned[i].overlaps;

			assert_string_equal(id_of(&set, set.meter[i].covered_by), by ? by : "none");
			assert_string_equal(
				id_of(&set, set.meter[i].overlaps), over ? over : "none");
		}
		jm_meters_done(&set);
	}
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof(rows[0]))

static void rapl_domains(void **state)
{
	const struct row plain[] = {
		{"package-0", JM_MEASURED, "cpu/0", NULL, NULL},
		{"core-0", JM_MEASURED, "cpu/0/core", "package-0", NULL},
		{"uncore-0", JM_MEASURED, "cpu/0/uncore", "package-0", NULL},
		{"dram-0", JM_MEASURED, "dram/0", NULL, NULL},
		{"package-1", JM_MEASURED, "cpu/1", NULL, NULL},
		{"package-10", JM_MEASURED, "cpu/10", NULL, NULL},
	};
	const struct row psys[] = {
		{"psys", JM_MEASURED, "/", NULL, NULL},
		{"package-0", JM_MEASURED, "cpu/0", "psys", NULL},
		{"core-0", JM_MEASURED, "cpu/0/core", "package-0", NULL},
		{"dram-0", JM_MEASURED, "dram/0", "psys", NULL},
	};

	(void)state;
	CHECK(plain);
	CHECK(psys);
}

static void module_and_node(void **state)
{
	const struct row rows[] = {
		{"node", JM_MEASURED, "/", NULL, NULL},
		{"module", JM_MEASURED, "cpu/0 dram/0 gpu/A", "node", NULL},
		{"gpu", JM_MEASURED, "gpu/A", "module", NULL},
		{"hbm", JM_MEASURED, "gpu/A/memory", "gpu", NULL},
		{"cpu", JM_MEASURED, "cpu/0", "module", NULL},
	};
	/* a psu rail that feeds half of what the module meter sees, and another load */
	const struct row partial[] = {
		{"module", JM_MEASURED, "cpu/0 gpu/A", NULL, "rail"},
		{"rail", JM_MEASURED, "gpu/A gpu/B", NULL, "module"},
		{"gpu-b", JM_MEASURED, "gpu/B", "rail", NULL},
	};

	/* of several that share a part, the one that a total would count twice */
	const struct row guessed[] = {
		{"module", JM_MEASURED, "cpu/0 gpu/A", NULL, "rail"},
		{"rail", JM_MEASURED, "gpu/A gpu/B", NULL, "module"},
		{"guess", JM_ESTIMATED, "cpu/0 dram/0", NULL, "module"},
	};

	(void)state;
	CHECK(rows);
	CHECK(partial);
	CHECK(guessed);
}

/* An estimate never hides a measurement; a measurement of the same thing comes before it. */
static void estimates(void **state)
{
	const struct row same[] = {
		{"measured", JM_MEASURED, "cpu/0", NULL, NULL},
		{"estimated", JM_ESTIMATED, "cpu/0", "measured", NULL},
	};
	const struct row wider[] = {
		{"measured", JM_MEASURED, "cpu/0", NULL, "estimated"},
		{"estimated", JM_ESTIMATED, "cpu/0 dram/0", NULL, "measured"},
	};
	const struct row both[] = {
		{"node", JM_ESTIMATED, "/", NULL, NULL},
		{"cpu", JM_ESTIMATED, "cpu/0", "node", NULL},
	};

	(void)state;
	CHECK(same);
	CHECK(wider);
	CHECK(both);
}

/* A recording of this machine, or a simulated node, is not the machine: neither hides the other. */
static void other_worlds(void **state)
{
	const struct row rows[] = {
		{"replayed", JM_REPLAYED, "cpu/0 dram/0", NULL, NULL},
		{"measured", JM_MEASURED, "cpu/0", NULL, NULL},
		{"estimated", JM_ESTIMATED, "cpu/0", "measured", NULL},
		{"simulated", JM_SIMULATED, "/", NULL, NULL},
		{"simulated-cpu", JM_SIMULATED, "cpu/0", "simulated", NULL},
		{"replayed-core", JM_REPLAYED, "cpu/0/core", "replayed", NULL},
	};

	(void)state;
	CHECK(rows);
}

/* Two meters of the very same thing: one is counted, the other shown under it; never a ring. */
static void twins(void **state)
{
	const struct row rows[] = {
		{"a", JM_MEASURED, "gpu/A", NULL, NULL},
		{"b", JM_MEASURED, "gpu/A", "a", NULL},
	};
	struct jm_meters set = {0};

	(void)state;
	add_all(&set, rows, 2);
	jm_meters_derive(&set);
	assert_int_equal(set.meter[0].covered_by, -1);
	assert_int_equal(set.meter[1].covered_by, 0);
	assert_int_equal(set.meter[1].overlaps, -1);
	jm_meters_done(&set);
}

static void odd_spellings(void **state)
{
	const struct row rows[] = {
		{"spaces", JM_MEASURED, "  cpu/0   dram/0 ", NULL, NULL},
		{"cpu", JM_MEASURED, "cpu/0", "spaces", NULL},
		{"nothing", JM_MEASURED, "", NULL, NULL},
		{"prefix", JM_MEASURED, "cpu/00", NULL, NULL},
	};

	(void)state;
	CHECK(rows);
}

static void signals_lie_with_their_meter(void **state)
{
	const struct row rows[] = {{"a", JM_MEASURED, "a", NULL, NULL}};
	struct jm_signal energy = {.quantity = JM_Q_ENERGY}, power = {.quantity = JM_Q_POWER};
	struct jm_meter b = {.id = "b", .first_signal = 99, .n_signals = 99};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};

	(void)state;
	add_all(&set, rows, 1);
	assert_int_equal(jm_meters_add_signal(&set, &energy, &err), 0);
	assert_int_equal(jm_meters_add(&set, &b, &err), 1);
	assert_int_equal(jm_meters_add_signal(&set, &power, &err), 1);
	assert_int_equal(jm_meters_add_signal(&set, &energy, &err), 2);
	assert_int_equal(jm_meter_signal(&set, 0, JM_Q_ENERGY), 0);
	assert_int_equal(jm_meter_signal(&set, 0, JM_Q_POWER), -1);
	assert_int_equal(jm_meter_signal(&set, 1, JM_Q_POWER), 1);
	assert_int_equal(jm_meter_signal(&set, 1, JM_Q_ENERGY), 2);
	assert_int_equal(set.signal[2].meter, 1);
	jm_meters_done(&set);
	assert_int_equal(set.n, 0);
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(jm_origin_name(JM_ESTIMATED), "estimated");
	assert_string_equal(jm_scope_name(JM_SCOPE_GPU_MEMORY), "gpu-memory");
	assert_string_equal(jm_quantity_name(JM_Q_POWER_AVERAGE), "power-average");
	assert_string_equal(jm_quantity_unit(JM_Q_ENERGY), "J");
	assert_string_equal(jm_quantity_unit(JM_Q_CLOCK), "Hz");
}

/* A node of many parts: nothing of the list is cut off. */
static void covers_of_any_length(void **state)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	char all[4096] = "";
	struct jm_meter node = {.id = "node", .covers = all};
	struct jm_meter last = {.id = "last", .covers = "gpu/GPU-99-of-the-rack/memory"};

	(void)state;
	for (int i = 0; i < 100; i++)
		snprintf(
			all + strlen(all), sizeof(all) - strlen(all), "gpu/GPU-%d-of-the-rack ", i);
	assert_int_equal(jm_meters_add(&set, &node, &err), 0);
	assert_int_equal(jm_meters_add(&set, &last, &err), 1);
	all[0] = '\0'; /* the set has its own copy */
	jm_meters_derive(&set);
	assert_int_equal(set.meter[1].covered_by, 0);
	jm_meters_cut(&set, 1, 0);
	assert_int_equal(set.n, 1);
	jm_meters_done(&set);
}

/* The node includes nothing that is outside of it, and what is outside is in no total. */
static void outside_of_the_node(void **state)
{
	static const char *const covers[] = {"/", "outside/door", "cpu/0", "outside"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct jm_meter m = {.covers = covers[i], .scope = JM_SCOPE_NODE};

		snprintf(m.id, sizeof(m.id), "%d", i);
		assert_int_equal(jm_meters_add(&set, &m, &err), i);
	}
	jm_meters_derive(&set);
	assert_int_equal(set.meter[1].covered_by, 3);
	assert_int_equal(set.meter[2].covered_by, 0);
	assert_int_equal(set.meter[3].covered_by, -1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(set.meter[i].overlaps, -1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(jm_meter_counts(&set, i), i == 0);
	jm_meters_done(&set);
}

/* Work runs on GPU-b, and then on GPU-c as well. */
static void meters_of_other_gpus(void **state)
{
	static const struct {
		const char *covers;
		bool elsewhere[3]; /* work on b, on b and c, on a GPU that no meter reads */
	} rows[] = {
		{"gpu/GPU-a", {true, true, true}},
		{"gpu/GPU-b", {false, false, true}},
		{"gpu/GPU-b/memory", {false, false, true}},
		{"gpu/GPU-c cpu/0", {true, false, true}},
		{"gpu/GPU-a gpu/GPU-b", {false, false, true}},
		{"gpu/GPU-bb", {true, true, true}},
		{"gpu", {false, false, false}},
		{"cpu/0", {false, false, false}},
		{"/", {false, false, false}},
		{"gpu/GPU-a /", {false, false, false}},
		{"outside/door", {true, true, true}},
		{"outside/door /", {false, false, false}},
		{"outsider", {false, false, false}},
	};
	const int n = sizeof(rows) / sizeof(rows[0]);
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	bool slice;

	(void)state;
	for (int i = 0; i < n; i++) {
		struct jm_meter m = {.covers = rows[i].covers, .scope = JM_SCOPE_PLATFORM};

		snprintf(m.id, sizeof(m.id), "%d", i);
		if (i == 1 || i == 3) {
			m.scope = JM_SCOPE_GPU;
			snprintf(m.device, sizeof(m.device), "GPU-%c", i == 1 ? 'b' : 'c');
		}
		assert_int_equal(jm_meters_add(&set, &m, &err), i);
	}
	for (int turn = 0; turn < 3; turn++) {
		if (turn == 0)
			assert_int_equal(jm_meters_own(&set, "gpu-B", "", &slice), 1);
		else if (turn == 1)
			assert_int_equal(jm_meters_own_too(&set, "GPU-c", ""), 3);
		else
			assert_int_equal(jm_meters_own(&set, "GPU-x", "", &slice), -1);
		for (int i = 0; i < n; i++)
			assert_int_equal(set.meter[i].elsewhere, rows[i].elsewhere[turn]);
	}
	jm_meters_done(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rapl_domains),
		cmocka_unit_test(module_and_node),
		cmocka_unit_test(estimates),
		cmocka_unit_test(other_worlds),
		cmocka_unit_test(twins),
		cmocka_unit_test(odd_spellings),
		cmocka_unit_test(outside_of_the_node),
		cmocka_unit_test(meters_of_other_gpus),
		cmocka_unit_test(signals_lie_with_their_meter),
		cmocka_unit_test(names),
		cmocka_unit_test(covers_of_any_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
