/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an outside command is started when the user interrupts just before. */
#include "kit/test.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/command/launch.h"
#include "kit/wave.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void note(int number)
{
	came = number;
}

static int which_came(void)
{
	return came;
}

/* The last moment: the caller has looked for signals, and the launch has not held them back. */
static int just_before(void)
{
	sigset_t held;

	pthread_sigmask(SIG_SETMASK, NULL, &held);
	assert_true(sigismember(&held, SIGTERM)); /* from here on they are for the command */
	return which_came();
}

static int launch(const char *file, struct jm_outcome *ret, struct jm_err *err)
{
	char *const touch[] = {"touch", (char *)(uintptr_t)file, NULL};
	const struct jm_launch_options o = {.argv = touch, .out_fd = 1, .interrupted = just_before};
	const struct jm_session_options how = {.table = wave_sources};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_session *session;
	int rc;

	assert_ok(jm_session_open(&ctx, &how, &session, err), *err);
	assert_ok(jm_session_start(session, err), *err);
	rc = jm_launch(&ctx, session, &o, ret, err);
	jm_session_stop(session, NULL);
	jm_session_close(session);
	return rc;
}

static void a_signal_before_the_start_prevents_it(void **state)
{
	char folder[] = "/tmp/jm-launch.XXXXXX", file[40];
	struct jm_err err = JM_ERR_INIT;
	struct jm_outcome outcome = {.status = -7};
	struct sigaction before;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/ran", folder);
	wave_reset();
	sigaction(SIGTERM, &(struct sigaction){.sa_handler = note}, &before);

	raise(SIGTERM);
	assert_int_equal(launch(file, &outcome, &err), JM_EINTR);
	assert_string_equal(
		err.text, "Interrupted before 'touch' was started, so that it did not run.");
	assert_int_not_equal(access(file, F_OK), 0);
	assert_int_equal(outcome.status, -7);

	came = 0;
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(launch(file, &outcome, &err), err);
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(outcome.status, 0);

	sigaction(SIGTERM, &before, NULL);
	unlink(file);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_before_the_start_prevents_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
