/* SPDX-License-Identifier: Apache-2.0 */
/* Transfer of inputs to a device. */
#include "staging.h"

#include "engine/graph/tensor.h"

#define ALIGN ((size_t)64)

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t jm_staging_bytes(const struct jm_device *d, const struct jm_tensor *t)
{
	return jm_device_is_async(d) ? JM_STAGING_SLOTS * aligned(t->bytes) : 0;
}

static int open_slot(struct jm_staging *s, struct jm_staging_slot *slot, struct jm_err *err)
{
	const struct jm_device *d = s->program->device;
	bool async = jm_device_is_async(d);
	int code;

	slot->host = jm_device_pinned_alloc(d, s->bytes);
	slot->device = async ? d->backend->alloc(d->dev, s->bytes) : NULL;
	if (!slot->host || (async && !slot->device))
		return jm_err_set(err, JM_ENOMEM,
			"Out of memory for copying inputs to device %s: %.3g MB are needed on it "
			"and on the host; use a smaller batch.",
			d->backend->name, (double)s->bytes / 1e6);
	code = jm_event_new(d, &slot->sent, err);
	return code ? code : jm_event_new(d, &slot->taken, err);
}

int jm_staging_open(struct jm_staging *s, struct jm_program *p, struct jm_tensor *const *t, int n,
	struct jm_err *err)
{
	int code = 0;

	*s = (struct jm_staging){.program = p};
	for (int i = 0; i < n; i++) {
		if (!t[i])
			continue;
		if (s->n == JM_STAGING_TENSORS)
			return jm_err_set(err, JM_EBUG, "A program has more than %d inputs.",
				JM_STAGING_TENSORS);
		s->tensor[s->n] = t[i];
		s->offset[s->n++] = s->bytes;
		s->bytes += aligned(t[i]->bytes);
	}
	for (int i = 0; i < JM_STAGING_SLOTS && s->bytes && !code; i++)
		code = open_slot(s, &s->slot[i], err);
	if (code)
		jm_staging_close(s);
	return code;
}

void jm_staging_close(struct jm_staging *s)
{
	const struct jm_device *d = s->program ? s->program->device : NULL;

	for (int i = 0; i < JM_STAGING_SLOTS && d; i++) {
		jm_event_drop(&s->slot[i].sent);
		jm_event_drop(&s->slot[i].taken);
		jm_device_pinned_release(d, s->slot[i].host);
		d->backend->release(d->dev, s->slot[i].device);
	}
	*s = (struct jm_staging){0};
}

int jm_staging_begin(struct jm_staging *s, struct jm_err *err)
{
	if (!s->bytes)
		return 0;
	s->used = NULL;
	s->now = (s->now + 1) % JM_STAGING_SLOTS;
	return jm_event_wait(&s->slot[s->now].sent, err);
}

void *jm_staging_room(const struct jm_staging *s, const struct jm_tensor *t)
{
	for (int i = 0; i < s->n; i++)
		if (s->tensor[i] == t)
			return s->slot[s->now].host + s->offset[i];
	return NULL;
}

void jm_staging_rows(struct jm_staging *s, const int32_t *used)
{
	s->used = used;
}

/* Bytes of the input up to the last one that the batch reads. */
static size_t needed(const struct jm_staging *s, int i)
{
	const struct jm_tensor *t = s->tensor[i];
	int64_t rows = jm_tensor_rows(t);

	if (!s->used || i + 1 < s->n)
		return t->bytes;
	while (rows && !s->used[rows - 1])
		rows--;
	return rows ? ((size_t)((rows - 1) * jm_tensor_width(t)) + (size_t)s->used[rows - 1]) *
			       sizeof(int32_t)
		    : 0;
}

/* Copies the slot to its memory on the device in one copy, after the last reader of that memory. */
static int send_over(const struct jm_staging *s, struct jm_staging_slot *slot, struct jm_err *err)
{
	int code = jm_event_follow(&slot->taken, JM_QUEUE_COPY, err);

	if (!code)
		code = jm_device_copy(s->program->device, JM_QUEUE_COPY, slot->device, slot->host,
			s->offset[s->n - 1] + needed(s, s->n - 1), JM_TO_DEVICE, err);
	if (!code)
		code = jm_event_record(&slot->sent, JM_QUEUE_COPY, err);
	return code ? code : jm_event_follow(&slot->sent, JM_QUEUE_COMPUTE, err);
}

/* Writes the input, whose values are at `from`. Where copies cost no more than their bytes, each
 * row has one of its own. */
static int write_input(
	const struct jm_staging *s, int i, const char *from, enum jm_copy kind, struct jm_err *err)
{
	const struct jm_device *d = s->program->device;
	const struct jm_tensor *t = s->tensor[i];
	size_t row = (size_t)jm_tensor_width(t) * sizeof(int32_t);
	int code = 0;

	if (!s->used || i + 1 < s->n || kind == JM_ON_DEVICE)
		return jm_device_copy(d, JM_QUEUE_COMPUTE, t->data, from, needed(s, i), kind, err);
	for (int64_t k = 0; k < jm_tensor_rows(t) && !code; k++)
		if (s->used[k])
			code = jm_device_copy(d, JM_QUEUE_COMPUTE,
				(char *)t->data + (size_t)k * row, from + (size_t)k * row,
				(size_t)s->used[k] * sizeof(int32_t), kind, err);
	return code;
}

int jm_staging_end(struct jm_staging *s, struct jm_err *err)
{
	struct jm_staging_slot *slot = &s->slot[s->now];
	const char *from = slot->device ? slot->device : slot->host;
	enum jm_copy kind = slot->device ? JM_ON_DEVICE : JM_TO_DEVICE;
	int code = slot->device ? send_over(s, slot, err) : 0;

	for (int i = 0; i < s->n && !code; i++)
		code = write_input(s, i, from + s->offset[i], kind, err);
	return code || !slot->device ? code : jm_event_record(&slot->taken, JM_QUEUE_COMPUTE, err);
}
