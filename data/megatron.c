/* SPDX-License-Identifier: Apache-2.0 */
#include "data/megatron.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/output.h"

#define TYPE_I32   4 /* Megatron's codes */
#define TYPE_U16   8
#define TOKENS_U16 65500

#define SEQUENCE_MOST                                                                              \
	(1 << 30) /* tokens; the index has lengths of 32 bits, so longer documents are several sequences */
#define NEW_DOCUMENT UINT32_C(0x80000000)

struct jm_megatron {
	char bin[PATH_MAX], idx[PATH_MAX];
	FILE *tokens;
	FILE *lengths; /* u32 per sequence; NEW_DOCUMENT: the first one of a document */
	size_t width;
	uint32_t length; /* of the sequence that is being written */
	bool continues;	 /* it does not begin its document */
	uint64_t sequences;
	struct jm_megatron_size size;
	jm_megatron_fn *give;
	void *arg;
	struct jm_err *err;
};

static int cannot(const char *path, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO, "Cannot write %s: %s.", path, strerror(errno ? errno : EIO));
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int end_sequence(struct jm_megatron *m, struct jm_err *err)
{
	uint32_t length = m->length | (m->continues ? 0 : NEW_DOCUMENT);

	if (fwrite(&length, sizeof(length), 1, m->lengths) != 1)
		return cannot(m->idx, err);
	m->sequences++;
	m->length = 0;
	return 0;
}

static bool put(struct jm_megatron *m, const int32_t *ids, size_t n)
{
	uint16_t small[4096];
	const size_t most = sizeof(small) / sizeof(small[0]);

	if (m->width == sizeof(*ids))
		return fwrite(ids, sizeof(*ids), n, m->tokens) == n;
	for (size_t done = 0, now; done < n; done += now) {
		now = n - done < most ? n - done : most;
		for (size_t i = 0; i < now; i++)
			small[i] = (uint16_t)ids[done + i];
		if (fwrite(small, sizeof(*small), now, m->tokens) != now)
			return false;
	}
	return true;
}

int jm_megatron_add(struct jm_megatron *m, const int32_t *ids, size_t n, struct jm_err *err)
{
	for (size_t done = 0, now; done < n; done += now) {
		int code = 0;

		now = n - done;
		if (m->length == SEQUENCE_MOST) {
			code = end_sequence(m, err);
			m->continues = true;
		}
		if (now > SEQUENCE_MOST - m->length)
			now = SEQUENCE_MOST - m->length;
		if (!code && !put(m, ids + done, now))
			code = cannot(m->bin, err);
		if (code)
			return code;
		m->length += (uint32_t)now;
		m->size.tokens += (int64_t)now;
	}
	return 0;
}

int jm_megatron_end(struct jm_megatron *m, struct jm_err *err)
{
	int code = 0;

	if (m->length) {
		code = end_sequence(m, err);
		m->size.documents++;
	}
	m->continues = false;
	return code;
}

/* ---- the index (corpus.c has its form) ------------------------------------------------------- */

/* What is written for a sequence, from its length and the state; 0 bytes = nothing. */
typedef size_t row_fn(const struct jm_megatron *m, uint32_t length, uint64_t *state, void *ret);

static size_t length_row(const struct jm_megatron *m, uint32_t length, uint64_t *state, void *ret)
{
	int32_t tokens = (int32_t)(length & ~NEW_DOCUMENT);

	(void)m, (void)state;
	memcpy(ret, &tokens, sizeof(tokens));
	return sizeof(tokens);
}

static size_t place_row(const struct jm_megatron *m, uint32_t length, uint64_t *state, void *ret)
{
	memcpy(ret, state, sizeof(*state));
	*state += (length & ~NEW_DOCUMENT) * m->width;
	return sizeof(*state);
}

static size_t document_row(const struct jm_megatron *m, uint32_t length, uint64_t *state, void *ret)
{
	(void)m;
	memcpy(ret, state, sizeof(*state));
	*state += 1;
	return length & NEW_DOCUMENT ? sizeof(*state) : 0;
}

static bool put_rows(const struct jm_megatron *m, row_fn *row, FILE *f)
{
	uint64_t state = 0, bytes;
	uint32_t length;

	rewind(m->lengths);
	while (fread(&length, sizeof(length), 1, m->lengths) == 1) {
		size_t n = row(m, length, &state, &bytes);

		if (n && fwrite(&bytes, n, 1, f) != 1)
			return false;
	}
	return !ferror(m->lengths);
}

static bool put_index(const void *what, FILE *f)
{
	const struct jm_megatron *m = what;
	const uint64_t version = 1, documents = (uint64_t)m->size.documents + 1;
	const char type = m->width == 2 ? TYPE_U16 : TYPE_I32;

	return fwrite("MMIDIDX\0", 9, 1, f) == 1 && fwrite(&version, 8, 1, f) == 1 &&
	       fwrite(&type, 1, 1, f) == 1 && fwrite(&m->sequences, 8, 1, f) == 1 &&
	       fwrite(&documents, 8, 1, f) == 1 && put_rows(m, length_row, f) &&
	       put_rows(m, place_row, f) && put_rows(m, document_row, f) &&
	       fwrite(&m->sequences, 8, 1, f) == 1;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* An unnamed file in the folder of the set, or where temporary files go. */
static FILE *open_lengths(const char *name)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(name, '/');
	FILE *f;
	int fd;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - name) + 1 : 1,
		slash ? name : ".");
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	f = fd < 0 ? tmpfile() : fdopen(fd, "w+");
	if (!f && fd >= 0)
		close(fd);
	return f;
}

static bool put_tokens(const void *what, FILE *f)
{
	struct jm_megatron *m = *(struct jm_megatron *const *)what;
	int code;

	m->tokens = f;
	code = m->give(m->arg, m, m->err);
	if (!code)
		code = jm_megatron_end(m, m->err);
	if (!code && !m->size.tokens)
		code = jm_err_set(
			m->err, JM_ERANGE, "The text has no tokens, so %s is not written.", m->bin);
	errno = 0;
	return !code && (!fflush(m->lengths) || !cannot(m->idx, m->err));
}

/* An older index is removed before one of both files gets its place, so that a kill leaves no
 * tokens with the index of others. */
static int replace(struct jm_megatron *m, struct jm_output *bin, struct jm_output *idx)
{
	char old[PATH_MAX]; /* of a link its target, as that is what is replaced */
	int code = realpath(m->idx, old) && unlink(old) ? cannot(m->idx, m->err) : 0;

	if (!code)
		code = jm_output_place(bin, m->err);
	return code ? code : jm_output_place(idx, m->err);
}

/* All of both is on the disk before one of them gets its place. */
static int write_both(struct jm_megatron *m)
{
	const struct jm_megatron *set = m;
	struct jm_output *bin = NULL, *idx = NULL;
	int code = jm_output_begin(m->bin, &bin, m->err);

	if (!code)
		code = jm_output_begin(m->idx, &idx, m->err);
	if (!code)
		code = jm_output_fill(bin, put_tokens, &set, m->err);
	if (!code)
		code = jm_output_fill(idx, put_index, m, m->err);
	if (!code)
		code = replace(m, bin, idx);
	jm_output_end(bin);
	jm_output_end(idx);
	return code;
}

static int write_set(struct jm_megatron *m)
{
	int code;

	m->lengths = open_lengths(m->bin);
	if (!m->lengths)
		return cannot(m->idx, m->err);
	code = jm_output_try(m->bin, m->err);
	if (!code)
		code = jm_output_try(m->idx, m->err);
	if (!code)
		code = write_both(m);
	fclose(m->lengths);
	return code && m->err->code ? m->err->code : code;
}

int jm_megatron_write(const char *name, int32_t tokens, jm_megatron_fn *give, void *arg,
	struct jm_megatron_size *ret, struct jm_err *err)
{
	struct jm_megatron *m = calloc(1, sizeof(*m));
	int code;

	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", name);
	m->width = tokens < TOKENS_U16 ? 2 : 4;
	m->give = give;
	m->arg = arg;
	m->err = err;
	if (snprintf(m->bin, sizeof(m->bin), "%s.bin", name) >= PATH_MAX ||
		snprintf(m->idx, sizeof(m->idx), "%s.idx", name) >= PATH_MAX)
		code = jm_err_set(err, JM_EUSAGE, "The name %.60s... is too long.", name);
	else
		code = write_set(m);
	if (!code)
		*ret = m->size;
	free(m);
	return code;
}
