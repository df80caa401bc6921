/* SPDX-License-Identifier: Apache-2.0 */
/* Normal form C (Unicode Standard Annex 15): decompose, sort marks by their class, compose. */
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/unicode.h"

#include <stdlib.h>

#include "data/tokenizer/utf8.h"

/* Below U+0300 no character changes, for neither marks nor composites of them follow. */
#define FIRST_MARK 0x300

/* Hangul syllables: 19 x 21 x 28 of leading, vowel, trailing (The Unicode Standard, 3.12). */
#define S_BASE 0xac00
#define L_BASE 0x1100
#define V_BASE 0x1161
#define T_BASE 0x11a7
#define L_N    19U
#define V_N    21U
#define T_N    28U
#define S_N    (L_N * V_N * T_N)

/* ---- tables ---------------------------------------------------------------------------------- */

static uint32_t class_of(uint32_t c)
{
	size_t low = 0, high = jm__n_class;

	while (c >= FIRST_MARK && low < high) {
		size_t middle = (low + high) / 2;

		if (jm__class_rows[middle].code == c)
			return jm__class_rows[middle].class;
		if (jm__class_rows[middle].code < c)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

static const struct jm__decomposed_row *decomposed_of(uint32_t c)
{
	size_t low = 0, high = jm__n_decomposed;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (jm__decomposed_rows[middle].code == c)
			return &jm__decomposed_rows[middle];
		if (jm__decomposed_rows[middle].code < c)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static uint32_t compose_hangul(uint32_t first, uint32_t second)
{
	uint32_t l = first - L_BASE, v = second - V_BASE, s = first - S_BASE, t = second - T_BASE;

	if (l < L_N && v < V_N)
		return S_BASE + (l * V_N + v) * T_N;
	return s < S_N && s % T_N == 0 && t > 0 && t < T_N ? first + t : 0;
}

/* 0 = the two do not compose. */
static uint32_t compose(uint32_t first, uint32_t second)
{
	size_t low = 0, high = jm__n_composed;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct jm__composed_row *row = &jm__composed_rows[middle];

		if (row->first == first && row->second == second)
			return row->code;
		if (row->first < first || (row->first == first && row->second < second))
			low = middle + 1;
		else
			high = middle;
	}
	return compose_hangul(first, second);
}

/* ---- a text as code points ------------------------------------------------------------------- */

struct codes {
	uint32_t *at;
	size_t n;
};

static void decompose(struct codes *all, uint32_t c)
{
	const struct jm__decomposed_row *row = decomposed_of(c);
	uint32_t s = c - S_BASE;

	if (s < S_N) {
		all->at[all->n++] = L_BASE + s / (V_N * T_N);
		all->at[all->n++] = V_BASE + s % (V_N * T_N) / T_N;
		if (s % T_N)
			all->at[all->n++] = T_BASE + s % T_N;
		return;
	}
	for (size_t i = 0; row && i < row->n; i++)
		all->at[all->n++] = jm__decomposed[row->at + i];
	if (!row)
		all->at[all->n++] = c;
}

/* Marks by rising class, those of the same class in their order. A run of thousands of marks is
 * sorted, too, in n log n steps. */
static void merge_sort(uint32_t *at, uint32_t *room, size_t n)
{
	size_t half = n / 2, a = 0, b = half;

	if (n < 2)
		return;
	merge_sort(at, room, half);
	merge_sort(at + half, room, n - half);
	for (size_t i = 0; i < n; i++) {
		bool left = b == n || (a < half && class_of(at[a]) <= class_of(at[b]));

		room[i] = left ? at[a++] : at[b++];
	}
	for (size_t i = 0; i < n; i++)
		at[i] = room[i];
}

static void sort_marks(struct codes *all, uint32_t *room)
{
	for (size_t i = 0, run; i < all->n; i += run + !run) {
		for (run = 0; i + run < all->n && class_of(all->at[i + run]);)
			run++;
		merge_sort(all->at + i, room, run);
	}
}

/* Composes each mark with the last starter, unless one between them blocks it. */
static void compose_all(struct codes *all)
{
	size_t n = 0, starter = SIZE_MAX;
	uint32_t last = 0;

	for (size_t i = 0; i < all->n; i++) {
		uint32_t c = all->at[i], class = class_of(c), whole = 0;
		bool adjacent = starter != SIZE_MAX && starter + 1 == n;

		if (starter != SIZE_MAX && (adjacent || (last < class && last)))
			whole = compose(all->at[starter], c);
		if (whole) {
			all->at[starter] = whole;
			continue;
		}
		if (!class)
			starter = n;
		last = class;
		all->at[n++] = c;
	}
	all->n = n;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool put_all(const struct codes *all, struct jm_bytes *ret)
{
	if (!jm__bytes_reserve(ret, 4 * all->n))
		return false;
	for (size_t i = 0; i < all->n; i++)
		ret->n += jm__utf8_put(ret->at + ret->n, all->at[i]);
	return true;
}

/* A character decomposes to at most 4, of at least 2 bytes each in UTF-8. */
static bool compose_text(const char *text, size_t n, struct jm_bytes *ret)
{
	struct codes all = {.at = malloc(2 * n * sizeof(*all.at))};
	uint32_t *room = malloc(2 * n * sizeof(*room));
	bool ok = all.at && room;

	for (size_t at = 0; ok && at < n; at += jm__utf8_bytes((unsigned char)text[at]))
		decompose(&all, jm__utf8_get(text + at));
	if (ok) {
		sort_marks(&all, room);
		compose_all(&all);
		ok = put_all(&all, ret);
	}
	free(all.at);
	free(room);
	return ok;
}

static bool is_below_marks(char byte)
{
	return (unsigned char)byte < 0xcc; /* the first byte of U+0300 */
}

/* Where the characters begin that no later one can change: all are below the marks, but the last is
 * left out when a mark may follow it. */
static size_t calm_length(const char *text, size_t n)
{
	size_t at = 0;

	while (at < n && is_below_marks(text[at]))
		at++;
	if (at == n)
		return n;
	while (at && ((unsigned char)text[--at] & 0xc0) == 0x80)
		;
	return at;
}

/* The length of what stands before two characters below the marks; the first of them may still
 * change. */
static size_t moved_length(const char *text, size_t n)
{
	bool calm = false;

	for (size_t at = 0; at < n; at += jm__utf8_bytes((unsigned char)text[at])) {
		bool below = is_below_marks(text[at]);

		if (below && calm)
			return at;
		calm = below && at;
	}
	return n;
}

bool jm__nfc(const char *text, size_t n, struct jm_bytes *ret)
{
	for (size_t at = 0; at < n;) {
		size_t calm = calm_length(text + at, n - at);
		size_t moved = moved_length(text + at + calm, n - at - calm);

		if (!jm__bytes_add(ret, text + at, calm) ||
			(moved && !compose_text(text + at + calm, moved, ret)))
			return false;
		at += calm + moved;
	}
	return true;
}
