/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of items in what a command prints: by a regular expression, or a key of JSON. */
#include "output_items.h"
#include "base/option.h"
#include "base/text/json.h"
#include "base/text/number.h"
#include "line_regex.h"
#include "measure/session/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE  65536
#define MAX_WHOLE (4 << 20) /* output kept for a JSON document of many lines */

struct text {
	char *bytes;
	size_t n, room, limit;
};

struct jm_scan {
	struct jm_regex *regex; /* NULL: key */
	char *key;
	bool names;
	struct text line, whole;
	char near[128], unread[64]; /* see jm_scan_near, jm_scan_unread */
	long found, n_unread, n_limited;
};

static void add_text(struct text *t, const char *bytes, size_t n)
{
	if (t->n + n > t->limit)
		n = t->limit - t->n;
	if (t->n + n + 1 > t->room) {
		size_t room = 2 * (t->n + n) + 256;
		char *grown = realloc(t->bytes, room);

		if (!grown)
			return;
		t->bytes = grown;
		t->room = room;
	}
	memcpy(t->bytes + t->n, bytes, n);
	t->n += n;
	t->bytes[t->n] = '\0';
}

int jm_scan_new(const char *regex, const char *json_key, struct jm_scan **ret, struct jm_err *err)
{
	struct jm_scan *s;
	int rc = 0;

	if (!regex == !json_key)
		return jm_err_set(err, JM_EUSAGE,
			"Give either a regular expression or a JSON key for the items, not both.");
	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to read a command's output.");
	s->line.limit = MAX_LINE;
	s->whole.limit = MAX_WHOLE;
	if (regex)
		rc = jm_regex_new(regex, &s->regex, err);
	else if (!(s->key = strdup(json_key)))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory to read a command's output.");
	if (rc)
		jm_scan_free(s);
	else
		*ret = s;
	return rc;
}

static void credit(struct jm_scan *s, double items, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	struct jm_mark mark = {.t_ns = t_ns, .items = items};

	if (!isfinite(items) || items < 0)
		return;
	s->found++;
	fn(arg, &mark);
}

int jm_scan_new_names(const char *regex, struct jm_scan **ret, struct jm_err *err)
{
	int rc = jm_scan_new(regex, NULL, ret, err);

	if (!rc)
		(*ret)->names = true;
	return rc;
}

/* A matched group that is a number as a whole: "1,234" is not 1 item. */
static void credit_group(
	struct jm_scan *s, const char *group, size_t n, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	char text[sizeof(s->unread)], *number;
	double items;

	for (; n && strchr(" \t", *group); group++)
		n--;
	snprintf(text, sizeof(text), "%.*s", (int)(n < sizeof(text) ? n : sizeof(text)), group);
	number = strdupa(text);
	number[strcspn(number, " \t")] = '\0';
	if (strlen(number) < sizeof(text) - 1 && jm_number_real(number, &items) && items >= 0) {
		credit(s, items, t_ns, fn, arg);
		return;
	}
	if (!s->n_unread++)
		memcpy(s->unread, text, sizeof(text));
}

/* Blanks around it are no part of a name. */
static void credit_name(const struct jm_regex_match *match, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	struct jm_mark mark = {.t_ns = t_ns, .items = NAN, .byte = -1};
	size_t blanks = 0, n;

	while (blanks < match->n_text && strchr(" \t", match->text[blanks]))
		blanks++;
	n = match->n_text - blanks;
	while (n && strchr(" \t", match->text[blanks + n - 1]))
		n--;
	snprintf(mark.name, sizeof(mark.name), "%.*s",
		(int)(n < sizeof(mark.name) ? n : sizeof(mark.name)), match->text + blanks);
	if (*mark.name)
		fn(arg, &mark);
}

static void match_line(struct jm_scan *s, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	struct jm_regex_match match;
	size_t at = 0;
	int rc;

	while ((rc = jm_regex_next(s->regex, s->line.bytes, s->line.n, &at, &match)) > 0) {
		if (s->names)
			credit_name(&match, t_ns, fn, arg);
		else if (!jm_regex_has_group(s->regex))
			credit(s, 1, t_ns, fn, arg);
		else if (match.group)
			credit_group(s, match.group, match.n_group, t_ns, fn, arg);
	}
	s->n_limited += rc < 0;
}

/* The key may be misspelt; the neighbouring keys show what was meant. */
static void remember_near(struct jm_scan *s, json_t *object, const char *name)
{
	const char *names[64], *key, *near;
	size_t n = 0;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (n < sizeof(names) / sizeof(names[0]))
			names[n++] = key;
	}
	near = jm_did_you_mean(name, names, n);
	if (near)
		snprintf(s->near, sizeof(s->near), "%s", near);
}

/* The number at a dotted path; NAN = none. */
static double lookup(struct jm_scan *s, json_t *root)
{
	const char *path = s->key;
	json_t *at = root;

	while (at && path && *path) {
		char name[128];
		size_t n = strcspn(path, ".");
		json_t *object = at;

		if (n >= sizeof(name))
			return NAN;
		memcpy(name, path, n);
		name[n] = '\0';
		at = json_object_get(object, name);
		if (!at && !s->found)
			remember_near(s, object, name);
		path += n + (path[n] == '.');
	}
	return jm_json_real(at);
}

static bool credit_json(
	struct jm_scan *s, const struct text *text, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	json_t *root = json_loadb(text->bytes, text->n, 0, NULL);
	double items = lookup(s, root);

	credit(s, items, t_ns, fn, arg);
	json_decref(root);
	return !isnan(items);
}

static void end_line(struct jm_scan *s, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	if (!s->line.n)
		return;
	if (s->regex)
		match_line(s, t_ns, fn, arg);
	else
		credit_json(s, &s->line, t_ns, fn, arg);
	s->line.n = 0;
}

void jm_scan_feed(
	struct jm_scan *s, const char *bytes, size_t n, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	if (s->key && !s->found)
		add_text(&s->whole, bytes, n);
	while (n) {
		size_t part = 0;

		while (part < n && bytes[part] != '\n' && bytes[part] != '\r')
			part++; /* progress bars begin their line anew by a return */
		add_text(&s->line, bytes, part);
		if (part < n) {
			end_line(s, t_ns, fn, arg);
			part++;
		}
		bytes += part;
		n -= part;
	}
}

void jm_scan_end(struct jm_scan *s, int64_t t_ns, jm_mark_fn *fn, void *arg)
{
	end_line(s, t_ns, fn, arg);
	if (s->key && !s->found && s->whole.n)
		credit_json(s, &s->whole, t_ns, fn, arg);
}

bool jm_scan_has_numbers(const struct jm_scan *s)
{
	return s->key || jm_regex_has_group(s->regex);
}

int jm_scan_check_numbers(const struct jm_scan *s, struct jm_err *err)
{
	if (s && jm_scan_has_numbers(s))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--items-kind says what the numbers of --items-regex or --items-json are, but %s.",
		s ? "this expression has no group that is a number; put parentheses around the "
		    "number, or omit --items-kind"
		  : "neither of the two is given; give one of them, or omit --items-kind");
}

const char *jm_scan_near(const struct jm_scan *s)
{
	return *s->near ? s->near : NULL;
}

long jm_scan_unread(const struct jm_scan *s, const char **ret_first)
{
	*ret_first = s->unread;
	return s->n_unread;
}

long jm_scan_limited(const struct jm_scan *s)
{
	return s->n_limited;
}

void jm_scan_free(struct jm_scan *s)
{
	if (!s)
		return;
	jm_regex_free(s->regex);
	free(s->key);
	free(s->line.bytes);
	free(s->whole.bytes);
	free(s);
}
