/* SPDX-License-Identifier: Apache-2.0 */
#include "meter/source_list.h"
#include "meter/source.h"

#include <stdlib.h>
#include <string.h>

static int add(struct jm_source_list *list, const char *text, size_t n, struct jm_err *err)
{
	char **grown = reallocarray(list->name, (size_t)list->n + 2, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the names of sources.");
	list->name = grown;
	grown[list->n] = strndup(text, n);
	grown[++list->n] = NULL;
	return grown[list->n - 1]
		       ? 0
		       : jm_err_set(err, JM_ENOMEM, "Out of memory for the names of sources.");
}

int jm_source_list_add(struct jm_source_list *list, const char *text, struct jm_err *err)
{
	int rc = 0, before = list->n;
	const char *all = text;

	while (!rc && *text) {
		size_t n = jm_source_length(text);

		if (n)
			rc = add(list, text, n, err);
		text += n + (text[n] == ',');
	}
	if (!rc && *all && list->n == before)
		return jm_err_set(err, JM_EUSAGE,
			"'%.40s' names no source; 'joulemark list sources' lists them.", all);
	return rc;
}

int jm_source_list_take(struct jm_source_list *list, char *const *texts, struct jm_err *err)
{
	int rc = 0;

	for (; !rc && texts && *texts; texts++)
		rc = jm_source_list_add(list, *texts, err);
	return rc;
}

void jm_source_list_done(struct jm_source_list *list)
{
	for (int i = 0; i < list->n; i++)
		free(list->name[i]);
	free(list->name);
	*list = (struct jm_source_list){0};
}
