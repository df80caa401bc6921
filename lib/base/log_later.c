/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the log in memory until waiting for their reader is allowed. */
#include "base/ctx.h"
#include "base/log_later.h"

#include <stdlib.h>
#include <string.h>

/* What there is no memory for is dropped: it would delay what is more important. */
static void collect(void *arg, enum jm_level level, const char *line)
{
	struct jm_log_later *l = arg;
	size_t n = strlen(line) + 2;
	char *grown = realloc(l->text, l->n + n);

	if (!grown)
		return;
	grown[l->n] = (char)level;
	memcpy(grown + l->n + 1, line, n - 1);
	l->text = grown;
	l->n += n;
}

void jm_log_later_init(struct jm_log_later *l, const struct jm_ctx *to)
{
	*l = (struct jm_log_later){.ctx = *to, .to = to};
	l->ctx.log = collect;
	l->ctx.log_arg = l;
}

void jm_log_later_done(struct jm_log_later *l)
{
	for (size_t i = 0; i < l->n; i += strlen(l->text + i + 1) + 2)
		jm_log(l->to, (enum jm_level)l->text[i], "%s", l->text + i + 1);
	free(l->text);
	l->text = NULL;
	l->n = 0;
}
