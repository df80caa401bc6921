/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts. Megatron's index (Megatron-LM, indexed_dataset.py), little-endian: "MMIDIDX\0\0", u64
 * version 1, u8 type, u64 sequences, u64 documents; then i32 lengths in tokens and i64 places in
 * bytes, one of each per sequence, and i64 first sequences, one per document.
 */
#include "data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#define MAGIC	"MMIDIDX\0"
#define N_MAGIC 9
#define HEADER	34
#define VERSION 1

/* By Megatron's code of the type; 0 = no whole numbers. */
static const struct {
	int width;
	bool is_signed;
} types[] = {{0, false}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, false},
	{0, false}, {2, false}};

#define N_TYPES (sizeof(types) / sizeof(*types))

/* ---- the index ------------------------------------------------------------------------------- */

static uint64_t get_u64(const unsigned char *at)
{
	uint64_t x;

	memcpy(&x, at, sizeof(x));
	return x;
}

static int64_t get_i32(const unsigned char *at)
{
	int32_t x;

	memcpy(&x, at, sizeof(x));
	return x;
}

static int broken(const char *name, struct jm_err *err, const char *what)
{
	return jm_err_set(err, JM_EFORMAT,
		"Index %s is damaged: %s; copy it again, or make the data set again with "
		"'joulemark data tokenize' or Megatron's preprocess_data.",
		name, what);
}

/* Everything that does not depend on the sequences. */
static int check_header(
	const char *name, const unsigned char *index, size_t size, struct jm_err *err)
{
	size_t left = size - HEADER; /* where there is a whole one */
	uint64_t sequences, documents;

	if (size < N_MAGIC || memcmp(index, MAGIC, N_MAGIC) != 0)
		return jm_err_set(err, JM_EFORMAT,
			"%s is not the index of a Megatron data set: it does not begin with "
			"'MMIDIDX'.",
			name);
	if (size < HEADER)
		return broken(name, err, "it ends within its header");
	if (get_u64(index + 9) != VERSION)
		return jm_err_set(err, JM_EVERSION,
			"Index %s has version %llu of the format, but only version %d is "
			"supported.",
			name, (unsigned long long)get_u64(index + 9), VERSION);
	if (index[17] >= N_TYPES || !types[index[17]].width)
		return broken(name, err, "its tokens are not of an integer type");
	sequences = get_u64(index + 18);
	documents = get_u64(index + 26);
	if (sequences > left / 12 || documents > (left - 12 * sequences) / 8)
		return broken(name, err, "it is shorter than its header states");
	return sequences ? 0 : broken(name, err, "it holds no sequences");
}

static int place_sequences(const char *name, const unsigned char *index, size_t bin_size,
	struct jm_corpus *c, struct jm_err *err)
{
	const unsigned char *lengths = index + HEADER, *places = lengths + 4 * c->n_sequences;

	for (int64_t i = 0; i < c->n_sequences; i++) {
		int64_t n = get_i32(lengths + 4 * i);
		uint64_t at = get_u64(places + 8 * i);

		if (n < 0)
			return broken(name, err, "a sequence has a negative length");
		if (at > bin_size || (uint64_t)n * (uint64_t)c->width > bin_size - at)
			return broken(
				name, err, "a sequence extends beyond the end of the .bin file");
		c->start[i] = c->tokens;
		c->pointer[i] = (int64_t)at;
		c->tokens += n;
	}
	c->start[c->n_sequences] = c->tokens;
	return c->tokens ? 0 : broken(name, err, "all its sequences are empty");
}

int jm_corpus_index(const char *name, const void *index, size_t size, size_t bin_size,
	struct jm_corpus *ret, struct jm_err *err)
{
	const unsigned char *bytes = index;
	int code = check_header(name, bytes, size, err);
	struct jm_corpus c = {0};

	if (code)
		return code;
	c.width = types[bytes[17]].width;
	c.is_signed = types[bytes[17]].is_signed;
	c.n_sequences = (int64_t)get_u64(bytes + 18);
	c.n_documents = (int64_t)get_u64(bytes + 26);
	c.n_documents -= c.n_documents > 0; /* the last one is the end of all */
	c.start = calloc((size_t)c.n_sequences + 1, sizeof(*c.start));
	c.pointer = calloc((size_t)c.n_sequences, sizeof(*c.pointer));
	if (!c.start || !c.pointer)
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for index %s.", name);
	if (!code)
		code = place_sequences(name, bytes, bin_size, &c, err);
	if (code) {
		free(c.start);
		free(c.pointer);
		return code;
	}
	*ret = c;
	return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int open_file(const char *path, int *ret_fd, size_t *ret_size, struct jm_err *err)
{
	/* O_NONBLOCK: opening a pipe would wait for its writer */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Text %s cannot be opened: %s; give another with --text FILE.", path,
			strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size) {
		close(fd);
		return jm_err_set(err, JM_EFORMAT,
			"Text %s is empty or not a regular file; give another with --text FILE.",
			path);
	}
	*ret_fd = fd;
	*ret_size = (size_t)st.st_size;
	return 0;
}

/* Files are read, not mapped: access beyond the end of one that became shorter would kill the
 * process. */
static int read_at(int fd, const char *name, size_t at, void *room, size_t size, struct jm_err *err)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(fd, (char *)room + done, size - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return jm_err_set(
				err, JM_EIO, "Text %s cannot be read: %s.", name, strerror(errno));
		if (!n)
			return jm_err_set(err, JM_EFORMAT,
				"Text %s became shorter while it was read; start again when "
				"nothing writes to it.",
				name);
		done += (size_t)n;
	}
	return 0;
}

int jm_corpus_take(const char *name, int fd, size_t bytes, struct jm_corpus *c, struct jm_err *err)
{
	c->bytes = bytes;
	c->name = strdup(name);
	c->fd = fd;
	return c->name ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for text %s.", name);
}

static int read_index(const char *idx, size_t bin_size, struct jm_corpus *ret, struct jm_err *err)
{
	size_t size;
	void *index;
	int fd, code = open_file(idx, &fd, &size, err);

	if (code)
		return code;
	index = malloc(size);
	code = index ? read_at(fd, idx, 0, index, size, err)
		     : jm_err_set(err, JM_ENOMEM, "Out of memory for index %s.", idx);
	if (!code)
		code = jm_corpus_index(idx, index, size, bin_size, ret, err);
	free(index);
	close(fd);
	return code;
}

/* idx: NULL = a token is a byte. */
static int open_text(const char *path, const char *idx, struct jm_corpus *ret, struct jm_err *err)
{
	struct jm_corpus c = {.width = 1};
	size_t size;
	int fd, code = open_file(path, &fd, &size, err);

	if (code)
		return code;
	c.tokens = (int64_t)size;
	if (idx)
		code = read_index(idx, size, &c, err);
	if (!code)
		code = jm_corpus_take(path, fd, size, &c, err);
	if (code) {
		close(fd);
		jm_corpus_close(&c);
		return code;
	}
	*ret = c;
	return 0;
}

static bool is_bin(const char *path, size_t n)
{
	return n > 4 && !strcmp(path + n - 4, ".bin");
}

/* The length of NAME when path is NAME.bin or NAME.idx, or NAME is no file but NAME.idx is; else
 * 0. */
static size_t stem_of(const char *path)
{
	size_t n = strlen(path), stem = n;
	char idx[PATH_MAX];

	if (is_bin(path, n) || (n > 4 && !strcmp(path + n - 4, ".idx")))
		stem = n - 4;
	snprintf(idx, sizeof(idx), "%.*s.idx", (int)stem, path);
	if (stem == n && !access(path, F_OK))
		return 0;
	return access(idx, F_OK) ? 0 : stem;
}

int jm_corpus_open(const char *path, struct jm_corpus *ret, struct jm_err *err)
{
	size_t stem = strlen(path) < PATH_MAX - 8 ? stem_of(path) : 0;
	char idx[PATH_MAX], bin[PATH_MAX];

	if (!stem && is_bin(path, strlen(path)) && !access(path, F_OK))
		return jm_err_set(err, JM_EFORMAT,
			"Text %s has no index: the file of the same name that ends in .idx is "
			"missing. Copy the index beside it, or, to train on its bytes, rename %s "
			"so that it does not end in .bin.",
			path, path);
	if (!stem)
		return open_text(path, NULL, ret, err);
	snprintf(idx, sizeof(idx), "%.*s.idx", (int)stem, path);
	snprintf(bin, sizeof(bin), "%.*s.bin", (int)stem, path);
	return open_text(bin, idx, ret, err);
}

void jm_corpus_close(struct jm_corpus *c)
{
	if (c->name)
		close(c->fd);
	free(c->name);
	free(c->start);
	free(c->pointer);
	*c = (struct jm_corpus){0};
}

int jm_corpus_digest(const struct jm_corpus *c, size_t n, uint64_t *ret, struct jm_err *err)
{
	XXH3_state_t *state = XXH3_createState();
	char bytes[65536];
	int code = 0;

	if (!state)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for text %s.", c->name);
	XXH3_64bits_reset(state);
	for (size_t at = 0, now; at < n && !code; at += now) {
		now = n - at < sizeof(bytes) ? n - at : sizeof(bytes);
		code = read_at(c->fd, c->name, at, bytes, now, err);
		if (!code)
			XXH3_64bits_update(state, bytes, now);
	}
	if (!code)
		*ret = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return code;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int32_t token_of(const struct jm_corpus *c, const unsigned char *bytes)
{
	uint64_t x = 0;
	int64_t value;
	int unused = 64 - 8 * c->width;

	memcpy(&x, bytes, (size_t)c->width);
	value = c->is_signed ? (int64_t)(x << unused) >> unused : (int64_t)x;
	return value >= 0 && value <= INT32_MAX ? (int32_t)value : -1;
}

/* The sequence that holds the token. */
static int64_t sequence_of(const struct jm_corpus *c, int64_t token)
{
	int64_t low = 0, high = c->n_sequences;

	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;

		if (c->start[middle] <= token)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* n tokens that follow each other in the file. */
static int read_run(
	const struct jm_corpus *c, int64_t byte, int64_t n, int32_t *ret, struct jm_err *err)
{
	unsigned char bytes[8192];
	int64_t most = (int64_t)sizeof(bytes) / c->width;

	for (int64_t done = 0; done < n; done += most) {
		int64_t now = n - done < most ? n - done : most;
		int code = read_at(c->fd, c->name, (size_t)(byte + done * c->width), bytes,
			(size_t)(now * c->width), err);

		if (code)
			return code;
		for (int64_t i = 0; i < now; i++)
			ret[done + i] = token_of(c, bytes + i * c->width);
	}
	return 0;
}

int jm_corpus_read(
	const struct jm_corpus *c, int64_t at, int64_t n, int32_t *ret, struct jm_err *err)
{
	int64_t s = c->start ? sequence_of(c, at) : 0;
	int code = 0;

	if (!c->start)
		return read_run(c, at * c->width, n, ret, err);
	for (int64_t now; n > 0 && !code; n -= now, at += now, ret += now, s++) {
		int64_t left = c->start[s + 1] - at;

		now = n < left ? n : left;
		code = read_run(c, c->pointer[s] + (at - c->start[s]) * c->width, now, ret, err);
	}
	return code;
}
