/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded trace as a folder of CSV: the first half is meters.csv, what follows a NUL
 * readings.csv. */
#include "fuzz.h"
#include "fuzz_folder.h"
#include "base/ctx.h"
#include "../kit/source_row.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct jm_source jm_source_replay;

static void put(const char *folder, const char *name, const uint8_t *data, size_t size)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f))
		abort();
}

static void read_all(struct jm_meters *set, void *state)
{
	struct jm_reading *out = calloc((size_t)set->n_signals + 1, sizeof(*out));

	for (int i = 0; i < 3; i++) {
		struct jm_err err = JM_ERR_INIT;

		fuzz_check(read_row(&jm_source_replay, state, out, &err), &err);
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *folder = fuzz_folder();
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	size_t first = nul ? (size_t)(nul - data) : size;
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_ctx ctx;
	void *state = NULL;
	int rc;

	put(folder, "meters.csv", data, first);
	put(folder, "readings.csv", nul ? nul + 1 : data, nul ? size - first - 1 : 0);
	if (jm_ctx_init(&ctx, &err))
		abort();
	rc = jm_source_open(&jm_source_replay, &ctx, folder, &set, &state, &err);
	fuzz_check(rc, &err);
	if (rc >= 0) {
		read_all(&set, state);
		jm_source_replay.close(state);
	}
	jm_meters_done(&set);
	return 0;
}
