/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The register file. Writers take a lock on its byte 0; readers take none: every word is atomic,
 * and an event counts from the moment `next` has passed it. A load's owner holds a lock on its
 * slot's byte, so that its death, however it comes, is seen by all. Locks are of open file
 * descriptions: several handles in one process exclude each other like those of several processes.
 */
#include "registers.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "base/files/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC	  "jm-sim\n"
#define VERSION	  3
#define EVENTS	  1024
#define SLOTS	  16
#define REAL_TIME 1 /* the domain of CLOCK_MONOTONIC; those of simulated clocks are hashes */

enum { EVENT_CAP, EVENT_CLOCK, EVENT_LOAD };

typedef _Atomic uint64_t word;

struct slot {
	word domain; /* 0 = never used */
	word response, seed;
};

struct event {
	word sequence, t_ns, domain;
	word kind, gpu; /* CAP, CLOCK: of that GPU */
	word value;	/* bits of the watts, of the highest clock; LOAD: its word */
	word seed;
};

struct page {
	char magic[8];
	uint32_t version, bytes;
	char node[24];
	word next; /* sequence number of the next event, from 1 */
	word cap[JM_SIM_GPUS_MAX], clock_low[JM_SIM_GPUS_MAX], clock_high[JM_SIM_GPUS_MAX];
	struct slot slot[SLOTS];
	struct event event[EVENTS];
};

struct jm_sim_registers {
	struct jm_ctx *ctx;
	struct jm_sim_name name;
	uint64_t domain;
	int fd;
	struct page *page;
	int slot; /* of our own load; -1 = none */
	char path[PATH_MAX];
};

static uint64_t to_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static double from_bits(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64_t get(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

static void put(word *w, uint64_t value)
{
	atomic_store_explicit(w, value, memory_order_release);
}

/* A simulated clock is known by its address in this execution of this process. */
static uint64_t domain_of(const struct jm_ctx *ctx)
{
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint64_t execution = 0;

	if (!jm_clock_simulated(ctx->clock))
		return REAL_TIME;
	if (random)
		memcpy(&execution, random, sizeof(execution));
	return jm_sim_hash(execution, (uint64_t)getpid(), (uintptr_t)ctx->clock) | 2;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static int lock_byte(const struct jm_sim_registers *r, int command, short type, int byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	while (fcntl(r->fd, command, &lock))
		if (errno != EINTR)
			return -1;
	return lock.l_type;
}

static int lock_writer(const struct jm_sim_registers *r, struct jm_err *err)
{
	if (lock_byte(r, F_OFD_SETLKW, F_WRLCK, 0) >= 0)
		return 0;
	return jm_err_set(err, JM_EIO,
		"Cannot lock %s: %s; put the state folder (JM_STATE) on a file system with locks.",
		r->path, strerror(errno));
}

static void unlock_writer(const struct jm_sim_registers *r)
{
	lock_byte(r, F_OFD_SETLK, F_UNLCK, 0);
}

static bool slot_owned(const struct jm_sim_registers *r, int slot)
{
	if (slot == r->slot)
		return true;
	return lock_byte(r, F_OFD_GETLK, F_WRLCK, 1 + slot) != F_UNLCK;
}

/* The slot with a living load in our domain, or -1. */
static int loaded_slot(const struct jm_sim_registers *r)
{
	for (int i = 0; i < SLOTS; i++)
		if (get(&r->page->slot[i].domain) == r->domain && slot_owned(r, i))
			return i;
	return -1;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void fill_page(struct page *page, const struct jm_sim_name *name)
{
	memset(page, 0, sizeof(*page));
	memcpy(page->magic, MAGIC, sizeof(page->magic));
	page->version = VERSION;
	page->bytes = sizeof(*page);
	memcpy(page->node, name->text, sizeof(page->node));
	put(&page->next, 1);
	for (int i = 0; i < name->n; i++) {
		put(&page->cap[i], to_bits(name->gpu->cap_default_watts));
		put(&page->clock_low[i], to_bits(name->gpu->clock_idle_hz));
		put(&page->clock_high[i], to_bits(name->gpu->clock_max_hz));
	}
}

static int file_error(const struct jm_sim_registers *r, const char *what, struct jm_err *err)
{
	bool denied = errno == EACCES || errno == EPERM || errno == EROFS;

	return jm_err_set(err, denied ? JM_EPERM : JM_EIO,
		"Cannot %s the simulated node's registers %s: %s; make the file writable for this "
		"user or set JM_STATE to another folder.",
		what, r->path, strerror(errno));
}

/* Under sudo the file is the caller's: its workers run as that user. */
static void give_to_caller(int fd)
{
	uid_t uid;
	gid_t gid;

	if (jm_sudo_caller(&uid, &gid) && fchown(fd, uid, gid))
		return; /* stays root's: opening it says so */
}

/* Whole or not at all: written beside, then linked to its name. */
static int make_file(struct jm_sim_registers *r, struct jm_err *err)
{
	char temporary[PATH_MAX + 8];
	struct page *page = malloc(sizeof(*page));
	int fd, rc = 0;

	if (!page)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", r->path);
	fill_page(page, &r->name);
	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", r->path);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) {
		rc = file_error(r, "make", err);
		free(page);
		return rc;
	}
	give_to_caller(fd);
	if (write(fd, page, sizeof(*page)) != sizeof(*page) || fchmod(fd, 0644) ||
		(link(temporary, r->path) && errno != EEXIST))
		rc = file_error(r, "make", err);
	unlink(temporary);
	close(fd);
	free(page);
	return rc;
}

static int not_registers(const struct jm_sim_registers *r, const char *why, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"%s is not a register file of the simulated node %s: %s; remove it to start with "
		"defaults.",
		r->path, r->name.text, why);
}

static bool is_range(const struct jm_sim_gpu *kind, double low, double high)
{
	return low >= kind->clock_idle_hz && low <= high && high <= kind->clock_max_hz;
}

static int check_page(const struct jm_sim_registers *r, struct jm_err *err)
{
	const struct page *page = r->page;

	if (memcmp(page->magic, MAGIC, sizeof(page->magic)))
		return not_registers(r, "it does not begin as a register file does", err);
	if (page->bytes != sizeof(*page) || !get(&page->next))
		return not_registers(r, "its header is damaged", err);
	if (memcmp(page->node, r->name.text, sizeof(page->node)))
		return not_registers(r, "it belongs to another node", err);
	for (int i = 0; i < r->name.n; i++) {
		double cap = from_bits(get(&page->cap[i])), low, high;

		if (!(cap >= r->name.gpu->cap_min_watts && cap <= r->name.gpu->cap_max_watts))
			return not_registers(r, "a cap is out of range", err);
		jm_sim_registers_clock(r, i, &low, &high);
		if (!is_range(r->name.gpu, low, high))
			return not_registers(r, "a clock is out of range", err);
	}
	return 0;
}

/* 0 = no register file. Versions differ in size, too. */
static uint32_t version_of(int fd)
{
	struct page head;
	size_t size = offsetof(struct page, bytes);

	if (pread(fd, &head, size, 0) != (ssize_t)size ||
		memcmp(head.magic, MAGIC, sizeof(head.magic)))
		return 0;
	return head.version;
}

static int map_file(struct jm_sim_registers *r, struct jm_err *err)
{
	uint32_t version = version_of(r->fd);
	struct stat st;
	void *mapped;

	if (version && version != VERSION)
		return jm_err_set(err, JM_EVERSION,
			"%s has version %u, but this program reads version %d; remove it to start "
			"with defaults.",
			r->path, version, VERSION);
	if (fstat(r->fd, &st))
		return file_error(r, "open", err);
	if (st.st_size != sizeof(struct page))
		return not_registers(r, "its size is wrong", err);
	mapped = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (mapped == MAP_FAILED)
		return file_error(r, "map", err);
	r->page = mapped;
	return check_page(r, err);
}

/* Of a joulemark before this one, whose caps are forgotten. To a process that comes late its path
 * is another file by then, or none. */
static bool remove_older(struct jm_sim_registers *r)
{
	uint32_t version = version_of(r->fd);
	struct stat own, there;

	if (!version || version >= VERSION || lock_writer(r, NULL) || fstat(r->fd, &own) ||
		(!lstat(r->path, &there) && there.st_ino == own.st_ino && unlink(r->path)))
		return false;
	close(r->fd); /* which unlocks it */
	r->fd = -1;
	return true;
}

static int open_file(struct jm_sim_registers *r, struct jm_err *err)
{
	r->fd = open(r->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (r->fd >= 0 ? remove_older(r) : errno == ENOENT) {
		if (make_file(r, err))
			return err ? err->code : JM_EIO;
		r->fd = open(r->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	}
	if (r->fd < 0)
		return file_error(r, "open", err);
	return map_file(r, err);
}

int jm_sim_registers_open(
	struct jm_ctx *ctx, const char *node, struct jm_sim_registers **ret, struct jm_err *err)
{
	struct jm_sim_registers *r = calloc(1, sizeof(*r));
	char folder[PATH_MAX - 64];
	int rc;

	if (!r)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the simulated node.");
	*r = (struct jm_sim_registers){.ctx = ctx, .fd = -1, .slot = -1, .domain = domain_of(ctx)};
	rc = jm_sim_name_parse(node, &r->name, err);
	if (!rc)
		rc = jm_state_folder(ctx, "sim", folder, sizeof(folder), err);
	if (!rc) {
		snprintf(r->path, sizeof(r->path), "%s/%s.knobs", folder, r->name.text);
		rc = open_file(r, err);
	}
	if (rc)
		jm_sim_registers_close(r);
	else
		*ret = r;
	return rc;
}

void jm_sim_registers_close(struct jm_sim_registers *r)
{
	if (!r)
		return;
	if (r->page) {
		jm_sim_registers_unload(r);
		munmap(r->page, sizeof(*r->page));
	}
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}

const struct jm_sim_name *jm_sim_registers_name(const struct jm_sim_registers *r)
{
	return &r->name;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* With the writer's lock held. The event counts when `next` has passed it. */
static void publish(
	struct jm_sim_registers *r, uint64_t kind, uint64_t gpu, uint64_t value, uint64_t seed)
{
	uint64_t sequence = get(&r->page->next);
	struct event *e = &r->page->event[sequence % EVENTS];

	put(&e->sequence, 0);
	put(&e->t_ns, (uint64_t)jm_ctx_now(r->ctx));
	put(&e->domain, r->domain);
	put(&e->kind, kind);
	put(&e->gpu, gpu);
	put(&e->value, value);
	put(&e->seed, seed);
	put(&e->sequence, sequence);
	put(&r->page->next, sequence + 1);
}

/* The file is another process's word: never out of range, never a NAN. */
static double checked_cap(const struct jm_sim_registers *r, double cap)
{
	if (!(cap >= r->name.gpu->cap_min_watts))
		return r->name.gpu->cap_min_watts;
	return fmin(cap, r->name.gpu->cap_max_watts);
}

static double checked_clock(const struct jm_sim_registers *r, double clock)
{
	if (!(clock >= r->name.gpu->clock_idle_hz))
		return r->name.gpu->clock_idle_hz;
	return fmin(clock, r->name.gpu->clock_max_hz);
}

double jm_sim_registers_cap(const struct jm_sim_registers *r, int gpu)
{
	return from_bits(get(&r->page->cap[gpu]));
}

int jm_sim_registers_set_cap(struct jm_sim_registers *r, int gpu, double watts, struct jm_err *err)
{
	const struct jm_sim_gpu *kind = r->name.gpu;
	int rc;

	if (!(watts >= kind->cap_min_watts && watts <= kind->cap_max_watts))
		return jm_err_set(err, JM_ERANGE,
			"%g W is outside the range of GPU %d of the simulated node %s, %g W to %g "
			"W.",
			watts, gpu, r->name.text, kind->cap_min_watts, kind->cap_max_watts);
	rc = lock_writer(r, err);
	if (rc)
		return rc;
	put(&r->page->cap[gpu], to_bits(watts));
	publish(r, EVENT_CAP, (uint64_t)gpu, to_bits(watts), 0);
	unlock_writer(r);
	return 0;
}

void jm_sim_registers_clock(
	const struct jm_sim_registers *r, int gpu, double *ret_low, double *ret_high)
{
	*ret_low = from_bits(get(&r->page->clock_low[gpu]));
	*ret_high = from_bits(get(&r->page->clock_high[gpu]));
	if (*ret_low > *ret_high && !lock_writer(r, NULL)) {
		/* no writer is between the two words now */
		*ret_low = from_bits(get(&r->page->clock_low[gpu]));
		*ret_high = from_bits(get(&r->page->clock_high[gpu]));
		unlock_writer(r);
	}
}

int jm_sim_registers_set_clock(
	struct jm_sim_registers *r, int gpu, double low, double high, struct jm_err *err)
{
	const struct jm_sim_gpu *kind = r->name.gpu;
	int rc;

	if (!is_range(kind, low, high))
		return jm_err_set(err, JM_ERANGE,
			"%g to %g MHz is outside the range of GPU %d of the simulated node %s, %g "
			"to %g MHz.",
			low * 1e-6, high * 1e-6, gpu, r->name.text, kind->clock_idle_hz * 1e-6,
			kind->clock_max_hz * 1e-6);
	rc = lock_writer(r, err);
	if (rc)
		return rc;
	put(&r->page->clock_low[gpu], to_bits(low));
	put(&r->page->clock_high[gpu], to_bits(high));
	publish(r, EVENT_CLOCK, (uint64_t)gpu, to_bits(high), 0);
	unlock_writer(r);
	return 0;
}

struct jm_sim_limits jm_sim_registers_limits(const struct jm_sim_registers *r, int gpu)
{
	return (struct jm_sim_limits){checked_cap(r, jm_sim_registers_cap(r, gpu)),
		checked_clock(r, from_bits(get(&r->page->clock_high[gpu])))};
}

/* With the writer's lock held: takes a slot without an owner. */
static int take_slot(struct jm_sim_registers *r, struct jm_err *err)
{
	if (loaded_slot(r) >= 0)
		return jm_err_set(err, JM_EBUSY,
			"Another process puts load on the simulated node %s; wait for its end, or "
			"use another node or another state folder (JM_STATE).",
			r->name.text);
	for (int i = 0; i < SLOTS; i++)
		if (lock_byte(r, F_OFD_SETLK, F_WRLCK, 1 + i) >= 0)
			return i;
	return jm_err_set(err, JM_EBUSY,
		"The simulated node %s is under %d loads already; set JM_STATE to another folder.",
		r->name.text, SLOTS);
}

int jm_sim_registers_load(
	struct jm_sim_registers *r, const struct jm_sim_load *load, struct jm_err *err)
{
	struct slot *slot;
	int rc = lock_writer(r, err);

	if (rc)
		return rc;
	rc = r->slot >= 0 ? r->slot : take_slot(r, err);
	if (rc >= 0) {
		r->slot = rc;
		slot = &r->page->slot[rc];
		put(&slot->response, jm_sim_load_word(load));
		put(&slot->seed, load->seed);
		put(&slot->domain, r->domain);
		publish(r, EVENT_LOAD, 0, jm_sim_load_word(load), load->seed);
		rc = 0;
	}
	unlock_writer(r);
	return rc;
}

void jm_sim_registers_unload(struct jm_sim_registers *r)
{
	if (r->slot < 0 || lock_writer(r, NULL))
		return;
	put(&r->page->slot[r->slot].domain, 0);
	publish(r, EVENT_LOAD, 0, (uint64_t)JM_SIM_IDLE, 0);
	lock_byte(r, F_OFD_SETLK, F_UNLCK, 1 + r->slot);
	r->slot = -1;
	unlock_writer(r);
}

/* ---- observing ------------------------------------------------------------------------------- */

static struct jm_sim_inputs inputs_now(const struct jm_sim_registers *r)
{
	struct jm_sim_inputs now = {.load.response = JM_SIM_IDLE};
	int slot = loaded_slot(r);

	for (int i = 0; i < r->name.n; i++)
		now.limits[i] = jm_sim_registers_limits(r, i);
	if (slot >= 0)
		now.load = jm_sim_load_of(&r->name, get(&r->page->slot[slot].response),
			get(&r->page->slot[slot].seed));
	return now;
}

void jm_sim_cursor_init(struct jm_sim_cursor *cursor, struct jm_sim_registers *r)
{
	*cursor = (struct jm_sim_cursor){
		.next = get(&r->page->next), .checked_ns = jm_ctx_now(r->ctx)};
	cursor->inputs = inputs_now(r);
}

/* Takes one event into the inputs. 1: it concerns us, 0: it does not, -1: it was overwritten. */
static int take(
	struct jm_sim_cursor *cursor, const struct jm_sim_registers *r, struct jm_sim_event *ret)
{
	const struct event *e = &r->page->event[cursor->next % EVENTS];
	uint64_t sequence = get(&e->sequence), domain = get(&e->domain), kind = get(&e->kind);
	uint64_t gpu = get(&e->gpu), value = get(&e->value), seed = get(&e->seed);
	int64_t t_ns = (int64_t)get(&e->t_ns);

	if (sequence != cursor->next || get(&e->sequence) != sequence)
		return -1;
	cursor->next++;
	if (kind == EVENT_CAP && gpu < (uint64_t)r->name.n)
		cursor->inputs.limits[gpu].cap_watts = checked_cap(r, from_bits(value));
	else if (kind == EVENT_CLOCK && gpu < (uint64_t)r->name.n)
		cursor->inputs.limits[gpu].clock_hz = checked_clock(r, from_bits(value));
	else if (kind == EVENT_LOAD && domain == r->domain)
		cursor->inputs.load = jm_sim_load_of(&r->name, value, seed);
	else
		return 0;
	*ret = (struct jm_sim_event){
		.t_ns = domain == r->domain ? t_ns : JM_SIM_NOW, .after = cursor->inputs};
	return 1;
}

/* In real time a load's owner may have been killed; that leaves no event. */
static bool owner_died(
	struct jm_sim_cursor *cursor, const struct jm_sim_registers *r, int64_t now_ns)
{
	if (r->domain != REAL_TIME || cursor->inputs.load.response == JM_SIM_IDLE ||
		now_ns - cursor->checked_ns < 100 * JM_MILLISECOND)
		return false;
	cursor->checked_ns = now_ns;
	return loaded_slot(r) < 0;
}

static bool from_now(
	struct jm_sim_cursor *cursor, const struct jm_sim_registers *r, struct jm_sim_event *ret)
{
	cursor->inputs = inputs_now(r);
	*ret = (struct jm_sim_event){.t_ns = JM_SIM_NOW, .after = cursor->inputs};
	return true;
}

/* Events were overwritten before we came: on from what is left of them, over what is now. When even
 * that is damaged, from now. */
static bool skip_lost(
	struct jm_sim_cursor *cursor, const struct jm_sim_registers *r, struct jm_sim_event *ret)
{
	uint64_t next = get(&r->page->next);
	uint64_t first = next > EVENTS / 2 ? next - EVENTS / 2 : 1;

	if (cursor->next >= first) {
		cursor->next = next;
		return from_now(cursor, r, ret);
	}
	cursor->next = first;
	cursor->inputs = inputs_now(r);
	return false;
}

bool jm_sim_cursor_next(struct jm_sim_cursor *cursor, struct jm_sim_registers *r, int64_t now_ns,
	struct jm_sim_event *ret)
{
	while (cursor->next != get(&r->page->next)) {
		int rc = get(&r->page->next) - cursor->next > EVENTS ? -1 : take(cursor, r, ret);

		if (rc > 0 || (rc < 0 && skip_lost(cursor, r, ret)))
			return true;
	}
	return owner_died(cursor, r, now_ns) && from_now(cursor, r, ret);
}
