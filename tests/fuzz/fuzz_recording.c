/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded trace whose runs are folded: meters.csv, readings.csv and phases.csv, with a NUL
 * between them. */
#include "fuzz.h"
#include "fuzz_folder.h"
#include "energy/sensor_fit.h"
#include "measure/session/recording.h"

#include <stdio.h>
#include <unistd.h>

/* Up to the next NUL; returns where the rest begins. */
static size_t put(const char *folder, const char *name, const uint8_t *data, size_t size)
{
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	size_t n = nul ? (size_t)(nul - data) : size;
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f))
		abort();
	return nul ? n + 1 : n;
}

static void fold_each(const struct jm_recording *r)
{
	for (int i = 0; i < r->n_signals; i++) {
		const struct jm_recorded_signal *s = &r->signal[i];
		struct jm_reading *change = calloc((size_t)s->n + 1, sizeof(*change));
		struct jm_err err = JM_ERR_INIT;
		struct jm_fold fold;
		int n = jm_sensor_changes(&s->about, s->reading, s->n, change), rc;

		if (s->power && s->about.window_ns > 0) {
			const struct jm_fold_sensor sensor = {
				.window_s = (double)s->about.window_ns * 1e-9,
				.lag_s = s->n % 2 ? 0.01 : 0,
			};

			rc = jm_fold(change, n, &r->runs, &sensor, 0, &fold, &err);
			fuzz_check(rc, &err);
			assert(rc || (fold.bins >= 1 && fold.bins <= JM_FOLD_BINS));
		}
		free(change);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *folder = fuzz_folder();
	struct jm_err err = JM_ERR_INIT;
	struct jm_recording r;
	char phase[128] = "";
	size_t at;
	int rc;

	at = put(folder, "meters.csv", data, size);
	at += put(folder, "readings.csv", data + at, size - at);
	put(folder, "phases.csv", data + at, size - at);
	rc = jm_recording_read(&r, folder, &err);
	rc = rc ? rc : jm_recording_phase(&r, phase, sizeof(phase));
	rc = rc ? rc : jm_recording_runs(&r, phase);
	fuzz_check(rc, &err);
	if (!rc)
		fold_each(&r);
	jm_recording_done(&r);
	return 0;
}
