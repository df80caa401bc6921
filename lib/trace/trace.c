/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace. Each signal has a block that fills with chunks (codec.h); a full block goes to an
 * unlinked temporary file, or to another one where the disk is full, and leaves an index entry, so
 * that memory hardly grows with the run.
 */
#include "trace/trace.h"
#include "trace/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 16384
#define CHUNK_BYTES 4096 /* a chunk that has grown to this is closed */
#define DECODED	    128	 /* readings at a time */
#define FILES	    3	 /* in TMPDIR, /var/tmp and /tmp */

/* A block in a file. */
struct block {
	int64_t t0;
	off_t offset;
	uint32_t bytes;
	int file;
};

struct log {
	double step;
	struct block *blocks;
	int n_blocks, room;
	uint8_t *bytes; /* the block that fills: `closed` bytes of chunks, then the open chunk */
	size_t closed;
	struct jm_encoder encoder; /* of the open chunk */
	struct jm_reading last;	   /* newest reading */
	bool any, held;		   /* held: last repeats the value before and is not written yet */
	int64_t block_t0;
	/* chunks before this one were passed on */
	int flushed_blocks;
	size_t flushed;
};

struct jm_trace {
	struct log *log;
	int n;
	int fd[FILES];
	int file; /* that grows; the next one when there is no room for it */
	off_t end;
	int broken; /* the error after which nothing more can be kept; 0 = none */
};

struct jm_trace *jm_trace_new(const struct jm_meters *set, struct jm_err *err)
{
	struct jm_trace *t = calloc(1, sizeof(*t));

	if (t)
		t->log = calloc((size_t)set->n_signals + 1, sizeof(*t->log));
	if (!t || !t->log) {
		free(t);
		jm_err_set(
			err, JM_ENOMEM, "Out of memory for a trace of %d signals.", set->n_signals);
		return NULL;
	}
	t->n = set->n_signals;
	for (int i = 0; i < FILES; i++)
		t->fd[i] = -1;
	for (int i = 0; i < t->n; i++) {
		t->log[i].step = set->signal[i].step;
		jm_encoder_init(&t->log[i].encoder, t->log[i].step);
	}
	return t;
}

void jm_trace_free(struct jm_trace *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->n; i++) {
		free(t->log[i].blocks);
		free(t->log[i].bytes);
	}
	for (int i = 0; i < FILES; i++)
		if (t->fd[i] >= 0)
			close(t->fd[i]);
	free(t->log);
	free(t);
}

/* A file without a name. Network file systems, and overlayfs before Linux 6.3 (containers), know
 * none from the start: there one with a name loses it at once. */
static int nameless_file(const char *folder)
{
	char path[PATH_MAX];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 ||
		(size_t)snprintf(path, sizeof(path), "%s/joulemark-XXXXXX", folder) >= sizeof(path))
		return fd;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* Returns 0 or errno. */
static int open_file(struct jm_trace *t, int file)
{
	const char *const folders[FILES] = {secure_getenv("TMPDIR"), "/var/tmp", "/tmp"};

	if (t->fd[file] >= 0)
		return 0;
	if (!folders[file] || !*folders[file])
		return ENOENT;
	t->fd[file] = nameless_file(folders[file]);
	return t->fd[file] < 0 ? errno : 0;
}

/* Returns 0 or errno. */
static int write_all(int fd, const uint8_t *bytes, size_t n, off_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = pwrite(fd, bytes + done, n - done, at + (off_t)done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? errno : ENOSPC;
		done += (size_t)k;
	}
	return 0;
}

/* Into the file that grows, or the first one behind it that has room. */
static int put_block(
	struct jm_trace *t, const uint8_t *bytes, struct block *block, struct jm_err *err)
{
	int why = 0;

	for (int file = t->file; file < FILES; file++) {
		block->file = file;
		block->offset = file == t->file ? t->end : 0;
		why = open_file(t, file);
		if (!why)
			why = write_all(t->fd[file], bytes, block->bytes, block->offset);
		if (why)
			continue;
		t->file = file;
		t->end = block->offset + block->bytes;
		return 0;
	}
	return jm_err_set(err, JM_EIO,
		"Cannot write a temporary file of the trace in TMPDIR, /var/tmp or /tmp: %s. Set "
		"TMPDIR to a folder with free space.",
		strerror(why));
}

/* The full block of closed chunks goes to a file. */
static int spill(struct jm_trace *t, struct log *log, struct jm_err *err)
{
	struct block block = {.t0 = log->block_t0, .bytes = (uint32_t)log->closed};
	int rc;

	if (log->n_blocks == log->room) {
		int room = log->room ? log->room * 2 : 8;
		struct block *grown = reallocarray(log->blocks, (size_t)room, sizeof(*grown));

		if (!grown)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a trace.");
		log->blocks = grown;
		log->room = room;
	}
	rc = put_block(t, log->bytes, &block, err);
	if (rc)
		return rc;
	log->blocks[log->n_blocks++] = block;
	log->closed = 0;
	return 0;
}

static uint8_t *open_chunk(const struct log *log)
{
	return log->bytes + log->closed;
}

/* Chunks are only closed at the end of what was written, so a block's last time is `last`. */
static int close_chunk(struct jm_trace *t, struct log *log, struct jm_err *err)
{
	if (!log->encoder.records)
		return 0;
	jm_encode_header(&log->encoder, open_chunk(log));
	log->closed += JM_CHUNK_HEADER + log->encoder.bytes;
	jm_encoder_init(&log->encoder, log->step);
	if (log->closed + JM_CHUNK_HEADER + CHUNK_BYTES > BLOCK_BYTES)
		return spill(t, log, err);
	return 0;
}

static int emit(struct jm_trace *t, struct log *log, struct jm_reading r, struct jm_err *err)
{
	if (!log->bytes) {
		log->bytes = malloc(BLOCK_BYTES);
		if (!log->bytes)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a trace.");
	}
	if (!log->closed && !log->encoder.records)
		log->block_t0 = r.t_ns;
	jm_encode(&log->encoder, r, open_chunk(log) + JM_CHUNK_HEADER + log->encoder.bytes);
	if (log->encoder.bytes + JM_RECORD_MAX > CHUNK_BYTES)
		return close_chunk(t, log, err);
	return 0;
}

static int emit_held(struct jm_trace *t, struct log *log, struct jm_err *err)
{
	if (!log->held)
		return 0;
	log->held = false;
	return emit(t, log, log->last, err);
}

static bool equal(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static int append_change(
	struct jm_trace *t, struct log *log, struct jm_reading r, struct jm_err *err)
{
	int rc;

	if (t->broken)
		return jm_err_set(err, t->broken, "The trace can no longer be stored.");
	if (log->any && r.t_ns <= log->last.t_ns)
		return 0;
	if (isinf(r.value))
		r.value = NAN;
	log->encoder.readings++;
	if (log->any && equal(r.value, log->last.value)) {
		log->last.t_ns = r.t_ns;
		log->held = true;
		return 0;
	}
	rc = emit_held(t, log, err);
	log->any = true;
	log->last = r;
	if (!rc)
		rc = emit(t, log, r, err);
	t->broken = rc;
	return rc;
}

/* Most readings of a sensor repeat the one before. */
static inline int append(
	struct jm_trace *t, struct log *log, const struct jm_reading *r, struct jm_err *err)
{
	if (t->broken || !log->any || r->value != log->last.value || r->t_ns <= log->last.t_ns)
		return append_change(t, log, *r, err);
	log->encoder.readings++;
	log->last.t_ns = r->t_ns;
	log->held = true;
	return 0;
}

int jm_trace_append(struct jm_trace *t, int signal, struct jm_reading r, struct jm_err *err)
{
	return append(t, &t->log[signal], &r, err);
}

int jm_trace_append_all(
	struct jm_trace *t, const struct jm_signal_reading *reading, size_t n, struct jm_err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++)
		rc = append(t, &t->log[reading[i].signal], &reading[i].reading, err);
	return rc;
}

struct jm_reading jm_trace_newest(const struct jm_trace *t, int signal)
{
	const struct log *log = &t->log[signal];

	return log->any ? log->last : (struct jm_reading){.value = NAN};
}

static int read_block(
	const struct jm_trace *t, const struct block *block, uint8_t *out, struct jm_err *err)
{
	for (size_t done = 0; done < block->bytes;) {
		ssize_t k = pread(t->fd[block->file], out + done, block->bytes - done,
			block->offset + (off_t)done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return jm_err_set(err, JM_EIO,
				"Cannot read a temporary file of the trace: %s.",
				k ? strerror(errno) : "the file has become shorter");
		done += (size_t)k;
	}
	return 0;
}

typedef int chunk_fn(void *arg, const struct jm_chunk *chunk, struct jm_err *err);

int jm_chunk_parse(
	int signal, const void *data, size_t bytes, struct jm_chunk *ret, struct jm_err *err)
{
	struct jm_decoder d;
	struct jm_reading r;
	size_t whole;
	int rc = jm_decoder_init(&d, data, bytes, &whole, err);

	if (rc)
		return rc;
	if (whole != bytes || !d.records)
		rc = JM_EFORMAT;
	while (!rc && (rc = jm_decode(&d, &r)) > 0)
		rc = 0;
	if (rc || d.t != d.t1)
		return jm_err_set(err, JM_EFORMAT,
			"A chunk of a trace of %zu bytes is damaged at reading %u.", bytes, d.done);
	*ret = (struct jm_chunk){
		.signal = signal,
		.t0_ns = d.t0,
		.t1_ns = d.t1,
		.n = d.readings,
		.data = data,
		.bytes = bytes,
	};
	return 0;
}

void jm_chunk_shift(void *data, int64_t by_ns)
{
	jm_shift_header(data, by_ns);
}

int jm_chunk_each(const struct jm_chunk *chunk, int (*fn)(void *arg, struct jm_reading reading),
	void *arg, struct jm_err *err)
{
	struct jm_decoder d;
	struct jm_reading r;
	size_t whole;
	int rc = jm_decoder_init(&d, chunk->data, chunk->bytes, &whole, err), stop = 0;

	while (!rc && !stop && (rc = jm_decode(&d, &r)) > 0) {
		stop = fn(arg, r);
		rc = 0;
	}
	if (rc < 0)
		return jm_err_set(err, JM_EFORMAT,
			"A chunk of a trace of %zu bytes is damaged at reading %u.", chunk->bytes,
			d.done);
	return rc;
}

/* Passes on the chunks within an interval of whole chunks. */
static int hand_out(
	int signal, const uint8_t *bytes, size_t n, chunk_fn *fn, void *arg, struct jm_err *err)
{
	int rc = 0;

	for (size_t at = 0; !rc && at < n;) {
		struct jm_chunk chunk;
		struct jm_decoder d;
		size_t whole;

		rc = jm_decoder_init(&d, bytes + at, n - at, &whole, err);
		if (rc)
			break;
		chunk = (struct jm_chunk){signal, d.t0, d.t1, d.readings, bytes + at, whole};
		rc = fn(arg, &chunk, err);
		at += whole;
	}
	return rc;
}

static int flush_log(
	struct jm_trace *t, struct log *log, chunk_fn *fn, void *arg, struct jm_err *err)
{
	int signal = (int)(log - t->log), rc;

	rc = emit_held(t, log, err);
	if (!rc)
		rc = close_chunk(t, log, err);
	for (; !rc && log->flushed_blocks < log->n_blocks; log->flushed_blocks++) {
		const struct block *block = &log->blocks[log->flushed_blocks];
		uint8_t bytes[BLOCK_BYTES];
		size_t skip = log->flushed;

		log->flushed = 0;
		if (fn)
			rc = read_block(t, block, bytes, err);
		if (fn && !rc)
			rc = hand_out(signal, bytes + skip, block->bytes - skip, fn, arg, err);
	}
	if (!rc && fn && log->closed > log->flushed)
		rc = hand_out(signal, log->bytes + log->flushed, log->closed - log->flushed, fn,
			arg, err);
	log->flushed = log->closed;
	return rc;
}

int jm_trace_flush(struct jm_trace *t, chunk_fn *fn, void *arg, struct jm_err *err)
{
	int rc = 0;

	if (t->broken)
		return jm_err_set(err, t->broken, "The trace can no longer be stored.");
	for (int i = 0; !rc && i < t->n; i++)
		rc = flush_log(t, &t->log[i], fn, arg, err);
	return rc;
}

int jm_trace_chunks(struct jm_trace *t, chunk_fn *fn, void *arg, struct jm_err *err)
{
	for (int i = 0; i < t->n; i++) {
		t->log[i].flushed_blocks = 0;
		t->log[i].flushed = 0;
	}
	return jm_trace_flush(t, fn, arg, err);
}

int jm_trace_add_chunk(struct jm_trace *t, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct jm_chunk checked;
	struct jm_decoder d;
	struct jm_reading r;
	size_t whole;
	int rc;

	if (chunk->signal < 0 || chunk->signal >= t->n)
		return jm_err_set(err, JM_EFORMAT,
			"A chunk of a trace belongs to signal %d, but there are only %d signals.",
			chunk->signal, t->n);
	rc = jm_chunk_parse(chunk->signal, chunk->data, chunk->bytes, &checked, err);
	if (!rc && t->log[chunk->signal].any && checked.t0_ns <= t->log[chunk->signal].last.t_ns)
		rc = jm_err_set(err, JM_EFORMAT,
			"The chunks of signal %d of a trace are not in order of time.",
			chunk->signal);
	if (rc)
		return rc;
	jm_decoder_init(&d, chunk->data, chunk->bytes, &whole, NULL);
	while (!rc && jm_decode(&d, &r) > 0)
		rc = jm_trace_append(t, chunk->signal, r, err);
	return rc;
}

/* ---- reading ---- */

struct walk {
	int64_t t0, t1;
	struct jm_reading before;
	bool has_before, done;
	jm_readings_fn *fn;
	void *arg;
};

static void pass_on(struct walk *w, const struct jm_reading *reading, int n)
{
	if (!w->done && n)
		w->done = w->fn(w->arg, reading, n) != 0;
}

static void offer(struct walk *w, const struct jm_reading *reading, int n)
{
	int begin = 0, end = n;

	while (begin < n && reading[begin].t_ns < w->t0)
		begin++;
	if (begin) {
		w->before = reading[begin - 1];
		w->has_before = true;
	}
	if (begin == n)
		return;
	while (end - 1 > begin && reading[end - 2].t_ns > w->t1)
		end--;
	pass_on(w, &w->before, w->has_before);
	w->has_before = false;
	pass_on(w, reading + begin, end - begin);
	if (reading[end - 1].t_ns > w->t1)
		w->done = true;
}

/* Does the next chunk begin before the interval, so that nothing of this one is wanted? */
static bool too_early(const struct walk *w, const uint8_t *bytes, size_t n)
{
	struct jm_decoder next;
	size_t whole;

	return n && !jm_decoder_init(&next, bytes, n, &whole, NULL) && next.records &&
	       next.t0 < w->t0;
}

static int walk_chunk(struct walk *w, struct jm_decoder *d, struct jm_err *err)
{
	struct jm_reading reading[DECODED];
	int n = DECODED;

	while (!w->done && n == DECODED) {
		n = jm_decode_some(d, reading, DECODED);
		if (n < 0)
			return jm_err_set(err, n, "The trace is damaged in memory.");
		offer(w, reading, n);
	}
	return 0;
}

static int walk_chunks(struct walk *w, const uint8_t *bytes, size_t n, struct jm_err *err)
{
	int rc = 0;

	for (size_t at = 0, whole = 0; !rc && !w->done && at < n; at += whole) {
		struct jm_decoder d;

		rc = jm_decoder_init(&d, bytes + at, n - at, &whole, err);
		if (!rc && !too_early(w, bytes + at + whole, n - at - whole))
			rc = walk_chunk(w, &d, err);
	}
	return rc;
}

/* What is not in the file yet: closed chunks, the open one, the held reading. */
static int walk_memory(struct walk *w, const struct log *log, struct jm_err *err)
{
	int rc = log->bytes ? walk_chunks(w, log->bytes, log->closed, err) : 0;

	if (!rc && !w->done && log->encoder.records) {
		jm_encode_header(&log->encoder, open_chunk(log));
		rc = walk_chunks(w, open_chunk(log), JM_CHUNK_HEADER + log->encoder.bytes, err);
	}
	if (!rc && !w->done && log->held)
		offer(w, &log->last, 1);
	return rc;
}

/* The last block that begins before t, or the first. */
static int first_block(const struct log *log, int64_t t)
{
	int low = 0, high = log->n_blocks;

	while (high - low > 1) {
		int middle = low + (high - low) / 2;

		if (log->blocks[middle].t0 < t)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int jm_trace_each_some(const struct jm_trace *t, int signal, int64_t t0_ns, int64_t t1_ns,
	jm_readings_fn *fn, void *arg, struct jm_err *err)
{
	const struct log *log = &t->log[signal];
	struct walk w = {.t0 = t0_ns, .t1 = t1_ns, .fn = fn, .arg = arg};
	uint8_t bytes[BLOCK_BYTES];
	int rc = 0;

	for (int i = first_block(log, t0_ns); !rc && !w.done && i < log->n_blocks; i++) {
		rc = read_block(t, &log->blocks[i], bytes, err);
		if (!rc)
			rc = walk_chunks(&w, bytes, log->blocks[i].bytes, err);
	}
	if (!rc && !w.done)
		rc = walk_memory(&w, log, err);
	if (!rc)
		pass_on(&w, &w.before, w.has_before);
	return rc;
}

struct one_by_one {
	int (*fn)(void *arg, struct jm_reading reading);
	void *arg;
};

static int one_by_one(void *arg, const struct jm_reading *reading, int n)
{
	const struct one_by_one *one = arg;
	int stop = 0;

	for (int i = 0; !stop && i < n; i++)
		stop = one->fn(one->arg, reading[i]);
	return stop;
}

int jm_trace_each(const struct jm_trace *t, int signal, int64_t t0_ns, int64_t t1_ns,
	int (*fn)(void *arg, struct jm_reading reading), void *arg, struct jm_err *err)
{
	struct one_by_one one = {fn, arg};

	return jm_trace_each_some(t, signal, t0_ns, t1_ns, one_by_one, &one, err);
}
