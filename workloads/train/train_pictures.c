/* SPDX-License-Identifier: Apache-2.0 */
#include "train_pictures.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "data/sets/part_folder.h"
#include "data/tokenizer/tokenizer_json.h"
#include "vendor/nvjpeg.h"
#include "workloads/parts/memory.h"
#include "workloads/parts/weights_config.h"

#define MEMORY_SHARE 8 /* of free memory, for batches that are prepared: one of so many parts */

/* ---- data sets ------------------------------------------------------------------------------- */

/* name: NULL = any field */
static bool reads(const struct jm_model *model, const char *name)
{
	for (const struct jm_input *row = model->inputs; row->name; row++)
		if (row->field && (!name || !strcmp(row->field, name)))
			return true;
	return false;
}

static int check_options(const struct train *s, struct jm_err *err)
{
	const struct jm_train_pictures *p = &s->pictures;
	const struct jm_model *model = s->training.model;

	if (!p->data && p->eval_data)
		return jm_err_set(err, JM_EUSAGE,
			"--eval-data is given and --data is not; give --data DIR, too.");
	if (!p->data)
		return 0;
	if (p->decode[0] == 'd' && strncmp(s->work->device, "cuda", 4) != 0)
		return jm_err_set(err, JM_EUSAGE,
			"--decode device needs a GPU of NVIDIA, and --device is %.40s; omit "
			"--decode, or give --device cuda:0.",
			s->work->device);
	if (p->decode[0] == 'd' && !s->training.batch)
		return jm_err_set(err, JM_EUSAGE,
			"--decode device does not go with --batch max, because the memory that "
			"its decoders take is not planned; give a number to --batch, or omit "
			"--decode.");
	if (s->given.text)
		return jm_err_set(err, JM_EUSAGE,
			"--text and --data are both given; omit one of them, because "
			"--data says what is learnt.");
	if (!reads(model, NULL))
		return jm_err_set(err, JM_EUSAGE,
			"Model %s reads neither pictures nor fields on grids, so it cannot learn "
			"from --data; omit it, or give another model, such as resnet18.",
			model->name);
	if (s->eval.every && !p->eval_data)
		return jm_err_set(err, JM_EUSAGE,
			"--eval-every with --data needs pictures that are held out; give them with "
			"--eval-data DIR.");
	return 0;
}

/* The data set has each field that the model reads. */
static int check_fields(const struct train *s, const struct jm_data_set *set, struct jm_err *err)
{
	const struct jm_model *model = s->training.model;
	char has[128] = "";

	for (const struct jm_data_field *f = set->format->fields; f->name; f++)
		snprintf(has + strlen(has), sizeof(has) - strlen(has), "%s%s", *has ? ", " : "",
			f->name);
	for (const struct jm_input *row = model->inputs; row->name; row++) {
		const struct jm_data_field *f =
			row->field ? jm_data_set_field(set, row->field) : NULL;

		if (row->field && !f)
			return jm_err_set(err, JM_EUSAGE,
				"Model %s reads the field '%s', and data set %s (%s) has only "
				"these: %s; give another data set.",
				model->name, row->field, set->path, set->format->name, has);
		if (f && f->type >= JM_DATA_TEXT && !s->pictures.tokenizer)
			return jm_err_set(err, JM_EUSAGE,
				"Model %s reads texts as tokens; give --tokenizer FILE, its "
				"tokenizer.json.",
				model->name);
	}
	return 0;
}

/* A dimension of the model is what the data set has. */
static int set_dim(const struct train *s, struct jm_values *v, const char *name, int64_t has,
	struct jm_err *err)
{
	const struct jm_values *given = s->work->options;
	char text[24];

	if (jm_values_given(given, name) && (int64_t)jm_values_number(given, name) != has)
		return jm_err_set(err, JM_EUSAGE,
			"Data set %s has %lld %s and --%s is %lld; omit --%s.",
			s->pictures.set.path, (long long)has, name, name,
			(long long)jm_values_number(given, name), name);
	snprintf(text, sizeof(text), "%lld", (long long)has);
	return jm_values_set(v, name, text, err);
}

/* The last layer has as many classes as the data set, and a grid as many points and fields. */
static int set_dims(const struct train *s, struct jm_values *v, struct jm_err *err)
{
	static const char *const points[JM_DATA_AXES] = {"points-x", "points-y", "points-z"};
	const struct jm_data_set *set = &s->pictures.set;
	int code = 0;

	if (set->classes && reads(s->training.model, "class"))
		code = set_dim(s, v, "classes", set->classes, err);
	if (set->axes)
		code = set_dim(s, v, "fields", set->channels, err);
	for (int a = 0; set->axes && a < JM_DATA_AXES && !code; a++)
		code = set_dim(s, v, points[a], a < set->axes ? set->points[a] : 1, err);
	return code;
}

/* The loss of one class is 0 from the first step on. */
static int check_classes(const struct train *s, struct jm_err *err)
{
	static const char *const why = "but a classification needs two or more";
	const struct jm_train_pictures *p = &s->pictures;

	if (!reads(s->training.model, "class") || jm_values_number(&s->dims, "classes") != 1)
		return 0;
	if (p->data)
		return jm_err_set(err, JM_EUSAGE,
			"Data set %s has one class, %s; give a data set with more classes.",
			p->set.path, why);
	return jm_err_set(err, JM_EUSAGE, "--classes is 1, %s; give --classes 2 or more.", why);
}

int jm_train_pictures_dims(struct train *s, const struct jm_preset *preset, struct jm_err *err)
{
	struct jm_values given;
	int code = jm_values_copy(s->work->options, &given, err);

	if (code)
		return code;
	code = set_dims(s, &given, err);
	if (!code)
		code = jm_weights_dims(
			s->training.model, preset, s->given.from, &given, &s->dims, err);
	jm_values_done(&given);
	return code ? code : check_classes(s, err);
}

/* What is read for the part: the file, the folder, or that of the part in it; NULL = files of the
 * part in the folder, or beside others. */
static const char *place_of(const struct jm_data_set *set, enum jm_part part, char *room)
{
	const char *place = jm_part_folder(set->path, part, room);

	return set->single || place != set->path ? place : NULL;
}

/* What is learnt is not held out. */
static int check_held_out(const struct jm_train_pictures *p, struct jm_err *err)
{
	char room[2][PATH_MAX];
	const char *learnt = place_of(&p->set, JM_PART_TRAIN, room[0]);
	const char *held_out = place_of(&p->held_out, JM_PART_HELD_OUT, room[1]);
	struct stat a, b;

	if (!learnt || !held_out || stat(learnt, &a) || stat(held_out, &b) ||
		a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return 0;
	if (learnt != p->set.path)
		return jm_err_set(err, JM_EUSAGE,
			"--eval-data %s names the part of --data that is learnt, so nothing is "
			"held "
			"out; give %s, whose other part is held out, or other pictures.",
			p->eval_data, p->data);
	if (!S_ISDIR(a.st_mode))
		return jm_err_set(err, JM_EUSAGE,
			"--eval-data %s names the file of --data, so nothing is held out; give "
			"another one.",
			p->eval_data);
	return jm_err_set(err, JM_EUSAGE,
		"--eval-data %s names the pictures of --data, which has no parts such as train and "
		"val, so none are held out; give a DIR of other pictures, or move what is learnt "
		"into %s/train and what is held out into %s/val.",
		p->eval_data, p->data, p->data);
}

/* Both have the same grid, if they have one. */
static int check_grids(const struct jm_train_pictures *p, struct jm_err *err)
{
	const struct jm_data_set *a = &p->set, *b = &p->held_out;

	if (a->axes == b->axes && a->channels == b->channels &&
		!memcmp(a->points, b->points, sizeof(a->points)))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Fields of %s and %s differ in number or points; give --eval-data with those of "
		"--data.",
		a->path, b->path);
}

static int open_held_out(struct train *s, struct jm_err *err)
{
	struct jm_train_pictures *p = &s->pictures;
	int code = jm_data_set_open(p->eval_data, JM_PART_HELD_OUT, &p->held_out, err);

	if (!code)
		code = check_fields(s, &p->held_out, err);
	if (!code && reads(s->training.model, "class"))
		code = jm_data_set_same_classes(&p->set, &p->held_out, err);
	if (!code)
		code = check_grids(p, err);
	return code ? code : check_held_out(p, err);
}

int jm_train_pictures_open(struct train *s, struct jm_err *err)
{
	struct jm_train_pictures *p = &s->pictures;
	int code = check_options(s, err);

	if (code || !p->data)
		return code;
	code = jm_data_set_open(p->data, JM_PART_TRAIN, &p->set, err);
	if (!code)
		code = check_fields(s, &p->set, err);
	if (!code && p->group && !jm_data_set_field(&p->set, "ids"))
		code = jm_err_set(err, JM_EUSAGE,
			"--group-by-length sorts conversations by their tokens, and data set %s "
			"(%s) has none; omit it.",
			p->data, p->set.format->name);
	if (!code && p->eval_data)
		code = open_held_out(s, err);
	s->training.byte_pictures = !p->set.axes && !strcmp(p->pixels, "bytes");
	p->each_epoch = p->eval_data && !s->eval.every;
	if (p->each_epoch)
		s->eval.every = 1; /* until the steps of an epoch are known */
	return code;
}

/* ---- loaders --------------------------------------------------------------------------------- */

static int threads_of(const struct train *s)
{
	int cores = jm_gang_cores(s->work);

	if (s->pictures.threads)
		return s->pictures.threads;
	return cores > 2 ? cores - 1 : 1;
}

/*
 * Small pictures of one size keep it: they are put into the image; others are cut and resized. What
 * a caption describes stays in the picture, on its side.
 */
static struct jm_crop crop_of(const struct jm_data_set *set, int size, bool moves)
{
	bool small = set->width && set->width <= size && set->height <= size &&
		     (2 * set->width > size || 2 * set->height > size);
	enum jm_crop_kind kind = small ? (moves ? JM_CROP_MOVED : JM_CROP_PADDED)
				       : (moves ? JM_CROP_RANDOM : JM_CROP_CENTRE);

	if (set->texts.first)
		return (struct jm_crop){
			.size = size, .kind = moves ? JM_CROP_SQUARE : JM_CROP_MIDDLE};
	return (struct jm_crop){.size = size, .kind = kind, .flip = moves};
}

/* What of the texts is not read, because a row has fewer tokens. */
static void note_cut(struct train *s, const struct jm_data_set *set)
{
	int k = set == &s->pictures.held_out;
	int64_t cut = s->pictures.tokens[k].cut, left_out = s->pictures.talks[k].left_out;

	if (cut)
		jm_work_note(s->work,
			"%lld of %lld captions of %.100s have more tokens than the network reads "
			"(%lld) and were cut.",
			(long long)cut, (long long)set->texts.first[set->n], set->path,
			(long long)s->pictures.tokens[k].length);
	if (left_out)
		jm_work_note(s->work,
			"%lld of %lld answers of %.100s do not fit into sequences of %lld tokens "
			"and were left out.",
			(long long)left_out, (long long)set->texts.first[set->n] / 2, set->path,
			(long long)s->pictures.talks[k].length);
}

static int make_tokens(struct train *s, const struct jm_feed_input *input,
	const struct jm_tensor *t, const struct jm_data_set *set, struct jm_err *err)
{
	struct jm_train_pictures *p = &s->pictures;
	bool talks = jm_data_set_field(set, input->row->field)->type == JM_DATA_TALK_IDS;
	int k = set == &p->held_out;
	struct jm_tokenizer *tokenizer;
	int code = jm_tokenizer_open(p->tokenizer, &tokenizer, err);

	if (code)
		return code;
	if (talks)
		code = jm_talk_rows_make(set, tokenizer, jm_tensor_count(t) / t->dim[0],
			jm_batch_feed_places(s->graph), input->below, &p->talks[k], err);
	else
		code = jm_token_rows_make(set, tokenizer, jm_tensor_count(t) / t->dim[0],
			input->row->pad, input->below, &p->tokens[k], err);
	jm_tokenizer_close(tokenizer);
	if (!code)
		note_cut(s, set);
	return code;
}

/* What of a sample goes into this input, which has a field of the set. */
static int choose_part(struct train *s, const struct jm_feed_input *input,
	struct jm_loader_way *way, struct jm_err *err)
{
	const struct jm_tensor *t = jm_graph_find(s->graph, input->row->name);
	struct jm_loader_part *part = &way->part[way->parts++];
	bool moves = !way->batches && !strcmp(s->pictures.augment, "on");

	part->type = jm_data_set_field(way->set, input->row->field)->type;
	part->bytes = t->bytes / (size_t)t->dim[0];
	part->value = t->type;
	part->tokens = &s->pictures.tokens[way->batches > 0];
	part->talks = &s->pictures.talks[way->batches > 0];
	if (part->type == JM_DATA_TALK_IDS && s->pictures.group && !way->batches) {
		way->sorted = part->talks;
		way->group = s->pictures.group;
	}
	if (part->type == JM_DATA_TEXT || part->type == JM_DATA_TALK_IDS)
		return make_tokens(s, input, t, way->set, err);
	if (part->type != JM_DATA_PICTURE)
		return 0;
	if (t->rank != 4 || t->dim[1] != 3 || t->dim[2] != t->dim[3])
		return jm_err_set(err, JM_EUSAGE,
			"Model %s does not read square pictures of three colours; omit --data.",
			s->training.model->name);
	way->crop = crop_of(way->set, (int)t->dim[2], moves);
	way->crop.type = t->type;
	way->crop.colours = input->row->colours;
	return 0;
}

static int choose_parts(struct train *s, const struct jm_batch_feed *feed,
	struct jm_loader_way *way, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < feed->n && !code; i++)
		if (feed->input[i].row->field)
			code = choose_part(s, &feed->input[i], way, err);
	return code;
}

static int open_loader(struct train *s, const struct jm_batch_feed *feed,
	const struct jm_data_set *set, struct jm_picture_loader **ret, struct jm_err *err)
{
	bool evaluates = feed == &s->eval.feed;
	struct jm_loader_way way = {.set = set,
		.seed = feed->seed,
		.batch = s->training.batch,
		.gpu = s->pictures.gpu,
		.threads = threads_of(s),
		.memory = jm_memory_free(s->work->ctx) / MEMORY_SHARE /
			  (size_t)jm_work_world(s->work),
		.world = evaluates ? 1 : jm_work_world(s->work),
		.strict = s->pictures.strict,
		.batches = evaluates ? s->eval.batches : 0};

	int code = choose_parts(s, feed, &way, err);

	return code ? code : jm_picture_loader_open(&way, ret, err);
}

static int start_evaluation(struct train *s, struct jm_err *err)
{
	struct jm_train_pictures *p = &s->pictures;
	int64_t n = p->held_out.n, batch = s->training.batch;
	int64_t batches =
		s->training.model->wants_top1 ? jm_loader_batches(&p->held_out, batch) : n / batch;
	int code;

	if (!batches)
		return jm_err_set(err, JM_EUSAGE,
			"Data set %s has %lld samples, fewer than a batch, and model %s is "
			"evaluated on whole batches; give --batch %lld or less, or more samples.",
			p->held_out.path, (long long)n, s->training.model->name, (long long)n);
	if (batches > INT32_MAX)
		return jm_err_set(err, JM_ERANGE,
			"Data set %s has too many pictures for evaluations.", p->held_out.path);
	s->eval.batches = (int)batches;
	code = open_loader(s, &s->eval.feed, &p->held_out, &p->eval_loader, err);
	s->eval.feed.pictures = p->eval_loader;
	return code;
}

static void say_data(struct train *s)
{
	const struct jm_data_set *set = &s->pictures.set;
	bool talks = jm_data_set_field(set, "ids");
	char what[60];

	snprintf(what, sizeof(what), "pictures with %s", talks ? "conversations" : "captions");
	if (set->classes)
		snprintf(what, sizeof(what), "pictures of %d classes", set->classes);
	if (set->axes)
		snprintf(what, sizeof(what), "samples of %lld fields", (long long)set->channels);
	snprintf(s->work->detail, sizeof(s->work->detail), "%lld %s from %.80s", (long long)set->n,
		what, set->path);
}

/* samples: of a step. The last step of an epoch may take samples of the next one; no step may be
 * longer than an epoch. */
static int check_epoch(const struct train *s, int64_t samples, struct jm_err *err)
{
	const struct jm_data_set *set = &s->pictures.set;

	if (!s->work->by_epochs || samples <= set->n)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"A step takes %lld samples, but an epoch of %s has %lld; give a smaller --batch, "
		"or --epoch-steps for epochs of so many steps.",
		(long long)samples, set->path, (long long)set->n);
}

int jm_train_pictures_start(struct train *s, struct jm_err *err)
{
	struct jm_train_pictures *p = &s->pictures;
	int64_t samples =
		s->training.batch * jm_program_micro_steps(s->program) * jm_work_world(s->work);
	int code = check_epoch(s, samples, err);

	if (!code && p->decode[0] == 'd')
		code = jm_nvjpeg_open(s->device.props.bus, &p->gpu, err);
	if (!code)
		code = open_loader(s, &s->feed, &p->set, &p->loader, err);
	if (code)
		return code;
	s->feed.pictures = p->loader;
	s->work->epoch_steps = (long)((p->set.n + samples - 1) / samples);
	say_data(s);
	if (p->each_epoch)
		s->eval.every = s->work->given_epoch_steps ? s->work->given_epoch_steps
							   : s->work->epoch_steps;
	if (p->eval_data && !s->work->rank)
		code = start_evaluation(s, err);
	return code;
}

static void note_corrupt(struct train *s, int64_t corrupt)
{
	if (corrupt)
		jm_work_note(s->work,
			"%lld %s%s of the data could not be read%s and %s skipped; 'joulemark "
			"data' names what is wrong.",
			(long long)corrupt, s->pictures.set.axes ? "sample" : "file",
			corrupt == 1 ? "" : "s",
			s->work->world > 1 ? " by rank 0, more perhaps by others," : "",
			corrupt == 1 ? "was" : "were");
}

/* Of both loaders. */
static struct jm_loader_cost cost_of(const struct jm_train_pictures *p)
{
	struct jm_loader_cost c = jm_picture_loader_cost(p->loader), e = {0};

	if (p->eval_loader)
		e = jm_picture_loader_cost(p->eval_loader);
	c.pictures += e.pictures;
	for (int k = 0; k < JM_PICTURE_BY_COUNT; k++)
		c.by[k] += e.by[k];
	c.engine_failed += e.engine_failed;
	c.bytes += e.bytes;
	c.corrupt += e.corrupt;
	c.decode_s += e.decode_s;
	c.decode_cpu_s += e.decode_cpu_s;
	c.wait_s += e.wait_s;
	return c;
}

/*
 * Samples per second that so many threads could load: no more than their processor time allows,
 * which they share with each other, and of grids, which one of them reads at a time, with none.
 */
static double rate_of(const struct train *s, const struct jm_loader_cost *c, int threads)
{
	int at_once = s->pictures.set.axes ? 1 : jm_gang_cores(s->work);
	double n = (double)c->pictures, by_cpu;

	if (!(c->decode_s > 0))
		return (double)NAN;
	by_cpu = c->decode_cpu_s > 0 ? at_once * n / c->decode_cpu_s : (double)INFINITY;
	return fmin(threads * n / c->decode_s, by_cpu);
}

void jm_train_pictures_keep(struct train *s)
{
	struct jm_train_pictures *p = &s->pictures;
	struct jm_loader_cost c;
	int threads = threads_of(s);
	json_t *data;

	if (!p->loader)
		return;
	c = cost_of(p);
	note_corrupt(s, c.corrupt);
	if (!s->work->more)
		return;
	data = json_object();
	jm_json_set_text(&data, "path", p->set.path);
	jm_json_set_text(&data, "format", p->set.format->name);
	jm_json_set_int(&data, "pictures", p->set.n);
	jm_json_set(&data, "classes", p->set.classes ? json_integer(p->set.classes) : json_null());
	jm_json_set_int(&data, "epoch_steps", s->work->epoch_steps);
	jm_json_set_int(&data, "decoded", c.pictures);
	jm_json_set(&data, "decoder", p->gpu ? json_string(jm_nvjpeg_name(p->gpu)) : json_null());
	jm_json_set_int(&data, "decoded_gpu", c.by[JM_PICTURE_BY_GPU]);
	jm_json_set_int(&data, "decoded_engine", c.by[JM_PICTURE_BY_ENGINE]);
	jm_json_set_int(&data, "engine_failed", c.engine_failed);
	jm_json_set_int(&data, "bytes", c.bytes);
	jm_json_set_int(&data, "corrupt", c.corrupt);
	jm_json_set_number(&data, "decode_s", c.decode_s);
	jm_json_set_number(&data, "decode_cpu_s", c.decode_cpu_s);
	jm_json_set_number(&data, "wait_s", c.wait_s);
	jm_json_set_int(&data, "threads", threads);
	jm_json_set_number(&data, "load_per_s", rate_of(s, &c, threads));
	jm_json_set_int(&data, "depth", c.depth);
	json_object_set_new(s->work->more, "data", data);
}

void jm_train_pictures_close(struct jm_train_pictures *p)
{
	jm_picture_loader_close(p->loader);
	jm_picture_loader_close(p->eval_loader);
	jm_nvjpeg_close(p->gpu);
	for (int k = 0; k < 2; k++) {
		jm_token_rows_done(&p->tokens[k]);
		jm_talk_rows_done(&p->talks[k]);
	}
	jm_data_set_close(&p->set);
	jm_data_set_close(&p->held_out);
}
