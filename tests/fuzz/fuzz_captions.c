/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of captions and of conversations of any bytes: what is read is within them, captions sorted
 * by the names of pictures. */
#include "fuzz.h"
#include "data/sets/caption_table.h"
#include "data/sets/conversation_list.h"

static void check_table(struct jm_caption_table *t)
{
	jm_caption_sort(t);
	for (int64_t i = 0; i < t->n; i++) {
		const struct jm_caption *c = &t->at[i];

		assert(c->text + c->n_text <= t->bytes.n);
		assert(c->name + strlen(jm_caption_name(t, i)) < c->text);
		assert(*jm_caption_name(t, i));
		if (i)
			assert(strcmp(jm_caption_name(t, i - 1), jm_caption_name(t, i)) < 0 ||
				c[-1].number < c->number);
	}
}

static void read_conversations(const char *text, size_t n)
{
	struct jm_conversations c = {0};
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_conversations_read(&c, "fuzz", text, n, &err);

	if (rc)
		fuzz_check(rc, &err);
	for (int64_t i = 0; i < (rc ? 0 : c.n); i++) {
		const int64_t *first = c.texts.first + i;

		assert(first[1] > first[0] && (first[1] - first[0]) % 2 == 0);
		assert(c.texts.start[first[0]] <= c.texts.start[first[1]]);
		assert(c.name[i] + strlen(c.names.at + c.name[i]) < c.names.n);
	}
	jm_conversations_done(&c);
}

/* The first byte chooses the form. As of a file, a '\0' is behind the bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_caption_table t = {0};
	struct jm_err err = JM_ERR_INIT;
	char *text;
	int rc;

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (*data == 'c')
		read_conversations(text, size - 1);
	rc = *data % 2 ? jm_caption_read_lines(&t, "fuzz", text, size - 1, &err)
		       : jm_caption_read_coco(&t, "fuzz", text, size - 1, &err);
	if (rc)
		fuzz_check(rc, &err);
	else
		check_table(&t);
	jm_caption_table_done(&t);
	free(text);
	return 0;
}
