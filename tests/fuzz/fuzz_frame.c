/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that a faulty worker may write to its parent. */
#include "fuzz.h"
#include "run/gang/frame.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_frame_reader r = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_frame frame;
	bool end = false;
	int fds[2], rc;

	if (size > 60000 || pipe(fds))
		return 0;
	if (write(fds[1], data, size) != (ssize_t)size)
		abort();
	close(fds[1]);
	while (!end && !err.code) {
		fuzz_check(jm_frame_fill(&r, fds[0], &end, &err), &err);
		while (!err.code && (rc = jm_frame_next(&r, &frame, &err)) > 0)
			for (volatile size_t i = 0; i < frame.size; i++)
				(void)*(const volatile char *)(frame.data + i);
	}
	close(fds[0]);
	jm_frame_reader_done(&r);
	return 0;
}
