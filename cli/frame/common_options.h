/* SPDX-License-Identifier: Apache-2.0 */
/* Options of every command; a command's own option of the same name takes precedence. */
#ifndef JM_COMMON_OPTIONS_H
#define JM_COMMON_OPTIONS_H

#include "base/option.h"

/* Options of every command; a command's own option of the same name takes precedence. */
extern const struct jm_option jm_common_options[];

#endif
