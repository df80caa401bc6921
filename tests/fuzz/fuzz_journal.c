/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals of knobs. The bytes are tried unchanged, and again with corrected checksums, so that the
 * code after the check of the checksum is reached, too.
 */
#include "fuzz.h"
#include "guard/journal_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static bool is_whole(const struct jm_knob_value *v)
{
	return jm_knob_value_known(v) && jm_knob_value_sound(v);
}

static bool is_exact(const struct jm_knob_value *a, const struct jm_knob_value *b)
{
	return !strcmp(a->word, b->word) &&
	       (*a->word || (!(a->low != b->low) && !(a->high != b->high)));
}

/* What it says is whole, and says the same after it was written again. */
static void parse(const char *bytes, size_t size)
{
	struct jm_journal_state state, again;
	char *text = malloc(size + 1), out[JM__RECORD_SIZE];
	int n;

	if (!text)
		abort();
	memcpy(text, bytes, size);
	text[size] = '\0';
	jm__journal_parse(text, size, &state);
	free(text);
	if ((state.open && !is_whole(&state.found)) || (state.kept && !is_whole(&state.base)))
		abort();
	n = jm__journal_says(&state) ? jm__journal_format(&state, out, sizeof(out)) : 0;
	if (n <= 0)
		return;
	jm__journal_parse(out, (size_t)n, &again);
	if (again.damaged || again.open != state.open || again.kept != state.kept ||
		again.ends != state.ends || (state.open && !is_exact(&again.found, &state.found)) ||
		(state.kept && !is_exact(&again.base, &state.base)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *save = NULL, *out;
	size_t room = 0;
	FILE *f = open_memstream(&out, &room);

	if (!f)
		abort();
	parse(text, size);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = strlen(line) + 1;

		line[n - 1] = '\t';
		fwrite(line, 1, n, f);
		fprintf(f, "%016llx\n", (unsigned long long)XXH3_64bits(line, n));
		line[n - 1] = '\0';
	}
	fclose(f);
	parse(out, room);
	free(out);
	free(text);
	return 0;
}
