/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a driver that takes its time: the limit is that of one call, and one that was given up
 * leads to no other. */
#include "kit/test.h"

#include "guard/knob_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* A knob whose driver needs this long for each call. */
struct slow {
	double first_get_s, each_s;
	_Atomic int gets, sets;
	double has;
};

static void need(double seconds)
{
	usleep((useconds_t)(seconds * 1e6));
}

static int slow_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct slow *s = state;

	(void)i;
	(void)err;
	need(s->gets ? s->each_s : s->first_get_s);
	*ret_accepted = *ret_enforced = jm_knob_value_of(s->has);
	s->gets++;
	return 0;
}

static int slow_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	struct slow *s = state;

	(void)i;
	(void)err;
	need(s->each_s);
	s->has = value->low;
	s->sets++;
	return 0;
}

static const struct jm_control slow_control = {.name = "slow", .get = slow_get, .set = slow_set};

struct case_of {
	struct slow slow;
	struct jm_knob knob;
	struct jm_knob_member member;
	struct jm_knob_value told;
	struct jm_driver_call *left;
	struct jm_knob_table table;
	struct jm_knob_call call;
};

static void *run(void *arg)
{
	struct case_of *c = arg;

	c->member = (struct jm_knob_member){.control = &slow_control, .state = &c->slow, .n = 1};
	c->table = (struct jm_knob_table){.knobs = {.knob = &c->knob, .n = 1},
		.member = &c->member,
		.n = 1,
		.told = &c->told,
		.left = &c->left};
	jm_knob_table_call(&c->table, &c->call, 1, true);
	return NULL;
}

/* All at the same time, as each takes 12 s. */
static struct case_of read_late = {.slow = {.first_get_s = 11, .has = 300},
			      .call = {.act = JM_KNOB_PUT_BACK}},
		      slow_set_read = {.slow = {.first_get_s = 4, .each_s = 4, .has = 700},
			      .call = {.act = JM_KNOB_SET_READ}};

static int run_all(void **state)
{
	struct case_of *all[] = {&read_late, &slow_set_read};
	pthread_t thread[2];

	(void)state;
	read_late.call.value = jm_knob_value_of(700);
	slow_set_read.call.value = jm_knob_value_of(250);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, run, all[i]))
			return -1;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

static void a_read_that_was_given_up_writes_nothing_when_it_returns(void **state)
{
	(void)state;
	assert_int_equal(read_late.call.rc, JM_EIO);
	assert_false(read_late.call.wrote);
	while (jm_knob_table_waits(&read_late.table))
		need(0.05);
	assert_int_equal(read_late.slow.gets, 1);
	assert_int_equal(read_late.slow.sets, 0);
}

static void three_calls_of_four_seconds_are_each_within_the_limit(void **state)
{
	(void)state;
	assert_int_equal(slow_set_read.call.rc, 0);
	assert_true(slow_set_read.call.wrote);
	assert_true(slow_set_read.call.accepted.low == 250);
	assert_true(slow_set_read.call.before.low == 700);
	assert_int_equal(slow_set_read.slow.gets, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_that_was_given_up_writes_nothing_when_it_returns),
		cmocka_unit_test(three_calls_of_four_seconds_are_each_within_the_limit),
	};

	return cmocka_run_group_tests(tests, run_all, NULL);
}
