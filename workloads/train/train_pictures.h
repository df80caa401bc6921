/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures that a training learns from and is evaluated on. */
#ifndef JM_TRAIN_PICTURES_H
#define JM_TRAIN_PICTURES_H

#include "train_state.h"

/*
 * Opens --data and --eval-data, and sets the number of classes to theirs; does nothing without
 * them. JM_EUSAGE: the model learns from no pictures, --classes is another number, the sets have
 * not the same classes, or nothing is held out.
 */
int jm_train_pictures_open(struct train *s, struct jm_err *err);
/* Starts the loaders for the planned program, and sets when and on what evaluations are. */
int jm_train_pictures_start(struct train *s, struct jm_err *err);
/* Puts what loading cost into the record. */
void jm_train_pictures_keep(struct train *s);
void jm_train_pictures_close(struct jm_train_pictures *p);

#endif
