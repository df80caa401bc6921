/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each row of the result is first mixed from rows of the picture, then each of its pixels from
 * neighbours in that row. Vectors have a fixed order of sums, so that all processors give the same
 * values; those that have AVX2 run the same code with twice as long ones.
 */
#include "picture_resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16 /* values of a row that become numbers at a time */
/* results of the second pass at a time; one pixel has as many lanes, of which the last is unused */
#define GROUP 4

#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

typedef unsigned char bytes __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));
typedef int32_t words __attribute__((vector_size(16)));
typedef uint32_t bits __attribute__((vector_size(16)));
typedef float pixel __attribute__((vector_size(16)));
typedef float pair __attribute__((vector_size(32))); /* two pixels */

_Static_assert(
	__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first half of a word is its lower one");

/* A value is pixel x factor + shift; bytes stay what they are. */
static const struct jm_colour_scale *scale_of(const struct jm_resize_to *to)
{
	static const struct jm_colour_scale same = {{1, 1, 1}, {0, 0, 0}};

	return to->type == JM_U8 ? &same : jm_colour_scale(to->colours);
}

static int round_up(int n)
{
	return (n + GROUP - 1) / GROUP * GROUP;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int make_room(struct jm_resize_room *room, size_t n, struct jm_err *err)
{
	if (room->values && room->n >= n)
		return 0;
	free(room->values);
	room->values = malloc(n * sizeof(*room->values));
	room->n = room->values ? n : 0;
	return room->values ? 0
			    : jm_err_set(err, JM_ENOMEM, "Out of memory for resizing a picture.");
}

void jm_resize_room_done(struct jm_resize_room *room)
{
	free(room->values);
	*room = (struct jm_resize_room){0};
}

/* ---- weights --------------------------------------------------------------------------------- */

/* One side of the resizing: from `n` values of the picture, of which `length` from `from` on count,
 * to `size`. */
struct side {
	double from, length;
	int n, size;
	int taps;      /* values of which one result is made, some with weight 0 */
	int *begin;    /* [size]: the first of them */
	int copies;    /* of each weight, one after the other */
	int beside;    /* results whose weights alternate */
	float *weight; /* [size / beside][taps][beside][copies], with sum 1 each */
};

/* Writes the weights of result i to place k. */
static void weigh_one(const struct side *s, int i, int k)
{
	double scale = s->length / s->size, support = fmax(scale, 1);
	double at = s->from + (i + 0.5) * scale, sum = 0;
	int begin = (int)fmax(fmin(floor(at - support + 0.5), s->n - s->taps), 0);
	float *weight = s->weight + (size_t)(k - k % s->beside) * (size_t)(s->taps * s->copies) +
			k % s->beside * s->copies;

	for (int t = 0; t < s->taps; t++)
		sum += fmax(1 - fabs(begin + t + 0.5 - at) / support, 0);
	for (int t = 0; t < s->taps; t++, weight += s->beside * s->copies)
		for (int c = 0; c < s->copies; c++)
			weight[c] =
				(float)(fmax(1 - fabs(begin + t + 0.5 - at) / support, 0) / sum);
	s->begin[k] = begin;
}

/* Of `places` results, in their order or from the last one on; places behind the last result repeat
 * it. */
static void weigh(const struct side *s, bool flips, int places)
{
	for (int k = 0; k < places; k++) {
		int i = k < s->size ? k : s->size - 1;

		weigh_one(s, flips ? s->size - 1 - i : i, k);
	}
}

/* ---- passes ---------------------------------------------------------------------------------- */

static inline void store_four(halves h, float *to)
{
	pixel p = __builtin_convertvector((words)h, pixel);

	memcpy(to, &p, sizeof(p));
}

static inline void store_eight(bytes b, float *to)
{
	const halves zero = {0};

	store_four(MIX((halves)b, zero, 0, 8, 1, 9, 2, 10, 3, 11), to);
	store_four(MIX((halves)b, zero, 4, 12, 5, 13, 6, 14, 7, 15), to + 4);
}

static void to_floats(const unsigned char *from, int n, float *ret)
{
	const bytes zero = {0};
	int i = 0;

	for (; i + LANES <= n; i += LANES) {
		bytes b;

		memcpy(&b, from + i, sizeof(b));
		store_eight(MIX(b, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
			ret + i);
		store_eight(
			MIX(b, zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
			ret + i + 8);
	}
	for (; i < n; i++)
		ret[i] = from[i];
}

#define ALWAYS static inline __attribute__((always_inline))

static inline pixel load(const float *from)
{
	pixel p;

	memcpy(&p, from, sizeof(p));
	return p;
}

/* ret[n]: the weighted sum of rows, which have room for whole groups of four pixels */
ALWAYS void mix_rows_all(const float *const *row, const float *weight, int taps, int n, float *ret)
{
	for (int i = 0; i < n; i += 4 * GROUP) {
		pair a = {0}, b = {0}, p;

		for (int t = 0; t < taps; t++) {
			memcpy(&p, row[t] + i, sizeof(p));
			a += weight[t] * p;
			memcpy(&p, row[t] + i + 2 * GROUP, sizeof(p));
			b += weight[t] * p;
		}
		memcpy(ret + i, &a, sizeof(a));
		memcpy(ret + i + 2 * GROUP, &b, sizeof(b));
	}
}

/* Two pixels that are made from `taps` ones each, from a and b on; weight[taps][2][GROUP]: each is
 * there for all lanes. */
#define MIX_PIXELS(sum, a, b, weight, taps)                                                        \
	do {                                                                                       \
		(sum) = (pair){0};                                                                 \
		_Pragma("GCC unroll 8") for (int t = 0; t < (taps); t++)                           \
		{                                                                                  \
			pair w;                                                                    \
                                                                                                   \
			memcpy(&w, (weight) + 2 * GROUP * t, sizeof(w));                           \
			(sum) += w * MIX(load((a) + 3 * t), load((b) + 3 * t), 0, 1, 2, 3, 4, 5,   \
					     6, 7);                                                \
		}                                                                                  \
	} while (0)

static inline void store(pixel p, const struct jm_colour_scale *by, int channel, float *to)
{
	p = p * by->factor[channel] + by->shift[channel];
	memcpy(to, &p, sizeof(p));
}

/* The channels of a row of pixels, normalised: ret[3][plane] */
ALWAYS void mix_row(const struct side *s, int taps, const float *row,
	const struct jm_colour_scale *by, float *ret)
{
	int plane = round_up(s->size);
	const float *weight = s->weight;

	for (int i = 0; i < plane; i += GROUP, weight += (size_t)(GROUP * GROUP) * taps) {
		const int *begin = s->begin + i;
		pair ab, cd;

		MIX_PIXELS(ab, row + 3 * begin[0], row + 3 * begin[1], weight, taps);
		MIX_PIXELS(cd, row + 3 * begin[2], row + 3 * begin[3], weight + 2 * GROUP * taps,
			taps);
		store(MIX(ab, cd, 0, 4, 8, 12), by, 0, ret + i);
		store(MIX(ab, cd, 1, 5, 9, 13), by, 1, ret + plane + i);
		store(MIX(ab, cd, 2, 6, 10, 14), by, 2, ret + 2 * plane + i);
	}
}

/* The compiler unrolls the usual numbers of taps. */
ALWAYS void mix_row_all(
	const struct side *s, const float *row, const struct jm_colour_scale *by, float *ret)
{
	switch (s->taps) {
	case 2:
		mix_row(s, 2, row, by, ret);
		break;
	case 3:
		mix_row(s, 3, row, by, ret);
		break;
	case 4:
		mix_row(s, 4, row, by, ret);
		break;
	default:
		mix_row(s, s->taps, row, by, ret);
	}
}

struct passes {
	void (*mix_rows)(const float *const *row, const float *weight, int taps, int n, float *ret);
	void (*mix_row)(const struct side *s, const float *row, const struct jm_colour_scale *by,
		float *ret);
};

#define PASSES(name, attribute)                                                                    \
	attribute static void mix_rows_##name(                                                     \
		const float *const *row, const float *weight, int taps, int n, float *ret)         \
	{                                                                                          \
		mix_rows_all(row, weight, taps, n, ret);                                           \
	}                                                                                          \
	attribute static void mix_row_##name(const struct side *s, const float *row,               \
		const struct jm_colour_scale *by, float *ret)                                      \
	{                                                                                          \
		mix_row_all(s, row, by, ret);                                                      \
	}                                                                                          \
	static const struct passes passes_##name = {mix_rows_##name, mix_row_##name}

PASSES(everywhere, );
#ifdef __x86_64__
PASSES(avx2, __attribute__((target("avx2"))));
#endif

static const struct passes *passes_of_processor(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return &passes_avx2;
#endif
	return &passes_everywhere;
}

/* ---- results --------------------------------------------------------------------------------- */

/* As jm_bf16_set of numbers, but in the upper half. */
static inline words round_upper(const float *from)
{
	bits b;

	memcpy(&b, from, sizeof(b));
	return (words)(b + 0x7fff + (b >> 16 & 1));
}

static void store_bf16(const float *from, int n, uint16_t *to)
{
	int i = 0;

	for (; i + 2 * GROUP <= n; i += 2 * GROUP) {
		halves h = MIX((halves)round_upper(from + i), (halves)round_upper(from + i + GROUP),
			1, 3, 5, 7, 9, 11, 13, 15);

		memcpy(to + i, &h, sizeof(h));
	}
	for (; i < n; i++)
		to[i] = jm_bf16_set(from[i]);
}

/* Of 8 values. Weights are not negative and sum up to 1, so values are between 0 and 255, but for
 * rounding, which is far less than 0.5. */
static inline halves rounded_halves(const float *from)
{
	words a = __builtin_convertvector(load(from) + 0.5f, words);
	words b = __builtin_convertvector(load(from + GROUP) + 0.5f, words);

	return MIX((halves)a, (halves)b, 0, 2, 4, 6, 8, 10, 12, 14);
}

static void store_bytes(const float *from, int n, unsigned char *to)
{
	int i = 0;

	for (; i + LANES <= n; i += LANES) {
		bytes b = MIX((bytes)rounded_halves(from + i), (bytes)rounded_halves(from + i + 8),
			0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);

		memcpy(to + i, &b, sizeof(b));
	}
	for (; i < n; i++)
		to[i] = (unsigned char)(from[i] + 0.5f);
}

/* Row y of all channels: from[3][plane] */
static void store_row(const struct jm_resize_to *to, int y, const float *from)
{
	int n = to->size, plane = round_up(n);

	for (int c = 0; c < 3; c++, from += plane) {
		int64_t at = ((int64_t)c * n + y) * n;

		if (to->type == JM_F32)
			memcpy((float *)to->values + at, from, (size_t)n * sizeof(*from));
		else if (to->type == JM_U8)
			store_bytes(from, n, (unsigned char *)to->values + at);
		else if (to->type == JM_BF16)
			store_bf16(from, n, (uint16_t *)to->values + at);
		else
			for (int i = 0; i < n; i++)
				jm_element_set(to->type, to->values, at + i, (double)from[i]);
	}
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Both sides of a resizing, and rows. */
struct tables {
	struct side across, down;
	int first, width;     /* columns of the picture that results are made from */
	size_t of_row;	      /* values that a row has room for */
	float *rows;	      /* [taps down][of_row]: of the picture; row y is at y % taps */
	int next;	      /* row of the picture that is not there yet */
	float *mixed;	      /* [of_row] */
	float *planes;	      /* [3][plane]: results */
	const float **window; /* [taps down] */
};

static struct side side_of(double from, double length, int n, int size, int copies, int beside)
{
	struct side s = {.from = from,
		.length = length,
		.n = n,
		.size = size,
		.copies = copies,
		.beside = beside};
	int most = (int)ceil(2 * fmax(length / size, 1)); /* middles of pixels in a triangle */

	s.taps = most < n ? most : n;
	return s;
}

static int place_tables(struct tables *t, struct jm_resize_room *room, struct jm_err *err)
{
	size_t plane = (size_t)round_up(t->across.size), down = (size_t)t->down.taps;
	size_t across = plane * (size_t)(t->across.taps * GROUP);
	size_t window = down * sizeof(*t->window) / sizeof(float);
	int code =
		make_room(room, across + plane * (5 + down) + (down + 1) * t->of_row + window, err);
	float *at = room->values;

	if (code)
		return code;
	t->window = (const float **)at;
	t->rows = at += window;
	t->mixed = at += down * t->of_row;
	t->planes = at += t->of_row;
	t->across.weight = at += 3 * plane;
	t->down.weight = at += across;
	t->across.begin = (int *)(at += plane * down);
	t->down.begin = (int *)(at + plane);
	return 0;
}

/* Columns that no result is made from are left out. */
static void narrow(struct tables *t)
{
	struct side *s = &t->across;
	int a = s->begin[0], b = s->begin[s->size - 1];

	t->first = a < b ? a : b;
	t->width = (a < b ? b : a) + s->taps - t->first;
	for (int i = 0; i < round_up(s->size); i++)
		s->begin[i] -= t->first;
}

static int make_tables(struct tables *t, const struct jm_picture *p,
	const struct jm_picture_box *box, const struct jm_resize_to *to,
	struct jm_resize_room *room, struct jm_err *err)
{
	int code;

	*t = (struct tables){.across = side_of(box->x, box->width, p->width, to->size, GROUP, 2),
		.down = side_of(box->y, box->height, p->height, to->size, 1, 1),
		.of_row = 3 * (size_t)p->width + 4 * GROUP};
	code = place_tables(t, room, err);
	if (code)
		return code;
	weigh(&t->across, to->flips, round_up(to->size));
	weigh(&t->down, false, to->size);
	narrow(t);
	t->next = t->down.begin[0];
	return 0;
}

/* Rows that result y is made from. */
static void slide(struct tables *t, const struct jm_picture *p, int y)
{
	int begin = t->down.begin[y], taps = t->down.taps;

	if (t->next < begin)
		t->next = begin;
	for (; t->next < begin + taps; t->next++)
		to_floats(p->rgb + 3 * ((size_t)t->next * (size_t)p->width + (size_t)t->first),
			3 * t->width, t->rows + (size_t)(t->next % taps) * t->of_row);
	for (int i = 0; i < taps; i++)
		t->window[i] = t->rows + (size_t)((begin + i) % taps) * t->of_row;
}

int jm_picture_resize(const struct jm_picture *p, const struct jm_picture_box *box,
	const struct jm_resize_to *to, struct jm_resize_room *room, struct jm_err *err)
{
	const struct passes *passes = passes_of_processor();
	struct tables t;
	int code = make_tables(&t, p, box, to, room, err);

	if (code)
		return code;
	for (int y = 0; y < to->size; y++) {
		slide(&t, p, y);
		passes->mix_rows(t.window, t.down.weight + y * t.down.taps, t.down.taps,
			3 * t.width, t.mixed);
		passes->mix_row(&t.across, t.mixed, scale_of(to), t.planes);
		store_row(to, y, t.planes);
	}
	return 0;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* Row y of the picture, from `left` of the result on, normalised: ret[3][plane] */
static void place_row(
	const struct jm_picture *p, int y, int left, const struct jm_resize_to *to, float *ret)
{
	int n = to->size, plane = round_up(n);
	int begin = left > 0 ? left : 0, end = left + p->width < n ? left + p->width : n;
	bool inside = y >= 0 && y < p->height;
	const struct jm_colour_scale *by = scale_of(to);

	for (int c = 0; c < 3; c++, ret += plane) {
		const unsigned char *row = p->rgb + 3 * (ptrdiff_t)(inside ? y : 0) * p->width + c;

		for (int x = 0; x < n; x++)
			ret[x] = by->shift[c];
		for (int x = begin; x < end && inside; x++)
			ret[to->flips ? n - 1 - x : x] =
				row[3 * (x - left)] * by->factor[c] + by->shift[c];
	}
}

int jm_picture_place(const struct jm_picture *p, int left, int top, const struct jm_resize_to *to,
	struct jm_resize_room *room, struct jm_err *err)
{
	int code = make_room(room, 3 * (size_t)round_up(to->size), err);

	for (int y = 0; y < to->size && !code; y++) {
		place_row(p, y - top, left, to, room->values);
		store_row(to, y, room->values);
	}
	return code;
}
