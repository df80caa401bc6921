/* SPDX-License-Identifier: Apache-2.0 */
/* Results to files: tried before a long run, whole or not at all afterwards. */
#ifndef JM_OUTPUT_H
#define JM_OUTPUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "joulemark.h"

/* Checks that the file can be written, and leaves no file. "-" is stdout. A store is never
 * overwritten. */
int jm_output_try(const char *path, struct jm_err *err);
/* Does it name our stdout or stderr: "-", or the file, pipe or terminal that one of them goes
 * to? */
bool jm_output_is_ours(const char *path);
/* Do both name one file, which need not be there? */
bool jm_output_same(const char *a, const char *b);
/* Is there room for these files, or folders, one after the other? An old one keeps its room until
 * the new one is complete. No error where that cannot be known. */
struct jm_output_write {
	const char *path;
	uint64_t bytes;
};
int jm_output_room(const struct jm_output_write *all, int n, struct jm_err *err);
/* Writes; false when it failed. */
typedef bool jm_output_fn(const void *what, FILE *f);
/* By that function; a regular file is replaced at once when all of it is on the disk. "-" is
 * stdout. */
int jm_output_by(const char *path, jm_output_fn *put, const void *what, struct jm_err *err);
/* The same of a regular file in two parts, for several that are to change together: when `fill`
 * returns 0, all of the new file is on the disk, and when `place` does, it has replaced the old
 * one. */
struct jm_output;
int jm_output_begin(const char *path, struct jm_output **ret, struct jm_err *err);
int jm_output_fill(struct jm_output *o, jm_output_fn *put, const void *what, struct jm_err *err);
int jm_output_place(struct jm_output *o, struct jm_err *err);
void jm_output_end(struct jm_output *o); /* discards what has no place; takes NULL */
/* The value, indented. */
int jm_output_json(const char *path, const json_t *value, struct jm_err *err);
/* To a new file beside `path`, PATH.1.json or the next number that is free; where its folder takes
 * none, in the current folder, in that of TMPDIR or in /tmp. ret_name: room for PATH_MAX bytes. */
int jm_output_json_beside(
	const char *path, const json_t *value, char *ret_name, struct jm_err *err);
/* The text, unchanged. */
int jm_output_text(const char *path, const char *text, struct jm_err *err);
/* Makes the folder and those above it. */
int jm_output_folder(const char *path, struct jm_err *err);
/* Of these the topmost that is not there yet: the length of its name in the path; 0 = all are. */
size_t jm_output_folder_new(const char *path);
/* Removes the folder and those above it up to this one, as far as they are empty. */
void jm_output_folder_drop(const char *path, size_t topmost);

#endif
