/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel_for.h"
#include "quiet_thread.h"

#include <stdbool.h>
#include <sys/param.h>
#include <unistd.h>

#define LEAST (1 << 18)

struct share {
	const struct jm_shares *of;
	int number;
	int64_t first, n;
};

static void *work(void *arg)
{
	const struct share *s = arg;

	s->of->fn(s->of->arg, s->number, s->first, s->n);
	return NULL;
}

int jm_shares_run(const struct jm_shares *s)
{
	int64_t cpus = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
	int n = (int)MIN(MIN(cpus, MIN(s->most, JM_SHARES_MOST)), s->count * s->weight / LEAST + 1);
	int64_t each = ((s->count + n - 1) / n + s->unit - 1) / s->unit * s->unit;
	struct share share[JM_SHARES_MOST];
	pthread_t thread[JM_SHARES_MOST];
	bool started[JM_SHARES_MOST] = {false};

	for (int i = 0; i < n; i++) {
		int64_t first = MIN(i * each, s->count);

		share[i] = (struct share){s, i, first, MIN(each, s->count - first)};
		started[i] = i + 1 < n && !jm_quiet_thread(&thread[i], work, &share[i]);
		if (!started[i])
			work(&share[i]);
	}
	for (int i = 0; i < n; i++)
		if (started[i])
			pthread_join(thread[i], NULL);
	return n;
}
