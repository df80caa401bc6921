/* SPDX-License-Identifier: Apache-2.0 */
/* Readings to bytes and back. The decoder trusts nothing. */
#include "trace/codec.h"

#include <math.h>
#include <string.h>

enum kind { MULTIPLE, FRACTION, RAW, NOTHING, SAME };

#define SHORT	 4 /* bytes of a varint */
#define LONGEST	 10
#define FARTHEST (INT64_MAX / 4) /* ns; sums and differences of times within it cannot wrap */

static const uint8_t magic[4] = {'j', 'm', 'T', '1'};

static uint64_t zigzag(int64_t v)
{
	return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static int64_t unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static size_t put_varint(uint8_t *out, uint64_t v)
{
	size_t n = 0;

	for (; v > 0x7f; v >>= 7)
		out[n++] = (uint8_t)(v | 0x80);
	out[n++] = (uint8_t)v;
	return n;
}

struct varint {
	uint64_t v;
	const uint8_t *after; /* the byte after it; NULL = the bytes are damaged */
};

/* For varints of any length, and where the bytes may end within one. */
static struct varint get_long_varint(const uint8_t *at, const uint8_t *end)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64 && at < end; shift += 7) {
		uint8_t byte = *at++;

		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return (struct varint){v, at};
	}
	return (struct varint){0, NULL};
}

/* Most varints have few bytes. The upper bit of a byte, which says that another one follows, is
 * subtracted when that one is added. By value, so that the decoder stays in registers.
 * roomy: SHORT bytes are there. */
static inline struct varint get_varint(const uint8_t *at, const uint8_t *end, bool roomy)
{
	uint64_t v;
	int n = 1;

	if (!roomy && end - at < SHORT)
		return get_long_varint(at, end);
	v = at[0];
	if (v >= 1 << 7) {
		v += ((uint64_t)at[1] << 7) - (1 << 7);
		n = 2;
	}
	if (v >= 1 << 14) {
		v += ((uint64_t)at[2] << 14) - (1 << 14);
		n = 3;
	}
	if (v >= 1 << 21) {
		v += ((uint64_t)at[3] << 21) - (1 << 21);
		n = 4;
	}
	if (v >= 1 << 28)
		return get_long_varint(at, end);
	return (struct varint){v, at + n};
}

/* Sums that may wrap; bytes from outside can hold anything. */
static int64_t add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

static double inverse_of(double step)
{
	double inverse = step > 0 ? round(1 / step) : 0;

	return inverse >= 1 && inverse < 1e15 && fabs(inverse * step - 1) < 1e-9 ? inverse : 0;
}

/* Bit by bit, so that -0 comes back as -0. */
static bool same(double a, double b)
{
	uint64_t x, y;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	return x == y;
}

/* The multiple of the step from which decoding restores exactly this double, if there is one. */
static bool quantise(const struct jm_encoder *e, double value, int64_t *ret_q, enum kind *ret_kind)
{
	double q;

	if (!(e->step > 0) || fabs(value) >= e->step * 1e15)
		return false;
	*ret_q = llround(value / e->step);
	q = (double)*ret_q;
	*ret_kind = MULTIPLE;
	if (same(q * e->step, value))
		return true;
	*ret_kind = FRACTION;
	return e->inverse > 0 && same(q / e->inverse, value);
}

void jm_encoder_init(struct jm_encoder *e, double step)
{
	*e = (struct jm_encoder){.value = NAN};
	e->step = isfinite(step) && step > 0 ? step : 0;
	e->inverse = inverse_of(e->step);
}

static size_t put_value(struct jm_encoder *e, double value, uint8_t *out)
{
	enum kind kind;
	int64_t q;
	size_t n;

	if (isnan(value))
		return put_varint(out, NOTHING);
	if (e->records && same(value, e->value))
		return put_varint(out, SAME);
	if (quantise(e, value, &q, &kind)) {
		int64_t delta = q - e->q;

		e->q = q;
		return put_varint(out, zigzag(delta) << 3 | kind);
	}
	n = put_varint(out, RAW);
	memcpy(out + n, &value, sizeof(value));
	return n + sizeof(value);
}

size_t jm_encode(struct jm_encoder *e, struct jm_reading r, uint8_t *out)
{
	int64_t dt = e->records ? r.t_ns - e->t : 0;
	size_t n = put_varint(out, zigzag(subtract(dt, e->dt)));

	n += put_value(e, r.value, out + n);
	if (!e->records)
		e->t0 = r.t_ns;
	e->t = r.t_ns;
	e->dt = dt;
	e->value = r.value;
	e->records++;
	e->bytes += (uint32_t)n;
	return n;
}

void jm_encode_header(const struct jm_encoder *e, uint8_t *out)
{
	memcpy(out, magic, 4);
	memcpy(out + 4, &e->records, 4);
	memcpy(out + 8, &e->bytes, 4);
	memcpy(out + 12, &e->readings, 4);
	memcpy(out + 16, &e->t0, 8);
	memcpy(out + 24, &e->t, 8);
	memcpy(out + 32, &e->step, 8);
}

void jm_shift_header(uint8_t *header, int64_t by_ns)
{
	int64_t t[2];

	memcpy(t, header + 16, sizeof(t));
	t[0] = add(t[0], by_ns);
	t[1] = add(t[1], by_ns);
	memcpy(header + 16, t, sizeof(t));
}

int jm_decoder_init(struct jm_decoder *d, const uint8_t *data, size_t bytes, size_t *ret_bytes,
	struct jm_err *err)
{
	uint32_t payload;

	if (bytes < JM_CHUNK_HEADER || memcmp(data, magic, 3))
		return jm_err_set(err, JM_EFORMAT,
			"A chunk of a trace of %zu bytes has no valid beginning; the file is "
			"damaged.",
			bytes);
	if (data[3] != magic[3])
		return jm_err_set(err, JM_EVERSION,
			"A chunk of a trace has format '%c', but this joulemark reads format '%c'. "
			"Use the version that wrote it.",
			data[3] >= ' ' && data[3] < 0x7f ? data[3] : '?', magic[3]);
	*d = (struct jm_decoder){.value = NAN};
	memcpy(&d->records, data + 4, 4);
	memcpy(&payload, data + 8, 4);
	memcpy(&d->readings, data + 12, 4);
	memcpy(&d->t0, data + 16, 8);
	memcpy(&d->t1, data + 24, 8);
	memcpy(&d->step, data + 32, 8);
	if (payload > bytes - JM_CHUNK_HEADER || d->records > payload / 2 || d->t1 < d->t0 ||
		d->t0 < -FARTHEST || d->t1 > FARTHEST || !(d->step >= 0) || !isfinite(d->step))
		return jm_err_set(err, JM_EFORMAT,
			"A chunk of a trace claims %u readings in %u bytes, which is impossible; "
			"the file is damaged.",
			d->records, payload);
	d->inverse = inverse_of(d->step);
	d->at = data + JM_CHUNK_HEADER;
	d->end = d->at + payload;
	*ret_bytes = JM_CHUNK_HEADER + (size_t)payload;
	return 0;
}

static inline bool get_value(struct jm_decoder *d, uint64_t token, bool first, double *ret)
{
	enum kind kind = token & 7;

	if (kind == SAME) {
		*ret = d->value;
		return !first;
	}
	if (kind == FRACTION || kind == MULTIPLE) {
		d->q = add(d->q, unzigzag(token >> 3));
		*ret = kind == MULTIPLE ? (double)d->q * d->step : (double)d->q / d->inverse;
		return kind == MULTIPLE || d->inverse > 0;
	}
	if (kind == NOTHING) {
		*ret = NAN;
		return true;
	}
	if (kind != RAW || d->end - d->at < (ptrdiff_t)sizeof(*ret))
		return false;
	memcpy(ret, d->at, sizeof(*ret));
	d->at += sizeof(*ret);
	return isfinite(*ret);
}

/* A reading, but for its being counted. first: of the chunk; roomy: as many bytes as any two
 * varints have are there. */
static inline __attribute__((always_inline)) bool decode(
	struct jm_decoder *d, bool first, bool roomy, struct jm_reading *ret)
{
	struct varint change, token;
	int64_t dt;

	change = get_varint(d->at, d->end, roomy);
	if (!change.after)
		return false;
	token = get_varint(change.after, d->end, roomy);
	if (!token.after)
		return false;
	d->at = token.after;
	if (!get_value(d, token.v, first, &d->value))
		return false;
	dt = first ? 0 : add(d->dt, unzigzag(change.v));
	if (!first && (dt <= 0 || dt > d->t1 - d->t))
		return false;
	d->t = first ? d->t0 : d->t + dt;
	d->dt = dt;
	*ret = (struct jm_reading){.value = d->value, .t_ns = d->t};
	return true;
}

int jm_decode_some(struct jm_decoder *d, struct jm_reading *ret, int room)
{
	struct jm_decoder in_registers = *d;
	uint32_t left = d->records - d->done;
	int most = left < (uint32_t)room ? (int)left : room, n = 0;
	bool whole = true;

	if (!d->done && most > 0)
		whole = decode(&in_registers, true, false, &ret[n++]);
	while (whole && n < most && in_registers.end - in_registers.at >= LONGEST + SHORT)
		whole = decode(&in_registers, false, true, &ret[n++]);
	while (whole && n < most)
		whole = decode(&in_registers, false, false, &ret[n++]);
	in_registers.done += (uint32_t)n;
	*d = in_registers;
	if (!whole || (n < room && d->at != d->end))
		return JM_EFORMAT;
	return n;
}

int jm_decode(struct jm_decoder *d, struct jm_reading *ret)
{
	return jm_decode_some(d, ret, 1);
}
