/* SPDX-License-Identifier: Apache-2.0 */
#include "data/safetensors_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files/output.h"

#define SINGLE	    "model.safetensors"
#define SHARDS_MOST 512 /* as many as readers open */

/* A folder that is being written; shards are consecutive tensors. */
struct folder {
	const char *path;
	const struct jm_safetensor *tensor;
	int n;
	int *end; /* [n]: of each shard */
	int shards;
	int first;		 /* of the shard that is written now */
	struct jm_output **file; /* [shards]: written, without a place */
	uint64_t bytes;
	jm_safetensors_fn *give;
	void *arg;
};

static uint64_t bytes_of(const struct jm_safetensor *t)
{
	return (uint64_t)jm_safetensor_count(t) * jm_safetensor_type_bytes(t->type);
}

/* As many tensors as fit into each shard, at least one. */
static void divide(struct folder *f, uint64_t shard_bytes)
{
	uint64_t now = 0;

	f->shards = 0;
	f->bytes = 0;
	for (int i = 0; i < f->n; i++) {
		uint64_t more = bytes_of(&f->tensor[i]);

		if (!f->shards || (now && now + more > shard_bytes)) {
			f->shards++;
			now = 0;
		}
		now += more;
		f->bytes += more;
		f->end[f->shards - 1] = i + 1;
	}
}

/* Half of the files that the process may have open. */
static int most_shards(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 2 > SHARDS_MOST)
		return SHARDS_MOST;
	return files.rlim_cur > 4 ? (int)(files.rlim_cur / 2) : 2;
}

/* Shards become larger where there would be more than can be open at once. */
static int plan(struct folder *f, uint64_t shard_bytes, struct jm_err *err)
{
	int most = most_shards();

	f->end = calloc((size_t)f->n + 1, sizeof(*f->end));
	f->file = calloc(SHARDS_MOST, sizeof(struct jm_output *));
	if (!f->end || !f->file)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the shards of %s.", f->path);
	for (divide(f, shard_bytes); f->shards > most; divide(f, shard_bytes))
		shard_bytes *= 2;
	return 0;
}

/* Of a shard as transformers names it; "model.safetensors" if there is one only. */
static void name_shard(const struct folder *f, int shard, char ret[64])
{
	if (f->shards < 2)
		snprintf(ret, 64, SINGLE);
	else
		snprintf(ret, 64, "model-%05d-of-%05d.safetensors", shard + 1, f->shards);
}

static int path_of(const struct folder *f, const char *name, char ret[PATH_MAX], struct jm_err *err)
{
	size_t n = strlen(f->path);
	const char *slash = n && f->path[n - 1] == '/' ? "" : "/";

	if (snprintf(ret, PATH_MAX, "%s%s%s", f->path, slash, name) < PATH_MAX)
		return 0;
	return jm_err_set(err, JM_EUSAGE, "The name %.60s... is too long.", f->path);
}

static int give_of_shard(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	struct folder *f = arg;

	return f->give(f->arg, f->first + i, sink, err);
}

static int write_shards(struct folder *f, const json_t *notes, struct jm_err *err)
{
	char name[64], path[PATH_MAX];
	int code = 0;

	for (int k = 0; k < f->shards && !code; k++) {
		f->first = k ? f->end[k - 1] : 0;
		name_shard(f, k, name);
		code = path_of(f, name, path, err);
		if (!code)
			code = jm_safetensors_prepare(path, f->tensor + f->first,
				f->end[k] - f->first, notes, give_of_shard, f, &f->file[k], err);
	}
	return code;
}

static int place_shards(const struct folder *f, struct jm_err *err)
{
	int code = 0;

	for (int k = 0; k < f->shards && !code; k++)
		code = jm_output_place(f->file[k], err);
	return code;
}

static int write_index(const struct folder *f, const char *path, struct jm_err *err)
{
	json_t *map = json_object();
	json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)f->bytes,
		"weight_map", map);
	char name[64];
	int code;

	for (int i = 0, k = 0; i < f->n; i++) {
		k += i == f->end[k];
		name_shard(f, k, name);
		json_object_set_new(map, f->tensor[i].name, json_string(name));
	}
	code = index ? jm_output_json(path, index, err)
		     : jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", path);
	json_decref(index);
	return code;
}

static int drop(const char *path, struct jm_err *err)
{
	if (!unlink(path) || errno == ENOENT)
		return 0;
	return jm_err_set(
		err, JM_EPERM, "The old %s cannot be removed: %s.", path, strerror(errno));
}

/*
 * All shards are on the disk before the first of them replaces an older one. An index of older
 * shards is removed before that, but after a file that needs none. An older single file, which
 * readers prefer to an index, is removed when all shards and their index are there.
 */
static int write_all(struct folder *f, const json_t *notes, struct jm_err *err)
{
	char index[PATH_MAX], single[PATH_MAX];
	int code = path_of(f, "model.safetensors.index.json", index, err);

	if (!code)
		code = path_of(f, SINGLE, single, err);
	if (!code)
		code = write_shards(f, notes, err);
	if (!code && f->shards > 1)
		code = drop(index, err);
	if (!code)
		code = place_shards(f, err);
	if (!code && f->shards > 1)
		code = write_index(f, index, err);
	return code ? code : drop(f->shards > 1 ? single : index, err);
}

int jm_safetensors_write_folder(const char *path, const struct jm_safetensor *tensor, int n,
	uint64_t shard_bytes, const json_t *notes, jm_safetensors_fn *give, void *arg,
	struct jm_err *err)
{
	struct folder f = {.path = path, .tensor = tensor, .n = n, .give = give, .arg = arg};
	int code = plan(&f, shard_bytes, err);

	if (!code)
		code = write_all(&f, notes, err);
	for (int k = 0; f.file && k < SHARDS_MOST; k++)
		jm_output_end(f.file[k]);
	free(f.file);
	free(f.end);
	return code;
}
