/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan file: runs, each of which is a command line of `run`, key by key. A key is an option of
 * `run`, or of the work; its value is text, which the row of the option parses. Other keys of a
 * plan are in jm_plan_words.
 *
 *	jm_plan_file_load(path, &options, &file, &err);
 *	for each file->run[i]:			in an order in which each follows those named in its
 *						`after`
 *		for (ok = jm_plan_first(run, &point); ok; ok = jm_plan_next(run, &point))
 *			for each run->key[k]: jm_plan_texts(run, &point, key, texts, &err)
 *
 * A point fixes the axes that depend on one another; the other axes stay lists, "4,8,16", which the
 * options of `run` take themselves.
 */
#ifndef JM_PLAN_FILE_H
#define JM_PLAN_FILE_H

#include "plan_runs.h"

int jm_plan_file_load(const char *path, const struct jm_plan_file_options *o,
	struct jm_plan_file *ret, struct jm_err *err);
void jm_plan_file_done(struct jm_plan_file *file);

#endif
