/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations about pictures, as LLaVA lists them. */
#ifndef JM_CONVERSATION_LIST_H
#define JM_CONVERSATION_LIST_H

#include "data/sets/data_set.h"
#include "data/tokenizer/bytes.h"

/* Zeroed at first. */
struct jm_conversations {
	struct jm_bytes names;	      /* of pictures, each with a '\0' behind it */
	size_t *name;		      /* [n], in names */
	struct jm_sample_texts texts; /* of each conversation question, answer, question... */
	int64_t n;
};

/*
 * From n bytes of JSON: a list of objects with "image", a path within the folder, and
 * "conversations", objects with "from" ("human" and "gpt" in turns) and "value". The word <image>
 * and spaces and ends of lines around its text are left out. JM_EFORMAT: the sentence names the
 * entry, from 0.
 */
int jm_conversations_read(struct jm_conversations *c, const char *file, const char *bytes, size_t n,
	struct jm_err *err);
void jm_conversations_done(struct jm_conversations *c);

#endif
