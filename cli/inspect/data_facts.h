/* SPDX-License-Identifier: Apache-2.0 */
/* What `joulemark data` finds out, as lines of text or, with --json, as keys of an object. */
#ifndef JM_DATA_FACTS_H
#define JM_DATA_FACTS_H

#include "cli/frame/cli.h"

#include <jansson.h>

struct jm_data_facts {
	struct jm_cli *cli;
	json_t *json;	 /* NULL: text is printed */
	int64_t damaged; /* samples */
};

void jm_data_facts_begin(struct jm_data_facts *f, struct jm_cli *cli);
/* Writes the JSON, where there is some, unless `failed`. */
int jm_data_facts_end(struct jm_data_facts *f, bool failed);
/* A name is a key with _ for blanks. An item is one of several of its name. */
void jm_data_text(struct jm_data_facts *f, const char *name, const char *text);
void jm_data_item(struct jm_data_facts *f, const char *name, const char *text);
/* Of items; in text with commas. */
void jm_data_count(struct jm_data_facts *f, const char *name, int64_t value);

#endif
