/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that load processors: they compute, and a changed operand is noticed. */
#include <math.h>
#include <unistd.h>

#include "kit/test.h"
#include "workloads/parts/host_load.h"

#define THREADS 2
#define BYTES	((size_t)1 << 21)
#define SIDE	JM_HOST_LOAD_SIDE

static struct jm_host_load *load_of(void)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_host_load *load;

	assert_ok(jm_host_load_new(THREADS, BYTES, 1, &load, &err), err);
	return load;
}

/* Starts the threads, and returns when each has done a product. */
static void run(struct jm_host_load *load)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_host_load_start(load, &err), err);
	for (int i = 0; i < THREADS; i++)
		while (!load->thread[i].products)
			usleep(100);
}

static void products_are_right(void **unused)
{
	struct jm_host_load *load = load_of();
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	run(load);
	assert_ok(jm_host_load_check(load, &err), err);
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			double sum = 0;

			for (int k = 0; k < SIDE; k++)
				sum += (double)load->x[i][k] * (double)load->w[k][j];
			assert_true(fabs(sum - (double)load->first[i][j]) < 1e-4);
		}
	jm_host_load_free(load);
}

static void wrong_product_is_noticed(void **unused)
{
	struct jm_host_load *load = load_of();
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	load->first[SIDE - 1][3] = nextafterf(load->first[SIDE - 1][3], 0);
	run(load);
	assert_int_equal(jm_host_load_check(load, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	jm_host_load_free(load);
}

/* Waits for three passes, in which each word is written twice and checked three times. */
static void memory_is_walked_through(void **unused)
{
	struct jm_host_load *load = load_of();
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_int_equal(load->n_words, BYTES / 8 / THREADS);
	run(load);
	for (int i = 0; i < THREADS; i++)
		while (load->thread[i].passes < 3)
			usleep(100);
	assert_ok(jm_host_load_check(load, &err), err);
	jm_host_load_free(load);
}

/* A bit changes while the threads are not at work. */
static void changed_word_is_noticed(void **unused)
{
	struct jm_host_load *load = load_of();
	struct jm_err err = JM_ERR_INIT;
	long before;

	(void)unused;
	run(load);
	load->stop = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(load->thread[i].id, NULL);
	load->running = 0;
	load->stop = false;
	load->thread[1].words[load->n_words - 1] ^= 1;
	before = load->thread[1].passes;
	assert_ok(jm_host_load_start(load, &err), err);
	while (load->thread[1].passes < before + 1)
		usleep(100);
	assert_int_equal(jm_host_load_check(load, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	assert_non_null(strstr(err.text, "memory does not hold"));
	jm_host_load_free(load);
}

/* A stop ends the filling of the memory, too; another start goes on with it. */
static void filling_ends_at_a_stop(void **unused)
{
	struct jm_host_load *load = load_of();
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	load->stop = true;
	assert_ok(jm_host_load_start(load, &err), err);
	for (int i = 0; i < THREADS; i++)
		pthread_join(load->thread[i].id, NULL);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(load->thread[i].words[0] | load->thread[i].words[1], 0);
	assert_false(jm_host_load_is_filled(load));
	load->running = 0;
	load->stop = false;
	run(load);
	assert_true(jm_host_load_is_filled(load));
	for (int i = 0; i < THREADS; i++)
		while (load->thread[i].passes < 1)
			usleep(100);
	assert_ok(jm_host_load_check(load, &err), err);
	jm_host_load_free(load);
}

static void nothing_is_loaded_without_threads(void **unused)
{
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_ok(jm_host_load_check(NULL, &err), err);
	jm_host_load_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_right),
		cmocka_unit_test(wrong_product_is_noticed),
		cmocka_unit_test(memory_is_walked_through),
		cmocka_unit_test(changed_word_is_noticed), cmocka_unit_test(filling_ends_at_a_stop),
		cmocka_unit_test(nothing_is_loaded_without_threads)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
