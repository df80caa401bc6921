/* SPDX-License-Identifier: Apache-2.0 */
/* The text of repeated runs: mean and spread of each command, and each command by the first. */
#ifndef JM_REPEAT_SHOW_H
#define JM_REPEAT_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* record: with `repeats`; prints nothing without. width: columns. */
void jm_repeat_show(FILE *out, int width, const json_t *record);
/* "3 commands, 10 blocks in random order (seed 1)"; false: there is one command. */
bool jm_repeat_title(const json_t *record, char *out, size_t size);

#endif
