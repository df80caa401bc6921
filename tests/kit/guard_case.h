/* SPDX-License-Identifier: Apache-2.0 */
/* A guard on four GPUs of the fake NVML: its state folder, and the limits in the fake driver. */
#ifndef GUARD_CASE_H
#define GUARD_CASE_H

#include "base/ctx.h"
#include "guard/guard.h"
#include "guard/guard_recover.h"
#include "guard/guard_wire.h"
#include "guard/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define GPUS 4

struct fixture {
	struct jm_ctx ctx;
	char folder[256], driver[300], log[4096];
	struct jm_err err;
	struct jm_applied out[GPUS];
	int n;
};

int guard_setup(void **state);
int guard_teardown(void **state);
/* The fake NVML's options from now on. */
void configure(const char *extra);
/* The limit that the driver holds, W. */
double limit(struct fixture *f, int gpu);
void limits_are(struct fixture *f, double a, double b, double c, double d);
/* How many journals there are, with those set aside. */
int journals(struct fixture *f);
struct jm_guard *start(struct fixture *f);
int set(struct fixture *f, struct jm_guard *g, const char *selector, double watts);
int set_value(
	struct fixture *f, struct jm_guard *g, const char *selector, struct jm_knob_value value);
/* Runs the tests, or as the guard when it was started as one. */
int guard_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n);

#define GUARD_TEST(name) cmocka_unit_test_setup_teardown(name, guard_setup, guard_teardown)

#endif
