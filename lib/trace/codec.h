/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings as bytes. A chunk is a header of JM_CHUNK_HEADER bytes and records; all little-endian.
 *
 *	header: "jmT1", u32 records, u32 bytes of records, u32 readings that went in,
 *		i64 t of the first, i64 t of the last, f64 step
 *	record: varint zigzag(dt - previous dt), varint (payload << 3 | kind), then 8 bytes if kind
 *	is RAW
 *
 * A value is kept exactly: as a multiple of the step where that gives the same double, else raw.
 */
#ifndef JM_CODEC_H
#define JM_CODEC_H

#include "meter/meter.h"

#define JM_CHUNK_HEADER 40
#define JM_RECORD_MAX	32 /* bytes of the longest record */

struct jm_encoder {
	double step, inverse; /* inverse: whole number of steps in 1, or 0 */
	int64_t t, dt, q;
	double value;
	uint32_t records, readings, bytes;
	int64_t t0;
};

void jm_encoder_init(struct jm_encoder *e, double step);
/* Writes one record, at most JM_RECORD_MAX bytes; returns how many. */
size_t jm_encode(struct jm_encoder *e, struct jm_reading r, uint8_t *out);
void jm_encode_header(const struct jm_encoder *e, uint8_t *out);

/* Only the header has times that are not differences. */
void jm_shift_header(uint8_t *header, int64_t by_ns);

struct jm_decoder {
	const uint8_t *at, *end;
	double step, inverse;
	int64_t t, dt, q, t0, t1;
	double value;
	uint32_t records, readings, done;
};

/* Reads a header; *ret_bytes: of the whole chunk, header included. */
int jm_decoder_init(struct jm_decoder *d, const uint8_t *data, size_t bytes, size_t *ret_bytes,
	struct jm_err *err);
/* 1 and a reading, 0 at the end, JM_EFORMAT for damaged bytes. */
int jm_decode(struct jm_decoder *d, struct jm_reading *ret);
/* Up to `room` readings at once; how many, fewer only at the end. JM_EFORMAT for damaged bytes,
 * even where readings before them are whole. */
int jm_decode_some(struct jm_decoder *d, struct jm_reading *ret, int room);

#endif
