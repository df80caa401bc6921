/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_CIFAR_H
#define JM_CIFAR_H

#include "data/sets/data_set.h"

/* Fills the set from records of 10 or 100 classes and takes over `bytes`, from malloc. Trusts
 * nothing. JM_EFORMAT. */
int jm_cifar_parse(struct jm_data_set *set, unsigned char *bytes, size_t size, int classes,
	struct jm_err *err);

#endif
