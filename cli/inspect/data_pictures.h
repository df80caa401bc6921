/* SPDX-License-Identifier: Apache-2.0 */
/* `joulemark data` of pictures. */
#ifndef JM_DATA_PICTURES_H
#define JM_DATA_PICTURES_H

#include "data_facts.h"
#include "data/sets/data_set.h"

/* Reads every picture of the data set, or of its part for evaluations, and prints what there is;
 * on_device: JPEG files are decoded by the first GPU as well, and pixels compared. The error is in
 * f->cli->err. */
int jm_cli_show_pictures(struct jm_data_facts *f, const char *path, bool held_out, bool on_device);
/* The sentence for --decode device with data that has no pictures. */
int jm_cli_refuse_decode(struct jm_data_facts *f, const char *path);
/* Does the file begin as a picture does? False if it cannot be read. */
bool jm_cli_is_picture(const char *path);

#endif
