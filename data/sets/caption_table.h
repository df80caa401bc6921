/* SPDX-License-Identifier: Apache-2.0 */
/* Names of pictures and their captions, as files list them. */
#ifndef JM_CAPTION_TABLE_H
#define JM_CAPTION_TABLE_H

#include "data/tokenizer/bytes.h"
#include "joulemark.h"

/* Captions, and the picture of each; in any order until they are sorted. Zeroed at first. */
struct jm_caption_table {
	struct jm_bytes bytes; /* names, each with a '\0' behind it, and texts */
	struct jm_caption {
		size_t name;	     /* in bytes: relative to the folder */
		size_t text, n_text; /* in bytes */
		int64_t number;	     /* the order in which they were added */
	} * at;
	int64_t n, room;
};

void jm_caption_table_done(struct jm_caption_table *t);
const char *jm_caption_name(const struct jm_caption_table *t, int64_t i);
/* JM_ENOMEM. file: for errors. */
int jm_caption_add(struct jm_caption_table *t, const char *file, const char *name, const char *text,
	size_t n, struct jm_err *err);
/* By name, and those of one picture in their order. */
void jm_caption_sort(struct jm_caption_table *t);

/*
 * From n bytes of metadata.jsonl: each line an object with "file_name" and "text" (or "caption"),
 * which is a text or a list of texts. JM_EFORMAT: the sentence names the line.
 */
int jm_caption_read_lines(struct jm_caption_table *t, const char *file, const char *bytes, size_t n,
	struct jm_err *err);
/* From n bytes of captions.json as COCO has it: "images" with "id" and "file_name", "annotations"
 * with "image_id" and "caption". */
int jm_caption_read_coco(struct jm_caption_table *t, const char *file, const char *bytes, size_t n,
	struct jm_err *err);

#endif
