/* SPDX-License-Identifier: Apache-2.0 */
/* copy_weights FROM TO: all tensors of a safetensors file or folder, as one new file. Run by
 * tests/parity/test_safetensors.py. */
#include "data/safetensors.h"
#include "data/safetensors_write.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOM 1000 /* bytes: tensors are copied in several parts, at no boundary of an element */

static int copy(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	const struct jm_safetensors *s = arg;
	const struct jm_safetensor *t = &s->tensor[i];
	char room[ROOM];
	int code = 0;

	for (uint64_t at = 0, now; at < t->bytes && !code; at += now) {
		now = t->bytes - at < ROOM - 1 ? t->bytes - at : ROOM - 1;
		code = jm_safetensors_read(s, t, at, room, now, err);
		if (!code)
			code = jm_safetensors_put(sink, room, now, err);
	}
	return code;
}

int main(int argc, char **argv)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s = {0};
	json_t *notes = json_pack("{s:s}", "format", "pt");
	int code = argc == 3 ? jm_safetensors_open(argv[1], &s, &err) : JM_EUSAGE;

	if (!code)
		code = jm_safetensors_write(argv[2], s.tensor, s.n, notes, copy, &s, &err);
	if (code)
		fprintf(stderr, "%s\n", err.text);
	json_decref(notes);
	jm_safetensors_close(&s);
	return code ? 1 : 0;
}
