/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of a GPU's energy in simulated time; the truth is the integral of the wave over the time
 * of each user. */
#include "kit/test.h"
#include "base/text/json.h"
#include "measure/command/device_share.h"
#include "kit/wave.h"

#define OWN   7
#define OTHER 8
#define END   20 /* s */

/* Between 1 s and END: who uses GPU 0 in each second, in percent. */
struct second {
	int own, other, gone;
	bool unseen; /* of a divided GPU: the process of this second runs between two looks */
};
static struct second seconds_of[END + 1];
static struct jm_ctx ctx;
static double last_s;
static bool divided; /* OWN has instance 1, OTHER instance 2 */

static int64_t ns(double s)
{
	return llround(s * 1e9);
}

/* The busy time since the last look, and the processes that exist at this one. */
static void use_of_instance(int id, pid_t pid, int busy, bool is_there, jm_use_fn *give, void *arg)
{
	give(arg, &(struct jm_device_use){.instance = id, .name = "MIG", .use = busy / 100.0});
	if (is_there)
		give(arg, &(struct jm_device_use){
				  .instance = id, .name = "MIG", .pid = pid, .use = NAN});
}

static int uses(void *state, int meter, jm_use_fn *give, void *arg, struct jm_err *err)
{
	double now = (double)jm_ctx_now(&ctx) * 1e-9;
	const struct second *s = &seconds_of[(int)(last_s + 0.5)];

	(void)state;
	if (meter)
		return jm_err_set(err, JM_ENOSUP, "This GPU does not report it.");
	last_s = now;
	if (divided) {
		const struct second *next = &seconds_of[(int)(now + 0.5)];

		use_of_instance(1, OWN, s->own, next->own && !next->unseen, give, arg);
		use_of_instance(2, OTHER, s->other, next->other && !next->unseen, give, arg);
		return 0;
	}
	give(arg, &(struct jm_device_use){.instance = -1, .pid = OWN, .use = s->own / 100.0});
	give(arg, &(struct jm_device_use){.instance = -1, .pid = OTHER, .use = s->other / 100.0});
	give(arg, &(struct jm_device_use){.instance = -1, .pid = 9, .use = s->gone / 100.0});
	return 0;
}

static int is_own(void *arg, pid_t pid)
{
	(void)arg;
	return pid == OWN ? 1 : pid == OTHER ? 0 : -1;
}

/* The reported share of GPU 0, and its joules; ret_other: the object of GPU 1. */
static double measure(double *ret_joules, char *reason, struct jm_err *err)
{
	struct jm_source source = *wave_sources[0];
	const struct jm_source *const table[] = {&source, NULL};
	struct jm_session_options options = {.table = table};
	struct jm_device_share_options o = {.is_own = is_own};
	struct jm_device_share *d;
	struct jm_session *session;
	struct jm_sleeper me;
	double share;
	json_t *list;
	int phase;

	source.uses = uses;
	ctx = (struct jm_ctx){.clock = jm_clock_new_simulated(0)};
	assert_ok(jm_session_open(&ctx, &options, &session, err), *err);
	jm_sleeper_init(&me, ctx.clock);
	assert_ok(jm_session_start(session, err), *err);
	jm_sleep_until(&me, ns(1));
	last_s = 1;
	phase = jm_session_begin(session, "attached", ns(1), err);
	assert_ok(jm_device_share_new(session, &o, &d, err), *err);
	for (int t = 2; t <= END; t++) {
		jm_sleep_until(&me, ns(t));
		jm_device_share_look(d);
	}
	jm_session_end(session, phase, ns(END));
	jm_sleep_until(&me, ns(END + 1));
	jm_session_announce_stop(session);
	jm_sleeper_done(&me);
	assert_ok(jm_session_stop(session, err), *err);
	list = jm_device_share_json(d, phase, err);
	assert_int_equal(json_array_size(list), 2);
	share = jm_json_real_of(json_array_get(list, 0), "share");
	*ret_joules = jm_json_real_of(json_array_get(list, 0), "joules_estimated");
	snprintf(reason, 300, "%s", jm_json_text(json_array_get(list, 0), "reason"));
	assert_true(isnan(jm_json_real_of(json_array_get(list, 1), "share")));
	assert_string_equal(
		jm_json_text(json_array_get(list, 1), "reason"), "This GPU does not report it.");
	json_decref(list);
	jm_device_share_free(d);
	jm_session_close(session);
	jm_clock_free(ctx.clock);
	return share;
}

/* GPU 0 draws 500 W while OWN has it, 200 W while OTHER has it, 100 W when it is idle. */
static double set_up(void)
{
	struct wave *w = &wave_setup.wave[0];
	double own = 0;

	wave_reset();
	divided = false;
	wave_setup.gpus = 2;
	wave_add(&wave_setup.wave[1], -10, 100, 0);
	wave_add(w, -10, 100, 0);
	for (int t = 1; t < END; t++) {
		int who = t % 4;

		seconds_of[t] =
			(struct second){who == 1 ? 30 : 0, who == 2 || who == 3 ? 90 : 0, 0, false};
		wave_add(w, t, who == 1 ? 500 : who ? 200 : 100, 0);
		own += who == 1 ? 500 : 0;
	}
	return own;
}

static void a_user_gets_the_energy_of_its_own_time(void **state)
{
	double own = set_up(), joules,
	       all = wave_joules(&wave_setup.wave[0], END) - wave_joules(&wave_setup.wave[0], 1);
	struct jm_err err = JM_ERR_INIT;
	char reason[300];
	double share = measure(&joules, reason, &err);

	(void)state;
	assert_near(joules, own, 0.05 * own);
	assert_near(share, own / all, 0.02);
	assert_string_equal(reason, "");
	/* by its use of the whole time it would be 0.14 of the energy, not half of it */
	assert_true(share > 0.4);
	wave_reset();
}

static void shared_time_is_divided_by_use(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	char reason[300];
	double joules;

	(void)state;
	set_up();
	for (int t = 1; t < END; t++)
		seconds_of[t] = (struct second){60, 20, 0, false};
	assert_near(measure(&joules, reason, &err), 0.75, 1e-9);
	wave_reset();
}

static void a_user_that_is_not_known_makes_it_unknown(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	char reason[300];
	double joules;

	(void)state;
	set_up();
	seconds_of[9].gone = 1;
	assert_true(isnan(measure(&joules, reason, &err)) && isnan(joules));
	assert_non_null(strstr(reason, "had ended"));
	wave_reset();
}

static void a_gap_of_the_sensor_makes_it_unknown(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	char reason[300];
	double joules;

	(void)state;
	set_up();
	wave_setup.dead_from[0] = 5;
	wave_setup.dead_until[0] = 30;
	assert_true(isnan(measure(&joules, reason, &err)) && isnan(joules));
	assert_non_null(strstr(reason, "not known"));
	wave_reset();
}

/* OWN runs for a second each: it has ended before the look that reports its second. */
static void a_process_that_ended_since_the_last_look_counts(void **state)
{
	double own = set_up(), joules;
	struct jm_err err = JM_ERR_INIT;
	char reason[300];

	(void)state;
	divided = true;
	measure(&joules, reason, &err);
	assert_string_equal(reason, "");
	assert_near(joules, own, 0.05 * own);
	wave_reset();
}

static void use_without_a_process_makes_it_unknown(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	char reason[300];
	double joules;

	(void)state;
	set_up();
	divided = true;
	seconds_of[9].unseen = true; /* of OWN */
	assert_true(isnan(measure(&joules, reason, &err)) && isnan(joules));
	assert_non_null(strstr(reason, "began and ended between two samples"));
	wave_reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_user_gets_the_energy_of_its_own_time),
		cmocka_unit_test(shared_time_is_divided_by_use),
		cmocka_unit_test(a_user_that_is_not_known_makes_it_unknown),
		cmocka_unit_test(a_gap_of_the_sensor_makes_it_unknown),
		cmocka_unit_test(a_process_that_ended_since_the_last_look_counts),
		cmocka_unit_test(use_without_a_process_makes_it_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
