/* SPDX-License-Identifier: Apache-2.0 */
#include "prompts.h"
#include "data/tokenizer/tokenizer_json.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST	  1000000   /* prompts, and tokens of a prompt */
#define LINE_MOST (8 << 20) /* bytes of a line, as of a body of --listen */

int jm_prompts_open_tokenizer(
	const struct jm_prompts_source *source, struct jm_prompts *ret, struct jm_err *err)
{
	char file[PATH_MAX];

	*ret = (struct jm_prompts){0};
	if (source->tokenizer)
		return jm_tokenizer_open(source->tokenizer, &ret->tokenizer, err);
	if (source->from &&
		snprintf(file, sizeof(file), "%s/tokenizer.json", source->from) <
			(int)sizeof(file) &&
		!access(file, F_OK))
		return jm_tokenizer_open(file, &ret->tokenizer, err);
	return 1;
}

static int check_tokens(const struct jm_prompts_source *source, const struct jm_prompts *p,
	size_t from, long line, struct jm_err *err)
{
	if (p->ids.n == from || p->ids.n - from > MOST)
		return jm_err_set(err, JM_EFORMAT,
			"Line %ld of text %s has %zu tokens; a prompt has 1 to %d.", line,
			source->text, p->ids.n - from, MOST);
	for (size_t i = from; i < p->ids.n; i++)
		if (p->ids.at[i] >= source->vocab)
			return jm_err_set(err, JM_EUSAGE,
				"Line %ld of text %s has token %d, but the model has %lld tokens "
				"only; give the tokenizer of this model.",
				line, source->text, (int)p->ids.at[i], (long long)source->vocab);
	return 0;
}

static int add_line(const struct jm_prompts_source *source, struct jm_prompts *p, const char *text,
	size_t n, long line, struct jm_err *err)
{
	size_t from = p->ids.n, *more = NULL;
	int code = jm_tokenizer_encode(p->tokenizer, text, n, JM_TOKENIZER_TEMPLATE, &p->ids, err);

	if (!code)
		code = check_tokens(source, p, from, line, err);
	if (code)
		return code;
	if (p->n == MOST)
		return jm_err_set(err, JM_EUSAGE, "Text %s has more than %d lines; give fewer.",
			source->text, MOST);
	more = realloc(p->end, ((size_t)p->n + 1) * sizeof(*more));
	if (!more)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for prompts.");
	p->end = more;
	p->end[p->n++] = p->ids.n;
	n = p->ids.n - from;
	p->longest = (int)n > p->longest ? (int)n : p->longest;
	p->shortest = p->n == 1 || (int)n < p->shortest ? (int)n : p->shortest;
	return 0;
}

/* The next line without its end, of LINE_MOST bytes if it is longer; -1: there is none. */
static ssize_t read_line(FILE *f, char *line)
{
	ssize_t n = 0;
	int c;

	while ((c = getc_unlocked(f)) != EOF && c != '\n' && n < LINE_MOST)
		line[n++] = (char)c;
	return c == EOF && !n ? -1 : n;
}

static int read_lines(
	const struct jm_prompts_source *source, FILE *f, struct jm_prompts *p, struct jm_err *err)
{
	char *line = malloc(LINE_MOST);
	ssize_t n;
	int code = line ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for prompts.");

	for (long number = 1; !code && (n = read_line(f, line)) >= 0; number++) {
		if (n == LINE_MOST)
			code = jm_err_set(err, JM_EFORMAT,
				"Line %ld of text %s is longer than 8 MiB; write one prompt into "
				"each line.",
				number, source->text);
		n -= n && line[n - 1] == '\r';
		if (n && !code)
			code = add_line(source, p, line, (size_t)n, number, err);
	}
	if (!code && !feof(f))
		code = jm_err_set(
			err, JM_EIO, "Text %s cannot be read: %s.", source->text, strerror(errno));
	if (!code && !p->n)
		code = jm_err_set(err, JM_EUSAGE,
			"Text %s has no line with a prompt; write one prompt into each line.",
			source->text);
	free(line);
	return code;
}

int jm_prompts_open(
	const struct jm_prompts_source *source, struct jm_prompts *ret, struct jm_err *err)
{
	FILE *f;
	int code;

	code = jm_prompts_open_tokenizer(source, ret, err);
	if (code > 0)
		return jm_err_set(err, JM_EUSAGE,
			"--text needs the tokenizer of the model; name its tokenizer.json with "
			"--tokenizer, or give --from a folder that has one.");
	if (code)
		return code;
	f = fopen(source->text, "re");
	if (!f)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Text %s cannot be opened: %s.", source->text, strerror(errno));
	code = read_lines(source, f, ret, err);
	fclose(f);
	return code;
}

const int32_t *jm_prompts_tokens(const struct jm_prompts *p, int i, int *ret_n)
{
	size_t from = i ? p->end[i - 1] : 0;

	*ret_n = (int)(p->end[i] - from);
	return p->ids.at + from;
}

bool jm_prompts_decode(
	const struct jm_tokenizer *tokenizer, const int32_t *token, int n, struct jm_bytes *ret)
{
	int32_t *known = calloc((size_t)n, sizeof(*known));
	size_t n_known = 0, length;
	bool good = known;

	for (int i = 0; known && i < n; i++)
		if (jm_tokenizer_token(tokenizer, token[i], &length))
			known[n_known++] = token[i];
	if (n_known)
		good = !jm_tokenizer_decode(tokenizer, known, n_known, false, ret, NULL);
	free(known);
	return good;
}

json_t *jm_prompts_text(const struct jm_prompts *p, const int32_t *token, int n)
{
	struct jm_bytes text = {0};
	json_t *ret = NULL;

	if (p->tokenizer && jm_prompts_decode(p->tokenizer, token, n, &text))
		ret = json_stringn(text.at ? text.at : "", text.n);
	free(text.at);
	return ret ? ret : json_null();
}

void jm_prompts_close(struct jm_prompts *p)
{
	jm_tokenizer_close(p->tokenizer);
	free(p->ids.at);
	free(p->end);
	*p = (struct jm_prompts){0};
}
