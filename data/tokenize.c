/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenize.h"
#include "data/tokenizer/tokenizer_cut.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/output.h"

#define PART (1 << 20) /* bytes */

struct work {
	struct jm_tokenize *job;
	struct jm_megatron *set;
	const char *name; /* of the file */
	FILE *f;
	struct jm_ids ids; /* room for a part */
	struct jm_err *err;
};

/* ---- documents ------------------------------------------------------------------------------- */

static int add(struct work *w, const char *text, size_t n, unsigned int how)
{
	int code;

	w->ids.n = 0;
	if (!w->job->template)
		how &= ~(unsigned int)JM_TOKENIZER_TEMPLATE;
	code = jm_tokenizer_encode(w->job->tokenizer, text, n, how, &w->ids, w->err);
	return code ? code : jm_megatron_add(w->set, w->ids.at, w->ids.n, w->err);
}

static int end(struct work *w)
{
	int code = w->job->eos < 0 ? 0 : jm_megatron_add(w->set, &w->job->eos, 1, w->err);

	return code ? code : jm_megatron_end(w->set, w->err);
}

static int document(struct work *w, const char *text, size_t n)
{
	int code = n ? add(w, text, n, JM_TOKENIZER_TEMPLATE) : 0;

	return n && !code ? end(w) : code;
}

static int cannot_read(struct work *w)
{
	return jm_err_set(w->err, JM_EIO, "Text %s cannot be read: %s.", w->name, strerror(errno));
}

static int no_memory(struct work *w)
{
	return jm_err_set(w->err, JM_ENOMEM, "Out of memory for text %s.", w->name);
}

/* ---- a file as one document ------------------------------------------------------------------ */

struct part {
	char *at;
	size_t n, room;
	unsigned int how; /* of the part that is next */
	bool any;
};

/* Reads until the room is full or the file ends. */
static int fill(struct work *w, struct part *p, bool *ret_ended)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : PART;
		char *at = realloc(p->at, room);

		if (!at)
			return no_memory(w);
		p->at = at;
		p->room = room;
	}
	while (p->n < p->room) {
		size_t n = fread(p->at + p->n, 1, p->room - p->n, w->f);

		p->n += n;
		w->job->bytes += (int64_t)n;
		if (ferror(w->f))
			return cannot_read(w);
		if (!n)
			break;
	}
	*ret_ended = p->n < p->room;
	return 0;
}

/* Encodes up to a place where the text may be cut, or all when it has ended. */
static int take(struct work *w, struct part *p, bool ended)
{
	size_t n = ended ? p->n : jm_tokenizer_cut(w->job->tokenizer, p->at, p->n);
	int code;

	if (!n &&
		!(ended && p->any)) /* a larger part has a place; or an empty file is no document */
		return 0;
	code = add(w, p->at, n, ended ? p->how | JM_TOKENIZER_BEHIND : p->how);
	p->n -= n;
	memmove(p->at, p->at + n, p->n);
	p->how = JM_TOKENIZER_CONTINUES;
	p->any = true;
	return code;
}

static int whole_file(struct work *w)
{
	struct part p = {.how = JM_TOKENIZER_BEFORE};
	bool ended = false;
	int code = 0;

	while (!code && !ended) {
		code = fill(w, &p, &ended);
		if (!code)
			code = take(w, &p, ended);
	}
	free(p.at);
	return code || !p.any ? code : end(w);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int json_line(struct work *w, const char *line, size_t n, int64_t number)
{
	const char *key = w->job->key;
	json_error_t wrong;
	json_t *value = json_loadb(line, n, JSON_ALLOW_NUL, &wrong);
	const json_t *text = json_object_get(value, key);
	int code;

	if (json_is_string(text))
		code = document(w, json_string_value(text), json_string_length(text));
	else
		code = jm_err_set(w->err, JM_EFORMAT, "Line %lld of %s %s '%s'%s%s.",
			(long long)number, w->name,
			value ? "has no text" : "is not a JSON object with a text", key,
			value ? "" : ": ", value ? "" : wrong.text);
	json_decref(value);
	return code;
}

static int each_line(struct work *w)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int code = 0;

	errno = 0;
	for (int64_t number = 1; !code && (n = getline(&line, &room, w->f)) >= 0; number++) {
		w->job->bytes += n;
		n -= n && line[n - 1] == '\n';
		n -= n && line[n - 1] == '\r';
		if (n && w->job->key)
			code = json_line(w, line, (size_t)n, number);
		else
			code = document(w, line, (size_t)n);
	}
	if (!code && !feof(w->f))
		code = errno == ENOMEM ? no_memory(w) : cannot_read(w);
	free(line);
	return code;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int one_file(struct work *w, const char *name)
{
	bool is_input = !strcmp(name, "-");
	int code;

	w->name = is_input ? "of standard input" : name;
	w->f = is_input ? stdin : fopen(name, "re");
	if (!w->f)
		return jm_err_set(w->err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Text %s cannot be opened: %s.", name, strerror(errno));
	code = w->job->lines || w->job->key ? each_line(w) : whole_file(w);
	if (!is_input)
		fclose(w->f);
	return code;
}

static int all_files(void *arg, struct jm_megatron *set, struct jm_err *err)
{
	struct jm_tokenize *job = arg;
	struct work w = {.job = job, .set = set, .err = err};
	int code = 0;

	for (int i = 0; i < job->n_texts && !code; i++)
		code = one_file(&w, job->texts[i]);
	free(w.ids.at);
	return code;
}

/* No text is one of the files that are written. */
static int check_texts(const struct jm_tokenize *job, const char *out, struct jm_err *err)
{
	static const char *const ends[] = {"bin", "idx"};
	char path[PATH_MAX];

	for (int i = 0; i < 2 * job->n_texts; i++) {
		const char *text = job->texts[i / 2];

		if (snprintf(path, sizeof(path), "%s.%s", out, ends[i % 2]) < PATH_MAX &&
			jm_output_same(text, path))
			return jm_err_set(err, JM_EUSAGE,
				"The tokens would replace their text %s; name another OUT than "
				"%s.",
				text, out);
	}
	return 0;
}

int jm_tokenize(struct jm_tokenize *job, const char *out, struct jm_err *err)
{
	int code = check_texts(job, out, err);

	job->bytes = 0;
	return code ? code
		    : jm_megatron_write(out, jm_tokenizer_size(job->tokenizer), all_files, job,
			      &job->size, err);
}
