/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a journal: lines with checksums, the resulting state, and the choice between
 * record and copy. */
#include "guard/journal_record.h"

#include "base/files/private_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* 3 had no machine, 2 nothing after the guard, 1 neither the guard nor start times */
#define FORMAT	   "4"
#define OLD_FORMAT "1"
#define NOTHING	   "-" /* in place of a value */
/* of a line of format 1, 2, 3 and 4, with its checksum */
#define FIELDS_1 10
#define FIELDS_2 13
#define FIELDS_3 16
#define FIELDS_4 17

static const char *const verbs[] = {"found", "back", "kept", "gone"};
static const char *const ends_words[] = {
	[JM_ENDS_NEVER] = "never",
	[JM_ENDS_REBOOT] = "reboot",
	[JM_ENDS_DRIVER] = "driver",
	[JM_ENDS_PROCESS] = "process",
};
static const char *const known_words[] = {JM_KNOWN_WORDS};
#define N_ENDS	((int)(sizeof(ends_words) / sizeof(ends_words[0])))
#define N_KNOWN ((int)(sizeof(known_words) / sizeof(known_words[0])))

static unsigned long long checksum(const char *line, size_t n)
{
	return XXH3_64bits(line, n);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int format_line(char *out, size_t size, const struct jm_journal_state *s,
	enum jm_journal_verb verb, const struct jm_knob_value *value)
{
	char text[JM_KNOB_TEXT], left[JM_KNOB_TEXT] = NOTHING;
	int n;

	jm_knob_value_write(value, text, sizeof(text));
	if (verb == JM_JOURNAL_KEPT && jm_knob_value_known(&s->left))
		jm_knob_value_write(&s->left, left, sizeof(left));
	n = snprintf(out, size,
		FORMAT "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%llu\t%d\t%llu\t%s\t%s\t%s\t%s\t",
		verbs[verb], s->boot, s->control, s->knob, s->unit, s->device, text,
		(int)s->client.pid, s->client.start, (int)s->guard.pid, s->guard.start,
		ends_words[s->ends], known_words[s->known_by], left,
		*s->machine ? s->machine : NOTHING);
	if (n < 0 || (size_t)n + 18 > size)
		return -1;
	return n + snprintf(out + n, size - (size_t)n, "%016llx\n", checksum(out, (size_t)n));
}

int jm__journal_format(const struct jm_journal_state *s, char *out, size_t size)
{
	int n = 0, more = 0;

	if (s->kept)
		n = format_line(out, size, s, JM_JOURNAL_KEPT, &s->base);
	if (n >= 0 && s->open)
		more = format_line(out + n, size - (size_t)n, s, JM_JOURNAL_FOUND, &s->found);
	return n < 0 || more < 0 ? -1 : n + more;
}

/* Splits a line of n characters (without its end) into its fields; their number, 0 when it is
 * damaged. */
static int split_line(char *line, size_t n, char **field)
{
	static const int n_fields[] = {FIELDS_1, FIELDS_2, FIELDS_3, FIELDS_4};
	char *tab = memrchr(line, '\t', n), *save = line, want[20];
	int i = 0;

	if (!tab)
		return 0;
	snprintf(want, sizeof(want), "%016llx", checksum(line, (size_t)(tab - line) + 1));
	if (strcmp(tab + 1, want) != 0)
		return 0;
	for (char *f; (f = strsep(&save, "\t"));) {
		if (i == FIELDS_4)
			return 0;
		field[i++] = f;
	}
	for (int format = 1; format <= 4; format++)
		if (field[0][0] == '0' + format && !field[0][1])
			return i == n_fields[format - 1] ? i : 0;
	return 0;
}

void jm__journal_apply(
	struct jm_journal_state *s, enum jm_journal_verb verb, const struct jm_knob_value *value)
{
	s->open = verb == JM_JOURNAL_FOUND;
	if (verb == JM_JOURNAL_FOUND)
		s->found = *value;
	if (verb == JM_JOURNAL_KEPT)
		s->base = *value;
	s->kept = verb == JM_JOURNAL_KEPT || (s->kept && verb != JM_JOURNAL_GONE);
}

static struct jm_process process_of(char *const *field)
{
	return (struct jm_process){
		.pid = (pid_t)strtol(field[0], NULL, 10), .start = strtoull(field[1], NULL, 10)};
}

/* The place of a word in a list; false: it is not there. */
static bool find_word(const char *word, const char *const *words, int n, int *ret)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(word, words[i])) {
			*ret = i;
			return true;
		}
	return false;
}

/* What formats 3 and 4 have after the guard. Before it there were the limits of NVIDIA's driver,
 * and simulated ones. */
static bool take_rest(struct jm_journal_state *s, char *const *field, int n)
{
	struct jm_knob_value left = jm_knob_value_of(NAN);
	int ends = strncmp(field[3], "nvml", 4) ? JM_ENDS_NEVER : JM_ENDS_DRIVER,
	    known = JM_KNOWN_READ;

	if (n >= FIELDS_3 &&
		(!find_word(field[12], ends_words, N_ENDS, &ends) ||
			!find_word(field[13], known_words, N_KNOWN, &known) ||
			(strcmp(field[14], NOTHING) != 0 && !jm_knob_value_read(field[14], &left))))
		return false;
	s->ends = (enum jm_ends)ends;
	s->known_by = (enum jm_known_by)known;
	snprintf(s->machine, sizeof(s->machine), "%s",
		n == FIELDS_4 && strcmp(field[15], NOTHING) != 0 ? field[15] : "");
	if (!strcmp(field[1], verbs[JM_JOURNAL_KEPT]))
		s->left = left;
	return true;
}

/* Takes one good line into the state; false when it is not one after all. */
static bool take_line(struct jm_journal_state *s, char **field, int n)
{
	struct jm_knob_value value;
	int verb;

	if (!find_word(field[1], verbs, 4, &verb) || !jm_knob_value_read(field[7], &value) ||
		!take_rest(s, field, n))
		return false;
	snprintf(s->boot, sizeof(s->boot), "%s", field[2]);
	snprintf(s->control, sizeof(s->control), "%s", field[3]);
	snprintf(s->knob, sizeof(s->knob), "%s", field[4]);
	snprintf(s->unit, sizeof(s->unit), "%s", field[5]);
	snprintf(s->device, sizeof(s->device), "%s", field[6]);
	s->guard = (struct jm_process){0};
	s->client = (struct jm_process){.pid = (pid_t)strtol(field[8], NULL, 10)};
	if (n > FIELDS_1) {
		s->client = process_of(field + 8);
		s->guard = process_of(field + 10);
	}
	jm__journal_apply(s, (enum jm_journal_verb)verb, &value);
	return true;
}

/* Version 0.1 made no change before its line was complete. */
static bool is_torn(const char *line, size_t n)
{
	return n < 2 ? !strncmp(line, OLD_FORMAT, n) : !strncmp(line, OLD_FORMAT "\t", 2);
}

void jm__journal_parse(char *text, size_t n, struct jm_journal_state *ret)
{
	size_t start = 0;

	*ret = (struct jm_journal_state){.found = jm_knob_value_of(NAN),
		.base = jm_knob_value_of(NAN),
		.left = jm_knob_value_of(NAN),
		.damaged = n == 0};
	while (start < n) {
		char *end = memchr(text + start, '\n', n - start);
		size_t length = end ? (size_t)(end - text) - start : n - start;
		char *field[FIELDS_4];
		int fields;

		text[start + length] = '\0';
		if (end) {
			fields = split_line(text + start, length, field);
			ret->damaged += !fields || !take_line(ret, field, fields);
		} else {
			ret->damaged += !is_torn(text + start, length);
		}
		start += length + 1;
	}
}

/* ---- record and copy ------------------------------------------------------------------------- */

void jm__journal_file(const char *name, const char *end, char *out, size_t size)
{
	snprintf(out, size, "%.*s%s", JM_JOURNAL_NAME - 1, name, end);
}

/* A file that exists and cannot be read is damaged; why has the reason. JM_ENOENT: there is no
 * file. */
static int read_one(int folder, const char *file, struct jm_journal_state *ret, struct jm_err *why)
{
	size_t n = 0;
	char *text = NULL;
	int rc = jm_private_read(folder, file, JM__MAX_BYTES, &text, &n, why);

	if (rc)
		return rc;
	jm__journal_parse(text, n, ret);
	free(text);
	if (!n)
		return jm_err_set(why, JM_EFORMAT, "%s is empty.", file);
	if (ret->damaged)
		return jm_err_set(why, JM_EFORMAT, "%s has %d damaged line%s.", file, ret->damaged,
			ret->damaged == 1 ? "" : "s");
	return 0;
}

int jm__journal_read(int folder, int copies, const char *name, struct jm_journal_state *ret,
	char *ret_damage, size_t size, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT, why_copy = JM_ERR_INIT;
	struct jm_journal_state record, copy;
	char file[JM_JOURNAL_NAME + 16];
	int rc, rc_copy;

	jm__journal_file(name, JM_JOURNAL_END, file, sizeof(file));
	rc = folder < 0 ? JM_ENOENT : read_one(folder, file, &record, &why);
	rc_copy = copies < 0 ? JM_ENOENT : read_one(copies, file, &copy, &why_copy);
	*ret_damage = '\0';
	/* a user who removes a record wants it not to be restored */
	if (rc == JM_ENOENT && (folder >= 0 || rc_copy == JM_ENOENT))
		return jm_err_set(err, JM_ENOENT, "There is no journal %s.", file);
	if (!rc && (jm__journal_says(&record) || rc_copy || !jm__journal_says(&copy))) {
		*ret = record;
		return 0;
	}
	if (!rc_copy && jm__journal_says(&copy)) {
		*ret = copy;
		snprintf(ret_damage, size, "%s", rc ? why.text : "It has no readable line.");
		return 0;
	}
	return jm_err_set(err, rc == JM_EIO || rc == JM_ENOMEM ? rc : JM_EFORMAT,
		"%s The original value is unknown: nothing was changed, and the file is kept. "
		"Compare 'joulemark get' with what should be; 'joulemark restore --default' sets "
		"the vendor's default.",
		rc == JM_ENOENT ? why_copy.text : why.text);
}

int jm__journal_put(int folder, const char *name, const struct jm_journal_state *s, mode_t mode,
	struct jm_err *err)
{
	char file[JM_JOURNAL_NAME + 16], text[JM__RECORD_SIZE];
	int n;

	jm__journal_file(name, JM_JOURNAL_END, file, sizeof(file));
	if (!jm__journal_says(s)) {
		if (!unlinkat(folder, file, 0) || errno == ENOENT)
			return 0;
		return jm_err_set(err, errno == EROFS || errno == EACCES ? JM_EPERM : JM_EIO,
			"The journal %s cannot be removed: %s; the next start will put the same "
			"value back once more.",
			file, strerror(errno));
	}
	n = jm__journal_format(s, text, sizeof(text));
	if (n < 0)
		return jm_err_set(err, JM_EBUG, "A line of the journal %s is too long.", file);
	return jm_private_replace(folder, file, text, (size_t)n, mode, err);
}
