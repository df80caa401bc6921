/* SPDX-License-Identifier: Apache-2.0 */
#include "request_desk.h"

#include <string.h>

#include "comm/gang_memory.h"

#define PAGE  ((size_t)65536) /* a multiple of any kernel's */
#define LARGE PAGE	      /* bytes of tokens that a free place may keep */

struct jm_desk_shared {
	_Alignas(64) _Atomic uint32_t news; /* to the listener */
	struct jm_desk_place place[JM_DESK_PLACES];
};

static size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Large ones begin with a page. */
static size_t tokens_each(int64_t context)
{
	size_t bytes = (size_t)context * sizeof(int32_t);

	return up(bytes, bytes < LARGE ? 64 : PAGE) / sizeof(int32_t);
}

size_t jm_desk_bytes(int64_t context)
{
	return up(sizeof(struct jm_desk_shared), PAGE) +
	       JM_DESK_PLACES * tokens_each(context) * sizeof(int32_t);
}

struct jm_desk jm_desk_at(void *memory, int64_t context)
{
	struct jm_desk_shared *shared = memory;
	size_t tokens_from = up(sizeof(*shared), PAGE);

	return (struct jm_desk){.shared = shared,
		.place = shared->place,
		.token = (int32_t *)(void *)((char *)memory + tokens_from),
		.each = tokens_each(context)};
}

static int32_t *tokens(const struct jm_desk *d, int place)
{
	return d->token + (size_t)place * d->each;
}

/* ---- the listener ---------------------------------------------------------------------------- */

void jm_desk_put(struct jm_desk *d, int place, const struct jm_ask *ask, int64_t arrived)
{
	struct jm_desk_place *p = &d->place[place];

	memcpy(tokens(d, place), ask->token, (size_t)ask->n * sizeof(*ask->token));
	p->rule = ask->rule;
	p->has_seed = ask->has_seed;
	p->seed = ask->seed;
	atomic_store(&p->arrived, arrived);
	atomic_store(&p->input, ask->n);
	atomic_store(&p->output, ask->output);
	atomic_store(&p->is_cancelled, false);
	atomic_store(&p->rank, -1);
	atomic_store(&p->made, 0);
	atomic_store(&p->is_dropped, false);
}

void jm_desk_cancel(struct jm_desk *d, int place)
{
	atomic_store(&d->place[place].is_cancelled, true);
}

/* Both follow from one look at `made`, so that no answer is whole before it is over. is_dropped is
 * read before: no token comes after it. */
const int32_t *jm_desk_answer(const struct jm_desk *d, int place, int *ret_n, bool *ret_is_over)
{
	const struct jm_desk_place *p = &d->place[place];
	bool is_dropped = atomic_load(&p->is_dropped);

	*ret_n = atomic_load(&p->made);
	*ret_is_over = is_dropped || *ret_n == atomic_load(&p->output);
	return tokens(d, place) + atomic_load(&p->input);
}

void jm_desk_free(struct jm_desk *d, int place)
{
	const struct jm_desk_place *p = &d->place[place];
	size_t n = (size_t)(atomic_load(&p->input) + atomic_load(&p->made)),
	       bytes = up(n * sizeof(*d->token), PAGE);

	if (bytes > LARGE)
		jm_gang_memory_clear(tokens(d, place), bytes);
}

uint32_t jm_desk_news(const struct jm_desk *d)
{
	return atomic_load(&d->shared->news);
}

void jm_desk_wait(struct jm_desk *d, uint32_t news, int64_t ns)
{
	jm_gang_memory_wait(&d->shared->news, news, ns);
}

/* ---- replicas -------------------------------------------------------------------------------- */

const int32_t *jm_desk_prompt(const struct jm_desk *d, int place)
{
	return tokens(d, place);
}

void jm_desk_add_token(struct jm_desk *d, int place, int32_t token, int64_t now_ns)
{
	struct jm_desk_place *p = &d->place[place];
	int made = atomic_load(&p->made);

	tokens(d, place)[atomic_load(&p->input) + made] = token;
	atomic_store(&p->made_ns, now_ns);
	atomic_store(&p->made, made + 1);
}

void jm_desk_drop(struct jm_desk *d, int place)
{
	atomic_store(&d->place[place].is_dropped, true);
}

void jm_desk_tell(struct jm_desk *d)
{
	jm_gang_memory_wake(&d->shared->news);
}
