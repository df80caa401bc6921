/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the control redfish, which root may write: whatever is in it, it ends with a sentence
 * that quotes no line without a name, as that may be a password. The line behind it is refused
 * before anybody is asked. */
#include "fuzz.h"
#include "fuzz_folder.h"
#include "base/ctx.h"
#include "guard/control.h"

#include <stdio.h>
#include <string.h>

#define SECRET	"correct-horse-battery"
#define REFUSED "\npassword-file=relative\n"

static void put(const char *path, const uint8_t *data, size_t size, const char *end)
{
	FILE *f = fopen(path, "we");

	assert(f && fwrite(data, 1, size, f) == size && fputs(end, f) >= 0);
	fclose(f);
}

static void check(struct jm_ctx *ctx, const char *path)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_knobs knobs = {0};
	void *state = NULL;
	int rc = jm_control_find("redfish", NULL)->open(ctx, path, &knobs, &state, &err);

	fuzz_check(rc, &err);
	assert(rc == JM_EUSAGE && !state && !knobs.n && !strstr(err.text, SECRET));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	char path[100];

	if (memmem(data, size, SECRET, sizeof(SECRET) - 1))
		return 0; /* the fuzzer knows it, too, and may give it a name */
	assert(!jm_ctx_init(&ctx, &err));
	snprintf(path, sizeof(path), "%s/redfish.conf", fuzz_folder());
	put(path, data, size, REFUSED);
	check(&ctx, path);
	put(path, data, size, "\n" SECRET REFUSED);
	check(&ctx, path);
	return 0;
}
