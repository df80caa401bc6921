/* SPDX-License-Identifier: Apache-2.0 */
#include "data/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MOST ((uint64_t)100000000) /* bytes, as the package safetensors */
#define INDEX_MOST  ((uint64_t)100000000)
#define SHARDS_MOST 512 /* open at once */
#define SINGLE	    ".safetensors"
#define INDEX	    ".safetensors.index.json"

/* What transformers and diffusers call the weights in a folder. Of a single file and an index the
 * former reads the file, the latter the shards of the index. */
static const char *const weights[] = {"model" SINGLE, "model" INDEX,
	"diffusion_pytorch_model" INDEX, "diffusion_pytorch_model" SINGLE};
/* The folders of a pipeline of diffusers that hold weights of a training. */
static const char *const parts[] = {"unet", "vae", "text_encoder"};

/* ---- files ----------------------------------------------------------------------------------- */

static int open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct jm_err *err)
{
	/* O_NONBLOCK: opening a pipe would wait for its writer */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"%s cannot be opened: %s; check the path.", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return jm_err_set(
			err, JM_EFORMAT, "%s is no regular file; name a .safetensors file.", path);
	}
	*ret_fd = fd;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

/* Files are read, not mapped: access beyond the end of one that became shorter would kill the
 * process. */
static int read_at(const char *path, int fd, uint64_t at, void *to, size_t n, struct jm_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t now = pread(fd, (char *)to + done, n - done, (off_t)(at + done));

		if (now < 0 && errno == EINTR)
			continue;
		if (now < 0)
			return jm_err_set(
				err, JM_EIO, "%s cannot be read: %s.", path, strerror(errno));
		if (!now)
			return jm_err_set(err, JM_EFORMAT,
				"%s became shorter while it was read; start again when nothing "
				"writes to it.",
				path);
		done += (size_t)now;
	}
	return 0;
}

static int read_text(
	const char *path, int fd, uint64_t at, size_t n, char **ret, struct jm_err *err)
{
	char *text = malloc(n + 1);
	int code = text ? read_at(path, fd, at, text, n, err)
			: jm_err_set(err, JM_ENOMEM, "Out of memory for the header of %s.", path);

	if (code)
		free(text);
	else
		*ret = text;
	return code;
}

/* The length of the JSON at the start. */
static int read_length(const char *path, int fd, uint64_t bytes, uint64_t *ret, struct jm_err *err)
{
	uint64_t length = 0;
	int code = bytes < 8 ? 0 : read_at(path, fd, 0, &length, 8, err);

	if (code)
		return code;
	if (!memcmp(&length, "version ", 8))
		return jm_err_set(err, JM_EFORMAT,
			"%s is a pointer of git-lfs in place of the file; fetch that with 'git lfs "
			"pull'.",
			path);
	length = le64toh(length);
	if (bytes < 8 + 2 || length < 2 || length > HEADER_MOST)
		return jm_err_set(err, JM_EFORMAT,
			"%s is no safetensors file: it does not begin with the length of a header "
			"of at most 100 MB; name a .safetensors file.",
			path);
	if (length > bytes - 8)
		return jm_err_set(err, JM_EFORMAT,
			"%s is damaged: the file ends within its header; copy it again.", path);
	*ret = length;
	return 0;
}

static int read_header(const char *path, int fd, uint64_t bytes, struct jm_safetensors *s,
	json_t **ret, struct jm_err *err)
{
	uint64_t length = 0;
	char *json = NULL;
	int code = read_length(path, fd, bytes, &length, err);

	if (!code)
		code = read_text(path, fd, 8, length, &json, err);
	if (!code)
		code = jm_safetensors_header(path, json, length, bytes, s, ret, err);
	free(json);
	return code;
}

/* Adds the file and its tensors. */
static int add_file(const char *path, struct jm_safetensors *s, struct jm_err *err)
{
	struct jm_safetensors_file f = {.fd = -1}, *more;
	int code = open_file(path, &f.fd, &f.bytes, err);

	if (code)
		return code;
	code = read_header(path, f.fd, f.bytes, s, &f.header, err);
	f.path = strdup(path);
	more = realloc(s->file, ((size_t)s->n_files + 1) * sizeof(*more));
	if (more)
		s->file = more;
	if (!code && (!more || !f.path))
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for weights %s.", path);
	if (code) {
		close(f.fd);
		free(f.path);
		json_decref(f.header);
		return code;
	}
	s->file[s->n_files++] = f;
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(
		((const struct jm_safetensor *)a)->name, ((const struct jm_safetensor *)b)->name);
}

static int sort_names(struct jm_safetensors *s, struct jm_err *err)
{
	if (s->n)
		qsort(s->tensor, (size_t)s->n, sizeof(*s->tensor), by_name);
	for (int i = 1; i < s->n; i++)
		if (!by_name(&s->tensor[i - 1], &s->tensor[i]))
			return jm_err_set(err, JM_EFORMAT,
				"%s is damaged: tensor '%.100s' is in two shards, %s and "
				"%s.",
				s->path, s->tensor[i].name, s->file[s->tensor[i - 1].file].path,
				s->file[s->tensor[i].file].path);
	return 0;
}

const struct jm_safetensor *jm_safetensors_find(const struct jm_safetensors *s, const char *name)
{
	const struct jm_safetensor key = {.name = name};

	return s->n ? bsearch(&key, s->tensor, (size_t)s->n, sizeof(key), by_name) : NULL;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int wrong_index(const char *index, const char *name, struct jm_err *err, const char *what)
{
	return jm_err_set(err, JM_EFORMAT,
		"Index %s is damaged: tensor '%.100s' %s; copy the folder again.", index, name,
		what);
}

/* The number of the shard, which is opened when it is not open yet. */
static int shard_of(const char *index, const char *name, const json_t *value,
	struct jm_safetensors *s, int *ret, struct jm_err *err)
{
	const char *file = json_string_value(value), *slash = strrchr(index, '/');
	char path[PATH_MAX];

	if (!file || !*file || strchr(file, '/'))
		return wrong_index(index, name, err, "has no name of a file in the same folder");
	if (snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - index) + 1 : 0, index,
		    file) >= PATH_MAX)
		return wrong_index(index, name, err, "has a file whose name is too long");
	for (*ret = 0; *ret < s->n_files; ++*ret)
		if (!strcmp(s->file[*ret].path, path))
			return 0;
	if (access(path, F_OK) && errno == ENOENT)
		return jm_err_set(err, JM_ENOENT,
			"Shard %s with tensor '%.100s' is missing, though the index names it; copy "
			"it, too.",
			path, name);
	if (s->n_files == SHARDS_MOST)
		return wrong_index(index, name, err, "is in one more than 512 shards");
	return add_file(path, s, err);
}

/* A tensor of a shard that the index does not name is no part of the weights, but it would be an
 * unlikely one. */
static int check_index(
	const char *index, const json_t *map, const struct jm_safetensors *s, struct jm_err *err)
{
	const char *name;
	json_t *value;

	if (!s->file)
		return 0;
	json_object_foreach((json_t *)map, name, value)
	{
		const struct jm_safetensor *t = jm_safetensors_find(s, name);
		const char *file = json_string_value(value);
		const char *path = t ? s->file[t->file].path : "", *slash = strrchr(path, '/');

		if (!t || !file || strcmp(slash ? slash + 1 : path, file) != 0)
			return wrong_index(index, name, err, "is not in the shard that it names");
	}
	for (int i = 0; i < s->n; i++)
		if (!json_object_get(map, s->tensor[i].name))
			return jm_err_set(err, JM_EFORMAT,
				"Index %s is damaged: tensor '%.100s' of shard %s is missing in "
				"it; copy the folder again.",
				index, s->tensor[i].name, s->file[s->tensor[i].file].path);
	return 0;
}

static int open_shards(
	const char *index, const json_t *map, struct jm_safetensors *s, struct jm_err *err)
{
	const char *name;
	json_t *value;
	int code = 0, shard;

	if (!json_object_size(map))
		return jm_err_set(err, JM_EFORMAT,
			"Index %s is damaged: it has no 'weight_map' with tensors; copy it again.",
			index);
	json_object_foreach((json_t *)map, name, value)
	{
		code = shard_of(index, name, value, s, &shard, err);
		if (code)
			return code;
	}
	code = sort_names(s, err);
	return code ? code : check_index(index, map, s, err);
}

static int read_index(const char *index, json_t **ret, struct jm_err *err)
{
	json_error_t why;
	uint64_t bytes;
	char *text = NULL;
	int fd, code = open_file(index, &fd, &bytes, err);

	if (code)
		return code;
	if (bytes > INDEX_MOST)
		code = jm_err_set(err, JM_EFORMAT,
			"Index %s is larger than 100 MB, which no index is; copy it again.", index);
	if (!code)
		code = read_text(index, fd, 0, bytes, &text, err);
	close(fd);
	*ret = code ? NULL : json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
	free(text);
	if (!code && !*ret)
		code = jm_err_set(err, JM_EFORMAT, "Index %s is no JSON (%.100s); copy it again.",
			index, why.text);
	return code;
}

static int open_index(const char *index, struct jm_safetensors *s, struct jm_err *err)
{
	json_t *json;
	int code = read_index(index, &json, err);

	if (code)
		return code;
	code = open_shards(index, json_object_get(json, "weight_map"), s, err);
	json_decref(json);
	return code;
}

static bool is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool ends_in(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n >= m && !strcmp(path + n - m, end);
}

static int open_single(const char *path, struct jm_safetensors *s, struct jm_err *err)
{
	int code = add_file(path, s, err);

	return code ? code : sort_names(s, err);
}

/* The folder of one network; JM_ENOENT: it has no weights. */
static int open_folder(const char *path, struct jm_safetensors *s, struct jm_err *err)
{
	char file[PATH_MAX];

	for (size_t i = 0; i < sizeof(weights) / sizeof(*weights); i++) {
		snprintf(file, sizeof(file), "%s/%s", path, weights[i]);
		if (!access(file, F_OK))
			return ends_in(file, INDEX) ? open_index(file, s, err)
						    : open_single(file, s, err);
	}
	return jm_err_set(err, JM_ENOENT,
		"Folder %s has no weights: neither model.safetensors nor "
		"model.safetensors.index.json; name a .safetensors file.",
		path);
}

/* Puts "PART/" in front of the names. */
static int name_part(struct jm_safetensors *p, const char *part, struct jm_err *err)
{
	size_t size = 1, at = 0;
	char *room;

	for (int i = 0; i < p->n; i++)
		size += strlen(part) + strlen(p->tensor[i].name) + 2;
	room = malloc(size);
	if (!room)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the names of weights.");
	for (int i = 0; i < p->n; i++) {
		int n = snprintf(room + at, size - at, "%s/%s", part, p->tensor[i].name);

		p->tensor[i].name = room + at;
		at += (size_t)n + 1;
	}
	p->file[0].names = room;
	return 0;
}

/* Moves the files and tensors of p to s. */
static int move(struct jm_safetensors *p, struct jm_safetensors *s, struct jm_err *err)
{
	struct jm_safetensors_file *file =
		realloc(s->file, (size_t)(s->n_files + p->n_files) * sizeof(*file));
	struct jm_safetensor *tensor =
		realloc(s->tensor, ((size_t)s->n + (size_t)p->n + 1) * sizeof(*tensor));

	s->file = file ? file : s->file;
	s->tensor = tensor ? tensor : s->tensor;
	if (!file || !tensor)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for weights %s.", s->path);
	for (int i = 0; i < p->n; i++) {
		s->tensor[s->n] = p->tensor[i];
		s->tensor[s->n++].file += s->n_files;
	}
	memcpy(s->file + s->n_files, p->file, (size_t)p->n_files * sizeof(*p->file));
	s->n_files += p->n_files;
	p->n_files = 0;
	return 0;
}

static int open_part(
	const char *path, const char *part, struct jm_safetensors *s, struct jm_err *err)
{
	struct jm_safetensors p = {.path = strdup(path)};
	int code = p.path ? open_folder(path, &p, err)
			  : jm_err_set(err, JM_ENOMEM, "Out of memory for weights %s.", path);

	if (!code)
		code = name_part(&p, part, err);
	if (!code)
		code = move(&p, s, err);
	jm_safetensors_close(&p);
	return code;
}

static int open_parts(const char *path, struct jm_safetensors *s, struct jm_err *err)
{
	char folder[PATH_MAX];
	int code = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && !code; i++) {
		snprintf(folder, sizeof(folder), "%s/%s", path, parts[i]);
		if (is_folder(folder))
			code = open_part(folder, parts[i], s, err);
	}
	return code ? code : sort_names(s, err);
}

static bool has_parts(const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/%s", path, parts[0]);
	return is_folder(folder);
}

static int open_any(const char *path, struct jm_safetensors *s, struct jm_err *err)
{
	if (strlen(path) + sizeof("/text_encoder/diffusion_pytorch_model" INDEX) > PATH_MAX)
		return jm_err_set(err, JM_EUSAGE, "The name %.60s... is too long.", path);
	if (ends_in(path, ".index.json"))
		return open_index(path, s, err);
	if (!is_folder(path))
		return open_single(path, s, err);
	return has_parts(path) ? open_parts(path, s, err) : open_folder(path, s, err);
}

int jm_safetensors_open(const char *path, struct jm_safetensors *ret, struct jm_err *err)
{
	struct jm_safetensors s = {.path = strdup(path)};
	int code = s.path ? open_any(path, &s, err)
			  : jm_err_set(err, JM_ENOMEM, "Out of memory for weights %s.", path);

	if (code)
		jm_safetensors_close(&s);
	else
		*ret = s;
	return code;
}

void jm_safetensors_close(struct jm_safetensors *s)
{
	for (int i = 0; i < s->n_files; i++) {
		close(s->file[i].fd);
		free(s->file[i].path);
		json_decref(s->file[i].header);
		free(s->file[i].names);
	}
	free(s->file);
	free(s->tensor);
	free(s->path);
	*s = (struct jm_safetensors){0};
}

int jm_safetensors_read(const struct jm_safetensors *s, const struct jm_safetensor *t,
	uint64_t from, void *to, size_t n, struct jm_err *err)
{
	const struct jm_safetensors_file *f = &s->file[t->file];

	return read_at(f->path, f->fd, t->at + from, to, n, err);
}
