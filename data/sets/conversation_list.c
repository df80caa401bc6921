/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/conversation_list.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

#define MARK   "<image>"
#define SPACES " \t\n\v\f\r"

struct reader {
	struct jm_conversations *c;
	struct jm_bytes text;
	int64_t turns;
	size_t entry, marks; /* of pictures in this entry */
	const char *file;
	struct jm_err *err;
};

static int wrong(const struct reader *r, const char *what)
{
	return jm_err_set(r->err, JM_EFORMAT, "Entry %zu of %s %s; correct or remove it.", r->entry,
		r->file, what);
}

static int no_memory(const struct reader *r)
{
	return jm_err_set(r->err, JM_ENOMEM, "Out of memory for the conversations of %s.", r->file);
}

/* Does the path stay in its folder? */
static bool is_within(const char *path)
{
	if (!*path || *path == '/')
		return false;
	for (; *path; path += strspn(path, "/")) {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.')
			return false;
		path += n;
	}
	return true;
}

/* Adds the text; of one with the mark of a picture what is left without it and without the spaces
 * and ends of lines around it, as LLaVA's own trainer does. */
static bool add_unmarked(struct jm_bytes *to, const char *text)
{
	const char *mark = strstr(text, MARK);
	size_t start = to->n;

	if (!mark)
		return jm__bytes_add(to, text, strlen(text));
	text += strspn(text, SPACES);
	if (mark > text && !jm__bytes_add(to, text, (size_t)(mark - text)))
		return false;
	mark += strlen(MARK);
	mark += to->n == start ? strspn(mark, SPACES) : 0;
	if (!jm__bytes_add(to, mark, strlen(mark)))
		return false;
	while (to->n > start && strchr(SPACES, to->at[to->n - 1]))
		to->n--;
	return true;
}

static size_t count_marks(const char *text)
{
	size_t n = 0;

	for (; (text = strstr(text, MARK)); text += strlen(MARK))
		n++;
	return n;
}

static int add_turn(struct reader *r, const json_t *turn, bool answers)
{
	const char *from = jm_json_text(turn, "from");

	if (strcmp(from, answers ? "gpt" : "human") != 0 ||
		!json_is_string(json_object_get(turn, "value")))
		return wrong(r, "has a turn that is no object with \"from\", \"human\" and \"gpt\" "
				"in turns, and a text \"value\"");
	r->marks += count_marks(jm_json_text(turn, "value"));
	if (r->marks > 1)
		return wrong(r, "has " MARK " more than once, and one picture");
	if (!add_unmarked(&r->text, jm_json_text(turn, "value")))
		return no_memory(r);
	r->c->texts.start[++r->turns] = (int64_t)r->text.n;
	return 0;
}

static int add_entry(struct reader *r, const json_t *entry)
{
	const json_t *turns = json_object_get(entry, "conversations"), *turn;
	const char *image = jm_json_text(entry, "image");
	struct jm_conversations *c = r->c;
	int code = 0;
	size_t i;

	if (!is_within(image))
		return wrong(r, "has no \"image\", a path within the folder of the file");
	if (!json_array_size(turns) || json_array_size(turns) % 2)
		return wrong(r, "has no \"conversations\", a list of questions with their answers");
	r->marks = 0;
	c->name[c->n] = c->names.n;
	if (!jm__bytes_add(&c->names, image, strlen(image) + 1))
		return no_memory(r);
	json_array_foreach(turns, i, turn) code = code ? code : add_turn(r, turn, i % 2);
	c->texts.first[++c->n] = r->turns;
	return code;
}

static int make_room(struct reader *r, const json_t *list)
{
	struct jm_conversations *c = r->c;
	size_t turns = 0, i;
	const json_t *entry;

	json_array_foreach(list, i, entry) turns +=
		json_array_size(json_object_get(entry, "conversations"));
	c->name = calloc(json_array_size(list), sizeof(*c->name));
	c->texts.first = calloc(json_array_size(list) + 1, sizeof(*c->texts.first));
	c->texts.start = calloc(turns + 1, sizeof(*c->texts.start));
	return c->name && c->texts.first && c->texts.start && jm__bytes_reserve(&r->text, 1)
		       ? 0
		       : no_memory(r);
}

int jm_conversations_read(struct jm_conversations *c, const char *file, const char *bytes, size_t n,
	struct jm_err *err)
{
	struct reader r = {.c = c, .file = file, .err = err};
	json_error_t why;
	json_t *list = json_loadb(bytes, n, 0, &why), *entry;
	int code = 0;

	if (!list)
		code = jm_err_set(
			err, JM_EFORMAT, "%s is no JSON: %s; correct it.", file, why.text);
	else if (!json_array_size(list))
		code = jm_err_set(err, JM_EFORMAT,
			"%s is no list of conversations, as LLaVA has it; name another file.",
			file);
	if (!code)
		code = make_room(&r, list);
	json_array_foreach(list, r.entry, entry) code = code ? code : add_entry(&r, entry);
	c->texts.bytes = r.text.at;
	json_decref(list);
	return code;
}

void jm_conversations_done(struct jm_conversations *c)
{
	free(c->names.at);
	free(c->name);
	free(c->texts.bytes);
	free(c->texts.start);
	free(c->texts.first);
	*c = (struct jm_conversations){0};
}
