/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the profile of a program, and measures the memory bandwidth if the device's is unknown. */
#ifndef JM_PROFILE_START_H
#define JM_PROFILE_START_H

#include "profile.h"

/* Starts timing; all later runs are timed. */
int jm_profile_start(struct jm_program *p, struct jm_err *err);

#endif
