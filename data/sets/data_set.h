/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a data set, whose samples have named fields with types: one file = one format. */
#ifndef JM_DATA_SET_H
#define JM_DATA_SET_H

#include "data/sets/picture.h"

#define JM_DATA_AXES 3

enum jm_part { JM_PART_TRAIN, JM_PART_HELD_OUT };

enum jm_data_type {
	JM_DATA_PICTURE, /* of any size: read by jm_data_set_read */
	JM_DATA_CLASS,	 /* i32: `label` */
	/* [channels, points of each axis]: read by jm_data_set_values */
	JM_DATA_INPUTS,
	JM_DATA_OUTPUTS,
	JM_DATA_TEXT, /* one or more texts in UTF-8: `texts` */
	/* i32, of questions and answers in turns: `texts`; see talk_rows.h */
	JM_DATA_TALK_IDS,
	JM_DATA_TALK_TARGETS,
	JM_DATA_TALK_PLACE, /* where the picture begins */
};

struct jm_data_field {
	const char *name; /* "image", "class", "caption" */
	enum jm_data_type type;
};

/* Texts of samples in memory. Text t is bytes start[t] to start[t + 1] - 1; sample i has texts
 * first[i] to first[i + 1] - 1, at least one. */
struct jm_sample_texts {
	char *bytes;
	int64_t *start, *first;
};

struct jm_data_set {
	const struct jm_data_format *format;
	char *path;
	int64_t n;		      /* samples, each with a picture or with values on a grid */
	int classes;		      /* at least 1; 0 = it has no field of that type */
	char **class_name;	      /* [classes]; NULL = they have none */
	int32_t *label;		      /* [n], 0 to classes - 1 */
	struct jm_sample_texts texts; /* NULLs: it has no field of that type */
	int width, height;	      /* of every picture; 0 = they differ */
	int axes;		      /* of the grid of values; 0 = it has pictures */
	int64_t channels, points[JM_DATA_AXES]; /* of inputs, and of outputs */
	bool single; /* what the path names has no parts, so it was opened as a whole */
	void *state; /* of the format */
};

struct jm_data_format {
	const char *name;		    /* "folder" */
	const struct jm_data_field *fields; /* terminated by name NULL; a type occurs once */
	/* Is this path, or the folder that it names, such a data set? Reads names only. */
	bool (*fits)(const char *path);
	/*
	 * Fills a zeroed set, but for path and format. A folder may hold both parts. After an error
	 * jm_data_set_close is called as well. JM_EFORMAT: damaged. JM_ENOENT: the part is absent.
	 */
	int (*open)(struct jm_data_set *set, enum jm_part part, struct jm_err *err);
	/* Picture i. Called by several threads at once, each with a decoder of its own. *ret_bytes:
	 * read from its file. JM_EFORMAT, JM_ENOENT: this picture is damaged or absent, and others
	 * may be read. */
	int (*read)(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
		struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err);
	/* to[PATH_MAX]: the path of the file that has picture i. Returns its name below the folder
	 * of the set. NULL = pictures have no files of their own. */
	const char *(*file)(const struct jm_data_set *set, int64_t i, char *to);
	/* In place of `read`, which is NULL: the inputs or outputs of sample i. Also called by
	 * several threads. */
	int (*values)(const struct jm_data_set *set, int64_t i, enum jm_data_type which, float *to,
		struct jm_err *err);
	void (*close)(struct jm_data_set *set); /* frees `state`, which may be NULL */
};

extern const struct jm_data_format *const jm_data_formats[]; /* NULL-terminated, generated */

/*
 * Opens the data set at a path: its training part, or what is held out from it. JM_ENOENT: there is
 * nothing; JM_EFORMAT: it is no data set, or a damaged one. ret: to be closed by jm_data_set_close.
 */
int jm_data_set_open(
	const char *path, enum jm_part part, struct jm_data_set *ret, struct jm_err *err);
/* True if jm_data_set_open would try to open the path. */
bool jm_data_set_is(const char *path);
/* Picture i, or the part of it that the decoder chooses; its pixels are the decoder's until the
 * next one. */
int jm_data_set_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err);
/* The inputs or outputs of sample i of a set with a grid: to[channels, points of each axis]. */
int jm_data_set_values(const struct jm_data_set *set, int64_t i, enum jm_data_type which, float *to,
	struct jm_err *err);
/* Points of the grid. */
int64_t jm_data_set_points(const struct jm_data_set *set);
void jm_data_set_close(struct jm_data_set *set); /* a zeroed one is allowed */

/* JM_EUSAGE: the classes of two sets are not the same, by number and name, or cannot be compared:
 * two formats, one without names. */
int jm_data_set_same_classes(
	const struct jm_data_set *a, const struct jm_data_set *b, struct jm_err *err);

/* Of the samples' number, classes and texts, the names of their files, and the sizes of up to
 * JM_DIGEST_SIZES of these, evenly chosen, as each costs a question to the file system: the same
 * for equal data sets. What pictures show is not read. */
#define JM_DIGEST_SIZES 1000
uint64_t jm_data_set_digest(const struct jm_data_set *set);

/* The field of this name; NULL = it has none. */
const struct jm_data_field *jm_data_set_field(const struct jm_data_set *set, const char *name);

/* For formats of pictures with classes: "image" and "class". */
extern const struct jm_data_field jm_class_fields[];
/* For formats: opens a regular file, never waiting for the writer of a pipe. JM_EIO, JM_ENOENT;
 * JM_EFORMAT: it is none, or larger than `most` bytes. */
int jm_data_file_open(
	const char *path, size_t most, int *ret_fd, size_t *ret_size, struct jm_err *err);
/* For formats: the bytes of such a file, to be freed. */
int jm_data_file_read(
	const char *path, size_t most, unsigned char **ret, size_t *ret_size, struct jm_err *err);
/* For formats: the same into memory that is kept. */
int jm_data_file_read_to(const char *path, size_t most, struct jm_picture_room *room,
	size_t *ret_size, struct jm_err *err);
/* For formats: room for n labels. */
int jm_data_set_labels(struct jm_data_set *set, int64_t n, struct jm_err *err);

#endif
