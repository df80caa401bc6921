/* SPDX-License-Identifier: Apache-2.0 */
/* What a record holds, from the table of its keys: as JSON Schema and as a table for people. */
#include "cli.h"
#include "help_record.h"
#include "base/text/keys_schema.h"
#include "result/record_keys.h"

#include <stdio.h>
#include <string.h>

int jm_help_schema(FILE *out)
{
	json_t *schema = json_pack("{s:s, s:s, s:s}", "$schema",
		"http://json-schema.org/draft-07/schema#", "title",
		"A record of joulemark: one measurement, or one run of a case", "description",
		"What `measure --json` and `run --json` write. Units are SI; unknown is null, "
		"never 0. Keys may be added; what is here keeps its meaning.");
	json_t *of_schema;
	int rc = json_object_update_new(schema, jm_keys_schema(jm_record_keys));

	of_schema = json_object_get(json_object_get(schema, "properties"), "schema");
	rc |= json_object_clear(of_schema);
	rc |= json_object_set_new(of_schema, "const", json_string(JM_RECORD_SCHEMA));
	rc |= json_dumpf(schema, out, JSON_INDENT(1));
	fputc('\n', out);
	json_decref(schema);
	return rc ? JM_EXIT_FAILURE : 0;
}

static const char *when(const struct jm_key *key)
{
	return key->flags & JM_KEY_OPTIONAL  ? "where it applies"
	       : key->flags & JM_KEY_OF_CASE ? "of a case"
					     : "always";
}

static void print_key(void *arg, const char *path, const struct jm_key *key)
{
	char type[256];

	jm_keys_type_text(key, type, sizeof(type));
	fprintf(arg, "| `%s` | %s | %s | %s | %s | %s | %s |\n", path, type,
		key->unit ? key->unit : "", when(key), key->meaning ? key->meaning : "",
		key->column && !strstr(path, "[]") ? key->column : "",
		key->since ? key->since : "0.1.0");
}

int jm_help_keys(FILE *out)
{
	fprintf(out,
		"# Keys of a record\n\nMade by `joulemark help --keys`. Written: always, in every "
		"record of a case (`run`), or only where it\napplies. Column: its name in the view "
		"`results` of a store.\n\n"
		"| key | type | unit | written | meaning | column | since |\n"
		"|---|---|---|---|---|---|---|\n");
	jm_keys_each(jm_record_keys, print_key, out);
	return 0;
}
