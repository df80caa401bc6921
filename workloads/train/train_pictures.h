/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures that a training learns from and is evaluated on. */
#ifndef JM_TRAIN_PICTURES_H
#define JM_TRAIN_PICTURES_H

#include "train_state.h"

/*
 * Opens --data and --eval-data; does nothing without them. JM_EUSAGE: the model learns from no
 * pictures, the sets have not the same classes, or nothing is held out.
 */
int jm_train_pictures_open(struct train *s, struct jm_err *err);
/* The dimensions of the model, as jm_weights_dims; classes, fields and points are those of the
 * data. JM_EUSAGE: an option has another number, or there is one class. */
int jm_train_pictures_dims(struct train *s, const struct jm_preset *preset, struct jm_err *err);
/* Starts the loaders for the planned program, and sets when and on what evaluations are. */
int jm_train_pictures_start(struct train *s, struct jm_err *err);
/* Puts what loading cost into the record. */
void jm_train_pictures_keep(struct train *s);
void jm_train_pictures_close(struct jm_train_pictures *p);

#endif
