/* SPDX-License-Identifier: Apache-2.0 */
/* Edits of a good JSON value, three bytes each: where (11 bits), delete or replace, and by what. */
#ifndef JM_FUZZ_JSON_H
#define JM_FUZZ_JSON_H

#include <jansson.h>

/* The n-th value below v, depth first; its place is returned so that it can be replaced. */
struct fuzz_place {
	json_t *parent;
	const char *key;
	size_t index;
	long left;
};

static inline void fuzz_walk(json_t *v, struct fuzz_place *p)
{
	const char *key;
	json_t *child;
	size_t i;

	if (json_is_object(v)) {
		json_object_foreach(v, key, child)
		{
			if (p->parent)
				return;
			if (p->left-- == 0)
				*p = (struct fuzz_place){v, key, 0, 0};
			else
				fuzz_walk(child, p);
		}
	}
	if (json_is_array(v)) {
		json_array_foreach(v, i, child)
		{
			if (p->parent)
				return;
			if (p->left-- == 0)
				*p = (struct fuzz_place){v, NULL, i, 0};
			else
				fuzz_walk(child, p);
		}
	}
}

static inline json_t *fuzz_value(uint8_t what)
{
	static const double reals[] = {0, -1, 1e-300, 1e308, -1e308, 0.5, 1e15, 3};
	static const char *const words[] = {"", "gpu.power", "failed", "ok", "estimated",
		"measured", "replayed", "</script><script>", "steady", "500W", "default",
		"not reached", "violated", "\"q,\n|\\%\t", "5d65f667", "\xc3\xa4\xe2\x82\xac"};

	switch (what >> 5) {
	case 0:
		return json_null();
	case 1:
		return json_object();
	case 2:
		return json_array();
	case 3:
		return json_boolean(what & 1);
	case 4:
		return json_integer(INT64_C(1) << (what & 31) << (what & 31));
	case 5:
		return json_real(reals[what & 7]);
	default:
		return json_string(words[what & 15]);
	}
}

static inline void fuzz_edit(json_t *all, const uint8_t *op)
{
	struct fuzz_place p = {.left = op[0] | (op[1] & 7) << 8};

	fuzz_walk(all, &p);
	if (!p.parent)
		return;
	if (op[1] & 0x80 && p.key)
		json_object_del(p.parent, p.key);
	else if (op[1] & 0x80)
		json_array_remove(p.parent, p.index);
	else if (p.key)
		json_object_set_new(p.parent, p.key, fuzz_value(op[2]));
	else
		json_array_set_new(p.parent, p.index, fuzz_value(op[2]));
}

static inline void fuzz_edit_all(json_t *all, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i + 3 <= size; i += 3)
		fuzz_edit(all, data + i);
}

#endif
