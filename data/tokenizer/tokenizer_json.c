/* SPDX-License-Identifier: Apache-2.0 */
/* The file tokenizer.json: its parts are read in the order in which they need one another. */
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/tokenizer/tokenizer_ends.h"
#include "data/tokenizer/tokenizer_model.h"
#include "data/tokenizer/tokenizer_steps.h"

#define FILE_MOST ((off_t)1 << 28) /* bytes; the largest one that is known has 34 million */

/* ---- the whole ------------------------------------------------------------------------------- */

/* "\u0000" may stand in a key, where the JSON library takes none: it becomes a noncharacter that
 * the text has not. */
static const char *hide_nul(char *json, size_t n)
{
	static const struct {
		const char *escape, *upper, *bytes;
	} others[] = {{"\\ufdd0", "\\uFDD0", "\xef\xb7\x90"},
		{"\\ufdd1", "\\uFDD1", "\xef\xb7\x91"}, {"\\ufdd2", "\\uFDD2", "\xef\xb7\x92"},
		{"\\ufdd3", "\\uFDD3", "\xef\xb7\x93"}};
	size_t k = 0, most = sizeof(others) / sizeof(others[0]) - 1;

	if (!memmem(json, n, "\\u0000", 6))
		return NULL;
	while (k < most &&
		(memmem(json, n, others[k].escape, 6) || memmem(json, n, others[k].bytes, 3) ||
			memmem(json, n, others[k].upper, 6)))
		k++;
	for (size_t i = 0; i + 1 < n; i++) {
		if (json[i] != '\\')
			continue;
		if (n - i >= 6 && !memcmp(json + i, "\\u0000", 6))
			memcpy(json + i, others[k].escape, 6);
		i++; /* what the backslash stands before */
	}
	return others[k].bytes;
}

static int read_parts(struct jm__reader *r)
{
	static int (*const parts[])(struct jm__reader *) = {jm__read_normalizer,
		jm__read_pre_tokenizer, jm__read_model, jm__read_added, jm__read_post_processor,
		jm__read_decoder};

	if (!json_is_object(r->root))
		return jm__refuse(r, JM_EFORMAT, "it is no JSON object");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int code = parts[i](r);

		if (code)
			return code;
	}
	return jm__tokenizer_find_cuts(r->t, r->err);
}

static int read_json(struct jm_tokenizer *t, char *json, size_t n, struct jm_err *err)
{
	struct jm__reader r = {.t = t, .err = err};
	json_error_t wrong;
	json_t *root;
	int code;

	r.nul = hide_nul(json, n);
	root = json_loadb(json, n, 0, &wrong);
	r.root = root;
	if (!root)
		return jm__refuse(&r, JM_EFORMAT, "it is not JSON, or damaged: %s in line %d",
			wrong.text, wrong.line);
	code = read_parts(&r);
	json_decref(root);
	return code;
}

int jm_tokenizer_read(
	const char *name, const char *json, size_t n, struct jm_tokenizer **ret, struct jm_err *err)
{
	struct jm_tokenizer *t = calloc(1, sizeof(*t));
	char *copy = malloc(n + 1);
	int code = JM_ENOMEM;

	if (t)
		t->name = strdup(name);
	if (!t || !copy || !t->name || !jm__word_cache_init(&t->cache)) {
		jm_err_set(err, code, "Out of memory for tokenizer %s.", name);
	} else {
		memcpy(copy, json, n);
		code = read_json(t, copy, n, err);
	}
	free(copy);
	if (code)
		jm_tokenizer_close(t);
	else
		*ret = t;
	return code;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int open_file(const char *path, size_t *ret_n, struct jm_err *err)
{
	/* O_NONBLOCK: opening a pipe would wait for its writer */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Tokenizer %s cannot be opened: %s; give the tokenizer.json of a model.",
			path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MOST) {
		close(fd);
		return jm_err_set(err, JM_EFORMAT,
			"Tokenizer %s is not a regular file of at most %lld bytes; give the "
			"tokenizer.json of a model.",
			path, (long long)FILE_MOST);
	}
	*ret_n = (size_t)st.st_size;
	return fd;
}

static int read_all(int fd, char *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(fd, to + done, n - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? errno : EIO;
		done += (size_t)got;
	}
	return 0;
}

int jm_tokenizer_open(const char *path, struct jm_tokenizer **ret, struct jm_err *err)
{
	size_t n = 0;
	char *json;
	int fd = open_file(path, &n, err), failed, code;

	if (fd < 0)
		return fd;
	json = malloc(n + 1);
	failed = json ? read_all(fd, json, n) : ENOMEM;
	close(fd);
	code = failed ? jm_err_set(err, failed == ENOMEM ? JM_ENOMEM : JM_EIO,
				"Tokenizer %s cannot be read: %s.", path, strerror(failed))
		      : jm_tokenizer_read(path, json, n, ret, err);
	free(json);
	return code;
}
