/* SPDX-License-Identifier: Apache-2.0 */
#include "train_weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/output.h"
#include "checkpoint.h"
#include "engine/run/reduce.h"
#include "engine/run/start_values.h"
#include "train_options.h"
#include "workloads/parts/weights_save.h"

static struct jm_network network_of(const struct train *s)
{
	return (struct jm_network){s->training.model, s->training.dims};
}

/* The file is read when the program is built; one that is not there is said before. */
static int look_for(const char *checkpoint, struct jm_err *err)
{
	struct stat st;

	if (stat(checkpoint, &st) || access(checkpoint, R_OK))
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Checkpoint %s of --continue cannot be opened: %s; give a file that "
			"--checkpoint wrote, or omit --continue to begin at step 0.",
			checkpoint, strerror(errno));
	if (S_ISREG(st.st_mode))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Checkpoint %s of --continue is no regular file; give a file that --checkpoint "
		"wrote.",
		checkpoint);
}

/* Tables and messages would be among its bytes. */
static int refuse_own_output(const char *option, const char *path, struct jm_err *err)
{
	if (!path || !jm_output_is_ours(path))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"%s %s names what the results and messages of this run go to; name a file%s.",
		option, path, strcmp(path, "-") ? "" : ", or ./- for one of that name");
}

/* Is there a place for each file that the run is to write? */
static int try_files(struct jm_train_weights *w, struct jm_err *err)
{
	int code = refuse_own_output("--save", w->save, err);

	if (!code)
		code = refuse_own_output("--checkpoint", w->checkpoint, err);
	if (!code && w->save) {
		w->made = jm_output_folder_new(w->save);
		code = jm_weights_try(w->save, err);
	}
	if (!code && w->checkpoint)
		code = jm_output_try(w->checkpoint, err);
	return code;
}

int jm_train_weights_open(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	const char *from = s->given.from;
	int code = from ? jm_safetensors_open(from, &w->from, err) : 0;

	if (!code && from && jm_checkpoint_is(&w->from))
		code = jm_err_set(err, JM_EUSAGE,
			"%s is a checkpoint, not weights; give it with --continue, or the file "
			"of --save with --from.",
			from);
	if (!code && w->go_on)
		code = look_for(w->go_on, err);
	if (!w->checkpoint)
		w->every = 0;
	if (!code && w->save && w->checkpoint && jm_output_same(w->save, w->checkpoint))
		code = jm_err_set(err, JM_EUSAGE,
			"--save and --checkpoint name one file, %s, which can have only one of "
			"both; give them different names.",
			w->save);
	return code || s->work->rank ? code : try_files(w, err);
}

/* The log and the record say what the run begins with. */
static void tell_start(const struct train *s)
{
	const struct jm_train_weights *w = &s->weights;

	if (s->work->more)
		json_object_set_new(s->work->more, "weights",
			jm_weights_json(w->from.path, &w->found, w->go_on, s->first));
	if (!w->from.path)
		return;
	jm_log(s->work->ctx, JM_INFO, "Start values from %s: %s.", w->from.path, w->found.what);
	if (*w->found.anew)
		jm_work_note(s->work, "%s", w->found.anew);
}

/* Each micro-step of a training is a batch for the running statistics. */
static int64_t batches(const struct train *s)
{
	return s->weights.batches +
	       (int64_t)(s->begun - s->first) * jm_program_micro_steps(s->program);
}

/* What the numbers of steps mean in this run. */
static struct jm_checkpoint counters_of(const struct train *s)
{
	struct jm_scaler scaler = s->scaler;

	jm_scaler_heed(&scaler, s->begun - 1);
	return (struct jm_checkpoint){.step = s->begun,
		.batches = batches(s),
		.scaler = scaler,
		.seed = s->work->seed,
		.data = s->data_digest,
		.samples =
			s->training.batch * jm_program_micro_steps(s->program) * s->training.ranks};
}

static int go_on(struct train *s, struct jm_err *err)
{
	const struct jm_checkpoint now = counters_of(s);
	struct jm_train_weights *w = &s->weights;
	struct jm_checkpoint found;
	int code = jm_checkpoint_read(s->program, &s->training, &now, w->go_on, &found, err);

	if (code)
		return code;
	s->first = s->begun = s->steps = found.step;
	s->scaler = found.scaler;
	w->batches = found.batches;
	jm_log(s->work->ctx, JM_INFO, "Continues behind step %ld of checkpoint %s.", s->first,
		w->go_on);
	if (found.data != now.data)
		jm_work_note(s->work,
			"The data are not those of the run that wrote checkpoint %s, so the losses "
			"differ from those of a run without an interruption.",
			w->go_on);
	return 0;
}

/* A lower bound of the size of a file: the parameters of this rank that are trained; with `all`, a
 * checkpoint with moments and frozen parameters. */
static uint64_t bytes_of(const struct train *s, bool all)
{
	const struct jm_adamw *u = &s->training.adamw;
	int moments = u->kind == JM_UPDATE_SGD ? u->momentum > 0 : 2;
	uint64_t bytes = 0;

	for (int i = 0; i < s->graph->n_cells; i++) {
		const struct jm_cell *c = s->graph->cell[i];
		bool trained = c->needs_grad && c->t.type == JM_F32;
		int of_each = 1 + (all && trained ? moments + (u->average > 0) : 0);

		if (c->t.class == JM_CLASS_PARAM && !c->origin &&
			(c->needs_grad || (all && c->frozen)))
			bytes += (uint64_t)of_each * (uint64_t)jm_tensor_count(&c->t) *
				 jm_dtype_bytes(c->t.type);
	}
	return bytes;
}

/* Reports a full disk before the first step instead of after the last one. */
static int check_room(const struct train *s, struct jm_err *err)
{
	const struct jm_train_weights *w = &s->weights;
	const struct jm_output_write save = {w->save, bytes_of(s, false)};
	const struct jm_output_write checkpoint = {w->checkpoint, bytes_of(s, true)};
	struct jm_output_write all[3];
	int n = 0;

	if (s->work->rank)
		return 0;
	for (int i = 0; i < 2 && w->every; i++)
		all[n++] = checkpoint;
	if (w->save)
		all[n++] = save;
	if (w->checkpoint && !w->every)
		all[n++] = checkpoint;
	return jm_output_room(all, n, err);
}

int jm_train_weights_start(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	int code = w->from.path ? jm_weights_load(s->program, network_of(s), &w->from,
					  s->work->seed, &w->found, err)
				: jm_program_init(s->program, s->work->seed, err);

	w->batches = w->found.batches;
	if (!code)
		code = check_room(s, err);
	if (!code && w->go_on)
		code = go_on(s, err);
	if (!code && jm_train_weights_given(w))
		tell_start(s);
	return code;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Of ranks that share models or the update, or have ranges of their own; NULL = each has all. */
static const struct jm_comm *sharing(const struct train *s)
{
	const struct jm_training *t = &s->training;
	bool own_ranges = t->fp8 && t->ranks > 1;

	return t->tp * t->pp > 1 || s->graph->shard || own_ranges ? &s->gang.control : NULL;
}

/* One rank writes for all. If it has a part or a share only, others help. */
static bool is_silent(const struct train *s)
{
	return s->work->rank && !sharing(s);
}

static int save(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	const struct jm_weights_source source = {.batches = batches(s),
		.shard_bytes = (uint64_t)(w->shard * 1e9),
		.from = w->from.path ? &w->from : NULL,
		.found = &w->found,
		.comm = sharing(s)};
	int code = jm_weights_save(s->program, network_of(s), &source, w->save, err);

	if (!code && !s->work->rank)
		jm_log(s->work->ctx, JM_INFO, "The weights after step %ld are in %s.", s->begun,
			w->save);
	return code;
}

bool jm_train_weights_due(const struct train *s)
{
	return s->weights.every && s->begun % s->weights.every == 0;
}

int jm_train_weights_checkpoint(struct train *s, struct jm_err *err)
{
	const struct jm_checkpoint now = counters_of(s);
	int code = s->graph->shard ? jm_reduce_gather(s->program, err) : 0;

	s->weights.written = s->begun;
	if (code || is_silent(s))
		return code;
	return jm_checkpoint_write(
		s->program, &s->training, &now, sharing(s), s->weights.checkpoint, err);
}

int jm_train_weights_finish(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	int code = w->save && s->graph->shard ? jm_reduce_gather(s->program, err) : 0;

	if (!code && w->save && !is_silent(s))
		code = save(s, err);
	if (!code && w->checkpoint && w->written != s->begun)
		code = jm_train_weights_checkpoint(s, err);
	return code;
}

void jm_train_weights_close(struct jm_train_weights *w)
{
	jm_safetensors_close(&w->from);
	if (w->made)
		jm_output_folder_drop(w->save, w->made); /* of a run that saved nothing */
}
