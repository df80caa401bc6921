/* SPDX-License-Identifier: Apache-2.0 */
#include "compare_names.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "report/model/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST, DEVICES, FILE_NAME, FILTER, PARTS };

struct parts {
	char text[PARTS][200]; /* "" = unknown */
};

/* Of all records; "several hosts" where they have several. */
static void add_machine(struct parts *p, const char *host, const char *devices)
{
	if (*host && strcmp(p->text[HOST], host) != 0)
		jm_text_format(p->text[HOST], sizeof(p->text[HOST]), "%s",
			*p->text[HOST] ? "several hosts" : host);
	if (*devices && strcmp(p->text[DEVICES], devices) != 0)
		jm_text_format(p->text[DEVICES], sizeof(p->text[DEVICES]), "%s",
			*p->text[DEVICES] ? "several devices" : devices);
}

/* Records of one host follow each other mostly, so that the first and the last would not do. */
static int read_parts(const struct jm_compare_side *side, struct parts *p)
{
	const char *name = strrchr(side->file, '/');
	const json_t *record;
	size_t i;

	*p = (struct parts){.text = {""}};
	json_array_foreach(side->records, i, record)
	{
		struct jm_machine machine;

		if (jm_machine_of(record, &machine))
			return -1;
		add_machine(p, machine.part[JM_MACHINE_HOST],
			*machine.models ? machine.models : jm_json_text(record, "device"));
		jm_machine_done(&machine);
	}
	jm_text_format(
		p->text[FILE_NAME], sizeof(p->text[FILE_NAME]), "%s", name ? name + 1 : side->file);
	if (strlen(side->given) > strlen(side->file))
		jm_text_format(p->text[FILTER], sizeof(p->text[FILTER]), "%s",
			side->given + strlen(side->file) + 1);
	return 0;
}

/* The first part in which they differ; that of a filter where it is what was asked to differ. */
static int distinguishing(const struct parts p[2])
{
	for (int i = 0; i < PARTS; i++)
		if (strcmp(p[0].text[i], p[1].text[i]) != 0 && *p[0].text[i] && *p[1].text[i])
			return i;
	return PARTS;
}

static void put_names(const struct parts *p, int by, char letter, char *head, size_t size,
	char *whole, size_t whole_size)
{
	jm_text_format(
		head, size, "%c%s%s", letter, by < PARTS ? " " : "", by < PARTS ? p->text[by] : "");
	*whole = '\0';
	for (int i = 0; i < PARTS; i++)
		jm_text_append(whole, whole_size, ", ", p->text[i]);
}

int jm_compare_name_sides(
	const struct jm_compare_side side[2], struct jm_compare_names *ret, struct jm_err *err)
{
	struct parts p[2];
	int by;

	if (read_parts(&side[0], &p[0]) || read_parts(&side[1], &p[1]))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the names of the sides.");
	by = distinguishing(p);
	for (int i = 0; i < 2; i++)
		put_names(&p[i], by, i ? 'B' : 'A', ret->head[i], sizeof(ret->head[i]),
			ret->whole[i], sizeof(ret->whole[i]));
	return 0;
}
