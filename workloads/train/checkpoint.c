/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"
#include "base/text/json.h"
#include "data/safetensors_write.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "engine/graph/fp8.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"
#include "workloads/parts/whole_tensor.h"

#define KIND	   "joulemark.checkpoint"
#define VERSION	   "1"
#define COUNT_MOST ((int64_t)1 << 53)
#define STEPS_MOST ((int64_t)1 << 40)  /* so that their samples can be counted */
#define NAME	   (2 * JM_NAME_BYTES) /* of a tensor behind that of what is kept of it */

/* ---- the tensors ----------------------------------------------------------------------------- */

/* Tensors that are written, and moments as tensors of the shape and layout of their parameter. All
 * ranks have the same list. */
struct state {
	struct jm_whole whole;
	struct jm_whole_item *item;
	char (*name)[NAME];
	int n;
	int other_ranges; /* of ranks but the first, in a file that is read */
};

static bool is_kept(const struct jm_cell *c)
{
	if (c->t.class == JM_CLASS_STATE)
		return c->t.data;
	return c->t.class == JM_CLASS_PARAM && !c->origin && (c->needs_grad || c->frozen);
}

static void add(struct state *s, struct jm_whole_item item, const char *prefix)
{
	const char *name = item.cell->t.name;

	s->item[s->n] = item;
	snprintf(s->name[s->n++], NAME, "%s%s%s", prefix, *prefix ? "/" : "", name);
}

/* Here, or on another stage. */
static bool is_trained(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_PARAM && (c->t.data ? jm_update_trains(c) : c->needs_grad);
}

static void add_cell(struct state *s, const struct jm_cell *c)
{
	const struct jm_graph *g = s->whole.p->graph;
	char name[JM_NAME_BYTES];

	add(s, (struct jm_whole_item){.t = c->t, .cell = c}, "");
	for (enum jm_kept k = JM_KEPT_M; k < JM_KEPT_COUNT && is_trained(c); k++)
		if (jm_update_keeps(g, k, name))
			add(s,
				(struct jm_whole_item){
					.t = jm_update_kept(g, c, k), .cell = c, .kept = k},
				name);
}

static void name_ranges(int rank, char ret[NAME])
{
	snprintf(ret, NAME, "%s@%d", JM_FP8_RANGES, rank);
}

/* Those of rank 0 are kept as a cell. */
static void add_other_ranges(struct state *s, const struct jm_cell *c)
{
	for (int r = 1; s->whole.comm && r < s->whole.comm->world; r++) {
		s->item[s->n] = (struct jm_whole_item){.t = c->t, .cell = c, .rank = r};
		name_ranges(r, s->name[s->n++]);
	}
}

static void drop(struct state *s)
{
	free(s->item);
	free(s->name);
}

static int list(
	struct jm_program *p, const struct jm_comm *comm, struct state *ret, struct jm_err *err)
{
	size_t most = 4 * (size_t)p->graph->n_cells + JM_RANKS_MOST;
	struct state s = {.whole = {.p = p, .comm = comm},
		.item = calloc(most, sizeof(*s.item)),
		.name = calloc(most, sizeof(*s.name))};

	s.whole.item = s.item;
	if (!s.item || !s.name) {
		drop(&s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a checkpoint.");
	}
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (is_kept(c))
			add_cell(&s, c);
		if (is_kept(c) && jm_fp8_is_ranges(&c->t))
			add_other_ranges(&s, c);
	}
	*ret = s;
	return 0;
}

static const enum jm_safetensor_type types[JM_DTYPE_COUNT] = {[JM_F32] = JM_SAFETENSOR_F32,
	[JM_BF16] = JM_SAFETENSOR_BF16,
	[JM_F64] = JM_SAFETENSOR_F64,
	[JM_I32] = JM_SAFETENSOR_I32,
	[JM_F16] = JM_SAFETENSOR_F16,
	[JM_F8E4M3] = JM_SAFETENSOR_F8_E4M3,
	[JM_F8E5M2] = JM_SAFETENSOR_F8_E5M2};

/* ---- counters -------------------------------------------------------------------------------- */

static json_t *number(int64_t x)
{
	return json_sprintf("%" PRId64, x);
}

/* Floating point in hexadecimal, so that no bit is lost. */
static json_t *notes_of(const struct jm_training *t, const struct jm_checkpoint *c)
{
	json_t *notes = json_object();

	jm_json_set_text(&notes, KIND, VERSION);
	jm_json_set_text(&notes, "model", t->model->name);
	jm_json_set_text(&notes, "optimizer", jm_update_names[t->adamw.kind]);
	jm_json_set(&notes, "step", number(c->step));
	jm_json_set(&notes, "updates", number(c->scaler.updates));
	jm_json_set(&notes, "batches", number(c->batches));
	jm_json_set(&notes, "seed", json_sprintf("%" PRIu64, c->seed));
	jm_json_set(&notes, "samples_per_step", number(c->samples));
	jm_json_set(&notes, "data", json_sprintf("%016" PRIx64, c->data));
	jm_json_set(&notes, "scale_dynamic", number(c->scaler.dynamic));
	jm_json_set(&notes, "scale", json_sprintf("%a", c->scaler.scale));
	jm_json_set(&notes, "scale_good", number(c->scaler.good));
	jm_json_set(&notes, "scale_skipped", number(c->scaler.skipped));
	jm_json_set(&notes, "scale_in_a_row", number(c->scaler.in_a_row));
	if (c->scaler.n_late) {
		jm_json_set(&notes, "late_scale", json_sprintf("%a", c->scaler.late[0].scale));
		jm_json_set(&notes, "late_finite", number(c->scaler.late[0].finite));
	}
	return notes;
}

/* A whole number from 0 to COUNT_MOST; false: there is none. */
static bool get(const struct jm_safetensors *s, const char *key, int64_t *ret)
{
	const char *text = jm_safetensors_note(s, key);
	char *end;

	*ret = text ? strtoll(text, &end, 10) : -1;
	return text && end != text && !*end && *ret >= 0 && *ret <= COUNT_MOST;
}

static bool is_scale(double x)
{
	return x >= 1 && x <= JM_SCALER_MOST;
}

/* The outcome of the last step that was not heeded yet, if there is one. */
static bool get_late(const struct jm_safetensors *s, long step, struct jm_scaler *ret)
{
	const char *scale = jm_safetensors_note(s, "late_scale");
	int64_t finite;

	ret->n_late = 0;
	if (!scale)
		return true;
	if (!get(s, "late_finite", &finite))
		return false;
	ret->late[ret->n_late++] = (struct jm_outcome){step - 1, strtod(scale, NULL), finite};
	return step > 0 && is_scale(ret->late[0].scale);
}

/* A dynamic scale goes on from that of the file if it was dynamic, too; any other one is that of
 * this run, and the counts alone go on. Older versions did not write what it was. */
static bool get_scaler(const struct jm_safetensors *s, long step, struct jm_scaler *ret)
{
	const char *scale = jm_safetensors_note(s, "scale");
	struct jm_scaler found = *ret;
	int64_t dynamic, updates, good, skipped, in_a_row;

	if (!get(s, "updates", &updates) || !get(s, "scale_good", &good) ||
		!get(s, "scale_skipped", &skipped) || !get(s, "scale_in_a_row", &in_a_row) ||
		!scale)
		return false;
	found.scale = strtod(scale, NULL);
	found.updates = (long)updates;
	found.good = (long)good;
	found.skipped = (long)skipped;
	found.in_a_row = (long)in_a_row;
	if (!is_scale(found.scale) || updates > step || !get_late(s, step, &found))
		return false;
	if (!get(s, "scale_dynamic", &dynamic))
		dynamic = found.scale > 1;
	if (!dynamic || !ret->dynamic) {
		found = jm_scaler_known(found);
		found.scale = ret->scale;
		found.good = found.in_a_row = 0;
	}
	*ret = found;
	return true;
}

static bool get_counters(const struct jm_safetensors *s, struct jm_checkpoint *c)
{
	const char *seed = jm_safetensors_note(s, "seed");
	const char *data = jm_safetensors_note(s, "data"); /* older versions wrote none */
	int64_t step;

	if (!get(s, "step", &step) || !get(s, "batches", &c->batches) ||
		!get(s, "samples_per_step", &c->samples) || !seed)
		return false;
	c->step = (long)step;
	c->seed = strtoull(seed, NULL, 10);
	c->data = data ? strtoull(data, NULL, 16) : c->data;
	return step <= STEPS_MOST && get_scaler(s, c->step, &c->scaler);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int give(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	const struct state *s = arg;
	int64_t all = jm_whole_count(&s->whole, i), piece = jm_whole_piece(&s->whole, i);
	size_t size = jm_dtype_bytes(s->item[i].t.type);
	void *data = malloc((size_t)piece * size + 1);
	int code = data ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a checkpoint.");

	for (int64_t at = 0; at < all && !code; at += piece) {
		int64_t n = MIN(piece, all - at);

		code = jm_whole_read(&s->whole, i, at, n, data, err);
		if (!code)
			code = jm_safetensors_put(sink, data, (size_t)n * size, err);
	}
	free(data);
	return code;
}

/* The tensor in the file, of whole dims. */
static struct jm_safetensor row_of(const struct state *s, int i)
{
	const struct jm_whole_item *item = &s->item[i];
	struct jm_safetensor row = {
		.name = s->name[i], .type = types[item->t.type], .rank = item->t.rank};

	for (int k = 0; k < row.rank; k++)
		row.dim[k] = jm_cell_dim(s->whole.p->graph, item->cell, k);
	return row;
}

static int write_state(struct state *s, const json_t *notes, const char *path, struct jm_err *err)
{
	struct jm_safetensor *row = calloc((size_t)s->n + 1, sizeof(*row));
	int code;

	if (!row)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a checkpoint.");
	for (int i = 0; i < s->n; i++)
		row[i] = row_of(s, i);
	code = jm_safetensors_write(path, row, s->n, notes, give, s, err);
	free(row);
	return code;
}

static int write_file(struct state *s, const struct jm_training *t, const struct jm_checkpoint *c,
	const char *path, struct jm_err *err)
{
	json_t *notes = notes_of(t, c);
	int code = notes ? write_state(s, notes, path, err)
			 : jm_err_set(err, JM_ENOMEM, "Out of memory for a checkpoint.");
	int ended = jm_whole_end(&s->whole, err);

	json_decref(notes);
	return code ? code : ended;
}

int jm_checkpoint_write(struct jm_program *p, const struct jm_training *t,
	const struct jm_checkpoint *c, const struct jm_comm *comm, const char *path,
	struct jm_err *err)
{
	struct state s;
	int code = list(p, comm, &s, err);

	if (code)
		return code;
	code = comm && comm->rank ? jm_whole_answer(&s.whole, err)
				  : write_file(&s, t, c, path, err);
	drop(&s);
	return code;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int other(const char *path, const char *what, const char *theirs, const char *ours,
	const char *hint, struct jm_err *err)
{
	return jm_err_set(err, JM_EUSAGE,
		"Checkpoint %s has %s %s, and this run has %s; %s to continue it.", path, what,
		theirs, ours, hint);
}

static int check_number(const char *path, const char *what, int64_t theirs, int64_t ours,
	const char *hint, struct jm_err *err)
{
	char a[24], b[24];

	if (theirs == ours)
		return 0;
	snprintf(a, sizeof(a), "%" PRId64, theirs);
	snprintf(b, sizeof(b), "%" PRId64, ours);
	return other(path, what, a, b, hint, err);
}

static int check_text(const struct jm_safetensors *s, const char *key, const char *ours,
	const char *hint, struct jm_err *err)
{
	const char *theirs = jm_safetensors_note(s, key);

	if (theirs && !strcmp(theirs, ours))
		return 0;
	return other(s->path, key, theirs ? theirs : "(none)", ours, hint, err);
}

bool jm_checkpoint_is(const struct jm_safetensors *file)
{
	return jm_safetensors_note(file, KIND);
}

static int check_notes(const struct jm_safetensors *s, const struct jm_training *t,
	const struct jm_checkpoint *now, struct jm_checkpoint *ret, struct jm_err *err)
{
	const char *version = jm_safetensors_note(s, KIND);
	int code;

	if (!version)
		return jm_err_set(err, JM_EFORMAT,
			"%s is no checkpoint of a training; to start from weights use --from.",
			s->path);
	*ret = *now;
	if (strcmp(version, VERSION) != 0 || !get_counters(s, ret))
		return jm_err_set(err, JM_EFORMAT,
			"Checkpoint %s is damaged, or of another version: its counters are not "
			"complete.",
			s->path);
	code = check_text(s, "model", t->model->name, "train the same model", err);
	if (!code)
		code = check_text(s, "optimizer", jm_update_names[t->adamw.kind],
			"give the same --optimizer", err);
	if (!code)
		code = check_number(s->path, "seed", (int64_t)ret->seed, (int64_t)now->seed,
			"give the same --seed", err);
	return code ? code
		    : check_number(s->path, "samples in a step:", ret->samples, now->samples,
			      "give --batch, --accumulate and --ranks with the same product", err);
}

static int check_tensor(const struct state *s, int i, const struct jm_safetensors *file,
	const struct jm_safetensor *f, struct jm_err *err)
{
	const struct jm_safetensor own = row_of(s, i);

	if (!f)
		return jm_err_set(err, JM_EUSAGE,
			"Checkpoint %s has no tensor '%s' of this network; give the options of "
			"the run that wrote it.",
			file->path, s->name[i]);
	if (f->type == own.type && f->rank == own.rank &&
		!memcmp(f->dim, own.dim, (size_t)own.rank * sizeof(*own.dim)))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Tensor '%s' of checkpoint %s has another type or shape than in this run; give the "
		"options of the run that wrote it.",
		s->name[i], file->path);
}

/* Of as many ranks as wrote the file each finds its own ranges. Older files name moments of vectors
 * after a slab of their own. */
static const struct jm_safetensor *find(
	const struct state *s, int i, const struct jm_safetensors *file)
{
	const char *name = s->name[i], *slash = s->item[i].kept ? strchr(name, '/') : NULL;
	const struct jm_graph *g = s->whole.p->graph;
	const struct jm_safetensor *found;
	char own[NAME], older[NAME + 16];

	if (jm_fp8_is_ranges(&s->item[i].t) && g->rank && s->other_ranges + 1 == g->ranks) {
		name_ranges(g->rank, own);
		name = own;
	}
	found = jm_safetensors_find(file, name);
	if (found || !slash)
		return found;
	snprintf(older, sizeof(older), "%.*s.vectors%s", (int)(slash - name), name, slash);
	return jm_safetensors_find(file, older);
}

static int read_tensor(const struct state *s, int i, const struct jm_safetensors *file,
	const struct jm_safetensor *f, struct jm_err *err)
{
	int64_t all = jm_whole_count(&s->whole, i), piece = jm_whole_piece(&s->whole, i);
	size_t size = jm_dtype_bytes(s->item[i].t.type);
	void *data;
	int code = 0;

	data = malloc((size_t)piece * size + 1);
	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a checkpoint.");
	for (int64_t at = 0; at < all && !code; at += piece) {
		int64_t n = MIN(piece, all - at);

		if (!jm_whole_has(&s->whole, i, at, n))
			continue;
		code = jm_safetensors_read(
			file, f, (uint64_t)at * size, data, (size_t)n * size, err);
		if (!code)
			code = jm_whole_write(&s->whole, i, at, n, data, err);
	}
	free(data);
	return code;
}

static int count_other_ranges(const struct jm_safetensors *file)
{
	char name[NAME];
	int n = 0;

	do
		name_ranges(n + 1, name);
	while (jm_safetensors_find(file, name) && ++n);
	return n;
}

static int read_state(struct state *s, const struct jm_safetensors *file, struct jm_err *err)
{
	int code = 0;

	s->other_ranges = count_other_ranges(file);
	for (int i = 0; i < s->n && !code; i++)
		code = check_tensor(s, i, file, find(s, i, file), err);
	if (!code && file->n != s->n + s->other_ranges)
		code = jm_err_set(err, JM_EUSAGE,
			"Checkpoint %s has %d tensors, and this run has %d; give the options of "
			"the run that wrote it.",
			file->path, file->n, s->n + s->other_ranges);
	for (int i = 0; i < s->n && !code; i++)
		code = read_tensor(s, i, file, find(s, i, file), err);
	return code;
}

int jm_checkpoint_read(struct jm_program *p, const struct jm_training *t,
	const struct jm_checkpoint *now, const char *path, struct jm_checkpoint *ret,
	struct jm_err *err)
{
	struct jm_safetensors file = {0};
	struct state s = {0};
	int code = jm_safetensors_open(path, &file, err);

	if (!code)
		code = check_notes(&file, t, now, ret, err);
	if (!code)
		code = list(p, NULL, &s, err);
	if (!code)
		code = read_state(&s, &file, err);
	drop(&s);
	jm_safetensors_close(&file);
	return code;
}
