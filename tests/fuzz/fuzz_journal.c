/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals of knobs. Bytes as they are, and each line again with its checksum made right, so that what is
 * behind the checksum is reached as well.
 */
#include "fuzz.h"
#include "guard/journal.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

static void peek(const char *bytes, size_t size)
{
	int fd = memfd_create("journal", MFD_CLOEXEC);
	struct jm_err err = JM_ERR_INIT;
	struct jm_journal_state state;
	char path[64];
	bool live;
	int rc;

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = jm_journal_peek(path, &state, &live, &err);
	fuzz_check(rc, &err);
	if (!rc &&
		((state.open && !isfinite(state.found)) || (state.kept && !isfinite(state.base))))
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *save = NULL, *out;
	size_t room = 0;
	FILE *f = open_memstream(&out, &room);

	if (!f)
		abort();
	peek(text, size);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = strlen(line) + 1;

		line[n - 1] = '\t';
		fwrite(line, 1, n, f);
		fprintf(f, "%016llx\n", (unsigned long long)XXH3_64bits(line, n));
		line[n - 1] = '\0';
	}
	fclose(f);
	peek(out, room);
	free(out);
	free(text);
	return 0;
}
