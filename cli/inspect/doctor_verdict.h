/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of `doctor`: what kind of figures this machine gives, and what to do next. */
#ifndef JM_DOCTOR_VERDICT_H
#define JM_DOCTOR_VERDICT_H

#include "cli/frame/cli.h"

/* Is the name one of those in "a, b, c"? */
bool jm_doctor_names(const char *names, const char *name);
/* broken: a sensor that is here cannot be used, and the remedy is printed above. stuck: members
 * that are not asked, because their driver did not return. */
void jm_doctor_verdict(struct jm_cli *cli, bool broken, const char *stuck);

#endif
