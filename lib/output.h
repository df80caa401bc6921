/* SPDX-License-Identifier: Apache-2.0 */
/* Results to files: tried before a long run, whole or not at all afterwards. */
#ifndef JM_OUTPUT_H
#define JM_OUTPUT_H

#include <jansson.h>

#include "joulemark.h"

/* Could this file be written? "-" is stdout. Leaves nothing behind. A store is never written over. */
int jm_output_try(const char *path, struct jm_err *err);
/* Writes the value, indented; a regular file is replaced at once when all of it is on the disk. */
int jm_output_json(const char *path, const json_t *value, struct jm_err *err);
/* The same with text as it is. */
int jm_output_text(const char *path, const char *text, struct jm_err *err);
/* Makes the folder and those above it. */
int jm_output_folder(const char *path, struct jm_err *err);

#endif
