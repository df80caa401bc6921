/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of pictures with two parts: train, and val or test. */
#ifndef JM_PART_FOLDER_H
#define JM_PART_FOLDER_H

#include "data/sets/data_set.h"

bool jm_is_folder(const char *path);
/* Is DIR/NAME one? path: PATH_MAX bytes, becomes DIR/NAME. */
bool jm_is_folder_in(const char *dir, const char *name, char *path);
/* The folder of a part: `path`, of PATH_MAX bytes, or `dir` itself, which has no parts. */
const char *jm_part_folder(const char *dir, enum jm_part part, char *path);

#endif
