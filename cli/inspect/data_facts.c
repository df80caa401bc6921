/* SPDX-License-Identifier: Apache-2.0 */
#include "data_facts.h"

#include "base/text/json.h"
#include "cli/frame/json_option.h"
#include "report/format/text.h"

#include <stdio.h>
#include <string.h>

#define COLUMN 16

void jm_data_facts_begin(struct jm_data_facts *f, struct jm_cli *cli)
{
	*f = (struct jm_data_facts){.cli = cli, .json = jm_json_wanted(cli) ? json_object() : NULL};
}

int jm_data_facts_end(struct jm_data_facts *f, bool failed)
{
	json_t *json = f->json;

	f->json = NULL;
	if (json && !failed)
		return jm_json_put(f->cli, json);
	json_decref(json);
	return 0;
}

/* "tokens_per_s" of "tokens/s", "first_tokens" of "first tokens" */
static void key_of(const char *name, char *key, size_t size)
{
	size_t n = strcspn(name, "/");

	snprintf(key, size, "%.*s%s%s", (int)n, name, name[n] ? "_per_" : "",
		name[n] ? name + n + 1 : "");
	for (; *key; key++)
		*key = *key == ' ' ? '_' : *key;
}

static void print(struct jm_data_facts *f, const char *name, const char *text)
{
	jm_text_entry(f->cli->out, name, text, 0, COLUMN, f->cli->width);
}

void jm_data_text(struct jm_data_facts *f, const char *name, const char *text)
{
	char key[40];

	key_of(name, key, sizeof(key));
	if (f->json)
		jm_json_set_text(&f->json, key, text);
	else
		print(f, name, text);
}

void jm_data_item(struct jm_data_facts *f, const char *name, const char *text)
{
	char key[40];

	key_of(name, key, sizeof(key));
	if (!f->json) {
		print(f, name, text);
		return;
	}
	if (!json_object_get(f->json, key))
		jm_json_set(&f->json, key, json_array());
	json_array_append_new(json_object_get(f->json, key), json_string(text));
}

void jm_data_count(struct jm_data_facts *f, const char *name, int64_t value)
{
	char key[40], number[40];

	key_of(name, key, sizeof(key));
	if (f->json) {
		jm_json_set_int(&f->json, key, value);
		return;
	}
	snprintf(number, sizeof(number), "%lld", (long long)value);
	jm_text_apart(number, sizeof(number));
	print(f, name, number);
}
